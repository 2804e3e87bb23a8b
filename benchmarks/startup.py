"""How long the first answer takes: a bare interpreter, ``fiveshot --help``, the import, a look at a model.

python benchmarks/startup.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(sys.executable).parent


def best(command: list[str], rounds: int) -> float:
    """Return the shortest of several runs, in seconds: what it costs when nothing disturbs it."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    fiveshot = str(HERE / "fiveshot")
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder) / "model")
        subprocess.run([fiveshot, "new", model], check=True, capture_output=True)
        rows = {
            "a bare interpreter": [sys.executable, "-c", "pass"],
            "`import fiveshot`": [sys.executable, "-c", "import fiveshot"],
            "`fiveshot --help`": [fiveshot, "--help"],
            "`fiveshot bench --help`": [fiveshot, "bench", "--help"],
            "`import torch`": [sys.executable, "-c", "import torch"],
            "`fiveshot show MODEL`": [fiveshot, "show", model],
        }
        times = {name: best(command, rounds) for name, command in rows.items()}
    bare = times["a bare interpreter"]
    print("| what | seconds | of a bare interpreter |")
    print("|---|---:|---:|")
    for name, seconds in times.items():
        print(f"| {name} | {seconds:.2f} | {seconds / bare:.1f} x |")


if __name__ == "__main__":
    main()
