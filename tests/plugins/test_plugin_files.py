"""Loading a file of the user's own: when, how often, and the message when it fails."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fiveshot.errors import InputError
from fiveshot.heads import make_head
from fiveshot.plugins import load_plugin, load_plugins, name_plugins, plugin_files, unknown_or_unloaded

COUNTING = """
from pathlib import Path
with Path(__file__).with_suffix(".log").open("a") as log:
    log.write("x")
"""


def times(plugin: Path) -> int:
    log = plugin.with_suffix(".log")
    return len(log.read_text()) if log.exists() else 0


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    path = tmp_path / "counting.py"
    path.write_text(COUNTING)
    return path


def test_a_file_is_run_once(counting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIVESHOT_PLUGINS", str(counting))
    assert times(counting) == 0
    for _ in range(2):
        load_plugins()
        load_plugin(counting)
    monkeypatch.chdir(counting.parent)
    load_plugin("counting.py")
    assert times(counting) == 1


def test_no_bytecode_is_left_beside_the_file_and_the_next_process_sees_an_edit(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    code = f"from fiveshot.plugins import load_plugin\nprint(load_plugin({str(path)!r}).VALUE)"
    for value in (1, 2, 3):  # of the same length, within the second that bytecode would be told apart by
        path.write_text(f"VALUE = {value}")
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout == f"{value}\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.py"]


def test_the_module_has_the_same_name_in_every_process_and_can_be_pickled(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("class Thing:\n    pass\n")
    module = load_plugin(path)
    assert sys.modules[module.__name__] is module
    assert type(pickle.loads(pickle.dumps(module.Thing()))) is module.Thing
    other = tmp_path / "elsewhere" / "mine.py"
    other.parent.mkdir()
    other.write_text("")
    assert load_plugin(other).__name__ != module.__name__
    code = f"from fiveshot.plugins import load_plugin\nprint(load_plugin({str(path)!r}).__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == f"{module.__name__}\n"


def test_a_plugin_may_look_names_up_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from fiveshot.plugins import load_plugins\nload_plugins()\nDONE = True\n")
    monkeypatch.setenv("FIVESHOT_PLUGINS", str(path))
    load_plugins()
    assert load_plugin(path).DONE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n1 / 0\n", r"the plugin .*mine\.py cannot be used: line 2: ZeroDivisionError: division by zero"),
        ("x = (\n", r"mine\.py cannot be used: line 1: SyntaxError"),
        ("import nonesuch", r"line 1: ModuleNotFoundError: No module named 'nonesuch'"),
        (
            "from fiveshot.core.scorers import register_head, NCMScorer\n\nregister_head('ncm', NCMScorer)\n",
            r"mine\.py cannot be used: line 3: the name 'ncm' is taken",
        ),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    for _ in range(2):  # not forgotten after the first time
        with pytest.raises(InputError, match=message):
            load_plugin(path)
    path.write_text("VALUE = 1")
    assert load_plugin(path).VALUE == 1


def test_a_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIVESHOT_PLUGINS", str(tmp_path / "none.py"))
    with pytest.raises(InputError, match=r"no such plugin: .*none\.py; give the path of a Python file"):
        load_plugins()
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(InputError, match=r"notes\.txt is not a Python file; its name must end in \.py"):
        load_plugin(tmp_path / "notes.txt")


def test_named_files_are_added_to_the_environment(
    tmp_path: Path, counting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.py").write_text("")
    name_plugins(["counting.py"])
    name_plugins([tmp_path / "other.py", counting])
    assert os.environ["FIVESHOT_PLUGINS"].split(os.pathsep) == [str(counting), str(tmp_path / "other.py")]
    assert plugin_files() == (str(counting), str(tmp_path / "other.py"))
    assert times(counting) == 0, "naming a file does not run it"
    odd = tmp_path / f"a{os.pathsep}b" / "mine.py"
    odd.parent.mkdir()
    odd.write_text("")
    with pytest.raises(InputError, match="cannot contain"):
        name_plugins([odd])


def test_an_unknown_name_points_to_plugins_only_where_no_name_is_near() -> None:
    assert "--plugin" not in str(unknown_or_unloaded("head", "ranpak", ["ncm", "ranpac"]))
    assert str(unknown_or_unloaded("head", "zzz", ["ncm"])).endswith(
        "choose from ncm, or load the file that registers it with --plugin or FIVESHOT_PLUGINS"
    )


def test_an_installed_package_is_found_by_its_entry_point(
    tmp_path: Path, city: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    about = site / "cityhead-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: cityhead\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fiveshot.plugins]\ncity = cityhead_of_a_test\n")
    module = site / "cityhead_of_a_test.py"
    module.write_text("import nonesuch")
    monkeypatch.syspath_prepend(site)
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            load_plugins()
        assert str(caught.value) == (
            "the plugin cityhead_of_a_test of cityhead cannot be used: ModuleNotFoundError: "
            "No module named 'nonesuch'; repair or uninstall it"
        )
    module.write_text(city.read_text())
    importlib.invalidate_caches()
    assert type(make_head("city").scorer).__module__ == "cityhead_of_a_test"
    del sys.modules["cityhead_of_a_test"]


def test_nothing_runs_unless_it_is_needed(counting: Path, command: Callable) -> None:
    """A command that looks no unknown name up does not run the file."""
    assert command("--plugin", counting, "backbones", "--help").exit_code == 0
    assert command("--plugin", counting, "bench", "--methods", "ncm", "--seeds", 0).exit_code == 1
    assert times(counting) == 0
    asked = command("--plugin", counting, "bench", "--methods", "zzz")
    assert "no method 'zzz'" in str(asked.exception)
    assert times(counting) == 1
    assert "no such plugin" in str(command("--plugin", counting.with_name("none.py"), "data", "list").exception)


def test_help_names_the_option_and_stays_light(counting: Path) -> None:
    # The help of bench names all heads, which are written for NumPy; what is heavy they import when they compute.
    code = (
        "import sys\nfrom fiveshot.cli.app import app\nfrom typer.testing import CliRunner\n"
        f"print(CliRunner().invoke(app, ['--plugin', {str(counting)!r}, 'bench', '--help']).exit_code)\n"
        "print('--plugin' in CliRunner().invoke(app, ['--help'], env={'COLUMNS': '120'}).output)\n"
        "print({'torch', 'sklearn', 'scipy', 'onnxruntime'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["0", "True", "set()"]
    assert times(counting) == 0
