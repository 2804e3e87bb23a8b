"""What goes over the wire, as the OpenAPI document describes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from fiveshot.recognizer.insight import Verdict

Share = Annotated[float, Field(ge=0, le=1)]


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"example": values})


class ErrorDetail(BaseModel):
    """What went wrong, and what to do."""

    code: str = Field(description="One word for programs.")
    message: str = Field(description="What went wrong.")
    hint: str = Field(description="What to do.")


class ErrorReply(BaseModel):
    """The shape of every error."""

    model_config = _example(
        error={
            "code": "not_found",
            "message": "there is no class 'owl'",
            "hint": "GET /v1/classes lists what is there",
        }
    )
    error: ErrorDetail


class ClassEntry(BaseModel):
    """A class."""

    name: str
    photos: int = Field(description="Photos it was learned from.")
    base: bool = Field(description="Whether it belongs to the base of the model.")
    thumbnails: int = Field(description="Photos of which a small copy can be had.")
    version: int = Field(description="State of the model in which it last changed.")


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


class DuplicateEntry(BaseModel):
    """A photo that is there twice."""

    photo: str
    label: str
    same_file: bool
    of: str | None = None


class LearnReply(BaseModel):
    """A class that is learned, and on the disk."""

    model_config = _example(
        name="barn owl",
        created=True,
        photos=5,
        added=5,
        verdict="close",
        accuracy=0.8,
        nearest="snowy owl",
        confusion=0.2,
        confused=["owl-3.jpg"],
        separability=0.71,
        duplicates=[],
        outliers=[],
        warnings=["20 % of the photos look more like 'snowy owl' than like the others of 'barn owl'; ..."],
        state=7,
    )
    name: str
    created: bool = Field(description="False: the photos were added to a class that was known.")
    photos: int = Field(description="Photos of the class now.")
    added: int
    verdict: Verdict
    accuracy: Share | None
    nearest: str | None = Field(description="The class most like this one.")
    confusion: Share | None
    confused: list[str] = Field(default=[], description="Photos taken for the nearest class when left out.")
    separability: float | None
    duplicates: list[DuplicateEntry]
    outliers: list[str]
    warnings: list[str]
    state: int


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


class ChangeReply(BaseModel):
    """A change that is on the disk."""

    model_config = _example(action="forget", classes=["barn owl"], state=8)
    action: str
    classes: list[str]
    state: int
    pending: str | None = Field(
        default=None, description="With 202: what is still to be done, and when it will be."
    )


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
