"""The quickstart is run as a reader would run it, and must answer what it says, numbers aside."""

from __future__ import annotations

import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from fiveshot.cli.app import main

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"\d+(\.\d+)?( kB| MB)?")


def steps() -> list[tuple[str, list[str]]]:
    """Return each command of the page with the lines that follow it."""
    found: list[tuple[str, list[str]]] = []
    for block in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def fits(answer: str, shown: list[str]) -> bool:
    """Tell whether an answer is what the page shows: ``...`` stands for any lines, a number for any other."""
    parts = [re.escape(NUMBER.sub("#", line)) if line != "..." else None for line in shown]
    pattern = "".join(r"(.*\n)*?" if part is None else part + r"\n" for part in parts)
    return re.fullmatch(pattern, NUMBER.sub("#", answer)) is not None


@pytest.mark.parametrize(
    ("answer", "shown", "same"),
    [
        ("a 1\nb\n", ["a 2.5", "b"], True),
        ("a 1\nb\n", ["a 2", "c"], False),
        ("a\nb\nc\nd\n", ["a", "...", "d"], True),
        ("a\nb\n", ["a"], False),
        ("", ["..."], True),
    ],
)
def test_answers_are_compared(answer: str, shown: list[str], same: bool) -> None:
    assert fits(answer, shown) is same


def test_the_quickstart_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = steps()
    assert {shlex.split(command)[1] for command, _ in commands} >= {
        "new", "learn", "predict", "evaluate", "rename", "undo", "forget", "show", "check", "export", "import"
    }  # fmt: skip
    for command, shown in commands:
        typed, _, redirected = command.partition(" < ")
        if redirected:
            data = Path(redirected).read_bytes()
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        monkeypatch.setattr(sys, "argv", shlex.split(typed))
        with pytest.raises(SystemExit) as ended:
            main()
        answer = capsys.readouterr()
        assert not ended.value.code, f"{command}: {answer.err}"
        assert fits(answer.out, shown), f"{command} answered\n{answer.out}"
