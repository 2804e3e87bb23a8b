"""The last confirmed change, in a file next to the database. It reveals changes that the database has lost.

SQLite's recovery silently drops everything after the first damaged byte of a log. The number here is
written after a change is on the disk. So a database in an earlier state has certainly lost changes. A database in
a later state has lost nothing: the process was killed between the change and the number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fiveshot.errors import StorageError, counted
from fiveshot.storage import atomic_path

CONFIRMED = "confirmed.txt"
LOST = "lost_changes"
_TEXT = re.compile(r"model ([0-9a-f]{32})\nstate ([0-9]{1,18})\nsum [0-9a-f]{64}\n")


@dataclass(frozen=True)
class Confirmed:
    """A state of a model that was certainly on the disk.

    >>> noted = Confirmed("ab" * 16, 7)
    >>> Confirmed.from_text(noted.to_text()) == noted, Confirmed.from_text(noted.to_text().replace("7", "3"))
    (True, None)
    """

    model: str  # the id in its database
    state: int

    def to_text(self) -> str:
        """Return the content of the file: three lines, of which the last is a checksum of the others."""
        said = f"model {self.model}\nstate {self.state}\n"
        return f"{said}sum {sha256(said.encode()).hexdigest()}\n"

    @classmethod
    def from_text(cls, text: str) -> Confirmed | None:
        """Read what ``to_text`` wrote; None for anything else."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        made = cls(found[1], int(found[2]))
        return made if made.to_text() == text else None


def read_confirmed(folder: Path) -> Confirmed | None:
    """Return the last confirmed state; None if the file is missing or damaged.

    Read this before the database: a change in between must not look like a lost change.
    """
    try:
        return Confirmed.from_text((folder / CONFIRMED).read_bytes().decode())
    except (OSError, UnicodeDecodeError):
        return None


def write_confirmed(folder: Path, confirmed: Confirmed) -> None:
    """Replace the file, whole or not at all."""
    with atomic_path(folder / CONFIRMED) as temporary:
        temporary.write_bytes(confirmed.to_text().encode())


def lost_changes(folder: Path, confirmed: Confirmed, state: int) -> StorageError | None:
    """Return the error for a database in an earlier state than the confirmed one; None if nothing is lost."""
    lost = confirmed.state - state
    if lost <= 0:
        return None
    return StorageError(
        f"the model {folder} has lost its last {counted(lost, 'change')}: state {confirmed.state} was confirmed, "
        f"and the database is in state {state}; its log was damaged, or an older database was put in its place",
        hint="restore the model from a copy, or continue without these changes: fiveshot check MODEL --repair",
        code=LOST,
    )
