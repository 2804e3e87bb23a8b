"""The journal of a folder that photos were placed in: what was done with each, and who wrote that down.

A journal lies in its folder and travels with it, so it may be a stranger's. Every line has a seal: a keyed digest,
whose key lies in the user's own folder of state. Lines with another seal, or none, were not written by this user.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from fiveshot.errors import StorageError
from fiveshot.storage import atomic_path, part_beside

JOURNAL = ".fiveshot-journal.jsonl"
KEY_FILE = "journal.key"
KEY_BYTES = 32
MAX_LINE = 1 << 16  # bytes; paths have at most a few thousand


@dataclass(frozen=True)
class Entry:
    """One line: a photo that was placed, or that was about to be."""

    source: str  # where the photo was
    place: str  # where it is, below the folder
    way: str
    below: str  # the folder of its class
    done: bool
    sha256: str | None = None  # of the content; None where a copy is not finished, and for links
    own: bool = False  # whether this user wrote it
    line: bytes = field(default=b"", repr=False, compare=False)


class Journal:
    """A journal that is written to.

    Parameters
    ----------
    folder : Path
        The folder that photos are placed in.
    """

    def __init__(self, folder: Path) -> None:
        self._key = own_key(make=True)
        self._file = _open(folder / JOURNAL, writing=True)
        size = self._file.seek(0, os.SEEK_END)
        if size:
            self._file.seek(size - 1)
            if self._file.read(1) != b"\n":  # the last line was half written
                self._file.write(b"\n")

    def note(self, entry: Entry, *, at_once: bool) -> None:
        """Write a line; ``at_once`` waits until the disk has it."""
        self._file.write(_line(entry, self._key))
        self._file.flush()
        if at_once:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        # What could be written is there: only a line that failed, and was told, is tried once more.
        with suppress(OSError):
            self._file.close()


def read_journal(folder: Path) -> list[Entry]:
    """Return what was placed in a folder, the first first; a photo that was begun and not finished is not done."""
    entries: dict[str, Entry] = {}
    key = own_key()
    try:
        with _open(folder / JOURNAL) as file:
            while line := file.readline(MAX_LINE):
                entry = _read(line, key)
                if entry is not None:
                    entries[entry.place] = entry
    except (FileNotFoundError, NotADirectoryError):
        return []
    return list(entries.values())


def rewrite_journal(folder: Path, kept: Iterable[Entry]) -> None:
    """Keep only these entries in a journal; without entries, delete the journal."""
    lines = [entry.line.rstrip(b"\n") + b"\n" for entry in kept]
    if not lines:
        (folder / JOURNAL).unlink(missing_ok=True)
        return
    with atomic_path(folder / JOURNAL) as temporary:
        temporary.write_bytes(b"".join(lines))


def own_key(*, make: bool = False) -> bytes | None:
    """Return the key of this user's seals; None if it does not exist and cannot be made."""
    base = Path(os.environ.get("XDG_STATE_HOME", ""))
    try:
        # The XDG specification says that relative paths are to be ignored.
        file = (base if base.is_absolute() else Path.home() / ".local" / "state") / "fiveshot" / KEY_FILE
        if make and not file.exists():
            _make_key(file)
        key = file.read_bytes()
    except (OSError, RuntimeError):  # no home, or one that cannot be written to
        return None
    return key if len(key) == KEY_BYTES else None


def _make_key(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = part_beside(file)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as writing:
        writing.write(secrets.token_bytes(KEY_BYTES))
        writing.flush()
        os.fsync(writing.fileno())
    try:
        with suppress(FileExistsError):  # another process was first: its key is the one
            os.link(part, file)
    finally:
        part.unlink()


def _open(path: Path, *, writing: bool = False) -> IO[bytes]:
    """Open a journal; a link to another file, a pipe or a device in its place is refused."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    flags |= os.O_RDWR | os.O_CREAT | os.O_APPEND if writing else os.O_RDONLY
    if path.is_symlink():
        raise _not_a_journal(path, "a link")
    descriptor = os.open(path, flags, 0o666)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise _not_a_journal(path, "not a file")
    if writing and found.st_nlink > 1:
        os.close(descriptor)
        raise StorageError(
            f"{path} is a file with a second name elsewhere, so it is not written to",
            hint="put a copy of it in its place",
            code="bad_journal",
        )
    return os.fdopen(descriptor, "r+b" if writing else "rb")


def _not_a_journal(path: Path, what: str) -> StorageError:
    return StorageError(f"{path} is {what}, so it is not used", hint="remove it", code="bad_journal")


def _line(entry: Entry, key: bytes | None) -> bytes:
    values: dict[str, Any] = {
        "from": entry.source,
        "to": entry.place,
        "way": entry.way,
        "class": entry.below,
        "done": entry.done,
        "sha256": entry.sha256,
    }
    if key is not None:
        values["seal"] = _seal(values, key)
    return (json.dumps(values) + "\n").encode()


def _seal(values: dict[str, Any], key: bytes) -> str:
    text = json.dumps([values[name] for name in ("from", "to", "way", "class", "done", "sha256")])
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _read(line: bytes, key: bytes | None) -> Entry | None:
    """Return the entry of a line; None for a line that was half written, or is something else."""
    try:
        values: dict[str, Any] = {"sha256": None, "seal": "", **json.loads(line)}
    except (ValueError, TypeError, RecursionError):
        return None
    texts: list[Any] = [values.get(name) for name in ("from", "to", "way", "class")]
    done, sha256, seal = values.get("done"), values["sha256"], values["seal"]
    sound = isinstance(done, bool) and isinstance(seal, str) and isinstance(sha256, str | None)
    if not sound or not all(isinstance(text, str) and _may_be_path(text) for text in texts):
        return None
    own = key is not None and hmac.compare_digest(_seal(values, key).encode(), seal.encode("utf-8", "replace"))
    source, place, way, below = texts
    return Entry(source, place, way, below, bool(done), sha256, own, line)


def _may_be_path(text: str) -> bool:
    try:
        return bool(text) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False
