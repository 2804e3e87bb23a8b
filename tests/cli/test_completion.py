"""What TAB offers, asked as the shells ask it, and that it is right and quick."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fiveshot.cli import completion
from fiveshot.core import class_statistics
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.recognition.snapshot import head_record
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest

HOSTILE = r"\$(touch caught)"  # what a shell must never run
LEARNED = ["barn owl", "barn swallow", "wren", "O'Hara's gull", "c*t", HOSTILE]
# The command as installed; when it ends, it tells what it has imported.
FIVESHOT = (
    "import atexit, sys\n"
    "heavy = {'torch', 'timm', 'sklearn', 'scipy', 'onnxruntime'}\n"
    "atexit.register(lambda: print('imported', *sorted(heavy & set(sys.modules)), file=sys.stderr))\n"
    "sys.argv[0] = 'fiveshot'\n"
    "from fiveshot.cli.app import main\n"
    "main()\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model called birds: two base classes, and some with names that shells stumble over."""
    folder = tmp_path_factory.mktemp("completion")
    rng = np.random.default_rng(0)
    base = class_statistics(rng.normal(size=(8, 4)).astype(np.float32), ["auk"] * 4 + ["emu"] * 4)
    manifest = Manifest(BackboneRecord("none", 4, "a" * 64), head_record("ncm"))
    create_model(folder / "birds", manifest, base=base)
    with Recognizer.open(folder / "birds") as model:
        for name in LEARNED:
            model.learn_features(name, rng.normal(size=(2, 4)))
        model.learn_features("emu", rng.normal(size=(2, 4)), add=True)
    return folder


def ask(folder: Path, **environment: str) -> list[str]:
    """Return the lines that a shell gets; nothing heavy may have been imported for them."""
    asked = subprocess.run(
        [sys.executable, "-c", FIVESHOT],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert asked.stderr == "imported\n"
    return [line for line in asked.stdout.splitlines() if line]


def bash(folder: Path, *words: str) -> list[str]:
    """Ask as the script for bash does: words as typed, the last of them incomplete."""
    return ask(
        folder,
        _FIVESHOT_COMPLETE="complete_bash",
        COMP_WORDS="\n".join(["fiveshot", *words]),
        COMP_CWORD=str(len(words)),
    )


def test_classes_of_the_model_are_offered(folder: Path) -> None:
    offered = bash(folder, "forget", "birds", "")
    assert [shlex.split(line) for line in offered] == [[name] for name in sorted(["auk", "emu", *LEARNED])]
    assert bash(folder, "rename", "birds", "w") == ["wren"]
    assert bash(folder, "rename", "birds", "wren", "") == []  # the new name is the user's own
    assert bash(folder, "forget", "nowhere", "") == []


def test_names_of_the_package_are_offered(folder: Path) -> None:
    assert bash(folder, "bench", "cub200/st") == ["cub200/stream"]
    assert bash(folder, "bench", "--methods", "te") == ["teen", "teen+"]
    assert bash(folder, "forg") == ["forget"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_takes_what_is_offered(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "fiveshot"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c {shlex.quote(FIVESHOT)} "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    lines = [
        "source <(_FIVESHOT_COMPLETE=source_bash fiveshot)",
        "COMP_CWORD=3",
        r"for word in 'barn\ s' '\\' 'c'; do",
        'COMP_WORDS=(fiveshot forget birds "$word"); _fiveshot_completion fiveshot',
        'printf "%s\\n" "${COMPREPLY[@]}"',
        "done",
        "complete -p fiveshot",
    ]
    shell = ["bash", "--norc", "--noprofile", "-c", "\n".join(lines)]
    ran = subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert [shlex.split(line) for line in ran.stdout.splitlines()] == [
        ["barn swallow"],
        [HOSTILE],
        ["c*t"],
        ["complete", "-o", "default", "-F", "_fiveshot_completion", "fiveshot"],
    ], ran.stderr
    assert not (folder / "caught").exists()


def test_the_heads_that_are_offered_are_those_that_can_be_had() -> None:
    from fiveshot.errors import InputError
    from fiveshot.heads.registry import RECIPES
    from fiveshot.recognizer.recognition.snapshot import require_statistics_head

    def can_be_had(name: str) -> bool:
        try:
            require_statistics_head(name)
        except InputError:
            return False
        return True

    offered = completion.heads()
    assert offered == [name for name in RECIPES if can_be_had(name)]
    assert 0 < len(offered) < len(RECIPES)


def test_a_damaged_model_offers_nothing_and_says_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds" / "classes.sqlite").write_bytes(b"no database at all")
    assert bash(tmp_path, "forget", "birds", "") == []
    (base,) = (folder / "birds").glob("base-*.safetensors")
    shutil.copytree(folder / "birds", tmp_path / "cut", ignore=shutil.ignore_patterns(base.name))
    assert "auk" not in bash(tmp_path, "forget", "cut", "")
    assert "wren" in bash(tmp_path, "forget", "cut", "")
