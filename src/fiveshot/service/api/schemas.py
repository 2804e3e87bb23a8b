"""What goes over the wire, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from fiveshot.recognizer.recognition.snapshot import Prediction
from fiveshot.service.engine.engine import ChangeReply
from fiveshot.service.engine.listing import ClassEntry

FIELD = "photos"  # what the parts of a request with photos are called
REASONS = {
    400: "The request cannot be read.",
    401: "The token is missing or wrong.",
    403: "A page of another site asked.",
    404: "There is no such class or picture.",
    405: "The method is not for this path.",
    408: "The request took too long to arrive.",
    409: "The state of the model does not allow it.",
    413: "Too many bytes, photos or pixels.",
    415: "The body is of another kind than this request takes.",
    421: "The service is not called so.",
    422: "A value, a name or a photo cannot be used.",
    429: "Too many requests.",
    503: "Too much is in work, or the model is being loaded.",
    504: "The answer took too long; what was asked may still be done.",
}
COMMON = (400, 401, 403, 405, 408, 413, 421, 422, 429, 503, 504)


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"example": values})


class ErrorDetail(BaseModel):
    """One of several things that are wrong."""

    name: str = Field(description="The photo or the value.")
    code: str = Field(description="One word for programs.")
    message: str


class ErrorReply(BaseModel):
    """The shape of every error."""

    model_config = _example(
        code="not_found",
        message="there is no class 'owl'",
        hint="GET /v1/classes lists what is there",
    )
    code: str = Field(description="One word for programs.")
    message: str = Field(description="What went wrong.")
    hint: str = Field(description="What to do.")
    details: list[ErrorDetail] = Field(default=[], description="Each photo or value that cannot be used.")


class ClassPage(BaseModel):
    """A part of the classes, sorted by name."""

    model_config = _example(
        classes=[{"name": "barn owl", "photos": 5, "base": False, "thumbnails": 5, "version": 7}],
        total=1,
        offset=0,
        state=7,
    )
    classes: list[ClassEntry]
    total: int = Field(description="How many match.")
    offset: int
    state: int = Field(description="State of the model: one more with every change.")


class Candidate(BaseModel):
    """A class that a photo may show."""

    label: str
    probability: float


class PredictionEntry(BaseModel):
    """What a photo shows; an unknown one has no label."""

    photo: str
    label: str | None
    unknown: bool
    probability: float = Field(description="Of the best candidate.")
    candidates: list[Candidate]
    familiarity: float | None
    threshold: float | None = Field(description="Familiarity below which a photo is unknown; null: never.")

    @classmethod
    def of(cls, one: Prediction) -> Self:
        """Return a prediction as it goes over the wire."""
        candidates = [Candidate(label=label, probability=share) for label, share in one.candidates]
        return cls(**one.as_dict() | {"candidates": candidates})


class PredictReply(BaseModel):
    """What the photos show, in their order."""

    model_config = _example(
        predictions=[
            {
                "photo": "garden.jpg",
                "label": "barn owl",
                "unknown": False,
                "probability": 0.93,
                "candidates": [{"label": "barn owl", "probability": 0.93}],
                "familiarity": 3.5,
                "threshold": 2.0,
            }
        ],
        state=7,
    )
    predictions: list[PredictionEntry]
    state: int


class Rename(BaseModel):
    """The new name of a class."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"name": "tawny owl"}})
    name: str = Field(max_length=1000, description="1 to 200 visible characters.")


class ModelReply(BaseModel):
    """The model and the limits of the service."""

    model_config = _example(
        classes=12,
        base_classes=0,
        backbone="vit_hybrid_small_patch16_224.fiveshot",
        rejection="from 60 photos left out one at a time",
        thumbnails=True,
        keep_photos=False,
        limits={"body_bytes": 67108864, "photos": 50, "pixels": 50000000},
        state=7,
    )
    classes: int
    base_classes: int
    backbone: str
    rejection: str = Field(description="On what 'unknown' rests, or why nothing is called so yet.")
    thumbnails: bool
    keep_photos: bool
    limits: dict[str, int]
    state: int


class StatusReply(BaseModel):
    """Whether the service runs."""

    model_config = _example(status="ok")
    status: str


PENDING: dict[str, Any] = {
    "model": ChangeReply,
    "description": "The class is gone, but its traces cannot be erased yet: see `pending`. Do not send it again.",
}
CHANGED = {"action": "forget", "classes": ["barn owl"], "total": 1, "state": 8, "pending": None}
LEARNED = {
    "name": "barn owl",
    "created": True,
    "photos": 5,
    "added": 5,
    "verdict": "close",
    "accuracy": 0.8,
    "nearest": "snowy owl",
    "confusion": 0.2,
    "confused": ["owl-3.jpg"],
    "separability": 0.71,
    "duplicates": [],
    "outliers": [],
    "warnings": ["20 % of the photos look more like 'snowy owl' than like the others of 'barn owl'; ..."],
    "state": 7,
}
PHOTOS: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [FIELD],
                    "additionalProperties": False,
                    "properties": {
                        FIELD: {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                            "description": "Photos: JPEG, PNG, WebP and the like, each with a file name.",
                        }
                    },
                }
            }
        },
    }
}


def example_reply(example: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    """Return how the document of the API shows a good answer."""
    return {200: {"content": {"application/json": {"example": example}}}}


def error_replies(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the errors that a route may answer with, beside those that all have."""
    return {
        status: {"model": ErrorReply, "description": REASONS[status]} for status in sorted({*COMMON, *statuses})
    }
