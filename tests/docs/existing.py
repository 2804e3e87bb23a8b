"""Whether what a command names exists: program, sub-command, options, script, target of make, extra."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pages import ROOT

PLACEHOLDERS = {"...", "…"}  # what the prose leaves open
BUILT_IN = {"export"}  # into the shell


def complaints(words: Sequence[str]) -> list[str]:
    """Return what is wrong with a program and its arguments, in sentences."""
    program, *arguments = words
    check = CHECKS.get(program)
    if check is not None:
        return check([argument for argument in arguments if argument not in PLACEHOLDERS])
    beside = str(Path(sys.executable).parent)
    found = program in BUILT_IN or shutil.which(program, path=beside) or shutil.which(program)
    return [] if found else [f"there is no program {program}"]


def _fiveshot(arguments: list[str]) -> list[str]:
    command, rest = _command_line(), list(arguments)
    while hasattr(command, "commands"):
        known = _options(command)
        while rest and rest[0].startswith("-"):
            option, equals, _ = rest.pop(0).partition("=")
            if option not in known:
                return [f"no option {option}"]
            if known[option] and not equals:
                del rest[:1]
        if not rest:
            return []
        if rest[0] not in command.list_commands(None):
            return [f"no command {rest[0]}"]
        command = command.get_command(None, rest.pop(0))
    return [f"no option {option}" for option in _used(rest) if option not in _options(command)]


def _used(arguments: list[str]) -> list[str]:
    before = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return [argument.partition("=")[0] for argument in before if re.match(r"--[a-z]", argument)]


def _options(command: Any) -> dict[str, bool]:
    """Return the options of a command, and whether each takes a value."""
    own = {
        option: not getattr(parameter, "is_flag", False)
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    return own | {"--help": False, "-h": False}


@cache
def _command_line() -> Any:
    from typer.main import get_command

    from fiveshot.cli.app import app

    return get_command(app)


def _python(arguments: list[str]) -> list[str]:
    if arguments[:2] == ["-m", "pytest"]:
        paths = [one.partition("::")[0] for one in arguments[2:] if not one.startswith("-")]
        return [f"no such tests: {path}" for path in paths if not (ROOT / path).exists()]
    script = ROOT / arguments[0] if arguments else ROOT
    if not arguments or not arguments[0].startswith("benchmarks/"):
        return []  # a file that the page makes, which is run
    if not script.is_file():
        return [f"no such script: {arguments[0]}"]
    known = set(re.findall(r'add_argument\(\s*"(--[a-z-]+)"', script.read_text(encoding="utf-8")))
    return [f"{arguments[0]} has no option {one}" for one in _used(arguments) if one not in known | {"--help"}]


def _make(arguments: list[str]) -> list[str]:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    return [f"no target {one}" for one in arguments if "=" not in one and one not in targets]


def _pip(arguments: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [extra for one in arguments for extra in re.findall(r"fiveshot\[([^\]]+)\]", one)]
    named = {name.strip() for group in extras for name in group.split(",")}
    return [f"no extra {name}" for name in sorted(named - set(project["optional-dependencies"]))]


CHECKS: dict[str, Callable[[list[str]], list[str]]] = {
    "fiveshot": _fiveshot,
    "python": _python,
    "make": _make,
    "pip": _pip,
}
