"""The ``fiveshot`` command: where each sub-command is, and how a run ends.

A sub-command is imported when it is called or shown, so that none waits for the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer import Context, Option
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fiveshot import __version__
from fiveshot.cli.completion import model_heads, recipes
from fiveshot.cli.options import at_home, with_home
from fiveshot.cli.output import Stopped, echo, echo_error, prepare_streams, printable, system_errors_told
from fiveshot.errors import FiveshotError
from fiveshot.work import safe_children

MODELS, STUDIES = "Models", "Features and benchmarks"  # headings of the list of commands

# The module of each command, in the order in which they are listed.
PLACES = {
    MODELS: {
        "new": "models",
        "learn": "classes",
        "predict": "photos",
        "show": "models",
        "review": "second_look",
        "sort": "second_look",
        "correct": "classes",
        "remove": "classes",
        "move": "classes",
        "set": "models",
        "forget": "classes",
        "rename": "classes",
        "group": "classes",
        "undo": "classes",
        "history": "classes",
        "put-back": "photos",
        "evaluate": "photos",
        "merge": "shipping",
        "export": "shipping",
        "import": "shipping",
        "check": "models",
        "retune": "models",
        "serve": "serve",
        "watch": "serve",
        "label-studio": "serve",
    },
    STUDIES: {
        "backbones": "data",
        "bench": "bench",
        "compare": "bench",
        "extract": "data",
        "paper": "bench",
        "report": "bench",
        "tune": "tune",
        "data": "data",
    },
}
COMMANDS = {name: (module, panel) for panel, places in PLACES.items() for name, module in places.items()}
# Where a Python function cannot be called as the command is.
FUNCTIONS = {"import": "import_model", "label-studio": "label_studio", "put-back": "put_back", "set": "set_option"}

# What people type who know other programs.
MEANT = {
    "learn": ("add", "teach", "train"),
    "predict": ("ask", "classify", "recognise", "recognize"),
    "forget": ("delete", "rm", "unlearn"),
    "show": ("info", "list", "ls"),
    "new": ("create", "init"),
    "rename": ("mv",),
    "history": ("log",),
    "evaluate": ("test",),
    "bench": ("benchmark",),
}
OTHER_WORDS = {word: name for name, words in MEANT.items() for word in words}

# What wrong options raise. Releases of Typer differ in where its class lives, not in its name.
USAGE_ERROR: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)

INTERRUPTED = 130  # the exit status of a program that was stopped by Ctrl-C
SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


# Options whose help ends with names that are looked up when it is shown: finding heads takes a moment.
NAMES: dict[tuple[str, str], Callable[[], list[str]]] = {
    ("bench", "methods"): recipes,
    ("new", "head"): model_heads,
}


class Command(TyperCommand):
    """One command."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with the names that an option takes."""
        for parameter in self.params:
            names = NAMES.get((str(self.name), str(parameter.name)))
            if names is not None:
                parameter.help = f"{parameter.help} One of {', '.join(names())}."  # type: ignore[attr-defined]
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    """The list of commands, each imported and built when it is asked for; all take the group's ``--plugin``.

    A word that is not a command is answered with the nearest.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name."""
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            self.commands[cmd_name] = self._built(cmd_name)
        return self.commands.get(cmd_name)

    def _built(self, name: str) -> Any:
        module, panel = COMMANDS[name]
        found = getattr(import_module(f"fiveshot.cli.{module}"), FUNCTIONS.get(name, name))
        if not isinstance(found, typer.Typer):
            one = typer.Typer(add_completion=False, **SETTINGS)
            one.command(name, cls=Command, rich_help_panel=panel)(with_home(found))
            found = one
        command = get_command(found)
        command.name = name
        command.rich_help_panel = panel  # type: ignore[attr-defined]
        plugin = [parameter for parameter in self.params if parameter.name == "plugin"]
        for part in (command, *getattr(command, "commands", {}).values()):
            part.params.extend(plugin)
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            near = nearest_command(name)
            suggestion = f"Did you mean '{near}'?" if near else "See 'fiveshot --help'."
            ctx.fail(f"No such command {name!r}. {suggestion}")
        return super().resolve_command(ctx, args)


def nearest_command(word: str) -> str | None:
    """Return the command that was probably meant, by its meaning or by its spelling.

    >>> nearest_command("teach"), nearest_command("lern"), nearest_command("xyzzy")
    ('learn', 'learn', None)
    """
    word = word.lower()
    begun = [name for name in COMMANDS if name.startswith(word)]
    for near in ([word] if word in OTHER_WORDS else [], begun, get_close_matches(word, [*COMMANDS, *OTHER_WORDS])):
        if near:
            return OTHER_WORDS.get(near[0], near[0])
    return None


app = typer.Typer(
    name="fiveshot",
    help="Teach an image classifier new classes from five photos each, without forgetting and without retraining.",
    no_args_is_help=True,
    cls=Group,
    **SETTINGS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"fiveshot {__version__}")
        raise typer.Exit


def _name_plugins(ctx: Context, files: list[Path] | None) -> None:
    if files and not ctx.resilient_parsing:
        from fiveshot.plugins import name_plugins

        name_plugins([Path(at_home(str(file))) for file in files])


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        Option(
            callback=_name_plugins,
            expose_value=False,
            help="A Python file with heads or datasets of your own; may be given more than once.",
        ),
    ] = None,
) -> None:
    """Read the options common to all commands."""


def _stopped(text: str = "") -> NoReturn:
    echo(f"stopped; {text}" if text else "stopped", err=True)
    sys.exit(INTERRUPTED)


def main() -> None:
    """Run the command line; an error made on purpose, or by the system, is one message and exit status 1."""
    prepare_streams()
    try:
        with safe_children(), system_errors_told():
            # Not standalone, because then an interrupt would end as a bare "Aborted!".
            sys.exit(app(standalone_mode=False) or 0)
    except FiveshotError as error:
        echo_error(error)
        sys.exit(1)
    except USAGE_ERROR as error:
        error.message = printable(error.message or "")  # type: ignore[attr-defined]  # a pattern may give options
        error.show()  # type: ignore[attr-defined]
        sys.exit(error.exit_code)  # type: ignore[attr-defined]
    except Stopped as stopped:  # by a command that knows what has become of its work
        _stopped(str(stopped))
    except (typer.Abort, KeyboardInterrupt):
        _stopped()
    except SystemExit as leaving:  # how newer releases of Typer report an interrupt
        if leaving.code == INTERRUPTED:
            _stopped()
        raise
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        sys.stderr.close()
        sys.exit(0)
