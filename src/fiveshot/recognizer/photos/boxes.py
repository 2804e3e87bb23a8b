"""Parts of photos: a box given by hand, or the boxes that a detector has found.

A file of boxes is COCO or MegaDetector JSON, YOLO text or CSV. Boxes and photos are matched by the end of their
paths, because photos are often in another folder now than when the detector ran.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fiveshot.data import BadImage, Box, ImageError, Photo, bad_box, read_regular
from fiveshot.errors import InputError, is_number, some_of
from fiveshot.storage import FilePath

CONFIDENCE = 0.2
"""Default for the lowest confidence of a detection, as MegaDetector's authors recommend."""
MAX_FILE = 1 << 30  # bytes of a file with boxes
FORMATS = "COCO or MegaDetector JSON, YOLO text (a file or a folder of them), or CSV with photo,x,y,width,height"
_PHOTO = ("photo", "path", "file", "filename", "file_name", "image", "name")
_SURE = ("confidence", "conf", "score", "probability_of_box")
_SIZES = (("x", "y", "width", "height"), ("x", "y", "w", "h"))
_CORNERS = (("xmin", "ymin", "xmax", "ymax"), ("x1", "y1", "x2", "y2"), ("x_min", "y_min", "x_max", "y_max"))


@dataclass(frozen=True)
class Region:
    """A part of a photo. It can be used wherever a photo can.

    Parameters
    ----------
    photo : photo
        A file, bytes, an open file or a PIL image; the box is cut out of every photo of a folder or a pattern.
    box : Box, or sequence of four numbers
        Left, top, width and height. In pixels, or as shares of the photo's sides if all four are at most 1.

    Raises
    ------
    InputError
        With the code ``bad_box`` if the box is empty or contains NaN. A box that is partly outside its photo is
        refused when the photo is read.

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> from fiveshot import Recognizer, Region
    >>> both = Image.new("RGB", (64, 32), "red")
    >>> both.paste("blue", (32, 0, 64, 32))
    >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
    ...     _ = colors.learn_many({name: Image.new("RGB", (64, 64), name) for name in ("red", "blue")})
    ...     [one.label for one in colors.predict([Region(both, (0, 0, 32, 32)), Region(both, (0.5, 0, 0.5, 1))])]
    ['red', 'blue']
    """

    photo: Any
    box: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "box", Box.of(self.box))


@dataclass(eq=False)
class BoxFile:
    """The content of a file of boxes: boxes by the name of their photo, and entries that cannot be used."""

    where: Path
    boxes: dict[str, list[Box]] = field(default_factory=dict)
    bad: list[BadImage] = field(default_factory=list)
    without_suffix: bool = False  # YOLO files name a photo without its suffix

    def mention(self, name: str) -> list[Box]:
        """Return the boxes of a photo. An empty list means that the detector found nothing."""
        return self.boxes.setdefault(name, [])

    def add(self, name: str, numbers: object, *, pixels: bool = False) -> None:
        """Add a box. If it is not valid, note that under the name of its photo."""
        try:
            box = Box.of(numbers)
            if pixels and box.in_shares:
                raise bad_box(f"the box {box} is smaller than a pixel")
            self.mention(name).append(box)
        except InputError as error:
            self.bad.append(BadImage(name, error.message, error.code))


@dataclass(frozen=True, eq=False)
class Regions:
    """The parts of photos that a file of boxes describes, and everything that did not fit."""

    photos: list[Photo]  # one for each box
    numbers: list[int]  # for each region, the position of its photo in the input
    without: list[str]  # photos without a box in the file
    bad: list[BadImage]  # boxes that cannot be used, and boxes of missing photos


def read_boxes(path: FilePath, *, confidence: float = CONFIDENCE) -> BoxFile:
    """Return the boxes of a file: COCO or MegaDetector JSON, YOLO text or a folder of it, or CSV.

    Parameters
    ----------
    path : str or path
        The file, or the folder of YOLO's text files.
    confidence : float
        Lowest confidence: detections below it are left out, if the file has confidences.

    Returns
    -------
    BoxFile
        The boxes by photo.

    Raises
    ------
    InputError
        With the code ``bad_boxes`` if it is not a file of boxes.
    """
    if not is_number(confidence) or not 0 <= confidence <= 1:
        raise InputError(f"a confidence of {confidence!r} is not between 0 and 1", code="bad_confidence")
    where = Path(path)
    found = BoxFile(where)
    if where.is_dir():
        files = sorted(where.rglob("*.txt"))
        if not files:
            raise _not_boxes(where, "no .txt in this folder")
        for file in files:
            _read_yolo(found, file.relative_to(where).with_suffix("").as_posix(), _text(file), confidence)
        return found
    readers: dict[str, Callable[[BoxFile, str, float], None]] = {
        ".json": _read_json,
        ".csv": _read_csv,
        ".txt": lambda to, text, sure: _read_yolo(to, where.stem, text, sure),
    }
    reader = readers.get(where.suffix.lower())
    if reader is None:
        raise _not_boxes(where, f"a name that ends in {where.suffix or 'nothing'}")
    reader(found, _text(where), confidence)
    return found


def regions_of(photos: Iterable[Photo], file: BoxFile) -> Regions:
    """Return the parts of photos that a file has boxes for, in the order of the photos.

    A box belongs to the photo whose path has the longest common end with the name in the file. If two photos or
    two names fit equally well, none of them gets the box.
    """
    listed = list(photos)
    names = {name: _parts(name, cut=file.without_suffix) for name in file.boxes}
    by_last: dict[str, list[str]] = defaultdict(list)
    for name, parts in names.items():
        by_last[parts[-1]].append(name)
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)  # by name: length of the common end, photo
    bad = list(file.bad)
    for number, photo in enumerate(listed):
        parts = _parts(photo.name, cut=file.without_suffix)
        near = sorted((_common(parts, names[name]), name) for name in by_last.get(parts[-1], ()))
        if len(near) > 1 and near[-1][0] == near[-2][0]:
            reason = f"{near[-1][1]} and {near[-2][1]} in {file.where} may both be it"
            bad.append(BadImage(photo.name, reason, "ambiguous_box"))
        elif near:
            found[near[-1][1]].append((near[-1][0], number))
    chosen: dict[int, str] = {}
    for name, claims in found.items():
        best = max(common for common, _ in claims)
        claimed = [number for common, number in claims if common == best]
        if len(claimed) > 1:
            both = " and ".join(listed[number].name for number in claimed[:2])
            bad.append(BadImage(name, f"{both} may both be it", "ambiguous_box"))
        else:
            chosen[claimed[0]] = name
    used = set(chosen.values()) | {one.name for one in bad}
    bad += [
        BadImage(name, f"{file.where} has boxes for it, but it is not among the photos", "no_photo")
        for name, boxes in file.boxes.items()
        if name not in used and boxes and not found.get(name)
    ]
    regions = [(number, box) for number, name in sorted(chosen.items()) for box in file.boxes[name]]
    named = {one.name for one in bad}
    without = [
        photo.name
        for number, photo in enumerate(listed)
        if not file.boxes.get(chosen.get(number, "")) and photo.name not in named
    ]
    pieces = [replace(listed[number], box=box) for number, box in regions]
    return Regions(pieces, [number for number, _ in regions], without, bad)


def class_regions(
    classes: Mapping[str, Sequence[Photo]], parts: Callable[[list[Photo]], Regions]
) -> tuple[dict[str, list[Photo]], Regions]:
    """Return the parts of photos by class; a class without any part is refused."""
    names = [name for name, photos in classes.items() for _ in photos]
    found = parts([photo for photos in classes.values() for photo in photos])
    by_class: dict[str, list[Photo]] = {name: [] for name in classes}
    for number, photo in zip(found.numbers, found.photos, strict=True):
        by_class[names[number]].append(photo)
    empty = [name for name, photos in by_class.items() if not photos]
    if empty:
        raise InputError(f"no box fits a photo of {some_of(empty)}", hint="see what the file names", code="no_box")
    return by_class, found


def regions_in(photos: Iterable[Photo], boxes: Sequence[Box]) -> Regions:
    """Return the same parts of all photos, for a camera that does not move."""
    listed = list(photos)
    parts = [replace(photo, box=box) for photo in listed for box in boxes]
    return Regions(parts, [number for number in range(len(listed)) for _ in boxes], [], [])


def _parts(name: str, *, cut: bool) -> tuple[str, ...]:
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")] or [name]
    if cut:
        parts[-1] = parts[-1].rpartition(".")[0] or parts[-1]
    return tuple(parts)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many parts at the end of two paths are the same.

    >>> _common(("a", "b", "1.jpg"), ("x", "b", "1.jpg"))
    2
    """
    count = 0
    for mine, theirs in zip(reversed(one), reversed(other), strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def _text(file: Path) -> str:
    try:
        return read_regular(file, limit=MAX_FILE).decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(
            f"no such file of boxes: {file}", hint="check the spelling and the folder you are in", code="no_file"
        ) from None
    except ImageError as error:
        raise InputError(f"cannot read the boxes in {file}: {error.reason}", code="bad_boxes") from error
    except UnicodeDecodeError:
        raise _not_boxes(file, "bytes that are not text") from None


def _not_boxes(file: Path, seen: str) -> InputError:
    return InputError(f"{file} is not a file of boxes ({seen})", hint=f"give {FORMATS}", code="bad_boxes")


def _read_json(found: BoxFile, text: str, confidence: float) -> None:
    try:
        read = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _not_boxes(found.where, f"not JSON: {error}") from None
    images = read.get("images") if isinstance(read, dict) else None
    if not isinstance(images, list) or not all(isinstance(image, dict) for image in images):
        raise _not_boxes(found.where, "no list of images in it")
    if "annotations" in read:
        _read_coco(found, images, read["annotations"], confidence)
    else:
        _read_megadetector(found, images, confidence)


def _read_coco(found: BoxFile, images: list[dict[str, Any]], annotations: Any, confidence: float) -> None:
    names = {image.get("id"): str(image.get("file_name")) for image in images}
    for name in names.values():
        found.mention(name)
    if not isinstance(annotations, list):
        raise _not_boxes(found.where, "its annotations are not a list")
    for number, one in enumerate(annotations, 1):
        if not isinstance(one, dict) or one.get("image_id") not in names:
            reason = f"annotation {number} names no image of the file"
            found.bad.append(BadImage(str(found.where), reason, "bad_box"))
        elif _is_sure(one.get("score"), confidence):
            found.add(names[one["image_id"]], one.get("bbox"), pixels=True)


def _read_megadetector(found: BoxFile, images: list[dict[str, Any]], confidence: float) -> None:
    for image in images:
        if not isinstance(image.get("file"), str):
            raise _not_boxes(found.where, "an image without the name of its file")
        found.mention(image["file"])
        for one in image.get("detections") or ():
            if not isinstance(one, Mapping) or _is_sure(one.get("conf"), confidence):
                found.add(image["file"], one.get("bbox") if isinstance(one, Mapping) else one)


def _is_sure(confidence: object, least: float) -> bool:
    return not is_number(confidence) or not confidence < least


def _read_yolo(found: BoxFile, name: str, text: str, confidence: float) -> None:
    """Read lines of class, center, width and height as shares, and optionally a confidence."""
    found.without_suffix = True
    found.mention(name)
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.lstrip().startswith("#"):
            continue
        try:
            _, x, y, width, height, *sure = map(float, words)
        except ValueError:
            found.bad.append(BadImage(name, f"line {number} is not: class x y width height", "bad_box"))
            continue
        if len(sure) > 1:
            found.bad.append(BadImage(name, f"line {number} has {len(words)} numbers, not 5 or 6", "bad_box"))
        elif not sure or _is_sure(sure[0], confidence):
            found.add(name, (x - width / 2, y - height / 2, width, height))


def _read_csv(found: BoxFile, text: str, confidence: float) -> None:
    head = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=";" if head.count(";") > head.count(",") else ",")
    columns = {str(name).strip().lower(): str(name) for name in rows.fieldnames or ()}
    photo = next((columns[name] for name in _PHOTO if name in columns), None)
    numbers = next((names for names in (("box",), *_SIZES, *_CORNERS) if set(names) <= set(columns)), None)
    if photo is None or numbers is None:
        seen = ", ".join(columns) or "nothing"
        raise _not_boxes(found.where, f"columns {seen[:200]}")
    sure = next((columns[name] for name in _SURE if name in columns), None)
    for row in rows:
        name = row[photo] or ""
        if name.startswith("'") and name[1:2] in ("=", "+", "-", "@"):  # our tables escape formulas so
            name = name[1:]
        if sure is not None and not _is_sure(_as_number(row[sure]), confidence):
            continue
        if values := _box_values(numbers, [row[columns[name]] for name in numbers]):
            found.add(name, values)
        else:
            found.mention(name)


def _box_values(names: Sequence[str], cells: Sequence[Any]) -> list[Any]:
    """Return left, top, width and height from these columns; None for a row without a box."""
    if names == ("box",):  # the column of our own tables
        return [_as_number(text) for text in cells[0].split(",")] if cells[0] else []
    values = [_as_number(cell) for cell in cells]
    if names in _CORNERS and all(map(is_number, values)):
        left, top, right, bottom = values
        return [left, top, right - left, bottom - top]
    return values


def _as_number(text: Any) -> Any:
    """Return the number in a text, or the text itself; the caller refuses texts."""
    try:
        return float(str(text).replace(",", "."))
    except ValueError:
        return text
