"""The processes that photos are decoded in: a quiet one that others are forked from, and those that decode.

This module runs in them alone. A decoder works on bytes from outside, so it may take only so much memory and time,
whatever the file says. What it sends back is never unpickled: a length, a line of JSON and plain bytes.
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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fiveshot.data.decoding import decode_bytes, needs_memory, usual_formats
from fiveshot.data.sources import FileSource, ImageError
from fiveshot.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

Reduction: TypeAlias = "Callable[[Image], Sequence[bytes | None]]"
"""What is made of a picture where it was decoded; a function or an object that can be pickled."""
MEMORY = 512 << 20  # bytes that decoding a photo may take above what an idle decoder has
LARGE_MEMORY = 3 << 30  # the same for a large photo; these are decoded one at a time
LARGE_PIXELS = 25_000_000  # a photo of more is large
HOLD_SECONDS = 10  # that a picture is held in case more parts of it are asked for
PROCESSOR_SECONDS = 60  # what ends a decoder that nobody waits for any more
HEADER = struct.Struct("!QQ")  # bytes of the message, and of the data behind it
COMMAND = struct.Struct("!cQ")  # to the process that forks: what to do, and a number that goes with it
FORK, END = b"F", b"E"
PROCESS = struct.Struct("!Q")


@dataclass(frozen=True, eq=False)
class Reduced:
    """What came of one photo: the small parts that were made of it, or why there are none.

    Parameters
    ----------
    parts : tuple of bytes or None
        What the reduction returned.
    sha256 : str
        Digest of the encoded photo; empty where it could not be read.
    error : ImageError, optional
        Why the photo cannot be used.
    decode_seconds, reduce_seconds : float
        How long reading and decoding took, and the reduction.

    Examples
    --------
    >>> from fiveshot.data import ImageError, Reduced
    >>> print(Reduced(error=ImageError("cat/1.jpg", "the file is empty")).error)
    cannot use image cat/1.jpg: the file is empty
    """

    parts: tuple[Any, ...] = ()
    sha256: str = ""
    error: ImageError | None = None
    decode_seconds: float = 0.0
    reduce_seconds: float = 0.0


@dataclass(eq=False)
class Held:
    """The picture that was decoded last, while more parts of it may be asked for."""

    mark: object = None  # what tells it from others
    image: Image | None = None
    sha256: str = ""

    def drop(self) -> None:
        """Let it go."""
        self.mark, self.image, self.sha256 = None, None, ""


@dataclass(frozen=True, eq=False)
class Request:
    """A photo to decode: a file, or the bytes that follow the request; and what to make of it."""

    source: FileSource | None
    name: str
    reduction: Reduction
    max_pixels: int
    large: bool = False
    keep: bool = False  # whether more may be asked about the same picture soon

    def made(self, data: bytes, held: Held) -> Reduced:
        """Return what the reduction makes of the photo."""
        try:
            content = _look_of(self.source.path) if self.source is not None else hashlib.sha256(data).digest()
            mark = (self.max_pixels, content)
            if held.mark == mark and held.image is not None:
                return reduce_picture(held.image, held.sha256, self.name, self.reduction)
            held.drop()  # there may not be memory for two
            if self.source is not None:
                data = self.source.read()
        except ImageError as error:
            return Reduced(error=error)
        except MemoryError:
            return Reduced(error=needs_memory(self.name))

        def keep(image: Image, sha256: str) -> None:
            held.mark, held.image, held.sha256 = mark, image, sha256

        return reduce_bytes(data, self.name, self.reduction, self.max_pixels, keep if self.keep else None)


def reduce_bytes(
    data: bytes,
    name: str,
    reduction: Reduction,
    max_pixels: int,
    keep: Callable[[Image, str], None] | None = None,
) -> Reduced:
    """Decode a photo in this process and reduce it; ``keep`` gets the picture and the digest of the photo."""
    began = time.perf_counter()
    sha256 = hashlib.sha256(data).hexdigest()
    try:
        image = decode_bytes(data, name, max_pixels=max_pixels)
    except (InputError, MemoryError) as error:
        return Reduced(sha256=sha256, error=_refused(name, error), decode_seconds=time.perf_counter() - began)
    if keep is not None:
        keep(image, sha256)
    decoding = time.perf_counter() - began
    return replace(reduce_picture(image, sha256, name, reduction), decode_seconds=decoding)


def reduce_picture(image: Image, sha256: str, name: str, reduction: Reduction) -> Reduced:
    """Reduce a picture that was decoded before."""
    began = time.perf_counter()
    try:
        parts = tuple(reduction(image))
    except (InputError, MemoryError) as error:  # decoded, but of a shape that cannot be used
        return Reduced(sha256=sha256, error=_refused(name, error))
    return Reduced(parts, sha256, reduce_seconds=time.perf_counter() - began)


def _refused(name: str, error: InputError | MemoryError) -> ImageError:
    if isinstance(error, MemoryError):
        return needs_memory(name)
    return error if isinstance(error, ImageError) else ImageError(name, str(error), code=error.code or "bad_image")


def _look_of(path: Path) -> object:
    """Return what changes with a file; nothing that is equal to anything where there is none."""
    try:
        found = path.stat()
    except OSError:
        return object()
    return str(path), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def main(descriptor: int) -> None:
    """Fork decoders for the process at the other end of this socket, until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they end when the other end does, neither before nor after
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
        os._exit(0)  # somebody waits for this process, which has nothing to put in order


def _obey(control: socket.socket, decoders: set[int]) -> bool:
    """Do one thing that is asked for; False when nobody asks any more."""
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
    with suppress(Exception):  # what it needs is imported before the fork; what fails here fails when it is used
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
        limit_memory, held = _limits(), Held()
        while True:
            connection.settimeout(None if held.image is None else HOLD_SECONDS)
            size, length = HEADER.unpack(receive(connection, HEADER.size, held.drop))
            connection.settimeout(None)
            message, data = receive(connection, size), bytes(receive(connection, length))
            try:
                request: Request = pickle.loads(message)  # as above
            except Exception as error:  # a reduction that cannot be imported here
                answer(connection, Reduced(), failure=repr(error))
                continue
            limit_memory(LARGE_MEMORY if request.large else MEMORY)
            answer(connection, request.made(data, held))
    except BaseException:  # the other end is gone, or memory: there is nothing that could be put right
        os._exit(1)


def _limits() -> Callable[[int], None]:
    """Set what a decoder may use, and return what sets its memory and starts its clock."""
    import resource

    level = _address_space()
    with suppress(OSError):  # when the machine runs out of memory, this process is to go and no other
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
    """Return the bytes of address space that this process has, where the system says (Linux)."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def receive(connection: socket.socket, size: int, waited: Callable[[], None] | None = None) -> bytearray:
    """Return exactly so many bytes, or raise ``EOFError``; ``waited`` is called whenever a wait times out."""
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


def answer(connection: socket.socket, reduced: Reduced, failure: str | None = None) -> None:
    """Send what came of a photo; a failure is not the photo's fault, but that of the program that asks."""
    facts: dict[str, Any] = {
        "sizes": [None if part is None else len(part) for part in reduced.parts],
        "sha256": reduced.sha256,
        "seconds": [reduced.decode_seconds, reduced.reduce_seconds],
    }
    if reduced.error is not None:
        facts["reason"], facts["code"] = reduced.error.reason, reduced.error.code
    if failure is not None:
        facts["failure"] = failure
    parts = b"".join(part for part in reduced.parts if part is not None)
    message = json.dumps(facts).encode()
    connection.sendall(HEADER.pack(len(message), len(parts)) + message)
    connection.sendall(parts)
