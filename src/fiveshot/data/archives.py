"""Read tar and zip archives safely: plain files only, no paths outside the folder, no links, no bombs."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO, NoReturn, Self, cast

from fiveshot.errors import FiveshotError, InputError
from fiveshot.storage import attempting

CHUNK = 1 << 20  # bytes read at a time
MIB = 1 << 20
ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".zip")
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
_DRIVE = re.compile(r"^[A-Za-z]:")
_OPENERS: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"BZh": bz2.BZ2File,
}


@dataclass(frozen=True)
class ArchiveLimits:
    """Limits on an archive: far above any image dataset, far below what does harm."""

    members: int = 5_000_000
    member_bytes: int = 2048 * MIB
    total_bytes: int = 1024 * 1024 * MIB
    ratio: float = 100.0  # unpacked to packed; photographs are near 1, bombs beyond 1,000
    ratio_from: int = 256 * MIB  # the ratio of smaller archives is not limited: flat drawings compress very well


ARCHIVE_LIMITS = ArchiveLimits()


def refuse(archive: Path, reason: str) -> NoReturn:
    """Raise the error for an archive that is not safe to read."""
    raise InputError(f"refused to read {archive}: {reason}", hint="pack it again with plain files only")


def checked_name(archive: Path, name: str) -> str:
    """Return a member's name in normal form, or refuse one that leads out of the folder.

    >>> checked_name(Path("a.tar"), "./train/cat/1.jpg")
    'train/cat/1.jpg'
    >>> checked_name(Path("a.tar"), "train/../../1.jpg")
    Traceback (most recent call last):
    fiveshot.errors.InputError: refused to read a.tar: member 'train/../../1.jpg' leads out of the ...
    """
    forward = name.replace("\\", "/")
    parts = [part for part in forward.split("/") if part not in ("", ".")]
    if forward.startswith("/") or _DRIVE.match(forward) or ".." in parts or "\0" in name:
        refuse(archive, f"member {name!r} leads out of the archive's folder")
    return "/".join(parts)


class Meter:
    """Adds up the unpacked size of an archive, and refuses it as soon as a limit is exceeded."""

    def __init__(self, archive: Path, limits: ArchiveLimits) -> None:
        self._archive = archive
        self._limits = limits
        self._packed = max(1, archive.stat().st_size)
        self._members = 0
        self._total = 0

    def member(self, name: str, size: int) -> None:
        """Count one member of the declared size before it is unpacked."""
        self._members += 1
        if self._members > self._limits.members:
            refuse(self._archive, f"more than {self._limits.members:,} members, at {name!r}")
        if size > self._limits.member_bytes:
            refuse(self._archive, f"member {name!r} unpacks to {size:,} bytes")
        self.unpacked(size, name)

    def unpacked(self, size: int, name: str) -> None:
        """Count bytes that were, or would be, unpacked."""
        self._total += size
        ratio = self._total / self._packed
        bomb = self._total > self._limits.ratio_from and ratio > self._limits.ratio
        if bomb or self._total > self._limits.total_bytes:
            found = f"at member {name!r} its {self._packed:,} bytes have unpacked to {self._total:,}"
            refuse(self._archive, f"{found}, which is more than allowed")


def is_archive(path: Path) -> bool:
    """Tell whether the name is that of an archive.

    >>> is_archive(Path("birds.TAR.gz")), is_archive(Path("birds.npz"))
    (True, False)
    """
    return path.name.lower().endswith(ARCHIVE_SUFFIXES)


def is_zip(path: Path) -> bool:
    """Tell a zip from a tar by its first bytes, not by its name."""
    return _first_bytes(path).startswith(b"PK")


@contextmanager
def decompressed(path: Path, limits: ArchiveLimits) -> Iterator[IO[bytes]]:
    """Open a tar, compressed or not, for reading from start to end under the limits."""
    with cast("IO[bytes]", _opener(path)(path)) as stream:
        yield cast("IO[bytes]", _LimitedStream(stream, Meter(path, limits)))


class TemporaryTar:
    """A compressed tar, unpacked into an unnamed temporary file that vanishes when the process ends."""

    def __init__(self, path: Path, limits: ArchiveLimits) -> None:
        self.file = cast("IO[bytes]", tempfile.TemporaryFile(buffering=0))  # noqa: SIM115 lives as long as this
        weakref.finalize(self, self.file.close)
        self._lock = Lock()
        with decompressed(path, limits) as stream:
            while chunk := stream.read(CHUNK):
                with attempting(f"unpack {path} into {tempfile.gettempdir()}", hint="nothing was left behind"):
                    write_all(self.file, chunk)

    def read_at(self, offset: int, size: int) -> bytes:
        """Return bytes at an offset; safe with other threads and forked processes."""
        if hasattr(os, "pread"):
            return os.pread(self.file.fileno(), size, offset)
        with self._lock:  # Windows, which does not fork
            self.file.seek(offset)
            return self.file.read(size)


class _LimitedStream:
    def __init__(self, stream: IO[bytes], meter: Meter) -> None:
        self._stream = stream
        self._meter = meter

    def read(self, size: int = CHUNK) -> bytes:
        data = self._stream.read(size)
        self._meter.unpacked(len(data), "(compressed stream)")
        return data


def _opener(path: Path) -> Callable[[Path], object]:
    """Return the function that opens a tar, chosen by its first bytes, not by its name."""
    first = _first_bytes(path)
    return next((opener for magic, opener in _OPENERS.items() if first.startswith(magic)), io.FileIO)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(6)


def write_all(file: IO[bytes], chunk: bytes) -> None:
    """Write every byte to an unbuffered file, which may take only some of them at a time."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]


class StrictTarInfo(tarfile.TarInfo):
    """A tar entry that reports an unreadable header as damage; tarfile treats it as the end."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        """Return the next entry; only a proper end mark ends the tar."""
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined] # missing in the stubs
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"unexpected end of data: {error}") from error


@dataclass(frozen=True, eq=False)
class Archive:
    """An archive whose members have been checked; only plain files are listed."""

    path: Path
    unpacked: TemporaryTar | None  # where the bytes of a compressed tar are
    members: Mapping[str, tarfile.TarInfo | zipfile.ZipInfo]  # by normalized name, in archive order

    def size(self, name: str) -> int:
        """Return how many bytes a member unpacks to."""
        member = self._member(name)
        return member.file_size if isinstance(member, zipfile.ZipInfo) else member.size

    def read(self, name: str) -> bytes:
        """Return the bytes of one member."""
        member = self._member(name)
        with damage_reported(self.path, name):
            if isinstance(member, zipfile.ZipInfo):
                with _zip_handle(self, os.getpid()).open(member) as file:
                    # Read in pieces up to the declared size: a member with a false size cannot fill the memory.
                    return b"".join(iter(lambda: file.read(CHUNK), b""))
            if self.unpacked is not None:
                data = self.unpacked.read_at(member.offset_data, member.size)
            else:
                with self.path.open("rb") as plain:
                    plain.seek(member.offset_data)
                    data = plain.read(member.size)
            if len(data) < member.size:
                raise EOFError("unexpected end of data")
            return data

    def _member(self, name: str) -> tarfile.TarInfo | zipfile.ZipInfo:
        if name not in self.members:
            raise InputError(f"{self.path} has no member {name!r}")
        return self.members[name]


def open_archive(path: Path, limits: ArchiveLimits = ARCHIVE_LIMITS) -> Archive:
    """Index an archive after checking every member; a second call for the same file costs nothing.

    A compressed tar has no index, so it is unpacked once into a temporary tar.
    """
    with damage_reported(path):
        status = path.stat()
        return _index(path, limits, status.st_mtime_ns, status.st_size)


def tar_members(path: Path, file: tarfile.TarFile, limits: ArchiveLimits) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield the plain files of a tar in order, with their normalized names, refusing anything else."""
    meter = Meter(path, limits)
    for info in file:
        name = checked_name(path, info.name)
        if not (info.isreg() or info.isdir()) or info.issparse():
            refuse(path, f"member {info.name!r} is a link or a special file")
        meter.member(name, info.size)
        if info.isreg():
            yield name, info


def zip_members(path: Path, file: zipfile.ZipFile, limits: ArchiveLimits) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yield the plain files of a zip in order, with their normalized names, refusing anything else."""
    meter = Meter(path, limits)
    for info in file.infolist():
        name = checked_name(path, info.filename)
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            refuse(path, f"member {info.filename!r} is a link or a special file")
        if info.flag_bits & 0x1:
            refuse(path, f"member {info.filename!r} is encrypted")
        meter.member(name, info.file_size)
        if not info.is_dir():
            yield name, info


@contextmanager
def damage_reported(path: Path, member: str | None = None) -> Iterator[None]:
    """Turn the exceptions of a damaged or missing archive into an error that names it."""
    where = str(path) if member is None else f"member {member!r} of {path}"
    try:
        yield
    except FiveshotError:
        raise
    except _DAMAGE as error:
        raise InputError(f"{where} is damaged, truncated or not a tar or zip archive ({error})") from error
    except OSError as error:  # gzip reports damage this way too, without an errno
        raise InputError(f"cannot read {where}: {error.strerror or error}") from error


@lru_cache(maxsize=16)
def _index(path: Path, limits: ArchiveLimits, _changed: int, _size: int) -> Archive:
    if is_zip(path):
        with zipfile.ZipFile(path) as archive:
            return Archive(path, None, dict(zip_members(path, archive, limits)))
    if _opener(path) is io.FileIO:
        with tarfile.open(path, "r:", tarinfo=StrictTarInfo) as tar:
            return Archive(path, None, dict(tar_members(path, tar, limits)))
    unpacked = TemporaryTar(path, limits)
    unpacked.file.seek(0)
    with tarfile.open(fileobj=unpacked.file, mode="r:", tarinfo=StrictTarInfo) as tar:
        return Archive(path, unpacked, dict(tar_members(path, tar, limits)))


@lru_cache(maxsize=16)
def _zip_handle(archive: Archive, _process: int) -> zipfile.ZipFile:
    # One handle per process: forked workers would share its position in the file.
    return zipfile.ZipFile(archive.path)
