"""Where photos come from: a folder, or the address of a camera's snapshot; and what goes wrong while watching."""

from __future__ import annotations

import asyncio
import os
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import SplitResult, urlsplit

from fiveshot.data import BytesSource, FileSource, is_image
from fiveshot.errors import InputError, is_number
from fiveshot.extras import import_extra
from fiveshot.recognizer import SYSTEM_FOLDERS, Photo
from fiveshot.storage import attempting
from fiveshot.values import to_json
from fiveshot.web import Fetcher, FetchLimits

EXTRA = "watch"
TICK = 0.25  # seconds between two looks at files that may still be written
SCAN = 10.0  # seconds after which a folder is listed, whether it reports changes or not: shares report none
RETRY = 2.0  # seconds until a file is tried again
UNREADABLE_AFTER = 30.0  # seconds that a file which cannot be read may stay as it is before that is said
MAX_SNAPSHOT = 32 * 1024 * 1024  # bytes of one reply
Signature = tuple[int, int]  # when a file was changed, and its size
# They yield photos until they are told to stop, and None now and then while there are none.
Source: TypeAlias = "FolderSource | SnapshotSource"
SOURCE, MODEL, OUT, COMMAND, BROKER = "source", "model", "out", "command", "broker"  # what may be in trouble


def open_source(
    place: str,
    *,
    existing: bool,
    every: float,
    settle: float,
    timeout: float,
    login: tuple[str, str] | None,
    ca: str | None,
) -> FolderSource | SnapshotSource:
    """Return the source that a path or an address stands for."""
    for name, value in (("every", every), ("settle", settle), ("timeout", timeout)):
        if not is_number(value) or not 0 < value < 1e6:
            raise InputError(f"{name}={value!r} is not a number of seconds above 0", hint="give one such as 5")
    if place.lower().startswith(("http:", "https:")):
        return SnapshotSource(place, every=every, timeout=timeout, login=login, ca=ca)
    if "://" in place:
        raise InputError(f"{place} is neither a folder nor an address", hint="addresses begin with http or https")
    return FolderSource(Path(place), existing=existing, settle=settle)


@dataclass(frozen=True)
class _Waiting:
    """A file that may still be written: how it looked, since when it looks so, and when it is tried."""

    signature: Signature
    since: float
    due: float


class FolderSource:
    """New and changed photos in a folder and those below it.

    A photo is taken once its file has stayed as it is for ``settle`` seconds, and where it cannot be read then, it
    is tried again for ``patience`` seconds. The system says when files change; the folder is listed every ten
    seconds besides, since shares of other machines report nothing.
    """

    def __init__(
        self, path: Path, *, existing: bool = False, settle: float = 1.0, patience: float = UNREADABLE_AFTER
    ) -> None:
        self.path, self.name = path.absolute(), str(path)
        self._settle, self._patience = settle, patience
        self._watchfiles = import_extra("watchfiles", extra=EXTRA)
        if not self.path.is_dir():
            raise InputError(f"no such folder: {path}", hint="make it first", code="no_file")
        self._seen: dict[str, Signature] = {} if existing else dict(self._listed())
        self._waiting: dict[str, _Waiting] = {}
        self._scanned = float("-inf")

    def frames(self, stop: threading.Event, notices: Notices) -> Iterator[Photo | None]:
        """Yield photos as they are complete; a folder that is gone is waited for."""
        while not stop.is_set():
            place = self._identity()
            if place is None:
                notices.trouble(SOURCE, f"{self.name} is gone or cannot be listed; waiting for it")
                stop.wait(TICK)
                yield None
                continue
            notices.over(SOURCE, f"{self.name} is there again")
            self._scanned = float("-inf")
            for changed in self._changes(stop, notices):
                if self._identity() != place:
                    break  # another folder has its name now, or none
                self._look_at(changed)
                yield from self._complete()
                yield None

    def unreadable(self, photo: Photo, reason: str, notices: Notices) -> None:
        """Try a file again for a while: it may still be written, slowly. Then say it, once until it changes."""
        waiting = self._waiting[photo.name]
        if time.monotonic() - waiting.since < self._patience:
            self.postpone(photo)
        else:
            notices.unreadable(reason)

    def postpone(self, photo: Photo) -> None:
        """Take the photo again later."""
        self._seen.pop(photo.name, None)
        waiting = self._waiting[photo.name]
        self._waiting[photo.name] = replace(waiting, due=time.monotonic() + RETRY)

    def _identity(self) -> tuple[int, int] | None:
        """Return what tells this folder from another one of its name; None where it cannot be listed."""
        try:
            with os.scandir(self.path):
                found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _changes(self, stop: threading.Event, notices: Notices) -> Iterator[set[str]]:
        """Yield the files that the system says have changed, and nothing after every tick."""
        try:
            for changed in self._watchfiles.watch(
                self.path,
                watch_filter=None,
                debounce=int(1000 * TICK),
                stop_event=stop,
                rust_timeout=int(1000 * TICK),
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                yield {path for _, path in changed}
        except (OSError, RuntimeError) as error:  # no watches left, or a system that has none
            if self._identity() is None:
                return
            notices.trouble("changes", f"the system reports no changes ({error}); {self.name} is listed instead")
            while not stop.wait(TICK):
                yield set()

    def _look_at(self, changed: set[str]) -> None:
        now = time.monotonic()
        if now - self._scanned >= SCAN:
            self._scanned = now
            listed = dict(self._listed())
            self._seen = {name: signature for name, signature in self._seen.items() if name in listed}
            changed = changed | listed.keys()
        for name in changed:
            if name not in self._waiting and self._wanted(name):
                signature = _signature(name)
                if signature is not None and signature != self._seen.get(name):
                    self._waiting[name] = _Waiting(signature, now, now + self._settle)

    def _wanted(self, name: str) -> bool:
        path = Path(name)
        parts = path.relative_to(self.path).parts if path.is_relative_to(self.path) else ()
        hidden = any(part.startswith(".") for part in parts)
        return bool(parts) and is_image(name) and not hidden and SYSTEM_FOLDERS.isdisjoint(parts[:-1])

    def _complete(self) -> Iterator[Photo]:
        """Yield the photos whose files have stayed as they are, the oldest first."""
        for name, waiting in sorted(self._waiting.items(), key=lambda one: (one[1].signature, one[0])):
            signature, now = _signature(name), time.monotonic()
            if signature is None:
                del self._waiting[name]
            elif signature != waiting.signature:
                self._waiting[name] = _Waiting(signature, now, now + self._settle)
            elif now >= waiting.due:
                self._seen[name] = signature
                yield Photo(FileSource(Path(name), name))
                if name in self._seen:  # else it is to be tried again
                    del self._waiting[name]

    def _listed(self) -> Iterator[tuple[str, Signature]]:
        for folder, folders, files in os.walk(self.path):
            folders[:] = [one for one in folders if not one.startswith(".") and one not in SYSTEM_FOLDERS]
            for file in files:
                name = str(Path(folder, file))
                signature = _signature(name) if self._wanted(name) else None
                if signature is not None:
                    yield name, signature


def _signature(name: str) -> Signature | None:
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


class SnapshotSource:
    """The picture at an address, every so many seconds.

    Nothing but this address is asked: redirects are refused, and proxies of the environment are not used. What is
    larger than 32 MiB, is packed, or takes longer than ``timeout`` in all, is refused.
    """

    def __init__(
        self,
        url: str,
        *,
        every: float = 5.0,
        timeout: float = 10.0,
        login: tuple[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        parts = _parts(url)
        check_no_password(parts, str(parts.hostname), "FIVESHOT_CREDENTIALS")
        if not parts.hostname:
            raise InputError(f"{url} names no machine", hint="write it as http://camera/snapshot.jpg")
        self.name = url
        self._every, self._timeout, self._good = every, timeout, True
        self._login, self._verify = login, _trusted(ca)

    def frames(self, stop: threading.Event, notices: Notices) -> Iterator[Photo | None]:
        """Yield the picture as it is now, again and again; what is late is left out."""
        due = time.monotonic()
        while not stop.is_set():
            try:
                data = asyncio.run(self._fetch())
            except InputError as error:
                notices.trouble(SOURCE, f"no photo from {self.name}: {error}; trying on")
            else:
                self._good = True
                yield Photo(BytesSource(data, self.name))
                if self._good:
                    notices.over(SOURCE, f"photos come from {self.name} again")
            due = max(due + self._every, time.monotonic())
            while not stop.wait(min(TICK, max(0.0, due - time.monotonic()))) and time.monotonic() < due:
                yield None

    def unreadable(self, photo: Photo, reason: str, notices: Notices) -> None:
        """Say that what came is not a photo, until one comes."""
        self._good = False
        notices.trouble(SOURCE, reason)

    def postpone(self, photo: Photo) -> None:
        """Leave it: the next picture comes soon."""

    async def _fetch(self) -> bytes:
        limits = FetchLimits(MAX_SNAPSHOT, self._timeout)
        async with Fetcher(limits, extra=EXTRA, verify=self._verify, login=self._login) as fetcher:
            return await fetcher.fetch(self.name)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError as error:
        raise InputError(
            f"{url} is not an address ({error})", hint="write it as http://camera/snapshot.jpg"
        ) from error


def _trusted(ca: str | None) -> ssl.SSLContext:
    if ca is None:
        usual: ssl.SSLContext = import_extra("httpx", extra=EXTRA).create_ssl_context(trust_env=False)
        return usual
    try:
        return ssl.create_default_context(cafile=ca)
    except OSError as error:  # what is not a certificate is one, too
        raise InputError(
            f"{ca} holds no certificate that can be trusted ({error})", hint="give a PEM file"
        ) from error


@dataclass(frozen=True)
class Notice:
    """Something went wrong, or does no more: ``event`` is trouble, recovered or unreadable."""

    event: str
    time: str  # UTC, ISO 8601
    about: str
    message: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values: dict[str, Any] = to_json(self)
        return values


def utc_now() -> str:
    """Return the time as it stands in every line."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Notices:
    """Keeps which troubles there are. Threads may share one.

    >>> notices = Notices(lambda notice: print(notice.event, notice.about, notice.message))
    >>> notices.trouble(SOURCE, "the folder is gone"), notices.trouble(SOURCE, "the folder is gone")
    trouble source the folder is gone
    (None, None)
    >>> notices.over(SOURCE, "the folder is back"), notices.over(SOURCE, "the folder is back")
    recovered source the folder is back
    (None, None)
    """

    def __init__(self, tell: Callable[[Notice], None]) -> None:
        self._call = tell
        self._present: set[str] = set()
        self._lock = threading.RLock()

    def trouble(self, about: str, message: str) -> None:
        """Say that something does not work, unless that was said."""
        with self._lock:
            if about not in self._present:
                self._present.add(about)
                self._tell("trouble", about, message)

    def over(self, about: str, message: str) -> None:
        """Say that it works again, if it did not."""
        with self._lock:
            if about in self._present:
                self._present.remove(about)
                self._tell("recovered", about, message)

    def unreadable(self, message: str) -> None:
        """Say that a photo was given up."""
        with self._lock:
            self._tell("unreadable", SOURCE, message)

    def _tell(self, event: str, about: str, message: str) -> None:
        self._call(Notice(event, utc_now(), about, message))

    def has(self, about: str) -> bool:
        """Tell whether something is in trouble now."""
        return about in self._present


def check_no_password(parts: SplitResult, whose: str, variable: str) -> None:
    """Refuse an address with a user or a password in it."""
    if parts.username or parts.password:
        raise InputError(
            f"the address of {whose} holds a password, which others can see",
            hint=f"give user:password in a file, or in {variable}",
            code="password_in_address",
        )


def credentials(file: str | None, variable: str) -> tuple[str, str] | None:
    """Return user and password of ``user:password``: a file's first line, or a variable where no file is given."""
    text, where = os.environ.get(variable), variable
    if file is not None:
        where = file
        try:
            # Not Path.open: /dev/fd/3 is a name, too.
            with attempting(f"read {file}"), open(file, encoding="utf-8") as opened:  # noqa: PTH123
                text = opened.read(4096)
        except UnicodeDecodeError as error:
            raise InputError(f"{file} is not text in UTF-8", hint="write user:password into it") from error
    if text is None:
        return None
    user, colon, password = text.partition("\n")[0].strip().partition(":")
    if not (user and colon):
        raise InputError(f"{where} does not hold user:password", hint="write both with a colon between them")
    return user, password
