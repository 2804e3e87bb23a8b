"""The scripts in benchmarks/: what they import from the package is there."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).resolve().parents[2] / "benchmarks").glob("*.py"))


def imported(script: Path) -> list[tuple[str, str]]:
    """Return modules of fiveshot and the names that a script imports from them."""
    nodes = ast.walk(ast.parse(script.read_text("utf-8")))
    found = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    return [
        (node.module, alias.name)
        for node in found
        if node.module and node.module.split(".")[0] == "fiveshot"
        for alias in node.names
    ]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_what_a_script_imports_from_the_package_exists(script: Path) -> None:
    for module, name in imported(script):
        found = import_module(module)
        is_module = hasattr(found, "__path__") and find_spec(f"{module}.{name}") is not None
        assert hasattr(found, name) or is_module, f"{module} has no {name}"
