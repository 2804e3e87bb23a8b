"""What was typed becomes the same values as Typer's own conversion makes, and its errors with what was typed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.main import get_command

from fiveshot.cli.app import Command, converted

CALLED: list[dict[str, Any]] = []


def cook(
    pot: Path,
    herbs: list[str] | None = None,
    salt: Annotated[int, typer.Option()] = 3,
    heat: Annotated[float | None, typer.Option()] = None,
    stove: Annotated[Literal["gas", "wood"], typer.Option()] = "gas",
    minutes: Annotated[int | None, typer.Option(min=1)] = None,
    lid: Annotated[bool, typer.Option("--lid/--no-lid")] = True,
    spoon: Annotated[list[Path] | None, typer.Option()] = None,
    name: Annotated[str, typer.Option(envvar="COOK")] = "anna",
) -> None:
    CALLED.append(dict(locals()))


def made(cls: type | None) -> Any:
    app = typer.Typer(add_completion=False)
    app.command(cls=cls)(cook)
    return get_command(app)


LINES = [
    "pot",
    "pot salt pepper",
    "pot --salt 4 --heat 1e2 --stove wood --minutes 2",
    "pot --no-lid --spoon a/b --spoon c",
    "pot --salt -7 --heat nan --name=",
    "pot --salt 0x10",
    "pot --salt 1.5",
    "pot --salt 1_000",
    "pot --heat warm",
    "pot --stove coal",
    "pot --minutes 0",
    "pot --lid=maybe",
    "",
    "pot --pan 3",
]


def outcome(command: Any, line: str) -> Any:
    CALLED.clear()
    try:
        command.main(line.split(), prog_name="cook", standalone_mode=False)
    except Exception as error:
        return type(error).__name__, str(error)
    (values,) = CALLED
    return {name: (type(value).__name__, str(value)) for name, value in values.items()}


@pytest.mark.parametrize("line", LINES)
def test_values_and_errors_are_typers_own(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COOK", "karl")
    found, expected = outcome(made(Command), line), outcome(made(None), line)
    if isinstance(expected, tuple) and expected[1].startswith("Input should"):  # which does not say what was typed
        expected = (expected[0], f"{line.split()[-1]!r}. {expected[1]}")
    assert found == expected


@pytest.mark.parametrize("annotation", [dict, Literal["a"], list[int], bool])
def test_what_does_not_fit_is_not_guessed(annotation: Any) -> None:
    with pytest.raises(ValueError, match=r"Typer|invalid literal"):
        converted("b", annotation)


def test_a_right_command_imports_no_pydantic(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from fiveshot.cli.app import main\n"
        "sys.argv = ['fiveshot', 'history', 'nowhere']\n"
        "try:\n    main()\n"
        "except SystemExit as ended:\n"
        "    print(ended.code, {'pydantic', 'rich'} & set(sys.modules))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert found.stdout == "1 set()\n"
