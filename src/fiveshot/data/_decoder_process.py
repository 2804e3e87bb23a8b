"""The processes that decode photos: one that forks decoders, and the decoders.

This module runs only in them. A decoder works on untrusted bytes, so its memory and time are limited. Its answer
is never unpickled: it is a length, a line of JSON and plain bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import socket
import struct
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fiveshot.data.decoding import decode_bytes, needs_memory, usual_formats
from fiveshot.data.sources import FileSource, ImageError
from fiveshot.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

    from fiveshot.data.reduction import Box

Reduction: TypeAlias = "Callable[[Image], Mapping[str, bytes]]"
"""Turns a picture into named bytes, in the process that decoded it; it must be picklable."""
MEMORY = 512 << 20  # bytes that decoding a photo may use in addition to an idle decoder's
LARGE_MEMORY = 3 << 30  # the same for a large photo; these are decoded one at a time
LARGE_PIXELS = 25_000_000  # a photo of more is large
HOLD_SECONDS = 10  # how long a picture is held in case more parts of it are requested
PROCESSOR_SECONDS = 60  # ends a decoder that no caller waits for any more
HEADER = struct.Struct("!QQ")  # sizes in bytes of the message and of the data after it
COMMAND = struct.Struct("!cQ")  # to the forking process: a command and its number
FORK, END = b"F", b"E"
PROCESS = struct.Struct("!Q")
TURN_SECONDS, TURN_BYTES = 0.5, 32 << 20  # what one batch of boxes may use before other requests get a turn


@dataclass(frozen=True, eq=False)
class Reduced:
    """The result for one photo, or for one box of it: the parts, or why it cannot be used.

    Parameters
    ----------
    parts : mapping of str to bytes
        What the reduction returned, by name.
    sha256 : str
        Digest of the encoded photo; empty if it could not be read.
    error : ImageError, optional
        Why the photo, or the box, cannot be used.

    Examples
    --------
    >>> from fiveshot.data import ImageError, Reduced
    >>> print(Reduced(error=ImageError("cat/1.jpg", "the file is empty")).error)
    cannot use image cat/1.jpg: the file is empty
    """

    parts: Mapping[str, bytes] = field(default_factory=dict)
    sha256: str = ""
    error: ImageError | None = None


@dataclass(frozen=True, eq=False)
class DecoderReply:
    """A decoder's answer: the results for the photo or its first boxes, or why the photo cannot be used."""

    made: tuple[Mapping[str, bytes] | ImageError, ...] = ()  # one for the whole photo, or one for each box
    sha256: str = ""
    error: ImageError | None = None

    def results(self, asked: int) -> list[Reduced]:
        """Return one result for each box that was made; for a photo that cannot be used, ``asked`` results."""
        if self.error is not None:
            return [Reduced(sha256=self.sha256, error=self.error)] * asked
        return [
            Reduced(sha256=self.sha256, error=one)
            if isinstance(one, ImageError)
            else Reduced(one, sha256=self.sha256)
            for one in self.made
        ]


@dataclass(eq=False)
class HeldPicture:
    """The last decoded picture, kept while more parts of it may be requested."""

    mark: object = None  # identifies the picture
    image: Image | None = None
    sha256: str = ""

    def drop(self) -> None:
        """Release the picture."""
        self.mark, self.image, self.sha256 = None, None, ""


@dataclass(frozen=True, eq=False)
class Request:
    """A photo to decode (a file, or the bytes after the request), and the reduction of it or of its boxes."""

    source: FileSource | None
    name: str
    reduction: Reduction
    max_pixels: int
    boxes: tuple[Box, ...] | None = None  # None: the whole photo
    large: bool = False

    def answered(self, data: bytes, held: HeldPicture) -> DecoderReply:
        """Return the reduction of the photo, or of as many of its boxes as fit into one batch."""
        sha256 = ""
        try:
            content = _look_of(self.source.path) if self.source is not None else hashlib.sha256(data).digest()
            mark = (self.max_pixels, content)
            if held.mark != mark:
                held.drop()  # memory may not suffice for two
                if self.source is not None:
                    data = self.source.read()
                sha256 = hashlib.sha256(data).hexdigest()
                held.image, held.sha256 = decode_bytes(data, self.name, max_pixels=self.max_pixels), sha256
                held.mark = mark
            assert held.image is not None
            sha256 = held.sha256
            return DecoderReply(tuple(self._made(held.image)), sha256)
        except (InputError, MemoryError) as error:
            return DecoderReply(sha256=sha256, error=_refused(self.name, error))
        finally:
            if self.boxes is None:  # more boxes of the same photo may be requested soon
                held.drop()

    def _made(self, image: Image) -> Iterator[Mapping[str, bytes] | ImageError]:
        began, size = time.process_time(), 0
        for box in (None,) if self.boxes is None else self.boxes:
            try:
                parts = self.reduction(image if box is None else image.crop(box.pixels(image.size)))
                size += sum(map(len, parts.values()))
                yield parts
            except InputError as error:  # decoded, but its shape cannot be used
                yield _refused(self.name, error)
            if time.process_time() - began > TURN_SECONDS or size > TURN_BYTES:
                return


def _refused(name: str, error: InputError | MemoryError) -> ImageError:
    if isinstance(error, MemoryError):
        return needs_memory(name)
    return error if isinstance(error, ImageError) else ImageError(name, str(error), code=error.code or "bad_image")


def _look_of(path: Path) -> object:
    """Return a mark that changes when the file changes; for a missing file, one that equals no other."""
    try:
        found = path.stat()
    except OSError:
        return object()
    return str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def main(descriptor: int) -> None:
    """Fork decoders for the process at the other end of this socket until that process ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # decoders end when the other process ends, not on a signal
    warnings.simplefilter("ignore")  # about metadata that a viewer would not mention either
    usual_formats()  # before the first fork, so that every decoder has them
    control = socket.socket(fileno=descriptor)
    decoders: set[int] = set()
    try:
        while _obey(control, decoders):
            pass
    finally:
        for process in decoders:
            _end(process)
        os._exit(0)  # the caller waits for this process, and there is nothing to clean up


def _obey(control: socket.socket, decoders: set[int]) -> bool:
    """Carry out one command; return False when the other end has closed."""
    message, descriptors, _, _ = socket.recv_fds(control, COMMAND.size, 1)
    if not message:
        return False
    command, number = COMMAND.unpack(message)
    if command == END:
        if number in decoders:
            decoders.discard(number)
            _end(number)
        return True
    warmth = receive(control, number)
    with suppress(Exception):  # imports what the decoder needs before the fork; an error shows again on use
        pickle.loads(warmth)  # from the process that started this one
    process = os.fork()
    if process == 0:
        control.close()
        _decode_for(socket.socket(fileno=descriptors[0]))
    os.close(descriptors[0])
    decoders.add(process)
    control.sendall(PROCESS.pack(process))
    return True


def _end(process: int) -> None:
    with suppress(OSError):
        os.kill(process, signal.SIGKILL)
    with suppress(OSError):
        os.waitpid(process, 0)


def _decode_for(connection: socket.socket) -> None:
    """Decode the photos that come in, one after the other; never returns."""
    try:
        limit_memory, held = _limits(), HeldPicture()
        while True:
            connection.settimeout(None if held.image is None else HOLD_SECONDS)
            size, length = HEADER.unpack(receive(connection, HEADER.size, held.drop))
            connection.settimeout(None)
            message, data = receive(connection, size), bytes(receive(connection, length))
            try:
                request: Request = pickle.loads(message)  # as above
            except Exception as error:  # a reduction that cannot be imported here
                answer(connection, DecoderReply(), failure=repr(error))
                continue
            limit_memory(LARGE_MEMORY if request.large else MEMORY)
            answer(connection, request.answered(data, held))
    except BaseException:  # the other end is closed or memory ran out: nothing can be repaired
        os._exit(1)


def _limits() -> Callable[[int], None]:
    """Set a decoder's limits, and return a function that sets its memory limit and starts its clock."""
    import resource

    level = _address_space()
    with suppress(OSError):  # if the machine runs out of memory, the system should end this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    def limit(memory: int) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime) + PROCESSOR_SECONDS
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (_within(seconds, hard), hard))
        if level is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (_within(level + memory, hard), hard))

    return limit


def _within(wanted: int, hard: int) -> int:
    return wanted if hard < 0 else min(wanted, hard)  # -1 is no limit at all


def _address_space() -> int | None:
    """Return the bytes of address space of this process, or None on other systems than Linux."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def receive(connection: socket.socket, size: int, waited: Callable[[], None] | None = None) -> bytearray:
    """Return exactly ``size`` bytes, or raise ``EOFError``; ``waited`` is called whenever a wait times out."""
    buffer = bytearray(size)
    view = memoryview(buffer)
    while view:
        try:
            count = connection.recv_into(view)
        except TimeoutError:
            if waited is None:
                raise
            waited()
            continue
        if not count:
            raise EOFError
        view = view[count:]
    return buffer


def answer(connection: socket.socket, found: DecoderReply, failure: str | None = None) -> None:
    """Send the answer for a photo. A failure is an error of the calling program, not of the photo."""
    facts: dict[str, Any] = {"sha256": found.sha256, "made": []}
    parts: list[bytes] = []
    for one in found.made:
        if isinstance(one, ImageError):
            facts["made"].append({"reason": one.reason, "code": one.code})
        else:
            facts["made"].append({"sizes": {name: len(part) for name, part in one.items()}})
            parts += one.values()
    if found.error is not None:
        facts["error"] = {"reason": found.error.reason, "code": found.error.code}
    if failure is not None:
        facts["failure"] = failure
    message, data = json.dumps(facts).encode(), b"".join(parts)
    connection.sendall(HEADER.pack(len(message), len(data)) + message)
    connection.sendall(data)
