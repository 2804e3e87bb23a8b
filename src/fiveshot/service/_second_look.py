"""Reviews of learned photos, and sorting of photos without labels, over HTTP."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fiveshot.backbones import Embedder
from fiveshot.data import Photo
from fiveshot.recognizer import (
    ModelReader,
    PhotoRecord,
    Snapshot,
    apply_review,
    free_places,
    keep_photos,
    photo_features,
    review_model,
    sort_rows,
)
from fiveshot.service._engine import Engine
from fiveshot.service._errors import ApiError, not_found, too_large
from fiveshot.service._requests import StrictRoute, checked_name, read_uploads
from fiveshot.service._routes import FAR, LARGEST_STATE, TheService, cacheable
from fiveshot.service._schemas import MOST_IDS, ErrorDetail, Ids, RequestBody, documented
from fiveshot.values import (
    KnownPhoto,
    LearnedClass,
    PhotoGroup,
    PhotosMade,
    Question,
    Review,
    ReviewFinding,
    Sorting,
)
from fiveshot.work import one_thread

second_look_routes = APIRouter(prefix="/v1", route_class=StrictRoute)
MOST_QUESTIONS = 500
Id = Annotated[str, Path(description="Id of the set, from POST /v1/sort.", max_length=100)]


class Reviews:
    """Reviews of the model. One is computed at a time, and the last one is cached until the model changes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._known: tuple[tuple[int, int, bool], Review] | None = None

    async def review(self, *, kept: bool = False) -> Review:
        """Review the learned photos; ``kept`` includes photos that a user decided to keep."""
        async with self._lock:
            snapshot = self._engine.serving.snapshot
            key = (self._engine.openings, snapshot.state, kept)
            if self._known is None or self._known[0] != key:
                if not len(snapshot.memory.labels):
                    raise ApiError(409, "no_classes", "the model knows no class yet", "teach it one first")
                decided = await self._engine.read(ModelReader.kept)
                self._known = key, await asyncio.to_thread(review_model, snapshot, decided, show_kept=kept)
            return self._known[1]

    async def apply(self, finding: str, ids: Sequence[str] | None, state: int | None) -> PhotosMade:
        """Follow the suggestions of one kind, or those about some photos."""
        found = await self.review()
        if state is not None and found.state != state:
            raise ApiError(409, "changed", f"the model is in state {found.state} by now", "make a new review")
        wanted = [one for one in found.of([finding], firm=ids is None) if ids is None or one.photo in ids]
        missing = set(ids or ()) - {one.photo for one in wanted}
        if missing:
            raise not_found(f"nothing is suggested about {', '.join(sorted(missing)[:5])}")
        return await self._engine.change_photos(lambda model: apply_review(model, wanted))


@dataclass(eq=False)
class SortingSet:
    """Photos without labels to sort, only in memory."""

    embedder: Embedder
    used: float
    photos: list[PhotoRecord] = field(default_factory=list)
    bytes: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    known: tuple[tuple[int, int], Sorting] | None = None  # by state and photos

    def learned(self, snapshot: Snapshot) -> dict[int, str]:
        """Return the class of each photo that the model has learned; one whose learning was undone is none."""
        names = {digest: row.name for row in snapshot.contents.rows.values() for digest in row.sha256s}
        return {place: names[one.sha256] for place, one in enumerate(self.photos) if one.sha256 in names}

    def left(self, snapshot: Snapshot) -> list[int]:
        """Return the numbers of the other photos."""
        learned = self.learned(snapshot)
        return [number for number in range(len(self.photos)) if number not in learned]


class Sortings:
    """Sets of photos to sort: limited in number and size, and dropped after a while without requests."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._limits = engine, engine.settings.limits
        self._sets: dict[str, SortingSet] = {}

    def begin(self) -> str:
        """Begin a set and return its id; if there are too many, the least recently used set is dropped."""
        embedder = self._engine.serving.embedder
        self.expire()
        while len(self._sets) >= self._limits.sortings:
            del self._sets[min(self._sets, key=lambda one: self._sets[one].used)]
        name = secrets.token_urlsafe(12)
        self._sets[name] = SortingSet(embedder, time.monotonic())
        return name

    def expire(self) -> None:
        """Drop sets without recent requests."""
        oldest = time.monotonic() - self._limits.sorting_seconds
        self._sets = {name: one for name, one in self._sets.items() if one.used >= oldest}

    def end(self, name: str) -> None:
        """Drop a set."""
        self._of(name)
        del self._sets[name]

    def _of(self, name: str) -> SortingSet:
        self.expire()
        found = self._sets.get(name)
        if found is None:
            text = "there is no such set of photos, or it was dropped after a while without requests"
            raise ApiError(404, "not_found", text, "begin again: POST /v1/sort")
        if self._engine.serving.embedder.fingerprint != found.embedder.fingerprint:
            raise ApiError(409, "outdated", "the model has another backbone now", "begin again: POST /v1/sort")
        found.used = time.monotonic()
        return found

    async def add(self, name: str, uploads: Sequence[Photo]) -> SortAdded:
        """Add photos to a set; return their numbers, photos that cannot be used, and the size of the set.

        A photo that is already in the set keeps its number.
        """
        one = self._of(name)
        if len(one.photos) + len(uploads) > self._limits.sorted_photos:
            hint = f"sort {self._limits.sorted_photos:,} at a time"
            raise too_large(f"{len(one.photos) + len(uploads):,} photos are too many to sort at once", hint)
        seen, bad = await self._engine.seen(uploads)
        places = {photo.sha256: number for number, photo in enumerate(one.photos)}
        numbers = []
        for photo in seen:
            if photo.sha256 not in places:
                self._make_room(one, photo)
                places[photo.sha256] = len(one.photos)
                one.photos.append(photo)
            numbers.append(places[photo.sha256])
        return SortAdded(numbers=numbers, refused=[ErrorDetail.of(each) for each in bad], total=len(one.photos))

    def _make_room(self, one: SortingSet, photo: PhotoRecord) -> None:
        size = photo.feature.nbytes + len(photo.thumbnail or b"") + len(photo.original or b"")
        if sum(each.bytes for each in self._sets.values()) + size > self._limits.sorted_bytes:
            raise too_large("there is no memory for more photos to sort", "name some, or end other sets")
        one.bytes += size

    async def sorting(self, name: str) -> Sorting:
        """Sort the photos that have no name yet."""
        one = self._of(name)
        async with one.lock:
            snapshot = self._engine.serving.snapshot
            key = (snapshot.state, len(one.photos))
            if one.known is None or one.known[0] != key:
                left = one.left(snapshot)
                photos = [one.photos[number] for number in left]
                names = [photo.name for photo in one.photos]

                def sort() -> Sorting:
                    X = photo_features(photos) if photos else np.zeros((0, snapshot.contents.width), np.float32)
                    with one_thread():
                        return replace(sort_rows(snapshot, X, photos=[], numbers=left), photos=tuple(names))

                one.known = key, await asyncio.to_thread(sort)
            return one.known[1]

    async def places(self, name: str) -> list[SortedPlace]:
        """Return where each photo of a set belongs: the folder of its class, or of its group."""
        found, one = await self.sorting(name), self._of(name)
        learned = one.learned(self._engine.serving.snapshot)
        known = {each.photo: each for each in found.known}
        groups = {photo: group.id for group in found.groups for photo in group.photos}
        labels = {number: each.label for number, each in known.items()} | learned
        folders = {number: each.place for number, each in known.items()} | learned
        every = range(len(found.photos))
        places = free_places([(found.photos[n], folders.get(n), groups.get(n, "")) for n in every])
        return [
            SortedPlace(
                photo=number,
                place=place,
                label=labels.get(number),
                probability=known[number].probability if number in known and number not in learned else None,
                unsure=number in labels and folders[number] is None,
                group=None if number in labels else groups.get(number),
                learned=number in learned,
            )
            for number, place in zip(every, places, strict=True)
        ]

    async def learn(self, name: str, label: str, group: str | None, photos: Sequence[int] | None) -> LearnedClass:
        """Learn a group, or some photos, under a name."""
        one = self._of(name)
        if group is not None:
            found = await self.sorting(name)
            photos = next((each.photos for each in found.groups if each.id == group), None)
            if photos is None:
                raise not_found(f"there is no group {group!r} any more")
        wanted = list(dict.fromkeys(photos or ()))
        missing = [number for number in wanted if not 0 <= number < len(one.photos)]
        if missing:
            raise not_found(f"there is no photo {missing[0]} to sort")
        again = sorted(set(wanted) - set(one.left(self._engine.serving.snapshot)))
        if again:
            raise ApiError(409, "named", f"photo {again[0]} was named already", "look at the groups again")
        return await self._engine.learn_seen(label, one.embedder, [one.photos[number] for number in wanted])

    def thumbnail(self, name: str, number: int) -> bytes:
        """Return a small copy of a photo."""
        one = self._of(name)
        picture = one.photos[number].thumbnail if number < len(one.photos) else None
        if picture is None:
            raise not_found(f"there is no photo {number} to sort")
        return picture


class KeepInClass(RequestBody):
    """Photos to keep in their class in spite of a finding."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["p17"], "finding": "mixed-up"}})
    ids: Ids
    finding: ReviewFinding


class Apply(RequestBody):
    """Suggestions to follow: the firm ones of one finding, or those about some photos."""

    model_config = ConfigDict(json_schema_extra={"example": {"finding": "mixed-up", "ids": ["p17"]}})
    finding: ReviewFinding
    ids: list[str] | None = Field(
        None, min_length=1, max_length=MOST_IDS, description="By default all firm suggestions."
    )
    state: int | None = Field(
        None, ge=0, le=LARGEST_STATE, description="State of the review: 409 if it was changed since."
    )


class SortBegun(BaseModel):
    """A new set of photos to sort."""

    id: str
    photos: int = Field(description="Maximum number of photos.")
    seconds: float = Field(description="Seconds without a request after which it is dropped.")


class SortAdded(BaseModel):
    """Photos that were added to a set."""

    numbers: list[int] = Field(description="Numbers of the photos that can be used, in order.")
    refused: list[ErrorDetail] = Field(description="Photos that cannot be used, and why.")
    total: int = Field(description="Photos in the set now.")


class SortReply(BaseModel):
    """The photos of a set without a name, sorted. Photos are numbers: positions in ``photos``."""

    photos: list[str] = Field(description="File names of all photos in the set.")
    known: list[KnownPhoto] = Field(description="Photos of known classes, the surest first.")
    groups: list[PhotoGroup] = Field(description="The others, the largest group first.")
    queue: list[Question] = Field(description="Photos to name first, each with the photos that get the same name.")
    state: int


class SortedPlace(BaseModel):
    """Where a photo of a set belongs."""

    photo: int = Field(description="Its number.")
    place: str = Field(description="A folder and a file name; no two photos have the same.")
    label: str | None = Field(description="Its most probable class; null if it is unknown.")
    probability: float | None = Field(
        description="Null for a learned or unknown photo, and if there is one class."
    )
    unsure: bool = Field(description="Whether its class is unsure; its folder is then that of unknown photos.")
    group: str | None = Field(description="Id of the group of an unknown photo.")
    learned: bool = Field(description="Whether the model has learned it.")


class PlacesReply(BaseModel):
    """Where the photos of a set belong, those that the model has learned among them."""

    places: list[SortedPlace]


class SortName(RequestBody):
    """A name for a group, or for some photos."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "wren", "group": "g3"}})
    name: str = Field(max_length=1000, description="Of the class, known or new.")
    group: str | None = Field(None, max_length=20, description="Id of a group; or give photos.")
    photos: list[Annotated[int, Field(ge=0, le=FAR)]] | None = Field(None, min_length=1, max_length=MOST_IDS)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.group is None) == (self.photos is None):
            raise ValueError("give either group or photos")
        return self


@second_look_routes.get("/review", **documented("review", 409, example="review"))
async def review(
    service: TheService,
    kept: Annotated[bool, Query(description="Suggest again what a user decided to keep.")] = False,
) -> Review:
    """Review the learned photos: confused classes, photos to move or remove, and whether there are enough."""
    return await service.reviews.review(kept=kept)


@second_look_routes.post("/review/keep", **documented("review", 404, 409, 415, example="photos_changed"))
async def keep(service: TheService, wanted: KeepInClass) -> PhotosMade:
    """Keep photos: a review does not suggest them again until their class changes much. This can be undone."""
    return await service.engine.change_photos(lambda model: keep_photos(model, wanted.ids, wanted.finding))


@second_look_routes.post("/review/apply", **documented("review", 404, 409, 415, example="photos_changed"))
async def apply(service: TheService, wanted: Apply) -> PhotosMade:
    """Follow suggestions of a review, as one change that can be undone."""
    return await service.reviews.apply(wanted.finding, wanted.ids, wanted.state)


@second_look_routes.post("/sort", **documented("sort", example="sort_begun"))
async def begin_sorting(service: TheService) -> SortBegun:
    """Begin a set of photos without labels. They stay in memory, and only photos with a name are learned."""
    limits = service.limits
    return SortBegun(id=service.sortings.begin(), photos=limits.sorted_photos, seconds=limits.sorting_seconds)


@second_look_routes.post(
    "/sort/{id}/photos", **documented("sort", 404, 409, 415, example="sort_added", photos=True)
)
async def add_to_sorting(service: TheService, id: Id, request: Request) -> SortAdded:
    """Add photos to a set. A photo that cannot be used is left out, with the reason."""
    return await service.sortings.add(id, await read_uploads(request, service.limits))


@second_look_routes.get("/sort/{id}", **documented("sort", 404, 409, example="sorted"))
async def sort(
    service: TheService,
    id: Id,
    questions: Annotated[int, Query(ge=0, le=MOST_QUESTIONS, description="Maximum length of the queue.")] = 50,
) -> SortReply:
    """Sort the photos of a set that have no name yet: known classes, groups of the others, and a queue."""
    found = await service.sortings.sorting(id)
    return SortReply(**vars(found) | {"queue": found.queue[:questions]})


@second_look_routes.get("/sort/{id}/places", **documented("sort", 404, 409, example="places"))
async def places(service: TheService, id: Id) -> PlacesReply:
    """Say where each photo of a set belongs: a folder for each class and group, with safe and unique names."""
    return PlacesReply(places=await service.sortings.places(id))


@second_look_routes.get("/sort/{id}/photos/{number}", **documented("sort", 404, 409, kind="image/jpeg"))
async def sorted_photo(
    service: TheService, id: Id, number: Annotated[int, Path(ge=0, le=FAR)], request: Request
) -> Response:
    """Return a small copy, 128 pixels, of a photo of a set."""
    return cacheable(request, service.sortings.thumbnail(id, number), "image/jpeg", "private, no-cache")


@second_look_routes.post("/sort/{id}/learn", **documented("sort", 404, 409, 415, example="learned"))
async def learn_sorted(service: TheService, id: Id, wanted: SortName) -> LearnedClass:
    """Learn a group, or some photos of a set, under a name. They are then no longer in the sorting."""
    return await service.sortings.learn(id, checked_name(wanted.name), wanted.group, wanted.photos)


@second_look_routes.delete("/sort/{id}", status_code=204, **documented("sort", 404, 409))
async def end_sorting(service: TheService, id: Id) -> None:
    """Drop a set of photos."""
    service.sortings.end(id)
