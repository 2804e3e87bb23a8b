"""Measure the cost of everyday commands: cold starts relative to their imports, memory, and disk.

python benchmarks/weight.py              # exits with 1 if a limit is missed
python benchmarks/weight.py --install    # also installs into an empty environment; takes minutes
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from fiveshot import Recognizer
from fiveshot.backbones.embedded import WIDTH

ROOT = Path(__file__).resolve().parents[1]
FIVESHOT = [sys.executable, "-c", "from fiveshot.cli.app import main; main()"]  # as the installed command does
BARE = "import numpy, scipy.linalg, onnxruntime, PIL.Image"
CLASSES, SHOTS = 100, 5
SIZE = (1600, 1200)  # of a photo

# In one process: the forward pass of five photos, without loading or decoding.
FORWARD = """
import time
import numpy as np
from fiveshot.backbones import BackboneSpec, load_embedder
embedder = load_embedder(BackboneSpec())
photos = np.zeros((5, *embedder.preprocessing.shape), dtype=np.uint8)
embedder.features(photos)
times = []
for _ in range(5):
    began = time.perf_counter()
    embedder.features(photos)
    times.append(time.perf_counter() - began)
print(min(times))
"""


@dataclass(frozen=True)
class Cold:
    """Time and memory of a process."""

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Limit:
    """A line of the table: a measured figure, its reference, and its limit."""

    what: str
    now: float
    most: float
    unit: str

    @property
    def kept(self) -> bool:
        return self.now <= self.most


def cold(command: list[str]) -> Cold:
    """Run a command in its own process; the memory is its peak."""
    began = time.perf_counter()
    # Bytecode is cached, as after an installation.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {said}")
    return Cold(seconds, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3))


def make_material(folder: Path) -> None:
    """Draw photos, and make a model that has learned a hundred classes."""
    rng = np.random.default_rng(0)
    for number in range(SHOTS):
        coarse = rng.integers(0, 255, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(SIZE, Image.Resampling.BICUBIC).save(folder / f"{number}.jpg", quality=90)
    with Recognizer.create(folder / "model") as model:
        for number in range(CLASSES):
            model.learn_features(f"class {number}", rng.normal(rng.normal(size=WIDTH), size=(SHOTS, WIDTH)))


def measure(folder: Path, rounds: int) -> list[Limit]:
    """Run all commands in turns, several times, and take the best of each."""
    model, copy, photos = folder / "model", folder / "copy", [str(folder / f"{n}.jpg") for n in range(SHOTS)]
    commands = {
        "import": [sys.executable, "-c", BARE],
        "help": [*FIVESHOT, "--help"],
        "predict": [*FIVESHOT, "predict", str(model), photos[0]],
        "learn": [*FIVESHOT, "learn", str(copy), "wren", *photos],
        "show": [*FIVESHOT, "show", str(model)],
        "history": [*FIVESHOT, "history", str(model)],
        "rename": [*FIVESHOT, "rename", str(copy), "class 1", "owl"],
    }
    runs: dict[str, list[Cold]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(model, copy)
        for name, command in commands.items():
            measured = cold(command)
            if number:  # the first round fills the system's caches
                runs[name].append(measured)
    best = {name: min(run.seconds for run in taken) for name, taken in runs.items()}
    forward = float(subprocess.run([sys.executable, "-c", FORWARD], check=True, capture_output=True).stdout)
    print("seconds: " + ", ".join(f"{name} {seconds:.2f}" for name, seconds in best.items()))
    print(f"the forward pass of five photos: {forward:.2f}\n")
    memory = min(run.megabytes for run in runs["predict"])
    bare = best["import"] + forward
    return [
        Limit("cold `fiveshot predict` of one photo / bare imports", best["predict"] / best["import"], 3, "x"),
        Limit("cold `fiveshot learn` of five photos / imports and forward pass", best["learn"] / bare, 2.5, "x"),
        Limit("peak memory of `fiveshot predict`", memory, 400, "MB"),
        *(
            Limit(f"`fiveshot {name}` / `fiveshot --help`", best[name] / best["help"], 2, "x")
            for name in ("show", "history", "rename")
        ),
    ]


def installed(folder: Path) -> Limit:
    """Install the package alone into an empty environment, and count the installed bytes."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    before = bytes_in(environment)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", ROOT], check=True)
    return Limit("disk taken by `pip install fiveshot`", (bytes_in(environment) - before) / 1e6, 450, "MB")


def bytes_in(folder: Path) -> int:
    """Return the size of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--install", action="store_true", help="also install the package and count its bytes")
    parser.add_argument("--tolerant", action="store_true", help="exit with 0 even if a limit is missed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_material(folder)
        limits = measure(folder, options.rounds)
        if options.install:
            limits.append(installed(folder))
    print("| what | now | must be at most |")
    print("|---|---:|---:|")
    for limit in limits:
        now = f"{limit.now:.1f} x" if limit.unit == "x" else f"{limit.now:.0f} {limit.unit}"
        print(f"| {limit.what} | {now if limit.kept else f'**{now}**'} | {limit.most:g} {limit.unit} |")
    raise SystemExit(0 if options.tolerant or all(limit.kept for limit in limits) else 1)


if __name__ == "__main__":
    main()
