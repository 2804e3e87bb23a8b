"""A look into a model's files without torch: fast enough for a TAB, and for what is said after Ctrl-C."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

PATIENCE = 0.2  # seconds to wait for a process that writes
LONGEST_HEADER = 100_000_000  # bytes, as the format of these files has it


def stored_state(model: Path) -> int | None:
    """Return the number of a model's state, one more with every change; None where no model can be read.

    >>> stored_state(Path("no such folder")) is None
    True
    """
    rows = _rows(model, "SELECT value FROM meta WHERE key = 'state'")
    return int(rows[0][0]) if rows else None


def stored_classes(model: Path) -> list[str]:
    """Return the names of all classes, sorted: those of the database, and those of the base file.

    >>> stored_classes(Path("no such folder"))
    []
    """
    from fiveshot.recognizer.names import NONE

    learned = {name for (name,) in _rows(model, "SELECT name FROM classes")} - {NONE}
    manifests = _rows(model, "SELECT value FROM meta WHERE key = 'manifest'")
    return sorted(learned.union(*(_base_classes(model, text) for (text,) in manifests)))


def _base_classes(model: Path, manifest: str) -> list[str]:
    """Return the names in the header of the base file, a JSON object after its length; tensors are left alone."""
    from fiveshot.errors import FiveshotError
    from fiveshot.recognizer.store.manifest import Manifest

    try:
        file = Manifest.from_toml(manifest).base.file
        if not file:
            return []
        with (model / file).open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            header = json.loads(opened.read(min(length, LONGEST_HEADER)))
        labels: list[str] = json.loads(header["__metadata__"]["fiveshot"])["meta"]["labels"]
        return labels
    except (FiveshotError, OSError, LookupError, TypeError, ValueError):
        return []


def _rows(model: Path, query: str) -> list[tuple[Any, ...]]:
    """Return what the database answers; nothing where there is none, or it cannot be read just now."""
    import sqlite3

    from fiveshot.errors import FiveshotError
    from fiveshot.recognizer.store.schema import DATABASE, open_database

    try:
        with closing(open_database(model / DATABASE, readonly=True, timeout=PATIENCE)) as connection:
            return connection.execute(query).fetchall()
    except (FiveshotError, OSError, sqlite3.Error):
        return []
