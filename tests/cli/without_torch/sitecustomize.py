"""Makes a process look like one on a machine without the named packages, and has it tell what it imported.

Python imports this file by itself from the path; see ``tests/cli/conftest.py``.
"""

import atexit
import os
import sys
from importlib.machinery import PathFinder

ABSENT = frozenset(os.environ.get("ABSENT", "").split())
REPORT = os.environ.get("IMPORTED")
found = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in ABSENT else found(name, path, target)


def report():
    with open(REPORT, "w") as file:  # noqa: PTH123  # what is imported here would be reported too
        file.write(" ".join(sys.modules))


PathFinder.find_spec = find_spec
if REPORT:
    atexit.register(report)
