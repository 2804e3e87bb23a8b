"""Photos in class folders, copied, linked or moved there and put back on request; and keywords beside photos.

Nothing is ever overwritten. The journal in the folder says of every photo where it came from, before it is done. A
photo that is moved to another disk is removed only after its copy is on that disk. Keywords go into XMP files that
photo managers read: what is new is spliced into the text; every other byte of it stays as it was.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal
from xml.parsers import expat

from fiveshot.data import FileSource
from fiveshot.data.sources import read_regular
from fiveshot.errors import InputError, StorageError, unknown_name
from fiveshot.recognizer.photos.inputs import SPELLING
from fiveshot.recognizer.photos.photo import Photo
from fiveshot.storage import FilePath, atomic_path

JOURNAL = ".fiveshot-journal.jsonl"
UNKNOWN = "_unknown"  # the folder of photos that are unlike every class, or that no answer is sure of
WAYS = ("copy", "link", "move")
Way = Literal["copy", "link", "move"]
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
LONGEST = 200  # bytes of a folder's name; systems allow 255
_ODD = '<>:"|?*\\'  # what some systems do not allow in names
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
SUBJECT = ("http://purl.org/dc/elements/1.1/", "subject", "dc")
HIERARCHY = ("http://ns.adobe.com/lightroom/1.0/", "hierarchicalSubject", "lr")
MAX_SIDECAR = 64 << 20  # bytes
_TAG = re.compile(rb"""<([^\s/>]+)(?:[^"'>]|"[^"]*"|'[^']*')*>""")  # quotes may hold what ends a tag
_EMPTY = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>
"""


@dataclass
class Placed:
    """What became of photos: how many went to each folder, which were there, and which could not be placed."""

    folders: Counter[str] = field(default_factory=Counter)
    there: int = 0  # placed by an earlier run
    refused: list[tuple[str, str]] = field(default_factory=list)  # photo, reason


class ClassFolders:
    """A folder with one folder for each class, and a journal of what was put there.

    Parameters
    ----------
    folder : str or path
        The folder; it is made if need be.
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
        self._known = {(entry["from"], entry["class"]) for entry in read_journal(self.folder) if entry["done"]}
        self._journal: IO[bytes] | None = None
        if not dry_run:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._journal = _open_journal(self.folder / JOURNAL)
            except OSError as error:
                raise self._failed(error) from error

    def put(self, photo: Photo, label: str | None, group: str = "") -> Path | None:
        """Place a photo in the folder of its class, or of its group of unknown ones.

        Return where, or None where that is not possible.
        """
        if not isinstance(photo.source, FileSource):
            self.placed.refused.append((photo.name, "it is not a file of its own, so it cannot be placed"))
            return None
        source = Path(os.path.abspath(photo.source.path))  # noqa: PTH100  # links stay links
        below = folder_name(label) + (f"/{group}" if label is None and group else "")
        if (str(source), below) in self._known:
            self.placed.there += 1
            return None
        target = self._free(self.folder / below / source.name)
        if not self.dry_run:
            try:
                beside = sidecar_of(source) if self.way == "move" else None
                self._place(source, target, below)
                if beside is not None and beside.is_file():  # what is known of a photo goes with it
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
            # What could be written is there: only a line that failed, and was told, is tried once more.
            with contextlib.suppress(OSError):
                self._journal.close()

    def _place(self, source: Path, target: Path, below: str) -> None:
        entry = {"from": str(source), "to": str(target.relative_to(self.folder)), "way": self.way, "class": below}
        self._note({**entry, "done": False})
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.way == "link":
            target.symlink_to(source)
        elif self.way == "copy" or not _renamed(source, target):
            _copied(source, target)
            if self.way == "move":
                source.unlink()
        self._note({**entry, "done": True, "look": _look(target)})

    def _note(self, entry: dict[str, Any]) -> None:
        assert self._journal is not None
        self._journal.write((json.dumps(entry) + "\n").encode())
        self._journal.flush()
        if self.way == "move":
            os.fsync(self._journal.fileno())  # whatever happens next, it is known where the photo came from

    def _free(self, target: Path) -> Path:
        """Return a path that is not taken: a photo of the same name gets a number."""
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
            hint=f"nothing is lost: {mend} and repeat the command, or undo it: fiveshot put-back {self.folder}",
            code="not_placed",
        )


@dataclass(frozen=True)
class PutBack:
    """What was undone, and what was left alone because it has changed since."""

    undone: int
    left: tuple[tuple[str, str], ...]  # place in the folder, reason


def put_back(folder: FilePath, *, dry_run: bool = False) -> PutBack:
    """Undo what was done in a folder, the last first: copies and links go, moved photos go where they came from.

    What has changed since is left alone, and so is a photo whose old place is taken.

    Parameters
    ----------
    folder : str or path
        The folder that photos were placed in.
    dry_run : bool
        Whether to change nothing, and only say what would be done.

    Returns
    -------
    PutBack
        How many were undone, and which were left.

    Raises
    ------
    InputError
        With the code ``no_journal`` where there is nothing to undo.
    """
    where = Path(folder)
    if not where.is_dir():
        raise InputError(f"no such folder: {where}", hint=SPELLING, code="no_journal")
    entries = list(read_journal(where))
    if not entries:
        raise InputError(
            f"{where} has no journal of photos that were placed there",
            hint="name the folder that was given with --into",
            code="no_journal",
        )
    left: list[tuple[str, str]] = []
    kept: list[dict[str, Any]] = []
    undone = 0
    for entry in reversed(entries):
        try:
            reason = _undone(where, entry, dry_run)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            left.append((entry["to"], reason))
            kept.append(entry)
        elif entry["done"]:
            undone += 1
    if not dry_run:
        _forget_journal(where, kept[::-1])
    return PutBack(undone, tuple(left))


def read_journal(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what was placed in a folder, the first first; a photo that was begun and not finished is not done."""
    entries: dict[str, dict[str, Any]] = {}
    try:
        with (folder / JOURNAL).open("rb") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                    entries[entry["to"]] = {"look": None, **entry}
                except (ValueError, KeyError, TypeError):
                    continue  # a line that was half written
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from (one for one in entries.values() if {"from", "way", "class", "done"} <= set(one))


def folder_name(label: str | None) -> str:
    """Return the folder of a class, below the one that holds all: groups are folders of their own.

    >>> folder_name("owl/barn owl"), folder_name(None), folder_name("../etc"), folder_name("a:b")
    ('owl/barn owl', '_unknown', '%2E%2E/etc', 'a%3Ab')
    """
    if label is None:
        return UNKNOWN
    parts = [_safe(part) for part in label.split("/") if part.strip()]
    name = "/".join(parts) or _safe(label)
    return f"{name} (class)" if name == UNKNOWN else name


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
    """Move a file on its own disk without ever replacing another; False where only a copy can do it."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if isinstance(error, FileExistsError) or error.errno in (errno.ENOENT, errno.ENOSPC):
            raise
        return False  # another disk, or one that knows no second names
    source.unlink()
    return True


def _copied(source: Path, target: Path) -> None:
    """Copy a file to a place that nothing lies at; what cannot be finished is taken away again."""
    with source.open("rb") as reading, target.open("xb") as writing:
        try:
            shutil.copyfileobj(reading, writing, 1 << 20)
            writing.flush()
            os.fsync(writing.fileno())
        except BaseException:
            target.unlink()
            raise
    shutil.copystat(source, target)


def _look(path: Path) -> list[int]:
    found = path.lstat()
    return [found.st_size, found.st_mtime_ns]


def _undone(folder: Path, entry: dict[str, Any], dry_run: bool) -> str:
    """Undo one entry; return why not, where that is so."""
    target, source = folder / entry["to"], Path(entry["from"])
    if not _inside(folder, target):
        return "the journal names a place outside of the folder"
    if not os.path.lexists(target):
        return "" if not entry["done"] or entry["way"] != "move" or source.exists() else "it is not there any more"
    if not entry["done"] and entry["way"] == "move" and not source.exists():
        entry = {**entry, "done": True, "look": _look(target)}  # stopped after the move, before the note
    if entry["done"] and _look(target) != entry["look"]:
        return "it has changed since"
    if entry["way"] == "move" and entry["done"]:
        if os.path.lexists(source):
            return f"its old place {source} is taken"
        if not dry_run:
            source.parent.mkdir(parents=True, exist_ok=True)
            if not _renamed(target, source):
                _copied(target, source)
                target.unlink()
    elif not dry_run:
        target.unlink()
    if not dry_run:
        _remove_empty(target.parent, folder)
    return ""


def _inside(folder: Path, target: Path) -> bool:
    return Path(os.path.normpath(target)).is_relative_to(os.path.normpath(folder))


def _remove_empty(folder: Path, top: Path) -> None:
    while folder != top and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _open_journal(path: Path) -> IO[bytes]:
    """Open a journal to go on with it, after a last line that was half written."""
    journal = path.open("a+b")
    size = journal.tell()
    if size:
        journal.seek(size - 1)
        if journal.read(1) != b"\n":
            journal.write(b"\n")
    return journal


def _forget_journal(folder: Path, kept: list[dict[str, Any]]) -> None:
    """Leave only what was not undone in the journal."""
    journal = folder / JOURNAL
    if kept:
        text = "".join(json.dumps(entry) + "\n" for entry in kept)
        part = journal.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(journal)
    else:
        journal.unlink(missing_ok=True)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def sidecar_of(photo: Path) -> Path:
    """Return the sidecar of a photo: the one that is there, else ``photo.jpg.xmp``.

    Some programs leave the photo's own ending out; such a file is gone on with.
    """
    full = photo.with_name(f"{photo.name}.xmp")
    short = photo.with_suffix(".xmp")
    return short if short.is_file() and not full.exists() else full


def write_keywords(photo: Path, label: str) -> bool:
    """Add the name of a class to the keywords in the sidecar of a photo; False where it has them already.

    The parts of a name with groups, such as ``owl/barn owl``, are keywords each, and together a hierarchical one.

    Raises
    ------
    InputError
        With the code ``bad_sidecar`` where there is a sidecar that cannot be read; it stays as it is.
    """
    file = sidecar_of(photo)
    before = read_regular(file, limit=MAX_SIDECAR) if file.exists() else _EMPTY.encode()
    levels = [part.strip() for part in label.split("/") if part.strip()] or [label]
    try:
        after = with_keywords(before, SUBJECT, levels)
        if len(levels) > 1:
            after = with_keywords(after, HIERARCHY, ["|".join(part.replace("|", " ") for part in levels)])
        keywords_in(after, SUBJECT)  # what was written can be read
    except (expat.ExpatError, UnicodeDecodeError, ValueError) as error:
        raise InputError(
            f"the sidecar {file} cannot be read ({error})", hint="repair or remove it", code="bad_sidecar"
        ) from error
    if after == before:
        return False
    with atomic_path(file) as temporary:
        temporary.write_bytes(after)
    return True


def with_keywords(data: bytes, name: tuple[str, str, str], words: Sequence[str]) -> bytes:
    """Return the text of a sidecar with these words in a list, which is made if need be."""
    from xml.sax.saxutils import escape, quoteattr  # with all that fetches documents from the web

    found = _look_through(data, name)
    missing = [word for word in words if word not in found.words]
    if not missing:
        return data
    if found.rdf is None:
        raise ValueError("it has no rdf:RDF in it")
    space, local, prefix = name
    items = "".join(f"<rdf:li xmlns:rdf={quoteattr(RDF)}>{escape(_clean(word))}</rdf:li>" for word in missing)
    if found.bag is not None:
        return _spliced(data, found.bag, items)
    bag = f"<rdf:Bag xmlns:rdf={quoteattr(RDF)}>{items}</rdf:Bag>"
    if found.around is not None:
        return _spliced(data, found.around, bag)
    about = quoteattr(found.about)
    return _spliced(
        data,
        found.rdf,
        f"<rdf:Description xmlns:rdf={quoteattr(RDF)} rdf:about={about} xmlns:{prefix}={quoteattr(space)}>"
        f"<{prefix}:{local}>{bag}</{prefix}:{local}></rdf:Description>\n",
    )


def keywords_in(data: bytes, name: tuple[str, str, str] = SUBJECT) -> list[str]:
    """Return the words of a list in a sidecar."""
    return _look_through(data, name).words


Span = tuple[int, int]  # where an element begins and where its end tag does


@dataclass
class _Found:
    """Where things are in a sidecar: the element of all, the list that is looked for, its bag and its words."""

    rdf: Span | None = None
    around: Span | None = None  # the list, around its bag
    bag: Span | None = None
    about: str = ""
    words: list[str] = field(default_factory=list)


def _look_through(data: bytes, name: tuple[str, str, str]) -> _Found:
    data.decode("utf-8")  # places are counted in bytes of this encoding
    found, wanted = _Found(), f"{name[0]} {name[1]}"
    parser = expat.ParserCreate(namespace_separator=" ")
    path: list[tuple[str, int]] = []
    text: list[str] = []

    def refuse(*_: object) -> None:
        raise ValueError("it has a document type, which no sidecar needs")

    def start(tag: str, attributes: dict[str, str]) -> None:
        path.append((tag, parser.CurrentByteIndex))
        text.clear()
        if tag == f"{RDF} Description" and len(path) >= 2 and path[-2][0] == f"{RDF} RDF":
            found.about = attributes.get(f"{RDF} about", found.about)

    def end(tag: str) -> None:
        span = (path.pop()[1], parser.CurrentByteIndex)
        above = [one for one, _ in path]
        if tag == f"{RDF} RDF":
            found.rdf = found.rdf or span
        elif tag == wanted and above[-1:] == [f"{RDF} Description"]:
            found.around = found.around or span
        elif above[-1:] == [wanted] and tag in (f"{RDF} Bag", f"{RDF} Seq"):
            found.bag = found.bag or span
        elif above[-2:-1] == [wanted] and tag == f"{RDF} li":
            found.words.append("".join(text))

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = text.append
    parser.Parse(data, True)
    return found


def _spliced(data: bytes, span: Span, text: str) -> bytes:
    """Return data with text at the end of an element, which may be an empty one in short form."""
    tag = _TAG.match(data, span[0])
    assert tag is not None  # the parser has read it
    if not tag[0].endswith(b"/>"):
        return data[: span[1]] + text.encode() + data[span[1] :]
    return data[: tag.end() - 2] + b">" + text.encode() + b"</" + tag[1] + b">" + data[tag.end() :]


def _clean(word: str) -> str:
    """Return a word without what XML cannot hold."""
    return "".join(one if one.isprintable() else " " for one in word)
