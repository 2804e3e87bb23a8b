"""The values that travel between layers, and one JSON for them. Needs the standard library and cattrs alone."""

from __future__ import annotations

from fiveshot.values.codec import from_json, to_json
from fiveshot.values.codec import make_converter as make_converter
from fiveshot.values.codec import read_value as read_value
from fiveshot.values.learning import Duplicate, LearnReport, Verdict
from fiveshot.values.models import ClassInfo, HistoryEntry, ModelInfo, RejectedAt
from fiveshot.values.photos import BadImage, PhotoChange, PhotoInfo
from fiveshot.values.photos import shown_photo as shown_photo
from fiveshot.values.predictions import Candidate, Neighbor, Prediction
from fiveshot.values.replies import ChangeMade, LearnedClass, ModelState, PhotosMade, RejectionReply, ServedClass
from fiveshot.values.review import (
    FINDINGS,
    FOUND,
    ConfusedPair,
    Review,
    ReviewedClass,
    ReviewFinding,
    Suggestion,
    TellingPhoto,
)
from fiveshot.values.sightings import SightingGroup, SightingInfo, SightingLimits, Sightings
from fiveshot.values.sorting import FolderChanges, KnownPhoto, PhotoGroup, Question, Sorting

__all__ = [
    "FINDINGS",
    "FOUND",
    "BadImage",
    "Candidate",
    "ChangeMade",
    "ClassInfo",
    "ConfusedPair",
    "Duplicate",
    "FolderChanges",
    "HistoryEntry",
    "KnownPhoto",
    "LearnReport",
    "LearnedClass",
    "ModelInfo",
    "ModelState",
    "Neighbor",
    "PhotoChange",
    "PhotoGroup",
    "PhotoInfo",
    "PhotosMade",
    "Prediction",
    "Question",
    "RejectedAt",
    "RejectionReply",
    "Review",
    "ReviewFinding",
    "ReviewedClass",
    "ServedClass",
    "SightingGroup",
    "SightingInfo",
    "SightingLimits",
    "Sightings",
    "Sorting",
    "Suggestion",
    "TellingPhoto",
    "Verdict",
    "from_json",
    "to_json",
]
