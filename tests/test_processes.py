from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fiveshot.work import safe_children, safe_path

POOL = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from fiveshot.work import safe_children

if __name__ == "__main__":
    with safe_children():
        pool = ProcessPoolExecutor(1, multiprocessing.get_context({method!r}))
        print(pool.submit(abs, -3).result())
        pool.shutdown()
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pools_of_processes_import_nothing_from_the_current_folder(tmp_path: Path, method: str) -> None:
    program, here = tmp_path / "program.py", tmp_path / "here"
    here.mkdir()
    program.write_text(POOL.format(method=method))
    (here / "multiprocessing.py").write_text("raise SystemExit('run')")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=here, env=environment, capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr) == ("3\n", "")


def test_blocks_may_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "before")
    one, other = safe_children(), safe_children()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert os.environ["PYTHONSAFEPATH"] == "1"
    other.__exit__(None, None, None)
    assert os.environ["PYTHONSAFEPATH"] == "before"


def test_the_path_of_a_child_has_no_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "relative", str(tmp_path), *sys.path])
    assert not {"", "relative", str(tmp_path)} & set(safe_path())
    assert str(Path(safe_path.__code__.co_filename).parents[1]) in safe_path()
