"""An interpreter that has imported what takes long, and forks itself for every program that it is asked to run.

Each program is a process of its own, with its own directory, environment and streams, as ``python FILE`` would
make it, without the three seconds that importing torch takes. Requests are lines of JSON on standard input: to
start a program, which is answered by its number, and to wait for one, which is answered by its exit status.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import fiveshot

# Not ONNX Runtime: it starts a thread when it is imported, which a fork would lack and wait for.
BEFORE = ("torch", "timm", "torchvision", "sklearn.pipeline", "matplotlib.figure")


ADDING = os.O_WRONLY | os.O_APPEND  # output and errors may go to one file


def import_much() -> None:
    """Import what takes long, and all of fiveshot, which otherwise waits with it until it is needed."""
    for name in BEFORE:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(fiveshot.__path__, "fiveshot."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def main() -> None:
    """Run one program after the other until standard input ends."""
    gc.disable()  # modules stay: looking for garbage among them takes a second
    import_much()
    gc.freeze()  # so that collecting garbage copies none of it
    gc.enable()
    context = multiprocessing.get_context("fork")
    programs = {}
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "wait_for" in request:
            program = programs.pop(request["wait_for"])
            program.join()
            print(program.exitcode, flush=True)  # noqa: T201
        else:
            program = context.Process(target=become, args=(request,))
            program.start()
            programs[program.pid] = program
            print(program.pid, flush=True)  # noqa: T201


def become(request: dict[str, Any]) -> None:
    """Turn this process into the program; what it raises ends it as usual."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, (name, mode) in enumerate((("input", os.O_RDONLY), ("output", ADDING), ("errors", ADDING))):
        opened = os.open(request[name], mode)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    faulthandler.dump_traceback_later(request["seconds"], exit=True)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    script = Path(request["words"][0]).resolve()
    sys.argv = [str(script), *request["words"][1:]]
    sys.path[0] = str(script.parent)
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # a fork ends without them


if __name__ == "__main__":
    main()
