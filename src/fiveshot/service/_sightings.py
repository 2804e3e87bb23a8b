"""Sightings over HTTP: photos without a name that a watch has kept. List them in groups, name or dismiss them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Self

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from fiveshot.recognizer import (
    ModelReader,
    Recognizer,
    confirm_sightings,
    dismiss_sightings,
    forget_sightings,
    group_sightings,
    name_sightings,
)
from fiveshot.service._engine import Engine
from fiveshot.service._errors import ApiError
from fiveshot.service._requests import StrictRoute, checked_name
from fiveshot.service._routes import LARGEST_STATE, TheService, cacheable, picture_type
from fiveshot.service._schemas import MOST_IDS, PredictionEntry, RequestBody, documented
from fiveshot.values import PhotoChange, PhotosMade, SightingGroup, SightingInfo, Sightings

sighting_routes = APIRouter(prefix="/v1", route_class=StrictRoute)
MOST_SIGHTINGS = 1000  # on a page
SIGHTING_ID = "^s[1-9][0-9]{0,17}$"
SightingId = Annotated[str, Field(pattern=SIGHTING_ID, description="Such as s17.")]
SightingIds = Annotated[list[SightingId], Field(min_length=1, max_length=MOST_IDS)]


class SightingsInGroups:
    """The sightings of the model in groups. They are put into groups once, until they or the model change."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = asyncio.Lock()
        self._known: tuple[tuple[int, ...], Sightings] | None = None

    async def found(self) -> Sightings:
        """Return all sightings, the newest first, and their groups."""
        async with self._lock:
            snapshot = self._engine.serving.snapshot
            counts = await self._engine.read(ModelReader.count_sightings)
            key = (self._engine.openings, snapshot.state, *counts)
            if self._known is None or self._known[0] != key:
                found = await self._engine.read(lambda reader: reader.sightings(snapshot))
                self._known = key, await asyncio.to_thread(group_sightings, snapshot, *found)
            return self._known[1]


class SightingEntry(BaseModel):
    """A photo without a name. A later one has a higher number in its id."""

    id: str
    seen: str = Field(description="When, in UTC, by the clock of that time.")
    source: str = Field(description="The folder or the camera.")
    region: str = Field(description="Name of the region; empty for the whole photo.")
    prediction: PredictionEntry = Field(description="What the model said of it then.")
    suggestion: str | None = Field(description="The class that the model sees now; null: none.")

    @classmethod
    def of(cls, one: SightingInfo) -> Self:
        """Return a sighting in the form of the reply."""
        return cls(**vars(one) | {"prediction": PredictionEntry.of(one.prediction)})


class SightingPage(BaseModel):
    """Sightings, the newest first, and the groups that they are in."""

    sightings: list[SightingEntry]
    groups: list[SightingGroup] = Field(
        description="Similar ones, as the model sees them now: the groups of the sightings on this page, with "
        "all their ids. The id of a group stays when others come to it."
    )
    total: int = Field(description="How many sightings there are.")
    bytes: int = Field(description="Bytes of all photos, with those that undo can bring back.")
    state: int


class SightingsNamed(RequestBody):
    """What sightings show."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["s17", "s21"], "name": "wren"}})
    ids: SightingIds
    name: str = Field(max_length=1000, description="A class, known or new, or 'none of these'.")


class SightingsConfirmed(RequestBody):
    """Sightings whose suggestions are right."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["s17", "s21"], "state": 7}})
    ids: SightingIds
    state: int | None = Field(
        None,
        ge=0,
        le=LARGEST_STATE,
        description="State that made the suggestions: 409 if the model was changed since.",
    )


class SightingsDismissed(RequestBody):
    """Sightings to put aside."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["s17", "s21"]}})
    ids: SightingIds
    for_good: bool = Field(False, description="Erase them from the disk: this cannot be undone.")


async def _sighting_number(
    id: Annotated[str, Path(description="Id of the sighting.", examples=["s17"], pattern=SIGHTING_ID)],
) -> int:
    return int(id.removeprefix("s"))


@sighting_routes.get("/sightings", **documented("sightings", example="sightings"))
async def list_sightings(
    service: TheService,
    before: Annotated[
        str | None, Query(description="Id of a sighting: only older ones.", pattern=SIGHTING_ID)
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_SIGHTINGS)] = 100,
) -> SightingPage:
    """List photos without a name that a watch has kept, the newest first, a page at a time, with their groups."""
    found = await service.sightings.found()
    last = LARGEST_STATE if before is None else int(before[1:])
    page = [one for one in found.sightings if int(one.id[1:]) < last][:limit]
    shown = {one.id for one in page}
    return SightingPage(
        sightings=[SightingEntry.of(one) for one in page],
        groups=[group for group in found.groups if not shown.isdisjoint(group.ids)],
        total=len(found.sightings),
        bytes=found.bytes,
        state=found.state,
    )


@sighting_routes.get("/sightings/{id}", **documented("sightings", 404, kind="image/jpeg"))
async def sighting_picture(
    service: TheService,
    number: Annotated[int, Depends(_sighting_number)],
    request: Request,
    kept: Annotated[bool, Query(description="The photo itself.")] = False,
) -> Response:
    """Return a small copy of a sighting, or the photo itself."""
    data = await service.engine.read(lambda reader: reader.sighting_picture(number, kept=kept))
    if data is None:
        raise _no_sighting(f"there is no sighting s{number}: it has a name by now, or it was erased")
    return cacheable(request, data, picture_type(data), "private, no-cache")


@sighting_routes.post("/sightings/name", **documented("sightings", 404, 409, 415, example="photos_changed"))
async def name(service: TheService, wanted: SightingsNamed) -> PhotosMade:
    """Say what sightings show: a class, or none of these. They are learned, as one change that can be undone."""
    label = checked_name(wanted.name, or_none=True)
    return await service.engine.change_photos(lambda model: name_sightings(model, wanted.ids, label))


@sighting_routes.post("/sightings/confirm", **documented("sightings", 404, 409, 415, example="photos_changed"))
async def confirm(service: TheService, wanted: SightingsConfirmed) -> PhotosMade:
    """Learn sightings as the classes that are suggested for them, as one change that can be undone."""
    return await service.engine.change_photos(
        lambda model: confirm_sightings(model, wanted.ids, state=wanted.state)
    )


@sighting_routes.post(
    "/sightings/dismiss", **documented("sightings", 404, 409, 415, example="photos_changed", pending=PhotosMade)
)
async def dismiss(service: TheService, wanted: SightingsDismissed, response: Response) -> PhotosMade:
    """Put sightings aside without learning them. This can be undone, unless ``for_good`` erases them."""

    def change(model: Recognizer) -> PhotoChange:
        if not wanted.for_good:
            return dismiss_sightings(model, wanted.ids)
        forget_sightings(model, wanted.ids)
        return erased

    erased = PhotoChange("dismiss", tuple(wanted.ids), {})
    reply = await service.engine.change_photos(change, erased)
    if reply.pending is not None:
        response.status_code = 202
    return reply


def _no_sighting(message: str) -> ApiError:
    return ApiError(404, "no_sighting", message, "list the sightings with GET /v1/sightings")
