"""``fiveshot backbones``: what there is, and what each costs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.answer import AsJson, answering

if TYPE_CHECKING:
    from fiveshot.backbones import BackboneInfo


def backbones(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Any timm names; a short list unless given.", autocompletion=completion.backbones),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List backbones with their size, cost and whether their weights are on this machine.

    Example: fiveshot backbones vit_base_patch16_224.augreg_in21k_ft_in1k
    """
    from fiveshot.backbones import list_backbones

    with answering("backbones", as_json=as_json) as answer:
        found = list_backbones(names) if names else list_backbones()
        answer.result = {"backbones": [asdict(info) for info in found]}
        if not as_json:
            _print(found)


def _print(found: list[BackboneInfo]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("backbone", box=None, pad_edge=False)
    for heading in ("parameters", "GMACs/image", "vector", "input"):
        table.add_column(heading, justify="right")
    table.add_column("weights")
    table.add_column("")
    for info in found:
        table.add_row(
            info.name,
            f"{info.parameters / 1e6:.1f} M",
            f"{info.gmacs:.1f}",
            f"{info.width:,}",
            f"{info.input_size} px",
            "here" if info.local else "to download",
            info.note,
        )
    console = Console()
    # A pipe has no width of its own, and a table cut off at 80 columns helps nobody.
    Console(width=None if console.is_terminal else 200).print(table)
