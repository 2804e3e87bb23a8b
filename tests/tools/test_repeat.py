"""tools/repeat.py on a toy suite: what changes from run to run is listed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ENVIRONMENT = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # pytest starts sooner
SCRIPT = Path(__file__).parents[2] / "tools" / "repeat.py"
STEADY = """
import pytest

def test_passes():
    pass

@pytest.mark.skip(reason="always")
def test_is_skipped():
    pass
"""
# Fails in the second run: the first one leaves a file.
CHANGING = """
from pathlib import Path

def test_changes():
    seen = Path("seen")
    before = seen.exists()
    seen.touch()
    assert not before
"""
FAILING = """
def test_fails():
    assert False
"""


def repeated(folder: Path, *options: str) -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), "--runs", "3", "--folder", str(folder), "--out", str(folder / "out")]
    command += [*options, "--", "-p", "no:cacheprovider"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert ended.stderr == ""
    return ended.returncode, ended.stdout.splitlines()


def test_a_suite_that_behaves_is_said_to(tmp_path: Path) -> None:
    (tmp_path / "test_steady.py").write_text(STEADY)
    status, said = repeated(tmp_path, "--busy", "1")
    assert said[:3] == [
        "run 1: 2 tests, 0 failed",
        "run 2: 2 tests, 0 failed",
        "run 3, busy: 2 tests, 0 failed",
    ]
    assert said[3:] == ["3 runs of 2 tests", "every test behaved the same each time, and none failed"]
    assert status == 0


def test_what_changes_or_fails_is_listed(tmp_path: Path) -> None:
    for name, text in {"steady": STEADY, "changing": CHANGING, "failing": FAILING}.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    status, said = repeated(tmp_path)
    assert said[-3:] == [
        "3 runs of 4 tests",
        "  test_changing::test_changes: 2 x failed, 1 x passed",
        "  test_failing::test_fails: failed every time",
    ]
    assert status == 1


def test_a_run_that_breaks_off_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    command = [sys.executable, str(SCRIPT), "--folder", str(tmp_path), "--out", str(tmp_path / "out"), "--", "-q"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)
    assert ended.returncode == 1
    assert "run 1 did not come to its end (status 2)" in ended.stderr
