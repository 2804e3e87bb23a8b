from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fiveshot.cli.app import main

WITHOUT_TORCH = Path(__file__).parent / "without_torch"
TORCH = "torch timm torchvision"  # what the extra brings


@dataclass(frozen=True)
class Ended:
    """A command that ran in a separate process, and what it imported."""

    status: int
    printed: str
    said: str
    imported: frozenset[str]  # names of all modules

    def packages(self, names: str) -> set[str]:
        """Return those of some packages that were imported."""
        return set(names.split()) & {name.partition(".")[0] for name in self.imported}


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a process tells what it has imported."""
    return tmp_path_factory.mktemp("imported") / "modules"


@pytest.fixture(scope="session")
def without_torch(report: Path) -> dict[str, str]:
    """The environment of a machine without PyTorch."""
    path = os.pathsep.join([str(WITHOUT_TORCH), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "ABSENT": TORCH, "IMPORTED": str(report)}


@pytest.fixture(scope="session")
def run_apart(without_torch: dict[str, str], report: Path) -> Callable[..., Ended]:
    """Run the command line in a separate process without PyTorch."""

    def fiveshot(*arguments: object, cwd: Path, absent: str = TORCH) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "fiveshot", *map(str, arguments)],
            cwd=cwd,
            env={**without_torch, "ABSENT": absent},
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr, frozenset(report.read_text().split()))

    return fiveshot


CHAIN = """
import contextlib, io, json, sys
from fiveshot.cli.app import main
for arguments in json.load(sys.stdin):
    sys.argv, printed, said, status = ["fiveshot", *arguments], io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    print(json.dumps([status, printed.getvalue(), said.getvalue()]))
"""


@pytest.fixture(scope="session")
def run_in_turn(without_torch: dict[str, str], report: Path) -> Callable[..., list[Ended]]:
    """Run several commands one after the other in one process, on a machine without PyTorch."""

    def fiveshot(*commands: tuple[object, ...], cwd: Path) -> list[Ended]:
        ended = subprocess.run(
            [sys.executable, "-c", CHAIN],
            input=json.dumps([[*map(str, arguments)] for arguments in commands]),
            cwd=cwd,
            env=without_torch,
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        imported = frozenset(report.read_text().split())
        return [Ended(*json.loads(line), imported) for line in ended.stdout.splitlines()]

    return fiveshot


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line as the console script does; return the status and both outputs."""
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "PY_COLORS"):  # rich would take a pipe for a terminal
        monkeypatch.delenv(name, raising=False)

    def fiveshot(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fiveshot", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return fiveshot


@pytest.fixture
def read_all() -> Callable[[int], bytes]:
    """Read everything that is written to a terminal, until the other side closes it."""

    def read(terminal: int) -> bytes:
        shown = b""
        with contextlib.suppress(OSError):  # how a terminal ends
            while part := os.read(terminal, 4096):
                shown += part
        os.close(terminal)
        return shown

    return read
