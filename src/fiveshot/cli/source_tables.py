"""Names from tables in the package's source, for those who cannot wait until the modules are imported.

The tables lie in modules that bring torch along. Here their text is read instead, so that there is one table of
each kind, and a name that is added to it is known here too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


def table_keys(module: str, table: str) -> list[str]:
    """Return the keys of a dictionary that a module defines; a key may be a constant of this module or another.

    >>> "table1" in table_keys("reports.paper.plan", "SETTINGS")
    True
    """
    found = _assigned(module, table)
    assert isinstance(found, ast.Dict), f"{table} of {module} is no dictionary that is written out"
    return [_text(module, key) for key in found.keys if key is not None]


def named_by(module: str, call: str) -> list[str]:
    """Return the first argument, or the one called ``name``, of every call that a module makes of a function.

    >>> "beta" in named_by("benchmark.ablation", "Ablation")
    True
    """
    return [_text(module, _name_argument(node)) for node in ast.walk(_tree(module)) if _is_call(node, call)]


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_bytes())


def _assigned(module: str, name: str) -> ast.expr | None:
    """Return what is assigned to a name at the top of a module."""
    for statement in _tree(module).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return statement.value
    return None


def _text(module: str, node: ast.expr | None) -> str:
    """Return the text that a node stands for: itself, or a constant's, wherever that was imported from."""
    if isinstance(node, ast.Name):
        value = _assigned(module, node.id)
        if value is not None:
            return _text(module, value)
        (origin,) = _origins(module, node.id)
        return _text(origin, node)
    assert isinstance(node, ast.Constant), f"{module} has a name that is no text"
    return str(node.value)


def _origins(module: str, name: str) -> Iterator[str]:
    for statement in _tree(module).body:
        if isinstance(statement, ast.ImportFrom) and any(alias.name == name for alias in statement.names):
            yield str(statement.module).removeprefix("fiveshot.")


def _is_call(node: ast.AST, function: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function


def _name_argument(node: ast.AST) -> ast.expr:
    assert isinstance(node, ast.Call)
    return node.args[0] if node.args else next(given.value for given in node.keywords if given.arg == "name")
