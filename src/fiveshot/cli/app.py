"""The ``fiveshot`` command: its list of commands, and how a run ends.

Each command is imported only when it is called or shown, so that the others cost no time.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from copy import copy
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer import Context, Option
from typer.core import TyperGroup
from typer.main import get_command

from fiveshot import __version__
from fiveshot.cli.options import at_home, with_home
from fiveshot.cli.output import Stopped, echo, echo_error, prepare_streams, printable, report_system_errors
from fiveshot.errors import FiveshotError
from fiveshot.work import safe_children

MODELS, STUDIES = "Models", "Features and benchmarks"  # headings in the list of commands

# The module of each command, in the order of the list.
MODULES = {
    MODELS: {
        "new": "models",
        "learn": "classes",
        "predict": "photos",
        "show": "models",
        "review": "second_look",
        "sort": "second_look",
        "sightings": "sightings",
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
        "backbones": "backbone",
        "backbone": "backbone",
        "bench": "bench",
        "compare": "bench",
        "extract": "data",
        "paper": "paper",
        "report": "bench",
        "tune": "tune",
        "data": "data",
        "cluster": "cluster",
    },
}
COMMANDS = {name: (module, panel) for panel, modules in MODULES.items() for name, module in modules.items()}
# Commands whose Python function has another name.
FUNCTIONS = {"import": "import_model", "label-studio": "label_studio", "put-back": "put_back", "set": "set_option"}

# Words that users of other programs may type.
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

# The error for wrong options. Releases of Typer have its class in different modules.
USAGE_ERROR: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)

INTERRUPTED = 130  # the exit status of a program that was stopped by Ctrl-C
SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Group(TyperGroup):
    """The list of commands. Each is imported on use, and also accepts ``--plugin``.

    For an unknown command the error names the most similar one.
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
            one.command(name, rich_help_panel=panel)(with_home(found))
            found = one
        command = get_command(found)
        command.name = name
        command.rich_help_panel = panel  # type: ignore[attr-defined]
        plugin = [copy(parameter) for parameter in self.params if parameter.name == "plugin"]
        for parameter in plugin:
            parameter.hidden = True  # type: ignore[attr-defined]  # shown by 'fiveshot --help'
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
    """Return the command that was probably meant, by meaning or by spelling.

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
    help="Teach an image classifier new classes from five photos each, without forgetting or retraining.",
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
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        Option(
            callback=_name_plugins,
            expose_value=False,
            metavar="FILE",
            help="Python file with your own heads or datasets; repeatable.",
        ),
    ] = None,
) -> None:
    """Read the options common to all commands."""


def _stopped(text: str = "") -> NoReturn:
    echo(f"stopped; {text}" if text else "stopped", err=True)
    sys.exit(INTERRUPTED)


def main() -> None:
    """Run the command line. Expected errors are one message and exit status 1."""
    prepare_streams()
    try:
        with safe_children(), report_system_errors():
            # Not standalone, because then an interrupt would only print "Aborted!".
            sys.exit(app(standalone_mode=False) or 0)
    except FiveshotError as error:
        echo_error(error)
        sys.exit(1)
    except USAGE_ERROR as error:
        lines = (error.message or "").split("\n")  # type: ignore[attr-defined]
        error.message = "\n".join(map(printable, lines))  # type: ignore[attr-defined]  # names may hold control codes
        with suppress(OSError):  # a full disk behind standard error
            error.show()  # type: ignore[attr-defined]
        sys.exit(error.exit_code)  # type: ignore[attr-defined]
    except Stopped as stopped:  # the command says what was kept
        _stopped(str(stopped))
    except (typer.Abort, KeyboardInterrupt):
        _stopped()
    except SystemExit as leaving:  # how newer releases of Typer report an interrupt
        if leaving.code == INTERRUPTED:
            _stopped()
        raise
    except BrokenPipeError:  # the reader of the pipe, such as head, has ended
        sys.stderr.close()
        sys.exit(0)
