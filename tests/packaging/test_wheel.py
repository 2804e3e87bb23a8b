"""The wheel: built as a release would be, installed where nothing else of the checkout is, used from elsewhere."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT = 30_000_000  # bytes
STUDIES = {  # packs that come with a checkout only
    f"fiveshot/features/packs/cub200-{pack}.safetensors" for pack in ("big", "small")
}
HEAVY = {"torch", "sklearn", "scipy", "timm", "torchvision", "matplotlib", "ray", "fastapi", "onnxruntime"}


def build_wheel(source: Path, folder: Path) -> Path:
    """Build with what is installed: a test must not need the network."""
    words = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(words, check=True, capture_output=True, text=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def elsewhere(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment that has the wheel and sees the dependencies, but nothing of the checkout.

    A ``.pth`` file adds a folder without running the ``.pth`` files in it: the editable installation is not seen.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder)
    into = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
    install = [*into, "install", "--quiet", "--no-compile", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def answer(folder: Path, *words: str, cwd: Path) -> str:
    run = subprocess.run(
        [str(folder / "bin" / words[0]), *words[1:]], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_it_is_small_enough_and_whole(wheel: Path) -> None:
    assert wheel.stat().st_size < LIMIT
    names = zipfile.ZipFile(wheel).namelist()
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout: what belongs into the wheel is not known")
    tracked_names = {name.removeprefix("src/") for name in tracked.stdout.split()}
    assert tracked_names >= STUDIES
    wanted = tracked_names - STUDIES
    assert wanted <= set(names)
    assert not STUDIES & set(names)
    foreign = {name for name in set(names) - wanted if ".dist-info/" not in name}
    assert not {name for name in foreign if not (ROOT / "src" / name).exists()}


def test_the_same_source_elsewhere_and_later_gives_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE.md", ".gitignore"):
        shutil.copyfile(ROOT / name, copy / name)
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile
    )
    assert build_wheel(copy, tmp_path / "dist").read_bytes() == wheel.read_bytes()


def test_its_description_names_the_extras(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    about = Parser().parsestr(archive.read(name).decode())
    assert {"torch", "plots", "onnx", "serve", "ray"} <= set(about.get_all("Provides-Extra"))
    assert about["License-Expression"] == "Apache-2.0"
    plain = [line for line in about.get_all("Requires-Dist") if "extra ==" not in line]
    assert not any(line.startswith(("timm", "torch", "ray", "fastapi")) for line in plain)


def test_it_runs_from_anywhere(elsewhere: Path, tmp_path: Path) -> None:
    where = answer(elsewhere, "python", "-c", "import fiveshot; print(fiveshot.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(elsewhere)
    assert "learn" in answer(elsewhere, "fiveshot", "--help", cwd=tmp_path)
    table = answer(elsewhere, "fiveshot", "bench", "cub200/big", "--methods", "ncm", "--seeds", "1", cwd=tmp_path)
    assert "NCM" in table


def test_the_backbone_is_in_it(elsewhere: Path, tmp_path: Path) -> None:
    code = (
        "from fiveshot import Recognizer\n"
        "from fiveshot.data import draw_samples\n"
        "draw_samples('samples', seed=0)\n"
        "with Recognizer.create('things') as things:\n"
        "    things.learn('fish', 'samples/learn/fish/1.jpg')\n"
        "    print(things.predict('samples/test/fish/1.jpg')[0].label)\n"
    )
    assert answer(elsewhere, "python", "-c", code, cwd=tmp_path).strip() == "fish"


@pytest.mark.parametrize("words", [["--help"], ["bench", "--help"], ["learn", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = (
        "import sys\n"
        "from fiveshot.cli.app import main\n"
        f"sys.argv = ['fiveshot', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(','.join(sorted(set(sys.modules))), file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(run.stderr.strip().split(","))
