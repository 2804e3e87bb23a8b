"""The program itself: which command is meant, what is imported for it, and where --plugin may stand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fiveshot.cli.app import COMMANDS, OTHER_WORDS, nearest_command

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("teach train add lern Learn learnn", "learn"),
        ("classify recognize recognise ask predcit", "predict"),
        ("delete unlearn forgt", "forget"),
        ("list ls info sho", "show"),
        ("create init nwe", "new"),
        ("hist histroy log", "history"),
    ],
)
def test_the_command_that_was_meant_is_suggested(run: Run, words: str, command: str) -> None:
    for word in words.split():
        status, printed, said = run(word, "birds")
        assert (status, printed) == (2, "")
        assert f"No such command '{word}'. Did you mean '{command}'?" in " ".join(said.split())


def test_a_word_like_no_command_points_to_the_help(run: Run) -> None:
    assert "No such command 'xyzzy'. See 'fiveshot --help'." in run("xyzzy")[2]


def test_suggestions_are_commands_and_commands_are_not_suggestions() -> None:
    assert set(OTHER_WORDS.values()) <= set(COMMANDS)
    assert not set(OTHER_WORDS) & set(COMMANDS)
    assert [nearest_command(word) for word in OTHER_WORDS] == list(OTHER_WORDS.values())


def test_a_wrong_option_is_not_taken_for_a_command(run: Run) -> None:
    status, _, said = run("--teach", "birds")
    assert status == 2
    assert "No such option" in said


@pytest.mark.parametrize(
    "words",
    ["--plugin {} data list", "data list --plugin {}", "data --plugin {} list", "data list --plugin={}"],
)
def test_a_plugin_is_named_before_or_after_the_command(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setenv("FIVESHOT_PLUGINS", "")
    plugin = tmp_path / "mine.py"
    plugin.write_text("raise RuntimeError('this file is run')")
    status, _, said = run(*words.format(plugin).split())
    assert (status, "this file is run" in said) == (1, True)
    status, _, said = run(*words.format(tmp_path / "none.py").split())
    assert (status, "no such plugin" in said) == (1, True)


def test_a_command_imports_no_other(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from fiveshot.cli.app import COMMANDS, main\n"
        "sys.argv = ['fiveshot', 'report', '--wrong']\n"
        "try:\n    main()\n"
        "except SystemExit:\n"
        "    print({module for module, _ in COMMANDS.values() if f'fiveshot.cli.{module}' in sys.modules})\n"
        "    print({'numpy', 'sqlite3', 'fiveshot.plugins', 'fiveshot.recognizer'} & set(sys.modules))\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout == "{'bench'}\nset()\n"
