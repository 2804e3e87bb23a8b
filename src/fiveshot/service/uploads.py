"""Photos as clients send them: read with limits, decoded once, and never kept as they came."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from torch import Tensor

from fiveshot.data import BytesSource, ImageError, decode
from fiveshot.data.decode import image_size
from fiveshot.features import Runner
from fiveshot.recognizer.photo import thumbnail
from fiveshot.service.errors import ApiError, too_large
from fiveshot.service.request_checks import media_type
from fiveshot.service.settings import Limits

if TYPE_CHECKING:
    from PIL.Image import Image

FIELD = "photos"
LONGEST_NAME = 100  # characters of a file name, which is only shown
LARGE = 12_000_000  # pixels from which on photos are decoded one at a time
TEXT = 4096  # bytes that are looked at of a part that is no file
_QUALITY = 95
_one_large = threading.Lock()


@dataclass(frozen=True, eq=False)
class Upload:
    """A photo in the request."""

    name: str
    data: bytes


@dataclass(frozen=True, eq=False)
class Prepared:
    """A photo ready for the backbone, with what is kept of it: copies without any metadata."""

    name: str
    sha256: str  # of the file as it came, not of the copy: it tells the same file learned twice
    pixels: Tensor  # (3, size, size), uint8
    thumbnail: bytes | None = None
    copy: bytes | None = None


async def read_uploads(request: Request, limits: Limits) -> list[Upload]:
    """Return the photos of a multipart request."""
    kind = media_type(request)
    if kind != "multipart/form-data":
        raise ApiError(
            415,
            "not_multipart",
            f"photos come as multipart/form-data, not as {kind or 'nothing'}",
            f"for example: curl -F {FIELD}=@photo.jpg",
        )
    parser = MultiPartParser(
        request.headers,
        request.stream(),
        max_files=limits.photos,
        max_fields=limits.photos,  # none is wanted, but the error names it
        max_part_size=TEXT,
    )
    parser.spool_max_size = limits.body_bytes + 1  # in memory alone: no photo of a client touches the disk
    try:
        _check_charset(request)
        form = await parser.parse()
    except MultiPartException as error:
        if "Too many" in error.message:
            hint = "send several requests"
            raise too_large(f"more than {limits.photos} photos in one request", hint) from error
        if error.message.startswith("Part exceeded"):
            raise _not_a_file("a part") from error
        raise _malformed(error.message) from error
    except (KeyError, ValueError, AttributeError) as error:  # what the parser makes of missing headers
        raise _malformed("it has no boundary or no end") from error
    try:
        return [await _upload(key, value, number) for number, (key, value) in enumerate(form.multi_items(), 1)]
    finally:
        await form.close()


def _check_charset(request: Request) -> None:
    """Refuse any codec but the usual one: names and text are decoded with it, and some take very long."""
    charset = parse_options_header(request.headers["content-type"])[1].get(b"charset", b"utf-8")
    if charset.lower() not in (b"utf-8", b"utf8"):
        raise _malformed(f"its charset is {charset[:30].decode('latin-1')!r}, not 'utf-8'")


def checked_uploads(uploads: Sequence[Upload]) -> Sequence[Upload]:
    """Refuse a request without photos."""
    if not uploads:
        raise ApiError(
            422,
            "no_photos",
            "the request holds no photos",
            f"send them as parts called {FIELD!r}, with a file name",
        )
    return uploads


async def _upload(key: str, value: UploadFile | str, number: int) -> Upload:
    if key != FIELD:
        hint = f"send photos as parts called {FIELD!r}, and anything else as a parameter of the address"
        raise ApiError(422, "unknown_part", f"there is a part {key[:50]!r}", hint)
    if not isinstance(value, UploadFile):
        raise _not_a_file(f"the part {FIELD!r}")
    return Upload(shown_name(value.filename, number), await value.read())


def _not_a_file(part: str) -> ApiError:
    hint = f"with curl write {FIELD}=@FILE; programs give the part a file name"
    return ApiError(422, "not_a_file", f"{part} is text, not a file", hint)


def shown_name(given: str | None, number: int) -> str:
    """Return what a photo is called in answers: its file name without folders, or its number.

    >>> shown_name("C:\\\\fakepath\\\\owl.jpg", 1), shown_name("../../etc/passwd", 2), shown_name("\\x1b", 3)
    ('owl.jpg', 'passwd', 'photo 3')
    """
    last = (given or "").replace("\\", "/").rpartition("/")[2]
    name = "".join(character for character in last if character.isprintable()).strip()
    return name[:LONGEST_NAME] or f"photo {number}"


def prepare(runner: Runner, upload: Upload, *, pixels: int, keep_small: bool, keep_copy: bool) -> Prepared:
    """Decode a photo, and make of it what the backbone and the model need."""
    source = BytesSource(upload.data, upload.name)
    with _place_to_decode(image_size(source, max_pixels=pixels)):
        image = decode(source, max_pixels=pixels)
        cropped = runner.preprocessing.pixel_transform()(image)
        small = thumbnail(image) if keep_small else None
        copy = clean_copy(image) if keep_copy else None
    return Prepared(upload.name, hashlib.sha256(upload.data).hexdigest(), cropped, small, copy)


@contextmanager
def _place_to_decode(size: tuple[int, int]) -> Iterator[None]:
    """One large photo at a time, so that memory stays bounded however many are sent."""
    with _one_large if size[0] * size[1] > LARGE else nullcontext():
        yield


def clean_copy(image: Image) -> bytes:
    """Return the picture as a JPEG of high quality, upright, with none of the original's metadata."""
    from PIL import Image

    bare = Image.frombytes("RGB", image.size, image.tobytes())
    buffer = io.BytesIO()
    bare.save(buffer, "JPEG", quality=_QUALITY, subsampling=0)
    return buffer.getvalue()


def bad_photos(errors: Sequence[ImageError], total: int) -> ApiError:
    """Return the one error for all photos that cannot be used."""
    large = [error for error in errors if error.reason.startswith("too large")]
    message = "; ".join(f"{error.name}: {error.reason}" for error in errors[:10])
    if total > 1:
        message = f"{len(errors)} of {total} photos cannot be used, so nothing was done: {message}"
    if large:
        return too_large(message, "make the photo smaller")
    return ApiError(422, "bad_photo", message, "send photos that open in a viewer: JPEG, PNG, WebP and the like")


def _malformed(reason: str) -> ApiError:
    return ApiError(400, "malformed", f"the multipart body cannot be read: {reason}", "send it as a browser does")
