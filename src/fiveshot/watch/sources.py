"""Sources of photos: a folder, or the snapshot of a camera; and notices of problems."""

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

from fiveshot.data import BytesSource, FileSource, Photo, is_image
from fiveshot.errors import InputError, is_number
from fiveshot.extras import import_extra
from fiveshot.recognizer import SYSTEM_FOLDERS
from fiveshot.storage import attempting
from fiveshot.values import to_json
from fiveshot.web import Fetcher, FetchLimits

EXTRA = "watch"
TICK = 0.25  # seconds between two looks at files that may still change
SCAN = 10.0  # seconds between two listings of a folder, as network shares do not report changes
RETRY = 2.0  # seconds before a file is tried again
GIVE_UP = 30.0  # seconds after which an unchanged file that cannot be read is reported
SETTLE, EVERY, TIMEOUT = 1.0, 5.0, 10.0  # defaults, in seconds
MAX_SNAPSHOT = 32 * 1024 * 1024  # bytes of one reply
Signature = tuple[int, int]  # time of the last change, and size
# A source yields photos until it is stopped, and now and then None while there are no photos.
Source: TypeAlias = "FolderSource | SnapshotSource"
# Subjects of notices.
SOURCE, MODEL, OUT, COMMAND, BROKER, KEEP = "source", "model", "out", "command", "broker", "sightings"


def is_address(place: str) -> bool:
    """Tell whether a place is the address of a camera.

    >>> is_address("http://camera/a.jpg"), is_address("inbox")
    (True, False)
    """
    return place.lower().startswith(("http:", "https:"))


def open_source(
    place: str,
    *,
    existing: bool = False,
    settle: float | None = None,
    every: float | None = None,
    login: tuple[str, str] | None = None,
    ca: str | None = None,
) -> FolderSource | SnapshotSource:
    """Return the source for a folder or an address."""
    for name, value in (("every", every), ("settle", settle)):
        if value is not None and (not is_number(value) or not 0 < value < 1e6):
            raise InputError(f"{name}={value!r} is not a number of seconds above 0", hint="give one such as 5")
    if is_address(place):
        if existing or settle is not None:
            raise InputError(
                f"{place} is not a folder", hint="leave out --existing and --settle", code="unused_option"
            )
        return SnapshotSource(place, every=every or EVERY, login=login, ca=ca)
    if "://" in place:
        raise InputError(f"{place} is neither a folder nor an address", hint="addresses begin with http or https")
    if every is not None:
        raise InputError(f"{place} is not an address", hint="leave out --every", code="unused_option")
    return FolderSource(Path(place), existing=existing, settle=settle or SETTLE)


@dataclass(frozen=True)
class _WaitingFile:
    """A file that may still change: its signature, since when, and when to read it."""

    signature: Signature
    since: float
    due: float


class FolderSource:
    """New and changed photos in a folder and those below it.

    A file is read after it has not changed for ``settle`` seconds. If it cannot be read, it is tried again for
    ``give_up`` seconds. The system reports changed files. The folder is also listed every ten seconds, because
    network shares do not report changes.
    """

    def __init__(
        self, path: Path, *, existing: bool = False, settle: float = SETTLE, give_up: float = GIVE_UP
    ) -> None:
        self.path, self.name = path.absolute(), str(path)
        self._settle, self._give_up = settle, give_up
        self._watchfiles = import_extra("watchfiles", extra=EXTRA)
        if not self.path.is_dir():
            raise InputError(f"no such folder: {path}", hint="create it first", code="no_file")
        self._seen: dict[str, Signature] = {} if existing else dict(self._listed())
        self._waiting: dict[str, _WaitingFile] = {}
        self._scanned = float("-inf")

    def frames(self, stop: threading.Event, notices: Notices) -> Iterator[Photo | None]:
        """Yield complete photos; wait if the folder is gone."""
        while not stop.is_set():
            place = self._identity()
            if place is None:
                notices.trouble(SOURCE, f"{self.name} is gone or cannot be listed; waiting for it")
                stop.wait(TICK)
                yield None
                continue
            notices.over(SOURCE, f"{self.name} is back")
            self._scanned = float("-inf")
            for changed in self._changes(stop, notices):
                if self._identity() != place:
                    break  # the folder was replaced or removed
                self._look_at(changed)
                yield from self._complete()
                yield None

    def unreadable(self, photo: Photo, reason: str, notices: Notices) -> None:
        """Try a file again for a while, as it may still be written; then report it, once until it changes."""
        waiting = self._waiting[photo.name]
        if time.monotonic() - waiting.since < self._give_up:
            self.postpone(photo)
        else:
            notices.unreadable(reason)

    def postpone(self, photo: Photo) -> None:
        """Try the photo again later."""
        self._seen.pop(photo.name, None)
        waiting = self._waiting[photo.name]
        self._waiting[photo.name] = replace(waiting, due=time.monotonic() + RETRY)

    def _identity(self) -> tuple[int, int] | None:
        """Return device and inode of the folder; None if it cannot be listed."""
        try:
            with os.scandir(self.path):
                found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _changes(self, stop: threading.Event, notices: Notices) -> Iterator[set[str]]:
        """Yield the files that the system reports as changed, and an empty set after every tick."""
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
        except (OSError, RuntimeError, UnicodeEncodeError) as error:  # no watches left, or not supported
            if self._identity() is None:
                return
            why = "its name is not UTF-8" if isinstance(error, UnicodeEncodeError) else error
            notices.trouble("changes", f"the system reports no changes ({why}); {self.name} is listed instead")
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
                    self._waiting[name] = _WaitingFile(signature, now, now + self._settle)

    def _wanted(self, name: str) -> bool:
        path = Path(name)
        parts = path.relative_to(self.path).parts if path.is_relative_to(self.path) else ()
        hidden = any(part.startswith(".") for part in parts)
        return bool(parts) and is_image(name) and not hidden and SYSTEM_FOLDERS.isdisjoint(parts[:-1])

    def _complete(self) -> Iterator[Photo]:
        """Yield the photos whose files have settled, the oldest first."""
        for name, waiting in sorted(self._waiting.items(), key=lambda one: (one[1].signature, one[0])):
            signature, now = _signature(name), time.monotonic()
            if signature is None:
                del self._waiting[name]
            elif signature != waiting.signature:
                self._waiting[name] = _WaitingFile(signature, now, now + self._settle)
            elif now >= waiting.due:
                self._seen[name] = signature
                yield Photo(FileSource(Path(name), name))
                if name in self._seen:  # otherwise it was postponed
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
    """The picture at an address, every few seconds.

    Only this address is used: redirects are refused, and proxies of the environment are ignored. Replies are
    refused if they are larger than 32 MiB, compressed, or take longer than ``timeout`` seconds.
    """

    def __init__(
        self,
        url: str,
        *,
        every: float = EVERY,
        timeout: float = TIMEOUT,
        login: tuple[str, str] | None = None,
        ca: str | None = None,
    ) -> None:
        parts = _parts(url)
        check_no_password(parts, str(parts.hostname), "FIVESHOT_CREDENTIALS")
        if not parts.hostname:
            raise InputError(f"{url} has no host name", hint="write it as http://camera/snapshot.jpg")
        self._url = url
        self.name = url.partition("?")[0]  # what follows may be a password, and the name is in every line
        self._every, self._timeout, self._good = every, timeout, True
        self._login, self._verify = login, _trusted(ca)

    def frames(self, stop: threading.Event, notices: Notices) -> Iterator[Photo | None]:
        """Yield a new picture every few seconds; late ones are skipped."""
        due = time.monotonic()
        while not stop.is_set():
            try:
                data = asyncio.run(self._fetch())
            except InputError as error:
                notices.trouble(SOURCE, f"no photo from {self.name}: {error}; retrying")
            else:
                self._good = True
                yield Photo(BytesSource(data, self.name))
                if self._good:
                    notices.over(SOURCE, f"photos arrive from {self.name} again")
            due = max(due + self._every, time.monotonic())
            while not stop.wait(min(TICK, max(0.0, due - time.monotonic()))) and time.monotonic() < due:
                yield None

    def unreadable(self, photo: Photo, reason: str, notices: Notices) -> None:
        """Report that the reply is not a photo."""
        self._good = False
        notices.trouble(SOURCE, reason)

    def postpone(self, photo: Photo) -> None:
        """Do nothing: the next picture comes soon."""

    async def _fetch(self) -> bytes:
        limits = FetchLimits(MAX_SNAPSHOT, self._timeout)
        async with Fetcher(limits, extra=EXTRA, verify=self._verify, login=self._login) as fetcher:
            return await fetcher.fetch(self._url)


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
    except OSError as error:  # also raised for files that are not certificates
        raise InputError(f"{ca} holds no usable certificate ({error})", hint="give a PEM file") from error


@dataclass(frozen=True)
class Notice:
    """A problem, or its end: ``event`` is trouble, recovered or unreadable."""

    event: str
    time: str  # UTC, ISO 8601
    about: str
    message: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values: dict[str, Any] = to_json(self)
        return values


def utc_now() -> str:
    """Return the present time as it is written in every line."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Notices:
    """Remembers the present problems, and reports each once. Threads may share one.

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
        """Report a problem, unless it was reported."""
        with self._lock:
            if about not in self._present:
                self._present.add(about)
                self._tell("trouble", about, message)

    def over(self, about: str, message: str) -> None:
        """Report the end of a problem, if there was one."""
        with self._lock:
            if about in self._present:
                self._present.remove(about)
                self._tell("recovered", about, message)

    def unreadable(self, message: str) -> None:
        """Report a photo that cannot be read."""
        with self._lock:
            self._tell("unreadable", SOURCE, message)

    def _tell(self, event: str, about: str, message: str) -> None:
        self._call(Notice(event, utc_now(), about, message))

    def has(self, about: str) -> bool:
        """Tell whether there is a problem now."""
        return about in self._present


def check_no_password(parts: SplitResult, whose: str, variable: str) -> None:
    """Refuse an address with a user or a password in it."""
    if parts.username or parts.password:
        raise InputError(
            f"the address of {whose} contains a password, which others can see",
            hint=f"give user:password in a file, or in {variable}",
            code="password_in_address",
        )


def credentials(file: str | None, variable: str) -> tuple[str, str] | None:
    """Return user and password from the first line of a file, or from an environment variable."""
    text, where = os.environ.get(variable), variable
    if file is not None:
        where = file
        try:
            # Not Path.open: the file may be /dev/fd/3.
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
