"""The photos in a folder or an archive, by the names of their files."""

from __future__ import annotations

from pathlib import Path

from fiveshot.data import ImageError
from fiveshot.data.archives import is_archive
from fiveshot.data.folder import IMAGE_SUFFIXES
from fiveshot.data.source import FileSource, StoredSource
from fiveshot.data.tree import open_tree
from fiveshot.errors import InputError
from fiveshot.recognizer.photo import MAX_BYTES, Photo

# Made by operating systems and storage devices, in any folder of photos: what they hold was not put there to be
# learned.
SYSTEM_FOLDERS = frozenset(
    ("__MACOSX", "@eaDir", "#recycle", "$RECYCLE.BIN", "System Volume Information", "lost+found")
)


def is_tree(path: Path) -> bool:
    """Tell whether there may be photos below a path: in a folder, or in an archive."""
    return path.is_dir() or (path.is_file() and is_archive(path))


def files_below(path: Path) -> dict[str, StoredSource]:
    """Return the files of a folder or an archive by name, photos or not, without those that systems put there."""
    if not path.exists():
        raise InputError(f"no such folder or archive: {path}; check the spelling and the folder you are in")
    files = open_tree(path).files
    return {name: source for name, source in files.items() if SYSTEM_FOLDERS.isdisjoint(name.split("/")[:-1])}


def stored_photo(where: Path, file: str, source: StoredSource) -> Photo:
    """Return a file as a photo that is called by its path; what is no file, or too large, is refused."""
    name = str(where / file)
    if isinstance(source, FileSource):
        _check_file(source.path, name)
        return Photo(FileSource(source.path, name))
    return Photo(type(source)(source.archive, source.member, name))


def expected_suffixes() -> str:
    """Say which files are photos."""
    return f"photos are files that end in {' '.join(sorted(IMAGE_SUFFIXES))}"


def _check_file(path: Path, name: str) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ImageError(name, f"cannot read it: {error.strerror or error}") from error
    if not path.is_file():
        raise ImageError(name, "neither a file nor a folder")
    if size > MAX_BYTES:
        raise ImageError(name, f"too large: {size:,} bytes, the limit is {MAX_BYTES:,}")
