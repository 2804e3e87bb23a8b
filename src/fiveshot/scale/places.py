"""Files by path or URL, through fsspec: a disk, S3-style stores, HTTP, or anything else it has a driver for."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

from fiveshot.data.source import ImageError
from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.scale.persistent_stream import PersistentStream, persistently

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_MARKS = ("size", "mtime", "created", "LastModified", "last_modified", "ETag", "etag", "md5Hash", "crc")


@dataclass(frozen=True, eq=False)
class StoredFile:
    """A file that any process with the same drivers and credentials can open; ``mark`` changes when it does."""

    filesystem: Any
    path: str
    name: str  # relative to the folder that was asked for
    mark: str

    def open(self) -> PersistentStream:
        """Open the file for reading; a connection that breaks is made again."""
        return PersistentStream(lambda: self.filesystem.open(self.path, "rb"), self.path)

    def read(self) -> bytes:
        """Return all bytes; a connection that breaks is made again."""
        data: bytes = persistently(lambda: self.filesystem.cat_file(self.path), self.path)
        return data


@dataclass(frozen=True, eq=False)
class UrlSource:
    """An image behind a URL."""

    file: StoredFile
    name: str

    def read(self) -> bytes:
        """Return the bytes of the file, or raise ``fiveshot.data.ImageError`` where there is none."""
        try:
            return self.file.read()
        except FileNotFoundError as error:
            raise ImageError(self.name, f"cannot read {self.file.path}: {error}") from error


def is_url(where: str) -> bool:
    """Tell whether this is a URL and not a path.

    >>> is_url("s3://photos/birds"), is_url("photos/birds")
    (True, False)
    """
    return "://" in where or "::" in where


def find_files(where: str) -> list[StoredFile]:
    """Return the file, all files below the folder, or those that match ``*`` and ``{000..127}``, by path."""
    found: dict[str, StoredFile] = {}
    for pattern in expand_ranges(where):
        filesystem, path = _opened(pattern)
        try:
            listed = _listing(filesystem, path)
        except FileNotFoundError:
            listed = {}
        except Exception as error:
            raise InputError(f"cannot list {where}: {error}") from error
        start = _folder(path, listed)
        for file, info in listed.items():
            name = file.removeprefix(start)
            if not _hidden(name):
                found[file] = StoredFile(filesystem, file, name, _mark(info))
    if not found:
        raise InputError(f"no such folder, file or pattern: {where}")
    return [found[name] for name in sorted(found)]


def expand_ranges(pattern: str) -> list[str]:
    """Return the names that number ranges in braces stand for.

    >>> expand_ranges("birds-{08..10}.tar")
    ['birds-08.tar', 'birds-09.tar', 'birds-10.tar']
    """
    parts = _RANGE.split(pattern)
    texts, ranges = parts[::3], zip(parts[1::3], parts[2::3], strict=True)
    choices = [[f"{n:0{len(low)}}" for n in range(int(low), int(high) + 1)] for low, high in ranges]
    return [
        "".join(itertools.chain(*itertools.zip_longest(texts, chosen, fillvalue="")))
        for chosen in itertools.product(*choices)
    ]


def _opened(where: str) -> tuple[Any, str]:
    core = import_extra("fsspec.core", extra="ray")
    try:
        filesystem, path = core.url_to_fs(where)
    except (ImportError, ValueError) as error:
        raise InputError(f"cannot open {where}: {error}") from error
    return filesystem, path


def _listing(filesystem: Any, path: str) -> dict[str, dict[str, Any]]:
    if any(sign in path for sign in "*?["):
        found: dict[str, dict[str, Any]] = filesystem.glob(path, detail=True)
        return {name: info for name, info in found.items() if info["type"] == "file"}
    if filesystem.isdir(path):
        found = filesystem.find(path, detail=True)
        return found
    return {path: filesystem.info(path)}


def _folder(path: str, listed: dict[str, Any]) -> str:
    """Return what names are relative to: the folder itself, or that of a file or pattern, with its slash."""
    whole = path.rstrip("/")
    if path in listed or any(sign in path for sign in "*?["):
        whole = re.split(r"[*?[]", path)[0].rpartition("/")[0]
    return f"{whole}/" if whole else ""


def _hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))


def _mark(info: dict[str, Any]) -> str:
    return " ".join(f"{key}={info[key]}" for key in _MARKS if info.get(key) is not None)
