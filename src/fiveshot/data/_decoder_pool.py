"""Decode photos in processes of their own, each with a limit on memory and on time.

A file may be hostile. A decoder that uses too much memory, takes too long or crashes is ended. Its photo is
refused, and a new decoder replaces it. A decoder returns only the result of the reduction, never the picture.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import BoundedSemaphore, Lock

from fiveshot.data._decoder_process import (
    COMMAND,
    END,
    FORK,
    HEADER,
    LARGE_PIXELS,
    PROCESS,
    DecoderReply,
    HeldPicture,
    Reduced,
    Reduction,
    Request,
    receive,
)
from fiveshot.data.decoding import MAX_PIXELS
from fiveshot.data.reduction import Box
from fiveshot.data.sources import MAX_PHOTO_BYTES, FileSource, ImageError, ImageSource, image_digest
from fiveshot.errors import FiveshotError
from fiveshot.work import SAFE_PATH, in_order, safe_path

PHOTO_SECONDS = 20
"""How long decoding one photo may take."""
MOST_BOXES = 64  # the most boxes of a photo in one request
QUICK = 2.0  # processor seconds; slower photos are decoded separately, one at a time
_TURN = 1.0  # seconds; a process that was suspended for an hour counts this as one turn, not as an hour
_MAX_FACTS = 1 << 18  # bytes of a decoder's JSON answer, without the parts
_SAFE = {**SAFE_PATH, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from fiveshot.data._decoder_process import main; main(int(sys.argv[1]))"
)


class Decoders:
    """A pool of decoders, started when they are needed; threads may share it.

    Parameters
    ----------
    workers : int, optional
        The most photos that are decoded at the same time; by default the number of cores. With 0, and on systems
        that cannot limit processes (Windows), photos are decoded in this process, without these limits.
    seconds : int
        How long one photo may take.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource
    >>> def first_pixel(image):
    ...     return {"color": bytes(image.getpixel((0, 0)))}
    >>> with Decoders(workers=0) as decoders:
    ...     decoders.reduce(ArraySource(np.full((2, 3, 3), 255, np.uint8), "white"), first_pixel).parts
    {'color': b'\xff\xff\xff'}
    """

    def __init__(self, workers: int | None = None, *, seconds: int = PHOTO_SECONDS) -> None:
        self.workers = _cores() if workers is None else workers
        self._seconds = seconds
        self._slots = BoundedSemaphore(max(self.workers, 1))
        self._aside = Lock()
        self._lock = Lock()
        self._forker: _Forker | None = None
        self._idle: list[_Decoder] = []
        self._large: _Decoder | None = None  # holds a large picture; more parts of it may be requested

    @property
    def limited(self) -> bool:
        """Whether photos are decoded in processes with limits."""
        return self.workers > 0 and hasattr(os, "fork") and bool(sys.executable)

    def start(self, reduction: Reduction | None = None) -> None:
        """Start a decoder in the background, so that it is ready for the first photo. This call does not wait.

        Parameters
        ----------
        reduction : callable, optional
            The reduction that will be requested. Without it, only the process that forks decoders is started.
        """
        if not self.limited:
            return
        with self._lock:
            if self._forker is None:
                self._forker = _Forker()
            if reduction is None or self._idle or self._forker.was_asked:
                return
            with suppress(OSError):  # if it has already ended, the first photo starts another
                self._forker.ask(pickle.dumps(reduction))

    def attempt(self, source: ImageSource, reduction: Reduction, *, max_pixels: int = MAX_PIXELS) -> Reduced:
        """Decode one photo and reduce it. For a photo that cannot be used, the result holds the error.

        Parameters
        ----------
        source : ImageSource
            The photo.
        reduction : callable
            Called with the picture in the process that decoded it; returns bytes by name. It must be picklable.
        max_pixels : int
            The most pixels that the photo may have.

        Returns
        -------
        Reduced
            What ``reduction`` returned, the digest of the photo, and the error if there is one.
        """
        (found,) = self._asked(source, reduction, max_pixels).results(1)
        return found

    def cut(
        self, source: ImageSource, boxes: Sequence[Box], reduction: Reduction, *, max_pixels: int = MAX_PIXELS
    ) -> list[Reduced]:
        """Reduce boxes of one photo, each as if it were a photo of its own; the photo is decoded once.

        The boxes are cut in small batches that take little time and memory. A decoder keeps the picture for some
        seconds, so a caller that requests a few boxes at a time does not cause it to be decoded again.

        Parameters
        ----------
        source : ImageSource
            The photo.
        boxes : sequence of Box
            The boxes.
        reduction : callable
            As for ``attempt``.
        max_pixels : int
            The most pixels that the photo may have.

        Returns
        -------
        list of Reduced
            One for each box, in order. The digest of each is that of the photo.
        """
        found: list[Reduced] = []
        held = HeldPicture()
        while len(found) < len(boxes):
            asked = tuple(boxes[len(found) : len(found) + MOST_BOXES])
            turn = self._asked(source, reduction, max_pixels, asked, held)
            found += turn.results(len(boxes) - len(found))
        return found

    def _asked(
        self,
        source: ImageSource,
        reduction: Reduction,
        max_pixels: int,
        boxes: tuple[Box, ...] | None = None,
        held: HeldPicture | None = None,
    ) -> DecoderReply:
        """Return a decoder's answer for a photo, or for boxes of it; ``held`` is for decoding in this process."""
        try:
            request, data = _request(source, reduction, max_pixels, boxes, read=not self.limited)
        except ImageError as error:
            return DecoderReply(error=error)
        if not self.limited:
            return request.answered(data, held or HeldPicture())
        found, large = None, self._large
        if not (boxes and large is not None and large.holds == source.name):
            with self._slots:
                usual = replace(request, max_pixels=min(max_pixels, LARGE_PIXELS))
                found = self._ask(usual, data, quick=self._seconds > QUICK)
            too_large = found.error is not None and found.error.code == "image_too_large"
            if found.error is _NOT_QUICK or (max_pixels > LARGE_PIXELS and too_large):
                found = None
        if found is None:
            # One slow photo at a time, in parallel with the others: memory stays bounded, and requests for usual
            # photos do not wait for slow ones.
            with self._aside:
                found = self._ask(replace(request, large=True), data)
        return found if found.sha256 else replace(found, sha256=_digest(source))

    def reduce(self, source: ImageSource, reduction: Reduction, *, max_pixels: int = MAX_PIXELS) -> Reduced:
        """Decode one photo and reduce it, or raise its ``ImageError``."""
        found = self.attempt(source, reduction, max_pixels=max_pixels)
        if found.error is not None:
            raise found.error
        return found

    def stream(
        self,
        asked: Iterable[tuple[ImageSource, Reduction]],
        *,
        workers: int | None = None,
        ahead: int = 0,
    ) -> Iterator[Reduced]:
        """Yield what ``attempt`` returns for each photo and its own reduction, in order.

        Several photos are decoded in parallel.

        Parameters
        ----------
        asked : iterable of pairs
            Photos, each with its reduction.
        workers : int, optional
            The most photos that are decoded at the same time, if fewer than the pool's.
        ahead : int
            How many finished results may wait to be taken, in addition to those in progress.

        Yields
        ------
        Reduced
            The result for a photo, or its error.
        """
        workers = min(workers or self.workers, self.workers)
        # Just enough requests are in progress that no thread waits for work.
        yield from in_order(
            lambda pair: self.attempt(*pair),
            asked,
            threads=max(workers, 1),
            ahead=2 * workers + ahead,
        )

    def close(self) -> None:
        """End all decoders; the pool starts others when it is used again."""
        with self._lock:
            forker, self._forker = self._forker, None
            ours = self._held_open()
        for decoder in ours:
            decoder.connection.close()
        if forker is not None:
            forker.close()

    def __enter__(self) -> Decoders:
        """Return the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """End all decoders."""
        self.close()

    def abandon(self) -> None:
        """Forget the decoders after a fork: they belong to the parent process."""
        self._lock, self._aside = Lock(), Lock()
        self._slots = BoundedSemaphore(max(self.workers, 1))
        for decoder in self._held_open():
            decoder.connection.close()
        if self._forker is not None:
            self._forker.control.close()
        self._forker = None

    def _held_open(self) -> list[_Decoder]:
        """Return all idle decoders, and forget them."""
        found = [*self._idle, *([] if self._large is None else [self._large])]
        self._idle, self._large = [], None
        return found

    def _ask(self, request: Request, data: bytes, *, quick: bool = False) -> DecoderReply:
        message = pickle.dumps(request)
        while True:
            decoder, used = self._take(request, message)
            try:
                decoder.send(message, data, self._seconds)
            except OSError as error:
                self._discard(decoder)
                if used:  # it ended while it was idle
                    continue
                raise _not_started() from error
            except BaseException:
                self._discard(decoder)
                raise
            return self._answer(decoder, request, quick)

    def _answer(self, decoder: _Decoder, request: Request, quick: bool) -> DecoderReply:
        keep = False
        try:
            deadline = _Deadline(self._seconds, decoder.process if quick else None)
            found = decoder.receive(request, deadline)
            # A decoder with a large limit, or without memory left, is kept only for boxes of the same picture.
            keep = (request.boxes is not None or not request.large) and (
                found.error is None or found.error.code != "image_too_large"
            )
            return found
        except _SlowPhoto:
            return DecoderReply(error=_NOT_QUICK)
        except TimeoutError:
            reason = f"decoding it took more than {self._seconds} seconds"
            return DecoderReply(error=ImageError(request.name, reason, code="image_too_slow"))
        except (OSError, EOFError, ValueError, TypeError, KeyError):
            return DecoderReply(
                error=ImageError(request.name, "its decoder crashed or used too much memory or time")
            )
        finally:
            if keep:
                holds = "" if request.boxes is None else request.name
                self._give_back(replace(decoder, holds=holds), request)
            else:
                self._discard(decoder)

    def _give_back(self, decoder: _Decoder, request: Request) -> None:
        with self._lock:
            if request.large:
                self._large = decoder  # at most one at a time
            else:
                self._idle.append(decoder)

    def _take(self, request: Request, message: bytes) -> tuple[_Decoder, bool]:
        """Return an idle decoder or a new one, and whether it was used before.

        A decoder that holds the picture is taken first, one that holds another picture last.
        """
        with self._lock:
            if request.large and self._large is not None:
                large, self._large = self._large, None
                if large.holds == request.name:
                    return large, True
                self._discard(large)
            if self._idle:
                chosen = max(reversed(self._idle), key=lambda one: (one.holds == request.name, not one.holds))
                self._idle.remove(chosen)
                return chosen, True
            if self._forker is not None:
                with suppress(OSError, EOFError):
                    return self._forker.fork(message), False
                self._forker.close()
            self._forker = _Forker()
            try:
                return self._forker.fork(message), False
            except (OSError, EOFError) as error:
                raise _not_started() from error

    def _discard(self, decoder: _Decoder) -> None:
        decoder.connection.close()
        with suppress(OSError):
            decoder.forker.end(decoder.process)


class _Forker:
    """The process that forks decoders. It has one thread and has imported all that decoders need."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair()
        flag = "-I" if sys.flags.isolated else "-P"
        with theirs:
            self._process = subprocess.Popen(  # this Python with a fixed program
                [sys.executable, flag, "-c", _PROGRAM, str(theirs.fileno()), *safe_path()],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # C libraries print warnings about files there
                env={**os.environ, **_SAFE},
            )
        self._lock = Lock()
        self.was_asked = False
        self._asked: list[socket.socket] = []  # of decoders that were requested but not used yet

    def ask(self, warmth: bytes) -> None:
        """Request a decoder that has imported what this pickle needs."""
        self.was_asked = True
        ours, theirs = socket.socketpair()
        self._asked.append(ours)
        with theirs:
            socket.send_fds(self.control, [COMMAND.pack(FORK, len(warmth))], [theirs.fileno()])
        self.control.sendall(warmth)

    def fork(self, warmth: bytes) -> _Decoder:
        """Return the decoder that was requested, or a new one that has imported what this pickle needs."""
        with self._lock:
            if not self._asked:
                self.ask(warmth)
            self.control.settimeout(PHOTO_SECONDS)
            (process,) = PROCESS.unpack(receive(self.control, PROCESS.size))
            return _Decoder(self, self._asked.pop(0), process)

    def end(self, process: int) -> None:
        """Kill a decoder."""
        with self._lock:
            self.control.sendall(COMMAND.pack(END, process))

    def close(self) -> None:
        """End the process, which ends all its decoders."""
        self.control.close()
        for connection in self._asked:
            connection.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True, eq=False)
class _Decoder:
    """This end of a process that decodes."""

    forker: _Forker
    connection: socket.socket
    process: int
    holds: str = ""  # name of the photo whose picture it may still hold; names need not be unique

    def send(self, message: bytes, data: bytes, seconds: float) -> None:
        self.connection.settimeout(seconds)
        self.connection.sendall(HEADER.pack(len(message), len(data)) + message)
        if data:
            self.connection.sendall(data)

    def receive(self, request: Request, deadline: _Deadline) -> DecoderReply:
        """Return the answer. It is untrusted data, like the photo."""
        size, length = HEADER.unpack(self._receive(HEADER.size, deadline))
        if size > _MAX_FACTS or length > MAX_PHOTO_BYTES:
            raise ValueError
        facts = json.loads(self._receive(size, deadline))
        if "failure" in facts:
            raise RuntimeError(f"a decoder cannot reduce {request.name}: {facts['failure']}")
        data = memoryview(self._receive(length, deadline))
        made: list[dict[str, bytes] | ImageError] = []
        for one in facts["made"]:
            if "sizes" not in one:
                made.append(ImageError(request.name, str(one["reason"]), code=str(one["code"])))
                continue
            parts = {}
            for name, part in one["sizes"].items():
                parts[name], data = bytes(data[:part]), data[part:]
            made.append(parts)
        error = None
        if "error" in facts:
            reason, code = facts["error"]["reason"], facts["error"]["code"]
            error = ImageError(request.name, str(reason), code=str(code))
        elif not 1 <= len(made) <= len(request.boxes or (None,)):
            raise ValueError
        return DecoderReply(tuple(made), str(facts["sha256"]), error)

    def _receive(self, size: int, deadline: _Deadline) -> bytearray:
        self.connection.settimeout(_TURN)
        return receive(self.connection, size, deadline.turn)


class _SlowPhoto(Exception):  # noqa: N818  # nothing is wrong yet
    """A photo takes longer than usual."""


class _Deadline:
    """Limits the wait for an answer: in turns and, for a quick answer, in processor seconds."""

    def __init__(self, seconds: int, process: int | None) -> None:
        self._turns, self._process = seconds, process
        self._began = None if process is None else _processor_seconds(process)

    def turn(self) -> None:
        """Count one turn; raise when the time is over."""
        self._turns -= 1
        if self._turns <= 0:
            raise TimeoutError
        if self._process is not None and self._began is not None:
            used = _processor_seconds(self._process)
            if used is not None and used - self._began >= QUICK:
                raise _SlowPhoto


def _processor_seconds(process: int) -> float | None:
    """Return the processor seconds that a process has used, or None on other systems than Linux."""
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@cache
def decoders() -> Decoders:
    """Return the one pool that all code in this process shares.

    Examples
    --------
    >>> from fiveshot.data import decoders
    >>> decoders() is decoders()
    True
    """
    pool = Decoders()
    atexit.register(pool.close)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=pool.abandon)
    return pool


def _request(
    source: ImageSource, reduction: Reduction, max_pixels: int, boxes: tuple[Box, ...] | None, *, read: bool
) -> tuple[Request, bytes]:
    """Return the request to a decoder and the bytes that go with it; unless ``read``, it reads a file itself."""
    if type(source) is FileSource and not read:
        source.check()
        file = FileSource(source.path.absolute(), source.name)
        return Request(file, source.name, reduction, max_pixels, boxes), b""
    return Request(None, source.name, reduction, max_pixels, boxes), source.read()


def _digest(source: ImageSource) -> str:
    """Return the digest of a photo whose decoder did not return it; empty if the photo cannot be read."""
    try:
        return image_digest(source).hex()
    except ImageError:
        return ""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_NOT_QUICK = ImageError("", "not decoded as quickly as a usual photo")


def _not_started() -> FiveshotError:
    return FiveshotError(
        "the process that decodes photos did not start",
        hint=f"to see why, run: {sys.executable} -P -c 'import fiveshot.data'",
        code="no_decoder",
    )
