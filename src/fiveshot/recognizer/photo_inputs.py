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
from fiveshot.data.folder import is_image, other_suffixes, unread
from fiveshot.data.source import FileSource
from fiveshot.errors import InputError
from fiveshot.recognizer.class_folders import refuse_one_class
from fiveshot.recognizer.photo import MAX_BYTES, Photo, picture_source
from fiveshot.recognizer.photo_files import expected_suffixes, files_below, is_tree, stored_photo

if TYPE_CHECKING:
    from PIL.Image import Image

PhotoInput: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Image | Photo"
PhotoInputs: TypeAlias = "PhotoInput | Iterable[PhotoInput]"
STANDARD_INPUT = "-"


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
        if isinstance(one, str | os.PathLike) and os.path.lexists(one) and is_tree(Path(one)):
            refuse_one_class(Path(one), files_below(Path(one)))
    return photos


def left_out(inputs: PhotoInputs) -> Counter[str]:
    """Count by suffix the files in the given folders that are not photos by name: none must vanish silently."""
    others: Counter[str] = Counter()
    for one in _as_list(inputs):
        if isinstance(one, str | os.PathLike) and Path(one).is_dir():
            others += other_suffixes(files_below(Path(one)))
    return others


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
    if is_tree(path):
        files = files_below(path)
        photos = [stored_photo(path, file, source) for file, source in files.items() if is_image(file)]
        if not photos:
            raise InputError(f"no photos in {path}{unread(files)}; {expected_suffixes()}")
        return photos
    return [stored_photo(path.parent, path.name, FileSource(path, path.name))]


def _from_stream(stream: Any, unnamed: str, name: str | None = None) -> Photo:
    own = getattr(stream, "name", None)
    name = name or (own if isinstance(own, str) else unnamed)
    data = stream.read(MAX_BYTES + 1)
    if isinstance(data, str):
        raise InputError(f"{name} is open as text; open it with mode 'rb'")
    if len(data) > MAX_BYTES:
        raise ImageError(name, f"too large: the limit is {MAX_BYTES:,} bytes")
    return Photo(BytesSource(bytes(data), name))


def _is_picture(value: Any) -> bool:
    image = sys.modules.get("PIL.Image")  # nothing is a PIL image before PIL is imported
    return image is not None and isinstance(value, image.Image)
