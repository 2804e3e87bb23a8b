"""What long work shows: a line at once and a bar later on a terminal, nothing in a pipe."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable

import pytest

WORK = """
import sys, time
from fiveshot.cli import output
output.BAR_DELAY = {patience}
with output.image_bar("looking at 3 photos") as show:
    for done in range(4):
        time.sleep(0.01)
        show(done, 3)
print("rich" in sys.modules)
"""
NOTED = """
from fiveshot.cli.output import echo
from fiveshot.cli.output import status
with status("making birds \\x1b[31m"):
    echo("note: left out a photo", err=True)
"""
SAID = """
from fiveshot.cli.output import run_bar, status
with status("checking birds"):
    pass
with run_bar("running") as bar:
    bar.say("ncm is done")
"""


@pytest.fixture
def on_terminal(read_all: Callable[[int], bytes]) -> Callable[[str], tuple[str, str]]:
    """Run a program whose standard error is a terminal; return both outputs."""

    def run(code: str) -> tuple[str, str]:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs, env=environment, text=True
        ) as process:
            os.close(theirs)
            drawn = read_all(ours).decode()
            assert process.stdout is not None
            printed = process.stdout.read()
        assert process.returncode == 0, drawn
        return printed, drawn

    return run


def test_short_work_is_a_line_that_vanishes_and_draws_nothing_else(on_terminal: Callable) -> None:
    printed, drawn = on_terminal(WORK.format(patience=60))
    assert (printed, drawn) == ("False\n", "\r\x1b[2Klooking at 3 photos ...\r\x1b[2K")


def test_long_work_has_a_bar(on_terminal: Callable) -> None:
    printed, drawn = on_terminal(WORK.format(patience=0))
    assert printed == "True\n"
    assert drawn.startswith("\r\x1b[2Klooking at 3 photos ...\r\x1b[2K")
    assert "3/3" in drawn
    assert drawn.endswith("\x1b[2K")


def test_lines_are_printed_above(on_terminal: Callable) -> None:
    _, drawn = on_terminal(SAID)
    erase = "\r\x1b[2K"
    assert drawn == (
        f"{erase}checking birds ...{erase}{erase}running ...{erase}ncm is done\r\n{erase}running ...{erase}"
    )


def test_whatever_is_printed_takes_the_place_of_the_line(on_terminal: Callable) -> None:
    _, drawn = on_terminal(NOTED)
    assert drawn == "\r\x1b[2Kmaking birds \\x1b[31m ...\r\x1b[2Knote: left out a photo\r\n"


@pytest.mark.parametrize(("code", "said"), [(WORK.format(patience=0), ""), (SAID, "ncm is done\n")])
def test_a_pipe_gets_neither_line_nor_bar(code: str, said: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == said
    assert "True" not in ran.stdout
