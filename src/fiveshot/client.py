"""A client for the service: the verbs of the recognizer over HTTP, typed, and safe to repeat.

Needs the extra ``client``. It returns the same values as :class:`fiveshot.Recognizer`, if there are such.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.values import (
    BadImage,
    ChangeMade,
    LearnedClass,
    ModelState,
    PhotoInfo,
    PhotosMade,
    Prediction,
    RejectedAt,
    Review,
    ServedClass,
    Sightings,
    Sorting,
    from_json,
)

__all__ = ["Client", "PhotoSet", "ServiceError"]

PhotoFile = str | os.PathLike[str] | bytes | tuple[str, bytes]  # a path, bytes, or bytes with a name
Made = TypeVar("Made")
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 30.0  # seconds before a request is sent again
PAGE = 500  # classes or sightings of one request


class ServiceError(FiveshotError):
    """An error of the service, with its message.

    Attributes
    ----------
    status : int
        The HTTP status; 0 if there was no reply.
    details : tuple of mapping
        ``name``, ``code`` and ``message`` of each photo or value that cannot be used.

    Examples
    --------
    >>> error = ServiceError("there is no class 'owl'", hint="see classes()", code="not_found", status=404)
    >>> error.status, error.code
    (404, 'not_found')
    """

    default_code = "service"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        code: str = "",
        status: int = 0,
        details: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(message, hint=hint, code=code)
        self.status = status
        self.details: tuple[Mapping[str, str], ...] = tuple(details)
        self.repeated = False  # whether an earlier try of the same request may have succeeded


class Client:
    """Talks to a service. Lost requests are sent again if that is safe.

    Every request is sent again while the service is busy or loading, and after a failed connection. After a lost
    reply, a request is sent again only if nothing can be done twice: questions, ``learn`` (which has a key),
    ``correct``, ``learn_none`` and ``forget``. Other changes raise a ``ServiceError`` with the code
    ``reply_lost``: look at the model before you send them again.

    Parameters
    ----------
    url : str
        Address of the service.
    token : str, optional
        The token of the service.
    timeout : float
        Seconds to wait for a reply.
    retries : int
        Maximum number of retries of a request.

    Raises
    ------
    InputError
        If the extra ``client`` is not installed, or the address is not valid.

    Examples
    --------
    >>> client = Client("http://127.0.0.1:9", retries=0)
    >>> try:
    ...     client.classes()
    ... except ServiceError as error:
    ...     print(error.code)
    no_reply
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8765",
        *,
        token: str | None = None,
        timeout: float = 60.0,
        retries: int = 4,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is not the address of a service", hint="write http://host:8765")
        self._httpx = import_extra("httpx", extra="client")
        self._retries = retries
        self._limits: Mapping[str, int] | None = None
        self._client = self._httpx.Client(
            base_url=url,
            timeout=timeout,
            # A connection that the other side is just closing would look like a lost reply.
            limits=self._httpx.Limits(max_keepalive_connections=0),
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            trust_env=parts.hostname not in ("127.0.0.1", "localhost", "::1"),  # no proxy for this machine
        )

    def close(self) -> None:
        """Close the connections; a ``with`` block does this automatically.

        Examples
        --------
        >>> Client().close()
        """
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def model(self) -> ModelState:
        """Return a description of the served model, and the limits of requests."""
        found = _made(ModelState, self._json("GET", "/v1/model"))
        self._limits = found.limits
        return found

    def wait_until_ready(self, seconds: float = 60.0) -> None:
        """Wait until the service accepts photos: it already answers while its model is being loaded.

        Raises
        ------
        ServiceError
            If the service is not ready within that time.
        """
        ends = time.monotonic() + seconds
        while True:
            try:
                self._reply("GET", "/v1/ready", retries=0)
                return
            except ServiceError as error:
                if error.status not in (0, 503) or time.monotonic() > ends:
                    raise
            time.sleep(FIRST_PAUSE)

    def predict(
        self,
        photos: PhotoFile | Iterable[PhotoFile],
        *,
        top: int = 5,
        sure: float | None = None,
        why: int = 0,
        boxes: Sequence[Sequence[Sequence[float]] | None] | None = None,
    ) -> list[Prediction]:
        """Say what photos show. Many photos are sent in several requests.

        Parameters
        ----------
        photos : path, bytes, (name, bytes), or several of these
            The photos.
        top : int
            Candidates for each photo.
        sure : float, optional
            Probability that an answer needs.
        why : int
            Number of most similar learned photos to name for each photo.
        boxes : sequence, optional
            An entry for each photo: None for the whole photo, or a list of its parts, each as left, top, width and
            height in pixels, or as shares of its sides if all are at most 1.

        Returns
        -------
        list of Prediction
            One for each photo or part of a photo, in order.

        Raises
        ------
        ServiceError
            If a photo cannot be used, or the model knows no class yet.
        """
        params = {"top": top, "why": why, "sure": sure}
        listed = _read(photos)
        if boxes is not None and len(boxes) != len(listed):
            raise InputError(f"boxes for {len(boxes)} photos, but there are {len(listed)}", hint="give one each")
        found: list[Prediction] = []
        done = 0
        for part in self._parts(listed):
            own = None if boxes is None else [one and list(map(list, one)) for one in boxes[done:][: len(part)]]
            fields = None if own is None else {"boxes": dumps(own)}
            reply = self._json("POST", "/v1/predict", params=params, photos=part, fields=fields, repeatable=True)
            found += [_made(Prediction, one) for one in reply["predictions"]]
            done += len(part)
        return found

    def learn(self, name: str, photos: PhotoFile | Iterable[PhotoFile], *, key: str | None = None) -> LearnedClass:
        """Learn a class from about five photos, or add photos to it, in one request.

        Parameters
        ----------
        name : str
            Name of the class.
        photos : path, bytes, (name, bytes), or several of these
            The photos.
        key : str, optional
            Idempotency key: a request with the same key is not done again, even from another process. By default a
            new key.

        Returns
        -------
        LearnedClass
            What was found while the class was learned.
        """
        reply = self._json(
            "POST",
            f"{_path(name)}/photos",
            photos=_read(photos),
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
            repeatable=True,
        )
        return _made(LearnedClass, reply)

    def correct(self, photos: PhotoFile | Iterable[PhotoFile], name: str) -> PhotosMade:
        """Say what photos show: they are learned, or moved from another class.

        Parameters
        ----------
        photos : path, bytes, (name, bytes), or several of these
            The photos.
        name : str
            A class, known or new.

        Returns
        -------
        PhotosMade
            The result. A photo that is already right stays, so it may be sent any number of times.
        """
        reply = self._json("POST", "/v1/correct", params={"name": name}, photos=_read(photos), repeatable=True)
        return _made(PhotosMade, reply)

    def learn_none(self, photos: PhotoFile | Iterable[PhotoFile]) -> PhotosMade:
        """Learn photos that show none of the classes; they help to detect unknown photos."""
        return _made(PhotosMade, self._json("POST", "/v1/negatives", photos=_read(photos), repeatable=True))

    def negatives(self) -> list[PhotoInfo]:
        """List the photos that show none of the classes, with their ids."""
        return [_made(PhotoInfo, one) for one in self._json("GET", "/v1/negatives")["photos"]]

    def classes(self, search: str = "") -> list[ServedClass]:
        """List the classes whose names contain a text; by default all classes."""
        found: list[ServedClass] = []
        while True:
            params = {"search": search, "offset": len(found), "limit": PAGE}
            reply = self._json("GET", "/v1/classes", params=params)
            found += [_made(ServedClass, one) for one in reply["classes"]]
            if not reply["classes"] or len(found) >= reply["total"]:
                return found

    def photos(self, name: str) -> list[PhotoInfo]:
        """List the photos that a class was learned from, with their ids."""
        return [_made(PhotoInfo, one) for one in self._json("GET", f"{_path(name)}/photos")["photos"]]

    def picture(self, id: str, *, kept: bool = False) -> bytes:
        """Return the small copy of a learned photo, or the photo itself if it is stored."""
        reply = self._reply("GET", f"/v1/photos/{quote(id, safe='')}", params={"kept": kept})
        return bytes(reply.content)

    def remove(self, ids: Iterable[str], *, of: str | None = None, for_good: bool = False) -> PhotosMade:
        """Remove photos from their classes, all or none.

        Parameters
        ----------
        ids : iterable of str
            Ids of the photos.
        of : str, optional
            The class that they are expected in; nothing is changed if one is in another class.
        for_good : bool
            Whether to erase all traces from the disk; this cannot be undone.

        Returns
        -------
        PhotosMade
            The result.
        """
        body = {"ids": list(ids), "of": of, "for_good": for_good}
        return _made(PhotosMade, self._json("POST", "/v1/photos/remove", json=body))

    def move(
        self, ids: Iterable[str] = (), *, to: str, of: str | None = None, all_of: str | None = None
    ) -> PhotosMade:
        """Move photos to another class, known or new; with ``all_of``, all photos of a class to a known one."""
        body = {"ids": list(ids) or None, "to": to, "of": of, "all_of": all_of}
        return _made(PhotosMade, self._json("POST", "/v1/photos/move", json=body))

    def rename(self, old: str, new: str) -> ChangeMade:
        """Give a class another name."""
        return _made(ChangeMade, self._json("PATCH", _path(old), json={"name": new}))

    def forget(self, name: str, *, for_good: bool = False) -> ChangeMade | None:
        """Forget a class; ``undo`` restores it, unless ``for_good`` erased all traces.

        Returns
        -------
        ChangeMade or None
            None if the reply was lost and the class is forgotten.
        """
        params = {"for_good": for_good}
        try:
            return _made(ChangeMade, self._json("DELETE", _path(name), params=params, repeatable=True))
        except ServiceError as error:
            if error.status == 404 and error.repeated:
                return None
            raise

    def set(self, *, false_rejection: float | None = None, wrong_answers: float | None = None) -> RejectedAt:
        """Change one setting; nothing is learned again, and ``undo`` takes it back.

        Parameters
        ----------
        false_rejection : float, optional
            Share of the photos of known classes that may be called unknown.
        wrong_answers : float, optional
            Share of the answers about photos of known classes that may be wrong.

        Returns
        -------
        RejectedAt
            The number of learned photos that are called unknown now.
        """
        wanted = {"false_rejection": false_rejection, "wrong_answers": wrong_answers}
        body = {name: share for name, share in wanted.items() if share is not None}
        return _made(RejectedAt, self._json("PATCH", "/v1/model", json=body))

    def undo(self, *, state: int | None = None, past_forget: bool = False) -> ChangeMade:
        """Undo the last change that was not undone yet.

        Parameters
        ----------
        state : int, optional
            State of the model that you have seen. In any other state nothing is undone. Use it to avoid undoing
            the change of another client.
        past_forget : bool
            Whether to skip changes that erased something for good.

        Returns
        -------
        ChangeMade
            The change that was undone.
        """
        params = {"state": state, "past_forget": past_forget}
        return _made(ChangeMade, self._json("POST", "/v1/undo", params=params))

    def review(self, *, kept: bool = False) -> Review:
        """Review the learned photos: confused classes, photos to move or remove, and whether there are enough.

        Parameters
        ----------
        kept : bool
            Whether to suggest again what a user decided to keep.

        Returns
        -------
        Review
            What was found.
        """
        return _made(Review, self._json("GET", "/v1/review", params={"kept": kept}))

    def keep(self, ids: Iterable[str], finding: str) -> PhotosMade:
        """Keep photos: a review does not suggest them again until their class changes much."""
        body = {"ids": list(ids), "finding": finding}
        return _made(PhotosMade, self._json("POST", "/v1/review/keep", json=body))

    def apply(self, finding: str, ids: Iterable[str] | None = None, *, state: int | None = None) -> PhotosMade:
        """Follow suggestions of a review, as one change.

        Parameters
        ----------
        finding : {"mixed-up", "harmful", "duplicates", "outliers"}
            Which suggestions.
        ids : iterable of str, optional
            The photos; by default all firm suggestions of the finding.
        state : int, optional
            State of the review: nothing is changed if the model was changed since.

        Returns
        -------
        PhotosMade
            The result.
        """
        body = {"finding": finding, "ids": None if ids is None else list(ids), "state": state}
        return _made(PhotosMade, self._json("POST", "/v1/review/apply", json=body))

    def sort(self, photos: PhotoFile | Iterable[PhotoFile]) -> PhotoSet:
        """Send photos without labels, to sort and name them.

        Parameters
        ----------
        photos : path, bytes, (name, bytes), or several of these
            The photos, any number of them.

        Returns
        -------
        PhotoSet
            The photos on the service; only photos with a name are learned. Close it, or use it in a ``with``
            block.
        """
        found = PhotoSet(self, str(self._json("POST", "/v1/sort")["id"]))
        found.add(photos)
        return found

    def sightings(self) -> Sightings:
        """Return photos without a name that a watch has kept, the newest first, and in groups of similar ones."""
        pages: list[dict[str, Any]] = []
        params: dict[str, Any] = {"limit": PAGE}
        while not pages or len(pages[-1]["sightings"]) == PAGE:
            pages.append(self._json("GET", "/v1/sightings", params=params))
            params["before"] = pages[-1]["sightings"][-1]["id"] if pages[-1]["sightings"] else None
        found = {
            "sightings": [one for page in pages for one in page["sightings"]],
            "groups": list({one["id"]: one for page in pages for one in page["groups"]}.values()),
            "bytes": pages[0]["bytes"],
            "state": pages[0]["state"],  # if it changed meanwhile, a confirmation is refused
        }
        return _made(Sightings, found)

    def sighting_picture(self, id: str, *, kept: bool = False) -> bytes:
        """Return the small copy of a sighting, or the photo itself."""
        return bytes(self._reply("GET", f"/v1/sightings/{quote(id, safe='')}", params={"kept": kept}).content)

    def name_sightings(self, ids: Iterable[str], name: str) -> PhotosMade:
        """Learn sightings as a class, known or new, or as ``none of these``, in one change."""
        body = {"ids": list(ids), "name": name}
        return _made(PhotosMade, self._json("POST", "/v1/sightings/name", json=body))

    def confirm_sightings(self, ids: Iterable[str], *, state: int | None = None) -> PhotosMade:
        """Learn sightings as the classes that are suggested for them, in one change.

        Parameters
        ----------
        ids : iterable of str
            Ids of the sightings.
        state : int, optional
            State of the model that made the suggestions: nothing is learned if it was changed since.

        Returns
        -------
        PhotosMade
            The result.
        """
        body = {"ids": list(ids), "state": state}
        return _made(PhotosMade, self._json("POST", "/v1/sightings/confirm", json=body))

    def dismiss_sightings(self, ids: Iterable[str], *, for_good: bool = False) -> PhotosMade:
        """Put sightings aside without learning them; ``undo`` restores them, unless ``for_good`` erased them."""
        body = {"ids": list(ids), "for_good": for_good}
        return _made(PhotosMade, self._json("POST", "/v1/sightings/dismiss", json=body))

    def _parts(self, photos: list[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
        """Yield photos in lists that fit into one request."""
        limits = self._limits or self.model().limits
        most, room = limits["photos"], limits["body_bytes"] * 9 // 10  # the rest is for the text between them
        part: list[tuple[str, bytes]] = []
        size = 0
        for photo in photos:
            if part and (len(part) == most or size + len(photo[1]) > room):
                yield part
                part, size = [], 0
            part.append(photo)
            size += len(photo[1])
        if part:
            yield part

    def _json(self, method: str, path: str, **request: Any) -> Any:
        return self._reply(method, path, **request).json()

    def _reply(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        json: Any = None,
        photos: Sequence[tuple[str, bytes]] = (),
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = False,
        retries: int | None = None,
    ) -> Any:
        """Send a request until there is a final reply, or the retries are used up."""
        given = {key: value for key, value in (params or {}).items() if value is not None}
        files = [("photos", (name, data)) for name, data in photos] or None
        tries = 1 + (self._retries if retries is None else retries)
        lost = False
        for number in range(1, tries + 1):
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (number - 1))
            try:
                reply = self._client.request(
                    method, path, params=given, json=json, data=fields, files=files, headers=headers or {}
                )
            except self._httpx.TransportError as error:
                unsent = isinstance(error, self._httpx.ConnectError | self._httpx.ConnectTimeout)
                failure = _no_reply(error, unsent=unsent)
                safe = unsent or repeatable or method == "GET"
                lost = lost or not unsent
            else:
                if reply.status_code < 400:
                    return reply
                failure = _refusal(reply)
                failure.repeated = lost
                safe = reply.status_code in (429, 503) or (reply.status_code == 504 and repeatable)
                lost = lost or reply.status_code == 504
                after = reply.headers.get("retry-after", "")
                pause = min(LONGEST_PAUSE, max(pause, float(after))) if after.isdigit() else pause
            if not safe or number == tries:
                raise failure
            time.sleep(pause)
        raise AssertionError("a request is sent at least once")


class PhotoSet:
    """Photos without labels in the memory of the service: sorted by known classes, named in groups.

    :meth:`Client.sort` makes one. Photos are identified by numbers.

    Examples
    --------
    >>> def name_all(client, photos, ask):
    ...     with client.sort(photos) as unnamed:
    ...         for group in unnamed.sorting().groups:
    ...             unnamed.learn(ask(unnamed.picture(group.photos[0])), group=group.id)
    """

    def __init__(self, client: Client, id: str) -> None:
        self.id = id
        self._client = client
        self._bad: list[BadImage] = []

    def add(self, photos: PhotoFile | Iterable[PhotoFile]) -> list[int]:
        """Send more photos, and return the numbers of those that can be used."""
        numbers: list[int] = []
        for part in self._client._parts(_read(photos)):
            reply = self._client._json("POST", f"/v1/sort/{self.id}/photos", photos=part)
            numbers += reply["numbers"]
            self._bad += [BadImage(one["name"], one["message"], one["code"]) for one in reply["refused"]]
        return numbers

    def sorting(self, questions: int = 50) -> Sorting:
        """Return photos of known classes, groups of the others, and questions, the most useful first."""
        reply = self._client._json("GET", f"/v1/sort/{self.id}", params={"questions": questions})
        return replace(_made(Sorting, reply), bad=tuple(self._bad))

    def learn(self, name: str, *, group: str | None = None, photos: Iterable[int] | None = None) -> LearnedClass:
        """Learn a group, or some photos, under a name; they are then no longer in the sorting."""
        body = {"name": name, "group": group, "photos": None if photos is None else list(photos)}
        return _made(LearnedClass, self._client._json("POST", f"/v1/sort/{self.id}/learn", json=body))

    def picture(self, number: int) -> bytes:
        """Return the small copy of a photo."""
        return bytes(self._client._reply("GET", f"/v1/sort/{self.id}/photos/{number}").content)

    def close(self) -> None:
        """Tell the service to drop the photos."""
        self._client._reply("DELETE", f"/v1/sort/{self.id}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _path(name: str) -> str:
    return f"/v1/classes/{quote(name, safe='')}"


def _read(photos: PhotoFile | Iterable[PhotoFile]) -> list[tuple[str, bytes]]:
    """Return photos with their names. They are read once, so that each try sends the same bytes."""
    several: Iterable[PhotoFile]
    if isinstance(photos, str | os.PathLike | bytes):
        several = [photos]
    elif isinstance(photos, tuple) and len(photos) == 2 and isinstance(photos[1], bytes):
        several = [(str(photos[0]), photos[1])]
    else:
        several = photos  # a tuple of two texts is two paths
    found: list[tuple[str, bytes]] = []
    for number, photo in enumerate(several, 1):
        if isinstance(photo, bytes):
            found.append((f"photo {number}", photo))
        elif isinstance(photo, tuple):
            found.append(photo)
        else:
            try:
                found.append((Path(photo).name, Path(photo).read_bytes()))
            except OSError as error:
                raise StorageError(f"cannot read {photo}: {error.strerror or error}", code="no_file") from error
    if not found:
        raise InputError("no photos were given", hint="name files, or give their bytes")
    return found


def _made(kind: type[Made], values: Any) -> Made:
    """Build a value from a reply; unknown entries are ignored."""
    try:
        return from_json(kind, values)
    except InputError as error:
        hint = "the service may be of another release: upgrade the older one"
        raise ServiceError(f"the reply cannot be read: {error.message}", hint=hint, code="bad_reply") from error


def _refusal(reply: Any) -> ServiceError:
    """Return the error of the service, or of a proxy in between."""
    try:
        told = reply.json()
        return ServiceError(
            told["message"],
            hint=told["hint"],
            code=told["code"],
            status=reply.status_code,
            details=told.get("details", ()),
        )
    except (ValueError, KeyError, TypeError):
        return ServiceError(
            f"{reply.url.host} answers {reply.status_code} {reply.reason_phrase}",
            hint="is this the address of a fiveshot service?",
            code="no_service",
            status=reply.status_code,
        )


def _no_reply(error: Exception, *, unsent: bool) -> ServiceError:
    reason = str(error) or type(error).__name__
    if unsent:
        return ServiceError(f"the service cannot be reached ({reason})", hint="is it running?", code="no_reply")
    return ServiceError(
        f"the reply was lost ({reason})",
        hint="the change may have succeeded: look at the model before you send it again",
        code="reply_lost",
    )
