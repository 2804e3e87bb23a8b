"""The help of every command: an example that can be typed, and a word about every option."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from rich.text import Text
from typer.main import get_command
from typer.testing import CliRunner

from fiveshot.cli.app import app

EXAMPLE = re.compile(r"^ *Example: (.+?) *$", re.MULTILINE)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with the words that call it, those of groups too."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ROOT = get_command(app)
COMMANDS = dict(commands(ROOT))
EXAMPLES = [(path, line) for path, command in COMMANDS.items() for line in EXAMPLE.findall(command.help or "")]


def test_all_commands_are_found() -> None:
    assert {
        ("learn",),
        ("bench",),
        ("import",),
        ("data", "fetch"),
        ("cluster", "bench"),
        ("cluster", "statistics"),
    } <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_shows_an_example(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, [*path, "--help"])
    assert shown.exit_code == 0
    wanted = [line for own, line in EXAMPLES if own == path]
    assert wanted
    printed = [line.strip() for line in shown.output.splitlines()]
    assert [line for line in wanted if f"Example: {line}" not in printed] == []


def test_every_option_and_argument_has_a_help_text() -> None:
    without = [
        (path, parameter.name)
        for path, command in {(): ROOT, **COMMANDS}.items()
        for parameter in command.params
        if not (parameter.help or "").strip()
    ]
    assert without == []


def test_the_commands_that_answer_programs_are_those_the_documentation_names() -> None:
    without = {
        path[0] for path, command in COMMANDS.items() if not any("--json" in p.opts for p in command.params)
    }
    assert without == {"serve", "label-studio", "bench", "cluster", "extract", "paper", "tune"}


def test_no_help_text_loses_what_is_in_brackets() -> None:
    for command in (ROOT, *COMMANDS.values()):
        for text in (command.help or "", *(parameter.help or "" for parameter in command.params)):
            assert Text.from_markup(text).plain == text.replace("\\[", "[")


def test_the_help_of_cluster_shows_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert "pip install 'fiveshot[ray]'" in CliRunner().invoke(app, ["cluster", "--help"]).output


@pytest.mark.parametrize(("columns", "lines"), [("100", 30), ("80", 34)])
@pytest.mark.parametrize("name", ["new", "learn", "predict", "serve"])
def test_the_help_of_an_everyday_command_fits_a_screen(
    name: str, columns: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    shown = CliRunner().invoke(app, [name, "--help"], prog_name="fiveshot").output
    assert "--help" in shown
    assert len(shown.strip().splitlines()) <= lines


def test_the_help_of_the_longest_command_fits_a_tall_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = CliRunner().invoke(app, ["watch", "--help"], prog_name="fiveshot").output
    assert len(shown.strip().splitlines()) <= 60


def test_no_help_text_points_to_files_that_are_not_installed() -> None:
    helps = [(name, one.help or "") for name, command in COMMANDS.items() for one in command.params]
    assert [name for name, text in helps if "docs/" in text] == []


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_can_be_typed(path: tuple[str, ...], example: str) -> None:
    words = shlex.split(example)
    assert words[: len(path) + 1] == ["fiveshot", *path]
    command = COMMANDS[path]
    # Refuses unknown options, missing and superfluous arguments, and values of the wrong type.
    context = command.make_context(path[-1], words[len(path) + 1 :])
    for parameter in command.params:
        choices = {str(item.value) for item in parameter.shell_complete(context, "")}
        if choices and context.get_parameter_source(parameter.name).name == "COMMANDLINE":
            assert set(parts(context.params[parameter.name])) <= choices, parameter.name


def parts(value: Any) -> list[str]:
    """Return what a value consists of: an argument that may be repeated, a list with commas, or one word."""
    return [
        part for one in (value if isinstance(value, list | tuple) else [value]) for part in str(one).split(",")
    ]


def test_the_help_of_the_program_names_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    printed = CliRunner().invoke(app, ["--help"]).output
    assert {path[0] for path in COMMANDS} <= set(printed.split())
    assert "--install-completion" in printed
