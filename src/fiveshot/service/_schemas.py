"""What goes over the wire, as the OpenAPI document describes it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fiveshot.data import BadImage
from fiveshot.values import Candidate, Neighbor, PhotoInfo, Prediction, ServedClass, to_json

MOST_IDS = 10_000  # of one request
FIELD = "photos"  # what the parts of a request with photos are called
BOXES = "boxes"  # and the part that says which parts of them are meant
COMMON = (400, 401, 403, 405, 408, 413, 421, 422, 429, 503, 504)  # errors that all routes may answer with
# Texts of the OpenAPI document: what each status means, examples, and the body of a request with photos.
DOCUMENT = json.loads((files(__package__) / "document.json").read_text(encoding="utf-8"))
Ids = Annotated[list[str], Field(min_length=1, max_length=MOST_IDS, description="Such as p17.")]


class ErrorDetail(BaseModel):
    """One of several things that are wrong."""

    name: str = Field(description="The photo or the value.")
    code: str = Field(description="One word for programs.")
    message: str

    @classmethod
    def of(cls, bad: BadImage) -> Self:
        """Return why a photo cannot be used."""
        return cls(name=bad.name, code=bad.code, message=bad.reason)


class ErrorReply(BaseModel):
    """The shape of every error."""

    code: str = Field(description="One word for programs.")
    message: str = Field(description="What went wrong.")
    hint: str = Field(description="What to do.")
    details: list[ErrorDetail] = Field(default=[], description="Each photo or value that cannot be used.")


class ClassPage(BaseModel):
    """A part of the classes, sorted by name."""

    classes: list[ServedClass]
    total: int = Field(description="How many match.")
    offset: int
    state: int = Field(description="State of the model: one more with every change.")


class PredictionEntry(BaseModel):
    """What a photo shows; an unknown or unsure one has no label."""

    photo: str
    label: str | None = Field(description="Its class, or its group where only that is sure.")
    answer: Literal["class", "group", "unknown", "unsure"]
    unknown: bool
    unsure: bool = Field(description="Whether no answer is as sure as was asked for.")
    can_be_unknown: bool = Field(description="False while the model has too few photos to call any unknown.")
    probability: float | None = Field(
        description="Of the answer; without one, of the best candidate. Null while the model has a single class."
    )
    candidates: list[Candidate]
    levels: list[Candidate] = Field(description="From the widest group to a class; empty without groups.")
    familiarity: float | None
    threshold: float | None = Field(description="Familiarity below which a photo is unknown; null: never.")
    why: list[Neighbor] = Field(default=[], description="The learned photos it is most like, if asked for.")
    box: tuple[float, float, float, float] | None = Field(
        default=None, description="The part of the photo that was asked for: left, top, width, height."
    )

    @classmethod
    def of(cls, one: Prediction) -> Self:
        """Return a prediction as it goes over the wire."""
        return cls(**to_json(one))


class PredictReply(BaseModel):
    """What the photos show, in their order; of a photo with boxes, each of them."""

    predictions: list[PredictionEntry]
    left_out: list[ErrorDetail] = Field(default=[], description="Photos that cannot be used, with skip_bad.")
    state: int


class RequestBody(BaseModel):
    """What a request brings as JSON; a key that is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class Rename(RequestBody):
    """The new name of a class."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "tawny owl"}})
    name: str = Field(max_length=1000, description="1 to 200 visible characters.")


class Undoable(BaseModel):
    """A change that can be taken back, and classes it touched."""

    action: str
    classes: list[str]


class PhotoList(BaseModel):
    """The photos of a class, in the order in which they were learned."""

    photos: list[PhotoInfo]
    state: int


class Removal(RequestBody):
    """Photos to take out of their classes."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["p17", "p21"]}})
    ids: Ids
    of: str | None = Field(None, description="The class they are taken to be in; in another: 409.")
    for_good: bool = Field(False, description="Leave no trace: it cannot be undone.")


class Move(RequestBody):
    """Photos to give to another class, known or new; or a class to join with another one."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["p17"], "to": "wren"}})
    ids: Ids | None = None
    to: str = Field(max_length=1000, description="Name of the class that gets them.")
    of: str | None = Field(None, description="The class they are taken to be in; in another: 409.")
    all_of: str | None = Field(
        None, max_length=1000, description="In the place of ids: a class, all of whose photos move to a known one."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.ids is None) == (self.all_of is None) or (self.all_of is not None and self.of is not None):
            raise ValueError("give either ids or all_of")
        return self


class ModelChange(RequestBody):
    """What to change of a model."""

    model_config = ConfigDict(json_schema_extra={"example": {"false_rejection": 0.02}})
    false_rejection: float = Field(gt=0, lt=1, description="Share of known photos that may be called unknown.")


class ModelReply(BaseModel):
    """The model and the limits of the service."""

    classes: int
    base_classes: int
    backbone: str
    rejection: str = Field(description="On what 'unknown' rests, or why nothing is called so yet.")
    false_rejection: float = Field(description="Share of known photos that may be called unknown.")
    negatives: int = Field(description="Photos that show none of the classes.")
    thumbnails: bool
    keep_photos: bool
    limits: dict[str, int]
    undo: Undoable | None = Field(description="What an undo would take back; null: nothing.")
    read_only: bool = Field(description="Whether requests that would change the model are refused.")
    state: int


class StatusReply(BaseModel):
    """Whether the service runs."""

    status: str


PENDING = "It is gone, but its traces cannot be erased yet: see `pending`. Do not send it again."


def documented(
    tag: str, *statuses: int, example: str = "", kind: str = "", photos: bool = False, pending: type | None = None
) -> dict[str, Any]:
    """Return how a route is described: what it may answer, and whether it takes photos.

    Beside the errors that all routes have, it may answer with those of ``statuses``; with an ``example`` of JSON,
    or with another ``kind`` of content; and with ``pending`` and 202.
    """
    replies: dict[int, dict[str, Any]] = {
        status: {"model": ErrorReply, "description": DOCUMENT["errors"][str(status)]}
        for status in sorted({*COMMON, *statuses})
    }
    if example:
        replies[200] = {"content": {"application/json": {"example": DOCUMENT["examples"][example]}}}
    if kind:
        replies[200] = {"content": {kind: {}}, "description": DOCUMENT["kinds"][kind]}
    if pending is not None:
        replies[202] = {"model": pending, "description": PENDING}
    described = {"tags": [tag], "responses": replies} | ({"response_class": Response} if kind else {})
    return described | ({"openapi_extra": {"requestBody": DOCUMENT["photos"]}} if photos else {})
