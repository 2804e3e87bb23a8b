"""The files under a folder, or inside an archive, by their relative names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fiveshot.data.archives import ARCHIVE_SUFFIXES, is_archive, open_archive
from fiveshot.data.source import ArchiveSource, FileSource, StoredSource
from fiveshot.errors import InputError

SPLITS = ("train", "test")


@dataclass(frozen=True)
class Tree:
    """Files by relative name with forward slashes, sorted; hidden ones are left out."""

    where: Path
    files: Mapping[str, StoredSource]

    def below(self, folder: str) -> Tree:
        """Return what lies in a folder of the tree, named relative to it ("" is the tree itself)."""
        start = f"{folder}/" if folder else ""
        return Tree(
            self.where / folder,
            {
                name.removeprefix(start): replace(source, name=name.removeprefix(start))
                for name, source in self.files.items()
                if name.startswith(start)
            },
        )

    def source(self, name: str) -> StoredSource:
        """Return a file that an annotation lists; a missing one is found out when it is read."""
        return self.files.get(name) or FileSource(self.where / name, name)

    def text(self, name: str) -> str:
        """Return the content of a text file."""
        try:
            return self.files[name].read().decode("utf-8")
        except KeyError:
            raise InputError(f"{self.where} has no {name}") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{self.where / name} is not a text file ({error})") from error


def open_tree(path: Path) -> Tree:
    """List a folder, an archive, or a folder that holds train.tar and test.tar (or .zip, .tar.gz, ...)."""
    if path.is_dir():
        files: dict[str, StoredSource] = {name: FileSource(path / name, name) for name in _walk(path)}
        files.update(_split_archives(path))
        return Tree(path, dict(sorted(files.items())))
    if path.is_file() and is_archive(path):
        members = sorted(name for name in open_archive(path).members if not _hidden(name))
        return Tree(path, {name: ArchiveSource(path, name, name) for name in members})
    if path.exists():
        raise InputError(f"{path} is neither a folder nor an archive ({', '.join(ARCHIVE_SUFFIXES)})")
    raise InputError(f"no such folder or archive: {path}")


def tree_with(path: Path, marker: str) -> Tree | None:
    """Return the tree that has the file ``marker`` at its top: at ``path`` or at most two folders deeper."""
    if path.is_dir():
        found = next((hit for depth in ("", "*/", "*/*/") for hit in sorted(path.glob(depth + marker))), None)
        return open_tree(found.parents[marker.count("/")]) if found else None
    if not is_archive(path):
        return None
    tree = open_tree(path)
    hits = [name for name in tree.files if f"/{name}".endswith(f"/{marker}")]
    if not hits:
        return None
    nearest = min(hits, key=lambda name: name.count("/"))
    return tree.below(nearest.removesuffix(marker).rstrip("/"))


def split_archive(folder: Path, split: str) -> Path | None:
    """Return the archive in the folder that is named after a split, such as train.tar."""
    return next((p for suffix in ARCHIVE_SUFFIXES if (p := folder / f"{split}{suffix}").is_file()), None)


def _split_archives(folder: Path) -> Iterator[tuple[str, ArchiveSource]]:
    for split in SPLITS:
        archive = split_archive(folder, split)
        if archive is None or (folder / split).is_dir():
            continue
        for member in open_archive(archive).members:
            if not _hidden(member):
                name = member if member.startswith(f"{split}/") else f"{split}/{member}"
                yield name, ArchiveSource(archive, member, name)


def _walk(top: Path) -> Iterator[str]:
    seen: set[Path] = set()
    for folder, folders, files in os.walk(top, followlinks=True):
        real = Path(folder).resolve()
        folders[:] = [] if real in seen else [name for name in folders if not _hidden(name)]
        files = [] if real in seen else files
        seen.add(real)  # a link back up would otherwise be followed for ever
        yield from ((Path(folder) / name).relative_to(top).as_posix() for name in files if not _hidden(name))


def _hidden(name: str) -> bool:
    return any(part.startswith(".") or part == "__MACOSX" for part in name.split("/"))
