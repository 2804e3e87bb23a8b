"""The routes of a second look: review what was learned, and sort photos without labels."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fiveshot.recognizer.review import Review
from fiveshot.recognizer.sorting import KnownPhoto, PhotoGroup, Question
from fiveshot.service.api.requests import StrictRoute, checked_name, read_uploads
from fiveshot.service.api.routes import FAR, LAST, TheService, cacheable
from fiveshot.service.api.schemas import MOST_IDS, PHOTOS, ErrorDetail, documented
from fiveshot.service.engine.engine import LearnReply, PhotosReply

second_look_routes = APIRouter(prefix="/v1", route_class=StrictRoute)
MOST_QUESTIONS = 500
Finding = Literal["mixed-up", "harmful", "duplicates", "outliers"]
Id = Annotated[str, Path(description="Id of the set, from POST /v1/sort.", max_length=100)]


class Keep(BaseModel):
    """Photos to keep whatever was found."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"ids": ["p17"], "finding": "mixed-up"}}
    )
    ids: list[str] = Field(min_length=1, max_length=MOST_IDS, description="Such as p17.")
    finding: Finding


class Apply(BaseModel):
    """Suggestions to follow: those of one finding, or of them those about some photos."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"finding": "mixed-up", "ids": ["p17"]}}
    )
    finding: Finding
    ids: list[str] | None = Field(
        None, min_length=1, max_length=MOST_IDS, description="Unless given, all that are sure."
    )
    state: int | None = Field(None, ge=0, le=LAST, description="State of the review: 409 if changed since.")


class SortBegun(BaseModel):
    """A new set of photos to sort."""

    id: str
    photos: int = Field(description="The most photos that it may hold.")
    seconds: float = Field(description="After so long without a request it is dropped.")


class SortAdded(BaseModel):
    """Photos that were added to a set."""

    numbers: list[int] = Field(description="Of the photos that can be used, in their order.")
    refused: list[ErrorDetail] = Field(description="Those that cannot, and why.")
    total: int = Field(description="Photos of the set now.")


class SortReply(BaseModel):
    """The photos of a set that nobody has named yet, sorted. Photos are numbers: their places among ``photos``."""

    photos: list[str] = Field(description="File names of all photos of the set.")
    known: list[KnownPhoto] = Field(description="Photos of known classes, the surest first.")
    groups: list[PhotoGroup] = Field(description="The others, the largest group first.")
    queue: list[Question] = Field(description="What to name first, with those that the name is for as well.")
    state: int


class SortName(BaseModel):
    """A name for a group, or for some photos."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "wren", "group": "g3"}})
    name: str = Field(max_length=1000, description="Of the class, known or new.")
    group: str | None = Field(None, max_length=20, description="Id of a group; or give photos.")
    photos: list[Annotated[int, Field(ge=0, le=FAR)]] | None = Field(None, min_length=1, max_length=MOST_IDS)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.group is None) == (self.photos is None):
            raise ValueError("give either group or photos")
        return self


@second_look_routes.get("/review", tags=["review"], responses=documented(409, example="review"))
async def review(
    service: TheService,
    kept: Annotated[bool, Query(description="Suggest again what somebody decided to keep.")] = False,
) -> Review:
    """Look again at what was learned: confused classes, photos to move or remove, and whether it is enough."""
    return await service.reviews.review(kept=kept)


@second_look_routes.post(
    "/review/keep", tags=["review"], responses=documented(404, 409, 415, example="photos_changed")
)
async def keep(service: TheService, wanted: Keep) -> PhotosReply:
    """Keep photos: a review does not suggest them again for this finding. It can be undone."""
    return await service.reviews.keep(wanted.ids, wanted.finding)


@second_look_routes.post(
    "/review/apply", tags=["review"], responses=documented(404, 409, 415, example="photos_changed")
)
async def apply(service: TheService, wanted: Apply) -> PhotosReply:
    """Do what a review suggests, as one change that can be undone."""
    return await service.reviews.apply(wanted.finding, wanted.ids, wanted.state)


@second_look_routes.post("/sort", tags=["sort"], responses=documented(example="sort_begun"))
async def begin_sorting(service: TheService) -> SortBegun:
    """Begin a set of photos without labels. They stay in memory, and nothing is learned unless it is named."""
    limits = service.limits
    return SortBegun(id=service.sortings.begin(), photos=limits.sorted_photos, seconds=limits.sorting_seconds)


@second_look_routes.post(
    "/sort/{id}/photos",
    tags=["sort"],
    responses=documented(404, 409, 415, example="sort_added"),
    openapi_extra=PHOTOS,
)
async def add_to_sorting(service: TheService, id: Id, request: Request) -> SortAdded:
    """Add photos to a set, a part at a time. One that cannot be used is left out, with the reason."""
    uploads = await read_uploads(request, service.limits)
    numbers, bad, total = await service.sortings.add(id, uploads)
    refused = [ErrorDetail(name=one.name, code=one.code, message=one.reason) for one in bad]
    return SortAdded(numbers=numbers, refused=refused, total=total)


@second_look_routes.get("/sort/{id}", tags=["sort"], responses=documented(404, 409, example="sorted"))
async def sort(
    service: TheService,
    id: Id,
    questions: Annotated[int, Query(ge=0, le=MOST_QUESTIONS, description="Of the queue, so many.")] = 50,
) -> SortReply:
    """Sort the photos of a set that nobody has named yet: known classes, groups of the others, and a queue."""
    found = await service.sortings.sorting(id)
    return SortReply(
        photos=list(found.photos),
        known=list(found.known),
        groups=list(found.groups),
        queue=list(found.queue[:questions]),
        state=found.state,
    )


@second_look_routes.get(
    "/sort/{id}/photos/{number}",
    tags=["sort"],
    response_class=Response,
    responses={**documented(404, 409), 200: {"content": {"image/jpeg": {}}, "description": "A small copy."}},
)
async def sorted_photo(
    service: TheService, id: Id, number: Annotated[int, Path(ge=0, le=FAR)], request: Request
) -> Response:
    """Return a small copy, 128 pixels, of a photo of a set."""
    return cacheable(request, service.sortings.thumbnail(id, number), "image/jpeg", "private, no-cache")


@second_look_routes.post("/sort/{id}/learn", tags=["sort"], responses=documented(404, 409, 415, example="learned"))
async def learn_sorted(service: TheService, id: Id, wanted: SortName) -> LearnReply:
    """Learn a group, or some photos of a set, under a name. They are not sorted again."""
    return await service.sortings.learn(id, checked_name(wanted.name), wanted.group, wanted.photos)


@second_look_routes.delete("/sort/{id}", tags=["sort"], status_code=204, responses=documented(404, 409))
async def end_sorting(service: TheService, id: Id) -> None:
    """Drop a set of photos."""
    service.sortings.end(id)
