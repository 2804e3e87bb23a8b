"""Data flows one way: a package imports itself and those before it in this order, nothing else of ours."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fiveshot"
ORDER = (
    "errors",
    "extras",
    "web",
    "plugins",
    "work",
    "storage",
    "loggers",
    "data",
    "backbones",
    "features",
    "core",
    "heads",
    "metrics",
    "tuning",
    "recognizer",
    "benchmark",
    "reports",
    "scale",
    "service",
    "client",
    "watch",
    "cli",
)


def wrong_imports(root: Path) -> list[str]:
    """Return one line for each import below ``root`` that goes against the order, or has no place in it."""
    wrong = []
    for path in sorted(root.rglob("*.py")):
        module = (root.name, *path.relative_to(root).with_suffix("").parts)
        if len(module) == 2 and module[1].startswith("__"):
            continue  # the package's own __init__ and __main__ stand above the order
        here = module[1]
        if here not in ORDER:
            wrong.append(f"{'.'.join(module)}: {here} has no place in the order")
            continue
        for line, there in _targets(path, module):
            if there not in ORDER or ORDER.index(there) > ORDER.index(here):
                wrong.append(f"{'.'.join(module)}:{line} imports {there}")
    return wrong


def _targets(path: Path, module: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Yield line and package of each import of ours."""
    for line, name in _imported(path, module):
        if name[1:] != ("__version__",):
            yield line, name[1] if len(name) > 1 else "the whole package"


def _imported(path: Path, module: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield line and whole name of each import of ours, wherever in the file it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = tuple(node.module.split(".")) if node.module else ()
            if node.level:
                # An __init__ is called like its folder, so one dot means the same for it and its modules.
                origin = module[: len(module) - node.level] + origin
            names = [(*origin, alias.name) for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name[0] == module[0])


def wrong_names(root: Path) -> list[str]:
    """Return one line for each module whose name begins with ``_`` and that another package imports."""
    modules = {(root.name, *path.relative_to(root).with_suffix("").parts): path for path in root.rglob("*.py")}
    used = {
        name[:length]
        for module, path in modules.items()
        for _, name in _imported(path, module)
        if name[:2] != module[:2]
        for length in range(3, len(name) + 1)
    }
    private = [module for module in sorted(modules) if module[-1].startswith("_") and module[-1] != "__init__"]
    return [f"{'.'.join(module)}: another package imports it" for module in private if module in used]


def test_data_flows_one_way() -> None:
    assert wrong_imports(SOURCE) == []


def test_private_modules_are_called_so() -> None:
    assert wrong_names(SOURCE) == []


def test_a_wrong_name_is_caught(tmp_path: Path) -> None:
    for name, text in {
        "core/__init__.py": "from fiveshot.core._means import mean",
        "core/_means.py": "",
        "core/medians.py": "",
        "core/sums.py": "",
        "heads/_ncm.py": "from fiveshot.core import sums\nfrom fiveshot.core._means import mean",
    }.items():
        file = tmp_path / "fiveshot" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert wrong_names(tmp_path / "fiveshot") == ["fiveshot.core._means: another package imports it"]


def test_the_packages_are_really_read() -> None:
    read = {there for path in SOURCE.rglob("*.py") for _, there in _targets(path, ("fiveshot", "x", path.stem))}
    assert {"errors", "storage", "core", "heads"} <= read


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("from fiveshot.heads import NCM", "imports heads"),
        ("import fiveshot.cli.main", "imports cli"),
        ("from fiveshot import metrics", "imports metrics"),
        ("from ..heads.ncm import NCM", "imports heads"),
        ("from .. import heads", "imports heads"),
        ("def late():\n    from fiveshot.heads import NCM", "imports heads"),
        ("import fiveshot", "imports the whole package"),
        ("from fiveshot import make_head", "imports make_head"),
        ("from fiveshot.utils import join", "imports utils"),
    ],
)
def test_a_wrong_import_is_caught(tmp_path: Path, line: str, found: str) -> None:
    root = tmp_path / "fiveshot"
    (root / "core").mkdir(parents=True)
    (root / "__init__.py").write_text("__version__ = '0'\n")
    (root / "core" / "__init__.py").write_text("")
    (root / "core" / "mean.py").write_text(f"import numpy\n{line}\n")
    (wrong,) = wrong_imports(root)
    assert wrong.startswith("fiveshot.core.mean:")
    assert wrong.endswith(found)


@pytest.mark.parametrize(
    "line",
    [
        "from fiveshot import __version__",
        "from fiveshot.errors import InputError",
        "from fiveshot.core.labels import Label",
        "from .labels import Label",
        "from ..storage import read_tensors",
        "import numpy.fiveshot",
        "from sklearn.metrics import accuracy_score",
    ],
)
def test_a_right_import_is_left_alone(tmp_path: Path, line: str) -> None:
    root = tmp_path / "fiveshot"
    (root / "core").mkdir(parents=True)
    (root / "core" / "mean.py").write_text(f"{line}\n")
    assert wrong_imports(root) == []


def test_a_package_outside_the_order_is_caught(tmp_path: Path) -> None:
    (tmp_path / "fiveshot" / "utils").mkdir(parents=True)
    (tmp_path / "fiveshot" / "utils" / "join.py").write_text("")
    assert wrong_imports(tmp_path / "fiveshot") == ["fiveshot.utils.join: utils has no place in the order"]
