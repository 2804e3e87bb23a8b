"""Requests and replies, as the OpenAPI document describes them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Annotated, Any, Literal, Self

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fiveshot.data import BadImage
from fiveshot.values import Candidate, Neighbor, PhotoInfo, Prediction, ServedClass, to_json

MOST_IDS = 10_000  # photos in one request
FIELD = "photos"  # name of the parts with photos
BOXES = "boxes"  # and of the part with their boxes
COMMON = (400, 401, 403, 405, 408, 413, 421, 422, 429, 503, 504)  # errors that all routes may answer with
# Texts of the OpenAPI document: what each status means, examples, and the body of a request with photos.
DOCUMENT = json.loads((files(__package__) / "document.json").read_text(encoding="utf-8"))
Ids = Annotated[list[str], Field(min_length=1, max_length=MOST_IDS, description="Such as p17.")]


class ErrorDetail(BaseModel):
    """One of several problems."""

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
    """A page of classes, sorted by name."""

    classes: list[ServedClass]
    total: int = Field(description="How many match.")
    offset: int
    state: int = Field(description="State of the model: one more with every change.")


class PredictionEntry(BaseModel):
    """What a photo shows; an unknown or unsure one has no label."""

    photo: str
    label: str | None = Field(description="Its class, or its group if only that is sure.")
    answer: Literal["class", "group", "unknown", "unsure"]
    unknown: bool
    unsure: bool = Field(description="Whether no answer is probable enough.")
    between: list[str] = Field(default=[], description="The two most probable classes of an unsure photo.")
    can_be_unknown: bool = Field(description="False while the model has too few photos to call any unknown.")
    probability: float | None = Field(
        description="Of the answer, or of the best candidate if there is no answer. Null if there is one class."
    )
    candidates: list[Candidate]
    levels: list[Candidate] = Field(description="From the widest group to a class; empty without groups.")
    familiarity: float | None
    threshold: float | None = Field(description="Familiarity below which a photo is unknown; null: never.")
    why: list[Neighbor] = Field(default=[], description="The most similar learned photos, if requested.")
    box: tuple[float, float, float, float] | None = Field(
        default=None, description="The requested part of the photo: left, top, width, height."
    )

    @classmethod
    def of(cls, one: Prediction) -> Self:
        """Return a prediction in the form of the reply."""
        return cls(**to_json(one))


class PredictReply(BaseModel):
    """What the photos show, in order; for a photo with boxes, one entry for each box."""

    predictions: list[PredictionEntry]
    left_out: list[ErrorDetail] = Field(default=[], description="Photos that cannot be used, with skip_bad.")
    state: int


class RequestBody(BaseModel):
    """The JSON body of a request; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class Rename(RequestBody):
    """The new name of a class."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "tawny owl"}})
    name: str = Field(max_length=1000, description="1 to 200 visible characters.")


class Undoable(BaseModel):
    """A change that can be undone, and the classes it changed."""

    action: str
    classes: list[str]


class PhotoList(BaseModel):
    """The photos of a class, in the order in which they were learned."""

    photos: list[PhotoInfo]
    state: int


class Removal(RequestBody):
    """Photos to remove from their classes."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["p17", "p21"]}})
    ids: Ids
    of: str | None = Field(None, description="The class that they are expected in; otherwise 409.")
    for_good: bool = Field(False, description="Erase all traces: this cannot be undone.")


class Move(RequestBody):
    """Photos to move to another class, known or new; or a class to join with another one."""

    model_config = ConfigDict(json_schema_extra={"example": {"ids": ["p17"], "to": "wren"}})
    ids: Ids | None = None
    to: str = Field(max_length=1000, description="Name of the class that gets them.")
    of: str | None = Field(None, description="The class that they are expected in; otherwise 409.")
    all_of: str | None = Field(
        None, max_length=1000, description="Instead of ids: a class whose photos all move to a known class."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.ids is None) == (self.all_of is None) or (self.all_of is not None and self.of is not None):
            raise ValueError("give either ids or all_of")
        return self


class ModelChange(RequestBody):
    """One new setting of the model."""

    model_config = ConfigDict(json_schema_extra={"example": {"false_rejection": 0.02}})
    false_rejection: float | None = Field(
        None, gt=0, lt=1, description="Share of known photos that may be called unknown."
    )
    wrong_answers: float | None = Field(
        None, gt=0, lt=1, description="Share of answers that may be wrong; less probable ones are unsure."
    )

    @model_validator(mode="after")
    def _one_setting(self) -> Self:
        if (self.false_rejection is None) == (self.wrong_answers is None):
            raise ValueError("give either false_rejection or wrong_answers")
        return self


class ModelReply(BaseModel):
    """The model and the limits of the service."""

    classes: int
    base_classes: int
    backbone: str
    rejection: str = Field(description="What 'unknown' is based on, or why no photo is called unknown yet.")
    false_rejection: float = Field(description="Share of known photos that may be called unknown.")
    wrong_answers: float = Field(description="Share of answers that may be wrong; less probable ones are unsure.")
    negatives: int = Field(description="Photos that show none of the classes.")
    thumbnails: bool
    keep_photos: bool
    names: bool = Field(description="Whether learned photos keep the names of their files.")
    limits: dict[str, int]
    sightings: int = Field(description="Photos from a watch that wait for a name.")
    undo: Undoable | None = Field(description="The change that undo would revert; null: none.")
    read_only: bool = Field(description="Whether requests that would change the model are refused.")
    state: int


class StatusReply(BaseModel):
    """Whether the service runs."""

    status: str


PENDING = "It is removed, but its traces cannot be erased yet: see `pending`. Do not send the request again."


def documented(
    tag: str, *statuses: int, example: str = "", kind: str = "", photos: bool = False, pending: type | None = None
) -> dict[str, Any]:
    """Return the description of a route: its possible replies, and whether it takes photos.

    In addition to the errors of all routes, it may reply with the errors in ``statuses``, with an ``example`` of
    JSON or with another ``kind`` of content, and with ``pending`` and 202.
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
