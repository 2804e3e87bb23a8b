"""How well a model recognises labelled photos: right and wrong, known and unknown, sure and unsure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fiveshot.recognizer.other_folders import OtherFolder


@dataclass(frozen=True)
class ClassResult:
    """The photos of one class: how many, how many recognised, how many called unknown.

    >>> ClassResult("owl", photos=8, right=6, rejected=1).accuracy
    0.75
    """

    name: str
    photos: int
    right: int
    rejected: int

    @property
    def accuracy(self) -> float:
        """Share of the photos whose best candidate is the class."""
        return self.right / self.photos


@dataclass(frozen=True)
class Confusion:
    """``count`` photos of one class whose best candidate was another."""

    name: str
    taken_for: str
    count: int


@dataclass(frozen=True)
class WrongPhoto:
    """A photo with a wrong answer: ``shown_as`` another class, or None for one that was called unknown.

    ``name`` is its class; a photo of a class that the model does not know should have been called unknown.
    ``most_like`` is the best candidate in any case.
    """

    photo: str
    name: str
    shown_as: str | None
    most_like: str


@dataclass(frozen=True)
class Evaluation:
    """Figures on photos of known classes, and on those of classes the model does not know.

    ``accuracy`` asks for the best candidate alone; ``accepted_accuracy`` counts only photos that were not called
    unknown. None where there is nothing to measure on. ``Recognizer.evaluate`` makes it from photos:

    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 384))
    >>> from fiveshot.recognizer.evaluating import evaluate_features
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
    ...     measured = evaluate_features(birds.snapshot, owls[:4], ["owl", "owl", "wren", "stork"])
    >>> measured.photos, measured.unknown_photos, round(measured.accuracy, 2), measured.confusions
    (3, 1, 0.67, (Confusion(name='wren', taken_for='owl', count=1),))
    """

    photos: int  # of known classes
    unknown_photos: int  # of classes that the model does not know
    accuracy: float | None
    accepted_accuracy: float | None
    false_rejection: float | None  # share of the known photos called unknown
    unknown_rejection: float | None  # share of the unknown photos called unknown
    unknown_auroc: float | None  # how well familiarity alone tells known from unknown
    calibration_error: float | None
    classes: tuple[ClassResult, ...]
    confusions: tuple[Confusion, ...]  # the most frequent first
    wrong: tuple[WrongPhoto, ...] = ()  # those with a wrong name first, then those called unknown
    other_folders: tuple[OtherFolder, ...] = ()  # that are no class: they test the rejection
    learned_photos: int = 0  # that the model has learned, by their SHA-256: they prove nothing

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = asdict(self)
        values["classes"] = [{**asdict(one), "accuracy": one.accuracy} for one in self.classes]
        return values
