"""Run every benchmark with limits, one after another; exit with 1 if a limit is missed.

    make speed                                             # by hand, on a quiet machine
    python benchmarks/speed.py --published CHECKOUT --data DIR
    python benchmarks/speed.py --only views service

CHECKOUT is a clone of the published repository, and DIR holds the photos of CUB-200. Without them their benchmarks
are left out, with a note. Without a GPU, its benchmarks are left out, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from fiveshot.backbones import choose_device

FOLDER = Path(__file__).parent
# Each gets --check; {published} and {data} are replaced by the options.
COMMANDS = (
    ("weight.py",),
    ("recognizer.py", "--check"),
    ("recognizer.py", "--large", "--check"),
    ("service.py", "--check"),
    ("heads.py", "--check"),
    ("many_classes.py", "--check"),
    ("views.py", "--cost", "--check"),
    ("published_code.py", "{published}", "--check"),
)
ON_GPU = (("gpu.py", "--check"),)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, help="a clone of the published repository")
    parser.add_argument("--data", type=Path, help="train.tar and test.tar of CUB-200")
    parser.add_argument("--only", nargs="+", help="names of benchmarks, without .py")
    given = parser.parse_args()
    places = {f"{{{name}}}": getattr(given, name) for name in ("published", "data")}
    on_gpu = ON_GPU if choose_device("auto") != "cpu" else ()
    missed, left_out = [], [" ".join(command) for command in ON_GPU if command not in on_gpu]
    for command in COMMANDS + on_gpu:
        shown = " ".join(command)
        if given.only and Path(command[0]).stem not in given.only:
            continue
        if any(part in places and places[part] is None for part in command):
            left_out.append(shown)
            continue
        print(f"\n## {shown}\n", flush=True)
        parts = [str(places.get(part, part)) for part in command[1:]]
        if subprocess.run([sys.executable, str(FOLDER / command[0]), *parts]).returncode:
            missed.append(shown)
    for title, commands in (("left out", left_out), ("missed", missed)):
        for shown in commands:
            print(f"{title}: {shown}")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
