"""Every public name says what it is; every class, function and method of the recogniser shows how it is used."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import fiveshot

SOURCE = Path(__file__).resolve().parents[1] / "src" / "fiveshot"
EXAMPLE = ">>> "
EXTRAS = {"backbones": "torch", "service": "fastapi", "tuning": "torch"}  # what importing all names needs


def source_of(package: str) -> Path:
    """Return the file of a package's, or of a module's, own names."""
    inside = SOURCE / package / "__init__.py"
    return inside if inside.is_file() else SOURCE / f"{package}.py"


def exported(package: str) -> list[str]:
    """Return the names in a package's ``__all__``."""
    tree = ast.parse(source_of(package).read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    return []


PACKAGES = [file.parent.name for file in SOURCE.glob("*/__init__.py")]
PACKAGES += [file.stem for file in SOURCE.glob("[a-z]*.py")]
PACKAGES = [package for package in sorted(PACKAGES) if exported(package)]


def is_code(thing: Any) -> bool:
    """Tell classes and functions, cached ones among them, from values."""
    return inspect.isclass(thing) or inspect.isroutine(thing) or hasattr(thing, "__wrapped__")


def has_example(thing: Any) -> bool:
    """Tell whether the docstring of a class or function, its own and not one of a base class, has an example."""
    return EXAMPLE in (thing.__doc__ or "")


def has_text_below(module: Path, name: str) -> bool:
    """Tell whether a string follows the assignment of a constant, in this module or the one it comes from."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    body = tree.body
    for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return (
                isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            )
    for statement in ast.walk(tree):  # names that are imported when they are used stand below a condition
        if isinstance(statement, ast.ImportFrom) and name in [alias.name for alias in statement.names]:
            origin = SOURCE.parent.joinpath(*str(statement.module).split("."))
            return has_text_below(origin / "__init__.py" if origin.is_dir() else origin.with_suffix(".py"), name)
    return False


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_is_explained(package: str) -> None:
    if package in EXTRAS:
        pytest.importorskip(EXTRAS[package], reason=f"{EXTRAS[package]} is not installed")
    module = import_module(f"fiveshot.{package}")
    things = {name: getattr(module, name) for name in exported(package)}
    without = [name for name, thing in things.items() if is_code(thing) and not has_example(thing)]
    assert not without, f"no example in the docstring of {', '.join(without)}"
    place = source_of(package)
    without = [name for name, thing in things.items() if not is_code(thing) and not has_text_below(place, name)]
    assert not without, f"no string below the assignment of {', '.join(without)}"


def test_every_error_is_explained() -> None:
    from fiveshot import errors

    own = [thing for thing in vars(errors).values() if getattr(thing, "__module__", "") == errors.__name__]
    public = [thing for thing in own if not thing.__name__.startswith("_")]
    assert len(public) >= 4
    assert [thing.__name__ for thing in public if not has_example(thing)] == []


def test_every_method_of_the_recogniser_shows_its_use() -> None:
    from fiveshot import Recognizer

    public = {name: member for name, member in vars(Recognizer).items() if not name.startswith("_")}
    methods = {name for name, member in public.items() if not isinstance(member, property)}
    assert methods > {"create", "learn", "predict", "forget"}
    assert [name for name in methods if not has_example(getattr(Recognizer, name))] == []
    assert [name for name, member in public.items() if not member.__doc__] == []


def test_the_public_face_is_imported_when_it_is_used() -> None:
    code = "import sys, fiveshot\nprint({'numpy', 'typer', 'fiveshot.errors'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
    assert set(dir(fiveshot)) == set(fiveshot.__all__)
    for name in fiveshot.__all__:
        assert getattr(fiveshot, name)
    with pytest.raises(AttributeError, match="no attribute 'teach'"):
        fiveshot.teach  # noqa: B018


def test_the_public_face_is_what_its_page_names() -> None:
    page = (SOURCE.parents[1] / "docs" / "start" / "python.md").read_text(encoding="utf-8")
    table = page.partition("## Public names")[2].partition("```")[0]
    first = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("|")]
    named = {name for cell in first for name in re.findall(r"`(\w+)`", cell)}
    assert named == {name for name in fiveshot.__all__ if name != "__version__"}


def test_the_public_face_is_typed() -> None:
    """What type checkers read under TYPE_CHECKING is what is there when a program runs."""
    tree = ast.parse((SOURCE / "__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {
        (alias.name, node.module)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == set(fiveshot._MODULES.items())


def test_the_verbs_of_the_command_line_are_methods_or_functions_of_a_model() -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    from fiveshot import recognizer, tuning
    from fiveshot.cli import app

    # Programs have loops of their own; put-back is about a folder, not about a model.
    others = {
        "new": "create",
        "import": "import_file",
        "sort": "sort_photos",
        "group": "group_classes",
        "serve": "",
        "label-studio": "",
        "watch": "",
        "put-back": "",
    }
    verbs = [others.get(name, name) for name in app.MODULES[app.MODELS]]
    functions = {*recognizer.__all__, *tuning.__all__}
    missing = [verb for verb in verbs if verb and verb not in functions and not hasattr(fiveshot.Recognizer, verb)]
    assert missing == []


def test_the_packages_are_really_looked_at() -> None:
    assert set(PACKAGES) >= {"data", "heads", "recognizer", "service", "core", "storage"}


@pytest.mark.parametrize(
    ("text", "explained"),
    [
        ('A = 1\n"""One."""\n', True),
        ('A: int = 1\n"""One."""\n', True),
        ("A = 1  # one\n", False),
        ('A = 1\nB = 2\n"""Two."""\n', False),
        ('"""A module."""\nA = 1\n', False),
        ("A = 1\n1\n", False),
        ("from fiveshot.storage.nowhere import B\n", False),
    ],
)
def test_a_constant_without_a_text_is_caught(tmp_path: Path, text: str, explained: bool) -> None:
    module = tmp_path / "module.py"
    module.write_text(text)
    assert has_text_below(module, "A") is explained


def test_a_docstring_of_a_base_class_does_not_count() -> None:
    class Explained:
        """A class.

        >>> Explained
        """

    class Silent(Explained):
        pass

    assert has_example(Explained)
    assert not has_example(Silent)
    assert is_code(Silent)
    assert not is_code({"a": 1})
