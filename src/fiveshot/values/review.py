"""What a review found: confused classes, and photos to move or remove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

ReviewFinding = Literal["mixed-up", "harmful", "duplicates", "outliers"]
"""What a review may find about a photo."""
FINDINGS: tuple[ReviewFinding, ...] = get_args(ReviewFinding)
"""All findings, in the order of the report."""
FOUND: dict[ReviewFinding, str] = {  # what the photos do
    "mixed-up": "fit another class better",
    "harmful": "keep others from being recognized",
    "duplicates": "are there twice",
    "outliers": "are unlike the rest of their class",
}
"""Each of them in words."""


@dataclass(frozen=True)
class Suggestion:
    """A photo to look at, and the suggested action.

    Attributes
    ----------
    kind : {"mixed-up", "harmful", "duplicates", "outliers"}
        What was found.
    photo, label : str
        Id of the photo, and its class.
    action : {"move", "remove"}
        What applying the suggestion does.
    to : str or None
        The class to move the photo to.
    beside : str or None
        Id of the photo to compare it with: the one it repeats, or the most similar one of the other class.
    strength : float
        From 0 to 1: how strong the finding is, within its kind.
    reason : str
        The reason, in a sentence.
    firm : bool
        Whether ``apply`` follows it: at least 9 of 10 such suggestions are right. If not, look at the photo and
        decide.
    name, beside_name : str or None
        Names of the files of ``photo`` and ``beside``, if they are known.

    Examples
    --------
    >>> Suggestion("mixed-up", "p7", "owl", "move", "wren", "p2", 0.98, "it fits 'wren' better").action
    'move'
    """

    kind: ReviewFinding
    photo: str
    label: str
    action: Literal["move", "remove"]
    to: str | None
    beside: str | None
    strength: float
    reason: str
    firm: bool = False
    name: str | None = None
    beside_name: str | None = None


@dataclass(frozen=True)
class ReviewedClass:
    """A class: photos, accuracy when they are left out, and expected accuracies with 1, 2 and 5 photos more.

    ``accuracy`` is None for a single photo. ``expected`` begins with the accuracy expected now; it is empty if
    there is no other class. ``gain`` is the expected gain of one more photo.

    >>> ReviewedClass("owl", photos=5, accuracy=0.8).accuracy
    0.8
    """

    name: str
    photos: int
    accuracy: float | None
    expected: tuple[float, ...] = ()
    gain: float = 0.0


@dataclass(frozen=True)
class TellingPhoto:
    """A photo that was taken for another class when it was left out, and the most similar photo of that class.

    ``name`` and ``beside_name`` are the names of their files, if they are known.

    >>> TellingPhoto("p7", "owl", "wren", 0.6, beside="p2").taken_for
    'wren'
    """

    photo: str
    label: str
    taken_for: str
    probability: float
    beside: str | None
    name: str | None = None
    beside_name: str | None = None


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes whose photos were taken for each other, and the photos that tell.

    ``alike``: they are distinguished no better than by chance. Then ``advice`` says so, and no photo is suggested
    to move from one to the other.

    >>> ConfusedPair(("owl", "wren"), 3, ()).count
    3
    """

    classes: tuple[str, str]
    count: int
    photos: tuple[TellingPhoto, ...]
    alike: bool = False
    advice: str = ""


@dataclass(frozen=True)
class Review:
    """The result of a review of a model's photos.

    Attributes
    ----------
    state : int
        State of the reviewed model.
    accuracy : float or None
        Share of the photos that are recognized when they are left out; None if nothing could be left out.
    judged : int
        Number of photos that this is measured on.
    expected : tuple of float
        Expected accuracy now, and with 1, 2 and 5 more photos of each class; empty if it cannot be estimated.
    classes : tuple of ReviewedClass
        The classes, those that gain most from one more photo first.
    pairs : tuple of ConfusedPair
        Confused pairs: those that look like one class first, then the most often confused.
    suggestions : tuple of Suggestion
        Photos to move or to remove, by kind, the surest first. Photos that a user decided about are not included.
    kept : int
        Photos that would be suggested if no user had kept, moved or corrected them.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import review
    >>> rng = np.random.default_rng(0)
    >>> owls, wrens, crows = rng.normal(size=(3, 1, 320)) + 0.5 * rng.normal(size=(3, 6, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls[1:]), birds.learn_features("crow", crows)
    ...     _ = birds.learn_features("wren", [*wrens, owls[0]])
    ...     found = review(birds)
    >>> [(one.kind, one.photo, one.label, one.to) for one in found.suggestions if one.kind == "mixed-up"]
    [('mixed-up', 'p18', 'wren', 'owl')]
    """

    state: int
    accuracy: float | None
    judged: int
    expected: tuple[float, ...]
    classes: tuple[ReviewedClass, ...]
    pairs: tuple[ConfusedPair, ...]
    suggestions: tuple[Suggestion, ...]
    kept: int = 0

    def of(self, kinds: Sequence[str], *, firm: bool = False) -> tuple[Suggestion, ...]:
        """Return the suggestions of some kinds, all or only firm ones."""
        return tuple(one for one in self.suggestions if one.kind in kinds and (one.firm or not firm))
