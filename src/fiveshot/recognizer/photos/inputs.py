"""Photos that users give: files, folders, archives, patterns, bytes, open files, pictures in memory.

A folder or an archive is listed once. The result also names the files that were not used.
"""

from __future__ import annotations

import glob
import io
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from fiveshot.data import (
    IMAGE_SUFFIXES,
    MAX_PHOTO_BYTES,
    MAX_PIXELS,
    SPLITS,
    BytesSource,
    FileSource,
    ImageError,
    Photo,
    StoredSource,
    is_archive,
    is_image,
    is_model_folder,
    open_tree,
    other_suffixes,
    split_archive,
    unread_note,
    walk_files,
)
from fiveshot.errors import InputError, command, counted, some_of
from fiveshot.recognizer.names import normal_name
from fiveshot.recognizer.photos.boxes import Region
from fiveshot.storage import FilePath

if TYPE_CHECKING:
    from PIL.Image import Image

PhotoInput: TypeAlias = "FilePath | bytes | bytearray | memoryview | IO[bytes] | Image | Photo | Region"
PhotoInputs: TypeAlias = "PhotoInput | Iterable[PhotoInput]"
ClassInputs: TypeAlias = "Mapping[str, PhotoInputs] | FilePath"
STANDARD_INPUT = "-"
SPELLING = "check the spelling and the folder you are in"
# Operating systems and storage devices create these in folders of photos. Users did not put
# photos there to be learned.
SYSTEM_FOLDERS = frozenset(
    ("__MACOSX", "@eaDir", "#recycle", "$RECYCLE.BIN", "System Volume Information", "lost+found")
)
_AS_THEY_ARE = ("L", "RGB", "RGBA", "I", "F", "I;16")  # modes that TIFF can store and `decode` can read
_THUMBS = "thumbs"  # with photos it may be a class; without photos it is the Windows cache of thumbnails
_BYTES = (bytes, bytearray, memoryview)
_EXPECTED = f"photos are files that end in {' '.join(sorted(IMAGE_SUFFIXES))}"


@dataclass(frozen=True, eq=False)
class FoundPhotos:
    """The photos found in inputs, and the number of other files by suffix."""

    photos: list[Photo]
    others: Counter[str]


@dataclass(frozen=True, eq=False)
class FoundClasses:
    """The photos of class folders, and everything else in the folder."""

    classes: dict[str, list[Photo]]  # by checked name, sorted
    loose: list[str]  # names of photos outside of all class folders
    others: Counter[str]  # other files, counted by suffix
    inside: Counter[str]  # photos in subfolders of class folders that have photos themselves, counted by subfolder


def find_photos(inputs: PhotoInputs, *, one_class: bool = False) -> FoundPhotos:
    """Find the photos in one or more inputs. Finding no photo is an error.

    Paths are files, folders and archives (both searched recursively, by name), or patterns such as
    ``photos/*.jpg``; ``"-"`` is one photo on standard input. Pictures are decoded later. With ``one_class``, a
    folder or an archive with photos only in several subfolders is refused: these are probably classes. A pattern
    such as ``photos/*/`` still takes all of them.
    """
    found = FoundPhotos([], Counter())
    for one in _as_list(inputs):
        found.photos.extend(_photos_of(one, f"photo {len(found.photos) + 1}", found.others, one_class))
    if not found.photos:
        raise _nothing_given()
    return found


def _nothing_given() -> InputError:
    return InputError("no photos were given", hint="name files, folders or patterns such as 'photos/*.jpg'")


class PhotoStream:
    """The photos of ``find_photos``, but folders are listed while the photos are iterated.

    Only a few photos are in memory at a time. No file is opened: a file that cannot be read fails later, when it
    is decoded.

    Parameters
    ----------
    inputs : photos
        As in ``find_photos``.
    but : sequence of Path
        Folders to skip inside of the inputs, because photos are written there.

    Attributes
    ----------
    total : int
        How many photos there are.
    others : Counter
        Number of other files, by suffix.
    """

    def __init__(self, inputs: PhotoInputs, *, but: Sequence[Path] = ()) -> None:
        self.others: Counter[str] = Counter()
        self.total = 0
        self._but = but
        self._parts: list[Path | list[Photo]] = []
        for one in _as_list(inputs):
            for part in self._lazily(one):
                self._parts.append(part)
                self.total += self._count(part) if isinstance(part, Path) else len(part)
        if not self.total:
            raise _nothing_given()

    def __iter__(self) -> Iterator[Photo]:
        for part in self._parts:
            if isinstance(part, Path):
                names = (name for name in _own_files(part, self._but) if is_image(name))
                yield from (Photo(FileSource(part / name, str(part / name))) for name in names)
            else:
                yield from part

    def _lazily(self, one: Any) -> Iterator[Path | list[Photo]]:
        if not isinstance(one, str | os.PathLike) or os.fspath(one) == STANDARD_INPUT:
            yield list(_photos_of(one, f"photo {self.total + 1}", self.others, False))
            return
        for path in _named(os.fspath(one)):
            is_plain = path.is_dir() and not any(split_archive(path, split) for split in SPLITS)
            yield path if is_plain else _below(path, self.others, one_class=False)

    def _count(self, folder: Path) -> int:
        """Count the photos and the other files of a folder; refuse a folder without photos."""
        count, others = 0, Counter[str]()
        for name in _own_files(folder, self._but):
            if is_image(name):
                count += 1
            else:
                others.update(other_suffixes([name]))
        if not count:
            seen = unread_note(_own_files(folder, self._but))
            inside = [str(path) for path in self._but if _is_inside(path, folder)]
            apart = f" apart from {' and '.join(inside)}" if inside else ""
            raise InputError(f"no photos in {folder}{apart}{seen}", hint=_EXPECTED)
        self.others.update(others)
        return count


def _is_inside(path: Path, folder: Path) -> bool:
    return path.is_dir() and folder.resolve() in path.resolve().parents


def _own_files(folder: Path, but: Sequence[Path]) -> Iterator[str]:
    return (name for name in walk_files(folder, but) if SYSTEM_FOLDERS.isdisjoint(name.split("/")[:-1]))


def gather_photos(inputs: PhotoInputs) -> list[Photo]:
    """Return only the photos of ``find_photos``.

    >>> [photo.name for photo in gather_photos([b"...", b"..."])]
    ['photo 1', 'photo 2']
    """
    return find_photos(inputs).photos


def class_photos(inputs: PhotoInputs) -> list[Photo]:
    """Return the photos of one class; refuse inputs that look like several classes."""
    return find_photos(inputs, one_class=True).photos


def find_classes(folder: FilePath, *, nested: bool = False, without_labels: str = "") -> FoundClasses:
    """Return the photos of a folder of class folders, or of an archive of them, by class name.

    A class has the photos of all folders below its own. With ``nested``, each folder with photos is a class, named
    by its path. ``without_labels`` is the hint for a folder with photos and no class folders; the default hint is
    to learn it as one class.
    """
    where = Path(folder)
    found = _files_below(where)
    classes: dict[str, list[Photo]] = {}
    for file, source in found.items():
        name = file.rpartition("/")[0] if nested else file.partition("/")[0]
        if "/" in file and is_image(file):
            classes.setdefault(name, []).append(_stored_photo(where, file, source))
    loose = [file for file in found if "/" not in file and is_image(file)]
    tops = {name.partition("/")[0] for name in classes}
    folders = tops | _folders(where, found)
    if not folders:
        own = f", but {counted(len(loose), 'photo')} of its own" if loose else ""
        instead = without_labels or f"to learn it as one class: {command('learn', 'MODEL', 'NAME', where)}"
        hint = f"expected {where}/<class>/*.jpg" + (f"; {instead}" if loose else "")
        raise InputError(f"{where} has no class folders{own}", hint=hint)
    empty = sorted(folders - tops)
    if empty:
        seen = unread_note(file for file in found if file.startswith(f"{empty[0]}/"))
        way = "move the folder elsewhere" if seen else "remove the folder"  # it may hold something useful
        raise InputError(f"no photos in {where / empty[0]}{seen}", hint=f"{_EXPECTED}: add photos, or {way}")
    if tops <= set(SPLITS):
        raise InputError(f"{where} is split into {' and '.join(sorted(tops))}", hint=f"choose {where}/train")
    if not nested:
        _refuse_nested(where, found)
    inside = Counter[str]() if nested else _inside_classes(found)
    return FoundClasses(_by_checked_name(where, classes), loose, other_suffixes(found), inside)


def gather_classes(
    classes: ClassInputs, *, nested: bool = False, without_labels: str = ""
) -> dict[str, list[Photo]]:
    """Return the photos by class name. Names are checked, and no name occurs twice. See ``find_classes``."""
    if not isinstance(classes, Mapping):
        return find_classes(classes, nested=nested, without_labels=without_labels).classes
    gathered: dict[str, list[Photo]] = {}
    for name, photos in classes.items():
        checked = normal_name(name)
        if checked in gathered:
            raise InputError(f"two classes are called {checked!r}", hint="give each class its own name")
        gathered[checked] = class_photos(photos)
    if not gathered:
        raise InputError("no classes were given", hint="give at least one with its photos")
    return gathered


def _as_list(inputs: Any) -> list[Any]:
    single = isinstance(inputs, str | os.PathLike | bytes | bytearray | memoryview | Photo | Region)
    several = isinstance(inputs, Iterable) and not hasattr(inputs, "read") and not _is_picture(inputs)
    return [inputs] if single or not several or _is_pixels(inputs) else list(inputs)


def picture_source(image: Any, name: str) -> BytesSource:
    """Encode a PIL image without loss, upright and without metadata."""
    from PIL import Image, ImageOps

    if 0 in image.size:
        raise ImageError(name, f"the picture is empty: {image.width} x {image.height} pixels")
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(name, f"too large: {image.width} x {image.height}, the limit is {MAX_PIXELS:,} pixels")
    try:
        upright = ImageOps.exif_transpose(image)
        transparent = "A" in upright.mode or "a" in upright.mode or "transparency" in upright.info
        if transparent:
            upright = upright.convert("RGBA")
        elif upright.mode not in _AS_THEY_ARE:
            upright = upright.convert("RGB")
        clean = Image.frombytes(upright.mode, upright.size, upright.tobytes())
    except Exception as error:  # a damaged file of a lazily opened image fails here
        raise ImageError(name, f"damaged or truncated ({error})") from error
    buffer = io.BytesIO()
    clean.save(buffer, "TIFF")
    return BytesSource(buffer.getvalue(), name)


def _is_pixels(given: Any) -> bool:
    """Return whether an input is an array of pixels, not of paths."""
    return len(getattr(given, "shape", ())) > 1


def _photos_of(one: Any, unnamed: str, others: Counter[str], one_class: bool) -> Iterable[Photo]:
    if isinstance(one, Photo):
        return [one]
    if isinstance(one, Region):
        return [replace(photo, box=one.box) for photo in _photos_of(one.photo, unnamed, others, one_class)]
    if isinstance(one, str | os.PathLike):
        return _from_path(os.fspath(one), others, one_class)
    if isinstance(one, _BYTES):
        return [Photo(BytesSource(bytes(one), unnamed))]
    if _is_picture(one):
        return [Photo(picture_source(one, str(getattr(one, "filename", "") or unnamed)))]
    if hasattr(one, "read"):
        return [_from_stream(one, unnamed)]
    if _is_pixels(one):
        raise InputError(
            f"cannot take a photo from an array of shape {tuple(one.shape)} ({type(one).__name__})",
            hint="convert it with PIL.Image.fromarray, with colors in RGB order (OpenCV uses BGR)",
        )
    raise InputError(
        f"cannot take a photo from {one!r:.80} ({type(one).__name__})",
        hint="give a path, a folder, a pattern, bytes, an open file or a PIL image",
    )


def _from_path(text: str, others: Counter[str], one_class: bool) -> Iterator[Photo]:
    if text == STANDARD_INPUT:
        yield _from_stream(sys.stdin.buffer, "standard input", name="standard input")
        return
    for path in _named(text):
        yield from _below(path, others, one_class and os.path.lexists(text))


def _named(text: str) -> list[Path]:
    """Return the file or folder at a path, or everything that matches a pattern."""
    if "\0" in text or not text:
        raise InputError(f"{text!r} is not a path", hint="name a file, a folder or a pattern")
    if os.path.lexists(text):
        return [Path(text)]
    if not glob.has_magic(text):
        raise InputError(f"no such file or folder: {text}", hint=SPELLING, code="no_file")
    # Path.glob accepts only relative patterns.
    matches = [Path(match) for match in sorted(glob.glob(text, recursive=True))]  # noqa: PTH207
    if not matches:
        raise InputError(f"nothing matches the pattern {text}", hint=SPELLING, code="no_file")
    return [path for path in matches if not (path.is_dir() and "**" in text)]  # ** matches the files inside, too


def _below(path: Path, others: Counter[str], one_class: bool) -> list[Photo]:
    if not path.is_dir() and not (path.is_file() and is_archive(path)):
        return [_stored_photo(path.parent, path.name, FileSource(path, path.name))]
    files = _files_below(path)
    photos = [_stored_photo(path, file, source) for file, source in files.items() if is_image(file)]
    if not photos:
        raise InputError(f"no photos in {path}{unread_note(files)}", hint=_EXPECTED)
    if one_class:
        _refuse_several(path, files)
    if path.is_dir():
        others.update(other_suffixes(files))
    return photos


def _from_stream(stream: Any, unnamed: str, name: str | None = None) -> Photo:
    own = getattr(stream, "name", None)
    name = name or (own if isinstance(own, str) else unnamed)
    data = stream.read(MAX_PHOTO_BYTES + 1)
    if isinstance(data, str):
        raise InputError(f"{name} is open as text", hint="open it with mode 'rb'")
    if len(data) > MAX_PHOTO_BYTES:
        reason = f"too large: the limit is {MAX_PHOTO_BYTES:,} bytes"
        raise ImageError(name, reason, code="image_too_large")
    return Photo(BytesSource(bytes(data), name))


def _is_picture(value: Any) -> bool:
    image = sys.modules.get("PIL.Image")  # no PIL image exists before PIL is imported
    return image is not None and isinstance(value, image.Image)


def _files_below(path: Path) -> dict[str, StoredSource]:
    """Return all files of a folder or an archive, sorted by name, except files of the operating system."""
    if not path.exists():
        raise InputError(f"no such folder or archive: {path}", hint=SPELLING, code="no_file")
    files = open_tree(path).files
    return {name: source for name, source in files.items() if SYSTEM_FOLDERS.isdisjoint(name.split("/")[:-1])}


def _stored_photo(where: Path, file: str, source: StoredSource) -> Photo:
    """Return a file as a photo named by its path. A file that cannot be read fails later, when it is decoded."""
    name = str(where / file)
    if isinstance(source, FileSource):
        return Photo(FileSource(source.path, name))
    return Photo(type(source)(source.archive, source.member, name))


def _refuse_several(where: Path, files: Iterable[str]) -> None:
    """Refuse a folder or an archive that was given for one class and looks like several classes."""
    files = list(files)
    top = _branching(files)
    if top is None:
        return
    depth = len(top.parts)
    folders = sorted({PurePosixPath(file).parts[depth] for file in files if is_image(file)})
    together = shlex.quote(f"{where / top}/*/") if where.is_dir() else "a pattern for the unpacked files"
    raise InputError(
        f"{where / top} has photos only in {len(folders)} subfolders ({some_of(folders)}), "
        "which are probably classes",
        hint=f"learn each with learn_many ({command('learn', 'MODEL', where / top)}); "
        f"to learn all as one class, give {together}",
        code="several_classes",
    )


def _branching(files: Iterable[str]) -> PurePosixPath | None:
    """Return the folder that has all images in subfolders and no image of its own, if there is one.

    >>> _branching(["a/owl/1.jpg", "a/wren/1.jpg"])
    PurePosixPath('a')
    >>> _branching(["owl/1.jpg", "2.jpg"]), _branching(["a/owl/1.jpg"])
    (None, None)
    """
    holding = {PurePosixPath(file).parent for file in files if is_image(file)}
    if not holding:
        return None
    shared = [(one, *one.parents) for one in holding]
    top = next(folder for folder in shared[0] if all(folder in line for line in shared))
    return None if top in holding else top


def _refuse_nested(where: Path, files: Iterable[str]) -> None:
    """Refuse class folders that have photos only in several subfolders: the subfolders may be the classes."""
    by_top: dict[str, list[str]] = {}
    for file in files:
        by_top.setdefault(PurePosixPath(file).parts[0], []).append(file)
    nested = [str(where / name) for name, own in sorted(by_top.items()) if _branching(own) is not None]
    if nested:
        raise InputError(
            f"photos are only in subfolders of {some_of(nested, 3)}",
            hint=f"if the subfolders are the classes, give their parent, such as {nested[0]}, or learn them "
            "as groups of classes with nested=True (--nested); if not, move the photos into the class folder",
            code="nested_classes",
        )


def _inside_classes(files: Iterable[str]) -> Counter[str]:
    """Count the photos in subfolders of class folders that have photos themselves.

    >>> _inside_classes(["owl/1.jpg", "owl/barn owl/1.jpg", "wren/2024/1.jpg"])
    Counter({'owl/barn owl': 1})
    """
    holding = Counter(file.rpartition("/")[0] for file in files if "/" in file and is_image(file))
    above = {folder: PurePosixPath(folder).parents for folder in holding}
    return Counter(
        {
            folder: holding[folder]
            for folder in sorted(holding)
            if any(str(one) in holding for one in above[folder])
        }
    )


def _folders(where: Path, files: Iterable[str]) -> set[str]:
    """Return the names of the folders, except those of the operating system."""
    folders = {file.partition("/")[0] for file in files if "/" in file}
    if where.is_dir():
        own = (path for path in where.iterdir() if path.is_dir() and not path.name.startswith("."))
        folders |= {path.name for path in own if path.name in folders or not _holds_models(path)}
    return {name for name in folders if name not in SYSTEM_FOLDERS and name.casefold() != _THUMBS}


def _holds_models(folder: Path) -> bool:
    """Return whether a folder without photos is a model or contains models."""
    return is_model_folder(folder) or any(is_model_folder(file.parent) for file in folder.rglob("model.toml"))


def _by_checked_name(where: Path, classes: dict[str, list[Photo]]) -> dict[str, list[Photo]]:
    named: dict[str, list[Photo]] = {}
    for folder in sorted(classes):
        name = normal_name(folder)
        if name in named:
            raise InputError(f"two folders of {where} give the class name {name!r}", hint="rename one of them")
        named[name] = classes[folder]
    return dict(sorted(named.items()))
