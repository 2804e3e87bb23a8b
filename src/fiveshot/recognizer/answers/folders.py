"""Copy, link or move photos to class folders, and put them back on request.

Nothing is ever overwritten. The origin of every photo is written to the journal in the folder before it is placed.
A photo that is moved to another disk is removed only after its copy is on that disk. Nothing is placed or removed
behind a link, and only unchanged files are put back.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fiveshot.data import FileSource, Photo, open_regular
from fiveshot.errors import FiveshotError, InputError, StorageError, command, unknown_name
from fiveshot.recognizer.answers._journal import JOURNAL, Entry, Journal, read_journal, rewrite_journal
from fiveshot.recognizer.answers.sidecars import sidecar_of
from fiveshot.recognizer.photos.inputs import SPELLING
from fiveshot.storage import FilePath

__all__ = [
    "JOURNAL",
    "ClassFolders",
    "Placed",
    "PutBack",
    "Way",
    "folder_name",
    "free_places",
    "put_back",
]

UNKNOWN_FOLDER = "_unknown"  # the folder of unknown and unsure photos
WAYS = ("copy", "link", "move")
Way = Literal["copy", "link", "move"]
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LONGEST_SUFFIX = 10  # characters; a longer one is a part of the name
LONGEST = 200  # bytes of a folder's name; systems allow 255
_ODD = '<>:"|?*\\'  # what some systems do not allow in names


@dataclass
class Placed:
    """The result: how many photos went to each folder, which were there already, and which could not be placed."""

    folders: Counter[str] = field(default_factory=Counter)
    there: int = 0  # placed by an earlier run, or in the folder of their class already
    refused: list[tuple[str, str]] = field(default_factory=list)  # photo, reason


class ClassFolders:
    """A folder with one folder for each class, and a journal of placed photos.

    Parameters
    ----------
    folder : str or path
        The folder; created if it does not exist.
    way : {"copy", "link", "move"}
        What happens to photos.
    dry_run : bool
        Whether to change nothing, and only say what would be done.
    """

    def __init__(self, folder: FilePath, way: Way = "copy", *, dry_run: bool = False) -> None:
        if way not in WAYS:
            raise unknown_name("way to place photos", way, WAYS)
        self.folder, self.way, self.dry_run = Path(folder), way, dry_run
        self.placed = Placed()
        self._taken: set[Path] = set()  # by a dry run
        entries = read_journal(self.folder)
        self._known = {(entry.source, entry.below) for entry in entries if entry.done}
        self._written = {_real(self.folder / entry.place) for entry in entries}
        self._journal: Journal | None = None
        if not dry_run:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._journal = Journal(self.folder)
            except StorageError:
                raise
            except OSError as error:
                raise self._failed(error) from error

    def has(self, photo: Photo) -> bool:
        """Return whether a photo was placed here by this run or an earlier one; it is not placed again."""
        return isinstance(photo.source, FileSource) and _real(photo.source.path) in self._written

    def put(self, photo: Photo, label: str | None, group: str = "") -> Path | None:
        """Place a photo in the folder of its class, or of its group of unknown ones.

        Return its path, or None if that is not possible.
        """
        if not isinstance(photo.source, FileSource):
            self.placed.refused.append((photo.name, "it is not a single file, so it cannot be placed"))
            return None
        source = Path(os.path.abspath(photo.source.path))  # noqa: PTH100  # links stay links
        below = folder_name(label) + (f"/{group}" if label is None and group else "")
        is_there = _real(source).parent == (self.folder / below).resolve()
        if is_there or (str(source), below) in self._known or self.has(photo):
            self.placed.there += 1
            return None
        link = _link_on_the_way(self.folder, f"{below}/{source.name}")
        if link is not None:
            self.placed.refused.append((photo.name, f"{link} is a link, and photos are not placed behind links"))
            return None
        target = self._free(self.folder / below / source.name)
        if not self.dry_run:
            try:
                beside = sidecar_of(source) if self.way == "move" else None
                self._place(source, target, below)
                if beside is not None and beside.is_file():  # sidecars go with the photo
                    own = beside.name.removeprefix(source.name) == ".xmp"
                    name = f"{target.name if own else target.stem}.xmp"
                    self._place(beside, self._free(target.with_name(name)), below)
            except OSError as error:
                raise self._failed(error, source) from error
        self._known.add((str(source), below))
        self.placed.folders[below] += 1
        return target

    def close(self) -> None:
        """Close the journal."""
        if self._journal is not None:
            self._journal.close()

    def _place(self, source: Path, target: Path, below: str) -> None:
        assert self._journal is not None
        moved = self.way == "move"  # from here on the origin of the photo is on the disk
        content = _content(source) if moved else None
        entry = Entry(str(source), str(target.relative_to(self.folder)), self.way, below, False, content)
        self._journal.note(entry, at_once=moved)
        self._written.add(_real(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.way == "link":
            target.symlink_to(source)
        elif self.way == "copy" or not _renamed(source, target):
            _copied(source, target)
            if moved:
                source.unlink()
        self._journal.note(replace(entry, done=True, sha256=_content(target)), at_once=moved)

    def _free(self, target: Path) -> Path:
        """Return an unused path: a photo of the same name gets a number."""
        found, number = target, 1
        while os.path.lexists(found) or found in self._taken:
            number += 1
            found = target.with_name(f"{target.stem} ({number}){target.suffix}")
        if self.dry_run:
            self._taken.add(found)
        return found

    def _failed(self, error: OSError, source: Path | None = None) -> StorageError:
        about = f" with {source}" if source is not None else ""
        count = self.placed.folders.total()
        mend = "make room" if error.errno in _NO_ROOM else "put that right"
        return StorageError(
            f"cannot go on{about} in {self.folder}: {error.strerror or error}; {count:,} were placed before",
            hint=f"nothing is lost: {mend} and repeat the command, or undo it: {command('put-back', self.folder)}",
            code="not_placed",
        )


@dataclass(frozen=True)
class PutBack:
    """What was undone, and what was left because it has changed since."""

    undone: int
    left: tuple[tuple[str, str], ...]  # place in the folder, reason


def put_back(folder: FilePath, *, trusted: bool = False, dry_run: bool = False) -> PutBack:
    """Undo the placing of photos in a folder, the last first: remove copies and links, move photos back.

    Not undone are: changed files, a copy whose original has changed or is gone, a photo whose old path is in use,
    anything outside of the folder or behind a link, and photos that another user has placed.

    Parameters
    ----------
    folder : str or path
        The folder that photos were placed in.
    trusted : bool
        Whether to trust a journal of another user or another machine: it decides where photos are moved to.
    dry_run : bool
        Whether to change nothing, and only say what would be done.

    Returns
    -------
    PutBack
        How many were undone, and which were left.

    Raises
    ------
    InputError
        With the code ``no_journal`` if there is nothing to undo.
    """
    where = Path(folder)
    if not where.is_dir():
        raise InputError(f"no such folder: {where}", hint=SPELLING, code="no_journal")
    entries = read_journal(where)
    if not entries:
        raise InputError(
            f"{where} has no journal of placed photos",
            hint="give the folder that was used with --into",
            code="no_journal",
        )
    left: list[tuple[str, str]] = []
    kept: list[Entry] = []
    undone = 0
    for entry in reversed(entries):
        try:
            reason = _undone(where, entry, trusted=trusted, dry_run=dry_run)
        except (OSError, InputError) as error:
            reason = error.message if isinstance(error, FiveshotError) else error.strerror or str(error)
        if reason:
            left.append((entry.place, reason))
            kept.append(entry)
        elif entry.done:
            undone += 1
    if not dry_run:
        rewrite_journal(where, kept[::-1])
        with contextlib.suppress(OSError):  # not empty, or in use
            where.rmdir()
    return PutBack(undone, tuple(left))


def folder_name(label: str | None) -> str:
    """Return the folder of a class, relative to the main folder: groups are folders, too.

    >>> folder_name("owl/barn owl"), folder_name(None), folder_name("../etc"), folder_name("a:b")
    ('owl/barn owl', '_unknown', '%2E%2E/etc', 'a%3Ab')
    """
    if label is None:
        return UNKNOWN_FOLDER
    parts = [_safe(part) for part in label.split("/") if part.strip()]
    name = "/".join(parts) or _safe(label)
    return f"{name} (class)" if name == UNKNOWN_FOLDER else name


def free_places(photos: Iterable[tuple[str, str | None, str]]) -> list[str]:
    """Return a place for each photo, given by its name, class and group: a folder and a safe name of its own.

    Names that differ only in case are one name, because some systems do not tell them apart.

    >>> free_places([("a.jpg", "owl", ""), ("A.jpg", "owl", ""), ("../b.jpg", None, "g3")])
    ['owl/a.jpg', 'owl/A (2).jpg', '_unknown/g3/%2E%2E%2Fb.jpg']
    """
    found: list[str] = []
    taken: set[str] = set()
    for name, label, group in photos:
        folder = folder_name(label) + (f"/{group}" if label is None and group else "")
        stem, dot, suffix = name.rpartition(".")
        if not stem or len(suffix) > LONGEST_SUFFIX:
            stem, dot, suffix = name, "", ""
        stem, suffix = _safe(stem), dot + _safe(suffix)
        place, number = f"{folder}/{stem}{suffix}", 1
        while place.casefold() in taken:
            number += 1
            place = f"{folder}/{stem} ({number}){suffix}"
        taken.add(place.casefold())
        found.append(place)
    return found


def _safe(part: str) -> str:
    part = part.strip()
    found = "".join(
        f"%{ord(one):02X}" if one in _ODD or not one.isprintable() or one == "/" else one for one in part
    )
    if set(found) <= {"."} or found.startswith("."):  # hidden folders, and the one above
        found = "".join("%2E" if one == "." else one for one in found)
    found = found.rstrip(".")
    if len(found.encode("utf-8", "backslashreplace")) > LONGEST:
        digest = hashlib.sha256(found.encode("utf-8", "backslashreplace")).hexdigest()[:8]
        found = f"{found.encode('utf-8', 'backslashreplace')[: LONGEST - 10].decode('utf-8', 'ignore')} {digest}"
    return found


def _renamed(source: Path, target: Path) -> bool:
    """Move a file on the same disk without replacing another; False if it must be copied."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno in (errno.ENOENT, errno.ENOSPC):
            raise
        return False  # another disk, or one that knows no second names
    source.unlink()
    return True


def _copied(source: Path, target: Path) -> None:
    """Copy a file to an unused path; remove an incomplete copy."""
    with source.open("rb") as reading, target.open("xb") as writing:
        try:
            shutil.copyfileobj(reading, writing, 1 << 20)
            writing.flush()
            os.fsync(writing.fileno())
        except BaseException:
            target.unlink()
            raise
    shutil.copystat(source, target)


def _real(path: Path) -> Path:
    """Return the real path of a file, which may be a link itself."""
    return path.parent.resolve() / path.name


def _content(path: Path) -> str:
    """Return the SHA-256 of a file, or of what a link says."""
    if path.is_symlink():
        return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _undone(folder: Path, entry: Entry, *, trusted: bool, dry_run: bool) -> str:
    """Undo one entry; return the reason if that is not possible."""
    target, source = folder / entry.place, Path(entry.source)
    if not _is_below(entry.place):
        return "the journal names a path outside of the folder"
    link = _link_on_the_way(folder, entry.place)
    if link is not None:
        return f"it is behind the link {link}"
    moved = entry.way == "move" and (entry.done or not os.path.lexists(source))
    if not (entry.own or trusted):
        would = f"it was not moved to {source}" if moved else "it was not undone"
        return f"you did not place it from here, so {would} (--trust accepts the journal)"
    if not os.path.lexists(target):
        return "it is no longer there" if moved and entry.done and not os.path.lexists(source) else ""
    if moved:
        reason = _why_not_moved(target, source, entry)
    elif entry.way == "link":
        same = target.is_symlink() and str(target.readlink()) == entry.source
        reason = "" if same else _CHANGED
    else:
        reason = _why_kept(target, source, entry)
    if reason or dry_run:
        return reason
    if not moved:
        target.unlink()
    else:
        source.parent.mkdir(parents=True, exist_ok=True)
        if not _renamed(target, source):
            _copied(target, source)
            target.unlink()
    _remove_empty(target.parent, folder)
    return ""


_CHANGED = "it has changed since"


def _why_not_moved(target: Path, source: Path, entry: Entry) -> str:
    if entry.sha256 is not None and _content(target) != entry.sha256:
        return _CHANGED
    return f"its old place {source} is taken" if os.path.lexists(source) else ""


def _why_kept(target: Path, source: Path, entry: Entry) -> str:
    """Return why a copy is not removed: it was changed, or it is the only file with this content."""
    found = target.lstat()
    if not stat.S_ISREG(found.st_mode):
        return _CHANGED
    if not source.is_file():
        return f"its original {source} is gone"
    if os.path.samestat(source.stat(), found) and (found.st_nlink < 2 or source.resolve() == target.resolve()):
        return f"its original {source} is a link to it"
    if not entry.done:
        return "" if _begins_with(source, target) else "it is not the copy that was begun"
    content = _content(target)
    if content != (entry.sha256 or content):
        return _CHANGED
    return "" if _content(source.resolve()) == content else f"its original {source} has changed since"


def _begins_with(whole: Path, part: Path) -> bool:
    """Return whether a file begins with the bytes of another one."""
    with open_regular(whole) as one, open_regular(part) as other:
        while piece := other.read(1 << 20):
            if one.read(len(piece)) != piece:
                return False
    return True


def _is_below(place: str) -> bool:
    """Return whether a path is really below a folder, by its name."""
    path = Path(place)
    return bool(path.parts) and not path.anchor and ".." not in path.parts


def _link_on_the_way(folder: Path, place: str) -> Path | None:
    """Return the first folder between a folder and a path in it that is a link."""
    parents = list(Path(place).parents)[-2::-1]  # without the folder itself, the outermost first
    return next((folder / parent for parent in parents if (folder / parent).is_symlink()), None)


def _remove_empty(folder: Path, top: Path) -> None:
    while folder != top and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent
