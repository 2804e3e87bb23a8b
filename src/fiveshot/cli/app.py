"""The ``fiveshot`` command: its sub-commands, and errors as sentences instead of tracebacks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fiveshot import __version__
from fiveshot.cli.backbones import backbones
from fiveshot.cli.bench import bench
from fiveshot.cli.classes import forget, history, rename, undo
from fiveshot.cli.data import data
from fiveshot.cli.echo import echo, printable
from fiveshot.cli.evaluate import evaluate
from fiveshot.cli.extract import extract
from fiveshot.cli.learn import learn
from fiveshot.cli.new import new
from fiveshot.cli.paper import paper
from fiveshot.cli.predict import predict
from fiveshot.cli.report import report
from fiveshot.cli.retune import retune
from fiveshot.cli.serve import serve
from fiveshot.cli.ship import export, import_model, merge
from fiveshot.cli.show import check, show
from fiveshot.cli.stopping import Stopped
from fiveshot.cli.system_errors import system_errors_told
from fiveshot.cli.tune import tune
from fiveshot.errors import FiveshotError
from fiveshot.plugins import name_plugins

app = typer.Typer(
    name="fiveshot",
    help="Teach an image classifier new classes from five photos each, without forgetting and without retraining.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# What wrong options raise. Releases of Typer differ in where its class lives, not in its name.
USAGE_ERROR: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)

INTERRUPTED = 130  # the exit status of a program that was stopped by Ctrl-C

MODELS, STUDIES = "Models", "Features and benchmarks"  # headings of the list of commands
ABOUT_MODELS: tuple[Callable[..., None], ...] = (
    new,
    learn,
    predict,
    show,
    forget,
    rename,
    undo,
    history,
    evaluate,
    merge,
    export,
    import_model,
    check,
    retune,
    serve,
)
ABOUT_STUDIES: tuple[Callable[..., None], ...] = (backbones, bench, extract, paper, report, tune)

for command in ABOUT_MODELS:  # a Python function cannot be called import
    app.command("import" if command is import_model else None, rich_help_panel=MODELS)(command)
for command in ABOUT_STUDIES:
    app.command(rich_help_panel=STUDIES)(command)
app.add_typer(data, name="data", rich_help_panel=STUDIES)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"fiveshot {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
    plugin: Annotated[
        list[Path] | None,
        typer.Option(help="A Python file with heads or datasets of your own; may be given more than once."),
    ] = None,
) -> None:
    """Read the options common to all commands."""
    name_plugins(plugin or ())


def _stopped(text: str = "") -> NoReturn:
    echo(f"stopped; {text}" if text else "stopped", err=True)
    sys.exit(INTERRUPTED)


def main() -> None:
    """Run the command line; an error made on purpose, or by the system, is one message and exit status 1."""
    try:
        with system_errors_told():
            # Not standalone, because then an interrupt would end as a bare "Aborted!".
            sys.exit(app(standalone_mode=False) or 0)
    except FiveshotError as error:
        echo(f"error: {error}", err=True)
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
