"""The contents of requests, with checks: parameters, class names, photos and idempotency keys."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, Path, Request, Response
from fastapi.routing import APIRoute
from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from fiveshot.data import Box, BytesSource, Photo
from fiveshot.errors import InputError
from fiveshot.recognizer import check_name, target_name
from fiveshot.service._errors import ApiError, busy, too_large
from fiveshot.service._gate import INNER_SLASH
from fiveshot.service._schemas import BOXES, FIELD
from fiveshot.service.settings import RequestLimits
from fiveshot.values import LearnedClass

BOX_HINT = "give null, or boxes such as [40, 60, 200, 150] in pixels or [0.1, 0.2, 0.5, 0.5] as shares"

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

LONGEST_FILE_NAME = 255  # characters
LONGEST_HEADERS = 8192  # bytes, of one part
LONGEST_BOXES = 256 * 1024
LONGEST_KEY = 200
PHOTO_ID = "^p[1-9][0-9]{0,17}$"


class StrictRoute(APIRoute):
    """A route that refuses unknown input.

    It refuses unknown and repeated parameters, an unexpected body, and a JSON body with another content type.
    Otherwise a misspelled ``state``, or ``for_good`` in a body, would go unnoticed.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        answer = super().get_route_handler()
        known = [parameter.alias for parameter in self.dependant.query_params]
        takes_json = self.body_field is not None
        takes_body = takes_json or "requestBody" in (self.openapi_extra or {})

        async def strict(request: Request) -> Response:
            _check_parameters(request, known, takes_body=takes_body)
            if takes_json:
                _check_json(request)
            return await answer(request)

        return strict


def _check_parameters(request: Request, known: Sequence[str], *, takes_body: bool) -> None:
    allowed = f"it takes {', '.join(known)}" if known else "it takes none"
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if has_body and not takes_body:
        hint = f"put parameters in the address: {allowed}"
        raise ApiError(422, "unknown_body", "this request takes no body", hint)
    given = [name for name, _ in request.query_params.multi_items()]
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? {allowed}" if near else allowed
            raise ApiError(422, "unknown_parameter", f"this request takes no parameter {name[:50]!r}", hint)
        if given.count(name) > 1:
            raise ApiError(422, "repeated_parameter", f"the parameter {name!r} is given twice", "give it once")


def _check_json(request: Request) -> None:
    kind = media_type(request)
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise ApiError(
            415,
            "not_json",
            f"the body must be sent as application/json, not as {kind or 'nothing'}",
            "send the header: Content-Type: application/json",
        )


def media_type(request: Request) -> str:
    """Return the content type of a request, or an empty text if it has none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def checked_name(text: str, *, or_none: bool = False) -> str:
    """Return a class name in normal form; with ``or_none``, also ``none of these``. Refuse other names.

    >>> checked_name(" owl ")
    'owl'
    """
    try:
        name = target_name(text) if or_none else check_name(text)
    except InputError as error:
        raise ApiError(422, error.code, error.message, error.hint or "choose another name") from error
    if name in (".", ".."):  # browsers remove these from a path, even if they are encoded
        raise ApiError(422, "bad_name", f"a class called {name!r} has no address here", "choose another name")
    return name


async def _path_name(
    name: Annotated[str, Path(description="Name of the class, percent-encoded.", examples=["barn owl"])],
) -> str:
    return checked_name(name.replace(INNER_SLASH, "/"))


PathName = Annotated[str, Depends(_path_name)]


async def _photo_number(
    id: Annotated[str, Path(description="Id of the photo.", examples=["p17"], pattern=PHOTO_ID)],
) -> int:
    return int(id.removeprefix("p"))


PhotoNumber = Annotated[int, Depends(_photo_number)]


@dataclass(eq=False)
class _Part:
    """A part of a form, as far as it was received."""

    name: str = ""
    file: str | None = None  # name of the file; None for text
    data: bytearray = field(default_factory=bytearray)


class _Form:
    """The parts of a form with photos, kept only in memory: no photo of a client is written to the disk."""

    def __init__(self, boundary: bytes, limits: RequestLimits) -> None:
        self.photos: list[Photo] = []
        self.boxes: bytes | None = None
        self.complete = False  # whether the last boundary was received
        self._most = limits.photos
        self._part = _Part()
        self._header = (bytearray(), bytearray())  # name and value of the present header
        self._headers: dict[bytes, bytes] = {}
        self._length = 0  # of the headers of a part
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._add_header(0, data[start:end]),
            "on_header_value": lambda data, start, end: self._add_header(1, data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": self._named,
            "on_part_data": self._add,
            "on_part_end": self._end,
            "on_end": self._complete,
        }
        self._parser = MultipartParser(boundary, callbacks)

    def write(self, piece: bytes) -> None:
        """Read a chunk of the body."""
        self._parser.write(piece)

    def _begin(self) -> None:
        self._part, self._headers, self._length = _Part(), {}, 0

    def _add_header(self, which: int, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > LONGEST_HEADERS:
            raise _malformed("the headers of a part are too long")
        self._header[which].extend(piece)

    def _end_header(self) -> None:
        name, value = map(bytes, self._header)
        self._headers[name.lower()] = value
        self._header = (bytearray(), bytearray())

    def _named(self) -> None:
        """Check a part before its data are received: data of unknown parts are not collected."""
        options = parse_options_header(self._headers.get(b"content-disposition"))[1]
        if b"name" not in options:
            raise _malformed("a part has no name")
        self._part.name = _text(options[b"name"])
        self._part.file = _text(options[b"filename"]) if b"filename" in options else None
        if self._part.name == BOXES:
            if self.boxes is not None:
                raise ApiError(422, "bad_boxes", f"there are two parts {BOXES!r}", "send one with all boxes")
        elif self._part.name != FIELD:
            hint = f"send photos as parts called {FIELD!r}, and anything else as a parameter of the address"
            raise ApiError(422, "unknown_part", f"unknown part {self._part.name[:50]!r}", hint)
        elif self._part.file is None:
            raise _not_a_file(f"the part {FIELD!r}")
        elif len(self.photos) == self._most:
            raise _too_many(self._most)

    def _add(self, data: bytes, start: int, end: int) -> None:
        if self._part.name == BOXES and len(self._part.data) + end - start > LONGEST_BOXES:
            raise too_large(f"the part {BOXES!r} is too long", "send several requests")
        self._part.data += memoryview(data)[start:end]

    def _end(self) -> None:
        data = bytes(self._part.data)
        if self._part.name == BOXES:
            self.boxes = data
        else:
            self.photos.append(Photo(BytesSource(data, shown_name(self._part.file, len(self.photos) + 1))))
        self._part = _Part()

    def _complete(self) -> None:
        self.complete = True


def _text(data: bytes) -> str:
    """Return a name in a header as text."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


async def read_uploads(request: Request, limits: RequestLimits) -> list[Photo]:
    """Return the photos of a multipart request, at least one; refuse an incomplete request."""
    kind = media_type(request)
    if kind != "multipart/form-data":
        raise ApiError(
            415,
            "not_multipart",
            f"photos must be sent as multipart/form-data, not as {kind or 'nothing'}",
            f"for example: curl -F {FIELD}=@photo.jpg",
        )
    try:
        form = _Form(_boundary(request), limits)
        async for piece in request.stream():
            form.write(piece)
    except FormParserError as error:
        raise _malformed("its boundary is not the one in its header") from error
    if not form.complete:
        raise _malformed("it ends before its last boundary")
    if not form.photos:
        hint = f"send them as parts called {FIELD!r}, with a file name"
        raise ApiError(422, "no_photos", "the request contains no photos", hint)
    uploads = form.photos if form.boxes is None else _in_boxes(form.photos, form.boxes)
    if len(uploads) > limits.photos:
        raise _too_many(limits.photos)
    return uploads


def _too_many(most: int) -> ApiError:
    return too_large(f"more than {most} photos, or parts of photos, in one request", "send several requests")


def _in_boxes(uploads: Sequence[Photo], part: bytes) -> list[Photo]:
    """Return an upload for each box; a photo without boxes is used as a whole."""
    try:
        given = json.loads(part)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, list) or len(given) != len(uploads):
        raise ApiError(
            422,
            "bad_boxes",
            f"the part {BOXES!r} is not one JSON list with an entry for each of {len(uploads)} photos",
            f"write null for a whole photo, or a list of boxes: {BOXES}=[[[40, 60, 200, 150]], null]",
        )
    found = []
    for upload, own in zip(uploads, given, strict=True):
        if own is not None and (not isinstance(own, list) or not own):
            raise ApiError(422, "bad_boxes", f"{upload.name}: neither null nor a list of boxes", BOX_HINT)
        try:
            found += [upload] if own is None else [replace(upload, box=Box.of(one)) for one in own]
        except InputError as error:
            raise ApiError(422, "bad_box", f"{upload.name}: {error.message}", error.hint) from error
    return found


def _boundary(request: Request) -> bytes:
    """Return the boundary of a body. Clients cannot choose the text codec, because some are very slow."""
    options = parse_options_header(request.headers["content-type"])[1]
    charset = options.get(b"charset", b"utf-8")
    if charset.lower() not in (b"utf-8", b"utf8"):
        raise _malformed(f"its charset is {charset[:30].decode('latin-1')!r}, not 'utf-8'")
    if not options.get(b"boundary"):
        raise _malformed("its header names no boundary")
    return options[b"boundary"]


def _not_a_file(part: str) -> ApiError:
    hint = f"with curl write {FIELD}=@FILE; programs must give the part a file name"
    return ApiError(422, "not_a_file", f"{part} is text, not a file", hint)


def _malformed(reason: str) -> ApiError:
    return ApiError(400, "malformed", f"the multipart body cannot be read: {reason}", "send multipart/form-data")


def shown_name(given: str | None, number: int) -> str:
    """Return the name of a photo for replies: its file name without folders, or its number.

    >>> shown_name("C:\\\\fakepath\\\\owl.jpg", 1), shown_name("../../etc/passwd", 2), shown_name("\\x1b", 3)
    ('owl.jpg', 'passwd', 'photo 3')
    """
    last = (given or "").replace("\\", "/").rpartition("/")[2]
    name = "".join(character for character in last if character.isprintable()).strip()
    return name[:LONGEST_FILE_NAME] or f"photo {number}"


@dataclass(frozen=True, eq=False)
class _StoredReply:
    digest: str
    name: str
    reply: asyncio.Future[LearnedClass]


class IdempotencyKeys:
    """Replies by idempotency key, so that a request that is sent twice is done once. Failed requests can be
    repeated.

    Keys are only in memory. After a restart, the model itself shows that a request was done: the last photos of
    the class are exactly those of the request.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[str, _StoredReply] = OrderedDict()

    async def once(
        self,
        key: str,
        name: str,
        uploads: Sequence[Photo],
        learn: Callable[[], Awaitable[tuple[LearnedClass, bool]]],
    ) -> tuple[LearnedClass, bool]:
        """Return the reply to a request, and whether it was done before."""
        digest = _request_digest(name, uploads)
        known = self._known.get(key)
        if known is not None:
            if known.digest != digest:
                hint = "use a new key for each"
                raise ApiError(422, "key_reused", "this idempotency key was used for another request", hint)
            return await asyncio.shield(known.reply), True
        answer: asyncio.Future[LearnedClass] = asyncio.get_running_loop().create_future()
        self._known[key] = _StoredReply(digest, name, answer)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        try:
            reply, replayed = await learn()
        except BaseException as error:
            self._known.pop(key, None)
            interrupted = busy("the first request with this key was interrupted")
            answer.set_exception(error if isinstance(error, Exception) else interrupted)
            answer.exception()  # retrieve the exception: no other request may be waiting
            raise
        answer.set_result(reply)
        return reply, replayed

    def forget(self, name: str | None = None) -> None:
        """Forget the replies about a class, or all of them."""
        for key in [key for key, known in self._known.items() if name in (None, known.name)]:
            del self._known[key]


def check_key(key: str) -> None:
    """Refuse an idempotency key that is too long."""
    if not 1 <= len(key) <= LONGEST_KEY:
        hint = f"use 1 to {LONGEST_KEY}"
        raise ApiError(422, "bad_key", f"the idempotency key has {len(key)} characters", hint)


def _request_digest(name: str, uploads: Sequence[Photo]) -> str:
    """Return a digest of a request: its class and its photos, in order."""
    digest = sha256(name.encode("utf-8", "backslashreplace"))
    for upload in uploads:
        digest.update(sha256(upload.read()).digest())
        digest.update(b"" if upload.box is None else f" {upload.box}".encode())
    return digest.hexdigest()
