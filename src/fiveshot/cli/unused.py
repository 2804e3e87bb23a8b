"""Options that would change nothing are refused: who types one expects something of it."""

from __future__ import annotations

import typer

from fiveshot.errors import InputError

LOCAL = "is for a single machine; leave it out with --engine ray"
CLUSTER = "belongs to a cluster; add --engine ray, or leave it out"
WITHOUT_BASE = "is for the photos of a base; add --base DIR, or leave it out"


def refuse_unused(ctx: typer.Context, why: str, *options: str) -> None:
    """Refuse the first of these options that was typed; ``why`` goes on after its name, and says the way out.

    Options are named as the command's arguments are, and one that a default or the environment gives is no
    one's wish.
    """
    known = {parameter.name: parameter for parameter in ctx.command.params}
    for name in options:
        parameter = known[name]
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(f"{'/'.join([*parameter.opts, *parameter.secondary_opts])} {why}")
