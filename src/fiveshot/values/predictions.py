"""What a photo shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal


@dataclass(frozen=True)
class Candidate:
    """A class or a group that a photo may show, and its probability; None for the only class of a model.

    >>> Candidate("owl", 0.9).probability
    0.9
    """

    label: str
    probability: float | None


@dataclass(frozen=True)
class Neighbor:
    """A learned photo that a photo is like: its id, its class, the cosine of their features, and its file's name.

    >>> Neighbor("p17", "owl", 0.93).label
    'owl'
    """

    id: str
    label: str
    likeness: float
    name: str | None = None


@dataclass(frozen=True)
class Prediction:
    """The class of a photo, or its group, or that it is unlike every class.

    Attributes
    ----------
    photo : str
        Name of the photo.
    label : str or None
        Its class, or its group if only the group is sure; None for no answer.
    probability : float or None
        Probability of the answer, or of the best candidate if there is no answer. None while the model has a
        single class: there is nothing to compare it with.
    candidates : tuple of Candidate
        The most probable classes, the best first, whether the photo is known or not.
    familiarity : float or None
        Similarity of the photo to its most similar class; None if it is not a finite number.
    threshold : float or None
        The familiarity below which a photo of the best class is unknown; None if nothing can be called unknown.
    levels : tuple of Candidate
        The most probable group, in it the most probable one below, down to a class. Empty where the model has no
        groups.
    unsure : bool
        Whether there is no answer because none is probable enough.
    between : tuple of str
        The two most probable classes of a photo that is unsure; empty otherwise.
    box : tuple of four numbers, or None
        The part of the photo that was used, as it was given: left, top, width, height.
    why : tuple of Neighbor
        The most similar learned photos, as many as requested. Photos of base classes are not stored.

    Examples
    --------
    >>> Prediction("a.jpg", "owl", 0.9, (Candidate("owl", 0.9), Candidate("wren", 0.1)), 3.5, 2.0).unknown
    False
    """

    DERIVED: ClassVar = ("unknown", "can_be_unknown", "answer")

    photo: str
    label: str | None
    probability: float | None
    candidates: tuple[Candidate, ...]
    familiarity: float | None
    threshold: float | None
    levels: tuple[Candidate, ...] = ()
    unsure: bool = False
    between: tuple[str, ...] = ()
    box: tuple[float, float, float, float] | None = None
    why: tuple[Neighbor, ...] = ()

    @property
    def unknown(self) -> bool:
        """Whether the photo is unlike every class."""
        return self.label is None and not self.unsure

    @property
    def is_sure(self) -> bool:
        """Whether there is an answer, and no doubt about it: the photo is neither unknown nor unsure."""
        return not (self.unknown or self.unsure)

    @property
    def can_be_unknown(self) -> bool:
        """Whether the photo could be called unknown: False while the model has no threshold for that."""
        return self.threshold is not None

    @property
    def answer(self) -> Literal["class", "group", "unknown", "unsure"]:
        """What kind of answer this is: ``class``, ``group``, ``unknown`` or ``unsure``."""
        if self.label is None:
            return "unsure" if self.unsure else "unknown"
        # Compare the probability, too: a class may have the name of its group.
        is_class = not self.levels or Candidate(self.label, self.probability) == self.levels[-1]
        return "class" if is_class else "group"
