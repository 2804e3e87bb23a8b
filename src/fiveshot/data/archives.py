"""Read tar and zip archives in place, member by member, refusing everything that is not a plain file."""

from __future__ import annotations

import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

from fiveshot.data.chunks import CHUNK
from fiveshot.data.compression import TemporaryTar, is_compressed, is_zip
from fiveshot.data.limits import LIMITS, Limits, Meter, checked_name, refuse
from fiveshot.errors import FiveshotError, InputError

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2", ".zip")
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)


def is_archive(path: Path) -> bool:
    """Tell whether the name is that of an archive.

    >>> is_archive(Path("birds.TAR.gz")), is_archive(Path("birds.npz"))
    (True, False)
    """
    return path.name.lower().endswith(ARCHIVE_SUFFIXES)


class StrictTarInfo(tarfile.TarInfo):
    """A tar entry that takes an unreadable header for damage, where tarfile takes it for the end."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        """Return the next entry; only the mark that ends every tar ends it."""
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
    members: Mapping[str, tarfile.TarInfo | zipfile.ZipInfo]  # by normalised name, in archive order

    def read(self, name: str) -> bytes:
        """Return the bytes of one member."""
        if name not in self.members:
            raise InputError(f"{self.path} has no member {name!r}")
        member = self.members[name]
        with damage_reported(self.path, name):
            if isinstance(member, zipfile.ZipInfo):
                with _zip_handle(self, os.getpid()).open(member) as file:
                    # In pieces up to the declared size: a member that lies about it cannot fill the memory.
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


def open_archive(path: Path, limits: Limits = LIMITS) -> Archive:
    """Index an archive after checking every member; a second call for the same file costs nothing.

    A compressed tar has no index, so it is unpacked once into a temporary tar.
    """
    with damage_reported(path):
        status = path.stat()
        return _index(path, limits, status.st_mtime_ns, status.st_size)


def tar_members(path: Path, file: tarfile.TarFile, limits: Limits) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """Yield the plain files of a tar in order, with their normalised names, refusing anything else."""
    meter = Meter(path, limits)
    for info in file:
        name = checked_name(path, info.name)
        if not (info.isreg() or info.isdir()) or info.issparse():
            refuse(path, f"member {info.name!r} is a link or a special file")
        meter.member(name, info.size)
        if info.isreg():
            yield name, info


def zip_members(path: Path, file: zipfile.ZipFile, limits: Limits) -> Iterator[tuple[str, zipfile.ZipInfo]]:
    """Yield the plain files of a zip in order, with their normalised names, refusing anything else."""
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
    """Turn what a damaged or missing archive raises into an error that names it."""
    where = str(path) if member is None else f"member {member!r} of {path}"
    try:
        yield
    except FiveshotError:
        raise
    except _DAMAGE as error:
        raise InputError(f"{where} is damaged, truncated or no tar or zip archive ({error})") from error
    except OSError as error:  # gzip reports damage this way too, without an errno
        raise InputError(f"cannot read {where}: {error.strerror or error}") from error


@lru_cache(maxsize=16)
def _index(path: Path, limits: Limits, _changed: int, _size: int) -> Archive:
    if is_zip(path):
        with zipfile.ZipFile(path) as archive:
            return Archive(path, None, dict(zip_members(path, archive, limits)))
    if not is_compressed(path):
        with tarfile.open(path, "r:", tarinfo=StrictTarInfo) as tar:
            return Archive(path, None, dict(tar_members(path, tar, limits)))
    unpacked = TemporaryTar(path, limits)
    unpacked.file.seek(0)
    with tarfile.open(fileobj=unpacked.file, mode="r:", tarinfo=StrictTarInfo) as tar:
        return Archive(path, unpacked, dict(tar_members(path, tar, limits)))


@lru_cache(maxsize=16)
def _zip_handle(archive: Archive, _process: int) -> zipfile.ZipFile:
    # One per process: a forked worker that shared it would share its position in the file.
    return zipfile.ZipFile(archive.path)
