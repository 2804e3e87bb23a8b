"""The reference: a page for every package, from its docstrings, and one for the command line, from its help."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

SOURCE = Path(__file__).parents[2] / "src" / "fiveshot"
LATER = "---\nsearch:\n  boost: 0.3\n---\n"  # what is found here comes after what pages say


def exported(source: Path) -> list[str]:
    """Return the names in a module's ``__all__``, or else of its classes and functions, without importing it."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    defined = [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    return [name for name in defined if not name.startswith("_")]


def module_page(package: str, source: Path) -> str:
    """Return the page of a package: what it holds, then every name that it exports; of the whole one for ""."""
    names = "".join(f"        - {name}\n" for name in exported(source) if not name.startswith("_"))
    options = f"    options:\n      members:\n{names}" if names else ""
    whole = f"fiveshot.{package}" if package else "fiveshot"
    return f"{LATER}# {whole}\n\n::: {whole}\n{options}"


def command_page() -> str:
    """Return the help of every command as Typer writes it."""
    words = [sys.executable, "-m", "typer", "fiveshot.cli.app", "utils", "docs", "--name", "fiveshot"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return text.replace("# `fiveshot`", "# The command line", 1)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that the navigation names."""
    files.append(File.generated(config, "reference/cli.md", content=command_page()))
    files.append(
        File.generated(config, "reference/python/fiveshot.md", content=module_page("", SOURCE / "__init__.py"))
    )
    modules = {source.parent.name: source for source in SOURCE.glob("*/__init__.py")}
    modules |= {source.stem: source for source in SOURCE.glob("[a-z]*.py")}
    modules["core.scorers"] = SOURCE / "core" / "scorers" / "__init__.py"
    for name in ("cli", "watch"):
        del modules[name]  # commands, of which the first page tells
    for name, source in sorted(modules.items()):
        files.append(File.generated(config, f"reference/python/{name}.md", content=module_page(name, source)))
    return files
