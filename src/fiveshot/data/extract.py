"""Unpack an archive into a folder that appears only when it is complete."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

from fiveshot.data.archives import StrictTarInfo, damage_reported, tar_members, zip_members
from fiveshot.data.chunks import CHUNK, write_all
from fiveshot.data.compression import decompressed, is_zip
from fiveshot.data.limits import LIMITS, Limits
from fiveshot.errors import StorageError
from fiveshot.storage import part_beside


def extract_safely(archives: Sequence[Path], folder: Path, limits: Limits = LIMITS) -> None:
    """Unpack the plain files of archives into one new folder, all of them or none.

    The checks are those of ``fiveshot.data.archives.open_archive``. Permissions, owners and times in
    an archive are ignored.
    """
    if folder.exists():
        raise StorageError(f"{folder} exists already; remove it, or choose another place")
    temporary = part_beside(folder)
    try:
        temporary.mkdir()
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror or error}") from error
    try:
        for archive in archives:
            for name, stream in _streams(archive, limits):
                with closing(stream):
                    _write(_chunks(stream, archive, name), temporary / name)
        temporary.rename(folder)
    except OSError as error:
        raise StorageError(
            f"cannot unpack into {folder}: {error.strerror or error}; nothing was left behind"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _streams(archive: Path, limits: Limits) -> Iterator[tuple[str, IO[bytes]]]:
    with damage_reported(archive):
        if is_zip(archive):
            with zipfile.ZipFile(archive) as packed:
                for name, info in zip_members(archive, packed, limits):
                    yield name, packed.open(info)
            return
        # "r|": from start to end, so that a compressed tar is decompressed once and never stored.
        with (
            decompressed(archive, limits) as plain,
            tarfile.open(fileobj=plain, mode="r|", tarinfo=StrictTarInfo) as tar,
        ):
            for name, member in tar_members(archive, tar, limits):
                stream = tar.extractfile(member)
                if stream is not None:
                    yield name, stream
            while plain.read(CHUNK):  # past the last member: where a compressed file keeps its checksum
                pass


def _chunks(stream: IO[bytes], archive: Path, name: str) -> Iterator[bytes]:
    with damage_reported(archive, name):
        while chunk := stream.read(CHUNK):
            yield chunk


def _write(chunks: Iterator[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=0) as file:
        for chunk in chunks:
            write_all(file, chunk)
