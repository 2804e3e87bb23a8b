"""Tables as files: text as on the terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fiveshot.errors import StorageError
from fiveshot.reports.csv import as_csv
from fiveshot.reports.latex import as_latex
from fiveshot.reports.markdown import as_markdown
from fiveshot.reports.table import Table
from fiveshot.reports.terminal import as_text
from fiveshot.storage import atomic_path

FORMATS: dict[str, Callable[[Table], str]] = {
    "txt": as_text,
    "md": as_markdown,
    "tex": as_latex,
    "csv": as_csv,
}


def write_table(table: Table, stem: Path) -> tuple[Path, ...]:
    """Write ``stem.txt``, ``stem.md``, ``stem.tex`` and ``stem.csv``, and return their paths.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.reports import Column, Row, Table, write_table
    >>> table = Table("Birds", (Column("method"),), (Row(("ncm",)),))
    >>> with TemporaryDirectory() as folder:
    ...     [path.name for path in write_table(table, Path(folder) / "birds")]
    ['birds.txt', 'birds.md', 'birds.tex', 'birds.csv']
    """
    return tuple(
        write_text(stem.with_name(f"{stem.name}.{ending}"), render(table).rstrip("\n") + "\n")
        for ending, render in FORMATS.items()
    )


def write_text(target: Path, text: str) -> Path:
    """Write a text file, whole or not at all, and return its path."""
    with atomic_path(target) as path:
        # Names of folders need not be valid Unicode; they are shown, not lost.
        path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    return target


def make_folder(folder: Path) -> Path:
    """Make a folder unless it is there, and return it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot make the folder {folder}: {error.strerror or error}") from error
    return folder
