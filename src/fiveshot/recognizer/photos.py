"""Photos as people have them: files, folders, archives, patterns, bytes, open files, pictures in memory."""

from __future__ import annotations

import glob
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from fiveshot.data import BytesSource, ImageError
from fiveshot.data.archives import is_archive
from fiveshot.data.folder import IMAGE_SUFFIXES, is_image, other_suffixes, unread
from fiveshot.data.source import FileSource, StoredSource
from fiveshot.data.tree import SPLITS, open_tree
from fiveshot.errors import InputError, counted
from fiveshot.recognizer.arguments import given_path
from fiveshot.recognizer.names import check_name
from fiveshot.recognizer.nesting import refuse_nested_classes, refuse_one_class
from fiveshot.recognizer.photo import MAX_BYTES, THUMBNAIL, Photo, picture_source, thumbnail

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = [
    "MAX_BYTES",
    "THUMBNAIL",
    "Photo",
    "class_folders",
    "class_photos",
    "gather_photos",
    "left_out",
    "loose_photos",
    "thumbnail",
]

PhotoInput: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image | Photo"
PhotoInputs: TypeAlias = "PhotoInput | Iterable[PhotoInput]"
STANDARD_INPUT = "-"

# Made by operating systems and storage devices, in any folder of photos: what they hold was not put there to be
# learned.
SYSTEM_FOLDERS = frozenset(
    ("__MACOSX", "@eaDir", "#recycle", "$RECYCLE.BIN", "System Volume Information", "lost+found")
)
_THUMBS = "thumbs"  # with photos it may be a class, without any it is Windows' folder of small copies


def gather_photos(inputs: PhotoInputs) -> list[Photo]:
    """Return the photos that one input, or several, stand for; none at all is an error.

    Paths are files, folders and archives (both searched recursively, by name), or patterns such as
    ``photos/*.jpg``; ``"-"`` is one photo on standard input. Pictures are decoded later.

    >>> [photo.name for photo in gather_photos([b"...", b"..."])]
    ['photo 1', 'photo 2']
    """
    photos: list[Photo] = []
    for one in _as_list(inputs):
        photos.extend(_photos_of(one, f"photo {len(photos) + 1}"))
    if not photos:
        raise InputError("no photos were given; name files, folders or patterns such as 'photos/*.jpg'")
    return photos


def class_photos(inputs: PhotoInputs) -> list[Photo]:
    """Return the photos of one class, as ``gather_photos`` does; what looks like several classes is refused.

    A folder (or an archive) is refused that has photos in several folders and none of its own: most likely
    these are classes. A pattern such as ``photos/*/`` takes them together all the same.
    """
    given = _as_list(inputs)
    photos = gather_photos(given)
    for one in given:
        if isinstance(one, str | os.PathLike) and os.path.lexists(one) and _is_tree(Path(one)):
            refuse_one_class(Path(one), _files(Path(one)))
    return photos


def class_folders(folder: str | os.PathLike[str]) -> dict[str, list[Photo]]:
    """Return the photos of a folder of class folders (or an archive of them) by class name, sorted."""
    where = given_path(folder, "folder")
    classes: dict[str, list[Photo]] = {}
    found = _files(where)
    for file, source in found.items():
        top, slash, _ = file.partition("/")
        if slash and is_image(file):
            classes.setdefault(top, []).append(_stored(where, file, source))
    folders = set(classes) | _folders(where, found)
    if not folders:
        loose = len(_loose(found))
        hint = f"; it holds {counted(loose, 'photo')} itself: give them the name of one class" if loose else ""
        raise InputError(f"{where} has no class folders{hint}; expected {where}/<class>/*.jpg")
    empty = sorted(folders - set(classes))
    if empty:
        seen = unread(file for file in found if file.startswith(f"{empty[0]}/"))
        raise InputError(f"no photos in {where / empty[0]}{seen}; {_suffixes()}: add some, or remove the folder")
    if set(classes) <= set(SPLITS):
        raise InputError(f"{where} is split into {' and '.join(sorted(classes))}; name one, as {where}/train")
    refuse_nested_classes(where, found)
    return _by_checked_name(where, classes)


def left_out(inputs: PhotoInputs) -> Counter[str]:
    """Count by suffix the files in the given folders that are not photos by name: none must vanish silently."""
    others: Counter[str] = Counter()
    for one in _as_list(inputs):
        if isinstance(one, str | os.PathLike) and Path(one).is_dir():
            others += other_suffixes(_files(Path(one)))
    return others


def loose_photos(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of photos that lie beside the class folders, in none of them: they belong to no class."""
    return _loose(_files(Path(folder)))


def _loose(files: Iterable[str]) -> list[str]:
    return [file for file in files if "/" not in file and is_image(file)]


def _folders(where: Path, files: Iterable[str]) -> set[str]:
    """Return the names of the folders that somebody has put there."""
    folders = {file.partition("/")[0] for file in files if "/" in file}
    if where.is_dir():
        folders |= {path.name for path in where.iterdir() if path.is_dir() and not path.name.startswith(".")}
    return {name for name in folders if name not in SYSTEM_FOLDERS and name.casefold() != _THUMBS}


def _as_list(inputs: Any) -> list[Any]:
    several = isinstance(inputs, Iterable) and not isinstance(
        inputs, str | os.PathLike | bytes | bytearray | memoryview | Photo
    )
    if not several or hasattr(inputs, "read") or _is_picture(inputs):
        return [inputs]
    return list(inputs)


def _photos_of(one: Any, unnamed: str) -> Iterator[Photo]:
    if isinstance(one, Photo):
        yield one
    elif isinstance(one, str | os.PathLike):
        yield from _from_path(one)
    elif isinstance(one, bytes | bytearray | memoryview):
        yield Photo(BytesSource(bytes(one), unnamed))
    elif _is_picture(one):
        yield Photo(picture_source(one, str(getattr(one, "filename", "") or unnamed)))
    elif hasattr(one, "read"):
        yield _from_stream(one, unnamed)
    else:
        raise InputError(
            f"cannot take a photo from {one!r} ({type(one).__name__}); "
            "give a path, a folder, a pattern, bytes, an open file or a PIL image"
        )


def _from_path(given: str | os.PathLike[str]) -> Iterator[Photo]:
    text = os.fspath(given)
    if text == STANDARD_INPUT:
        yield _from_stream(sys.stdin.buffer, "standard input", name="standard input")
        return
    if "\0" in text or not text:
        raise InputError(f"{text!r} is not a path; name a file, a folder or a pattern")
    if os.path.lexists(text):
        yield from _below(Path(text))
        return
    # Path.glob takes relative patterns alone.
    matches = sorted(glob.glob(text, recursive=True)) if glob.has_magic(text) else []  # noqa: PTH207
    if not matches:
        what = "nothing matches the pattern" if glob.has_magic(text) else "no such file or folder:"
        raise InputError(f"{what} {text}; check the spelling and the folder you are in")
    for match in matches:
        if not (Path(match).is_dir() and "**" in text):  # what is below a folder matches ** itself
            yield from _below(Path(match))


def _below(path: Path) -> list[Photo]:
    if _is_tree(path):
        files = _files(path)
        photos = [_stored(path, file, source) for file, source in files.items() if is_image(file)]
        if not photos:
            raise InputError(f"no photos in {path}{unread(files)}; {_suffixes()}")
        return photos
    return [_stored(path.parent, path.name, FileSource(path, path.name))]


def _is_tree(path: Path) -> bool:
    return path.is_dir() or (path.is_file() and is_archive(path))


def _files(path: Path) -> dict[str, StoredSource]:
    if not path.exists():
        raise InputError(f"no such folder or archive: {path}; check the spelling and the folder you are in")
    files = open_tree(path).files
    return {name: source for name, source in files.items() if SYSTEM_FOLDERS.isdisjoint(name.split("/")[:-1])}


def _stored(where: Path, file: str, source: StoredSource) -> Photo:
    name = str(where / file)
    if isinstance(source, FileSource):
        _check_file(source.path, name)
        return Photo(FileSource(source.path, name))
    return Photo(type(source)(source.archive, source.member, name))


def _check_file(path: Path, name: str) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise ImageError(name, f"cannot read it: {error.strerror or error}") from error
    if not path.is_file():
        raise ImageError(name, "neither a file nor a folder")
    if size > MAX_BYTES:
        raise ImageError(name, f"too large: {size:,} bytes, the limit is {MAX_BYTES:,}")


def _from_stream(stream: Any, unnamed: str, name: str | None = None) -> Photo:
    own = getattr(stream, "name", None)
    name = name or (own if isinstance(own, str) else unnamed)
    data = stream.read(MAX_BYTES + 1)
    if isinstance(data, str):
        raise InputError(f"{name} is open as text; open it with mode 'rb'")
    if len(data) > MAX_BYTES:
        raise ImageError(name, f"too large: the limit is {MAX_BYTES:,} bytes")
    return Photo(BytesSource(bytes(data), name))


def _by_checked_name(where: Path, classes: dict[str, list[Photo]]) -> dict[str, list[Photo]]:
    named: dict[str, list[Photo]] = {}
    for folder in sorted(classes):
        name = check_name(folder)
        if name in named:
            raise InputError(f"two folders of {where} give the class name {name!r}; rename one of them")
        named[name] = classes[folder]
    return dict(sorted(named.items()))


def _is_picture(value: Any) -> bool:
    image = sys.modules.get("PIL.Image")  # nothing is a PIL image before PIL is imported
    return image is not None and isinstance(value, image.Image)


def _suffixes() -> str:
    return f"photos are files that end in {' '.join(sorted(IMAGE_SUFFIXES))}"
