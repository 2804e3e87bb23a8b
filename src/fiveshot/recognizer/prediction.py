"""What the recogniser says about a photo."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    """The class of a photo, or that it is unlike every class.

    ``label`` is None for an unknown photo; ``candidates`` names the most probable classes in any case, the best
    first. A photo is unknown when its ``familiarity`` lies below the ``threshold`` of the best class; where
    the model rejects nothing there is no threshold.

    >>> Prediction("a.jpg", "owl", 0.9, (("owl", 0.9), ("wren", 0.1)), 3.5, 2.0).unknown
    False
    """

    photo: str
    label: str | None
    probability: float  # of the best candidate
    candidates: tuple[tuple[str, float], ...]
    familiarity: float
    threshold: float | None

    @property
    def unknown(self) -> bool:
        """Whether the photo is unlike every class."""
        return self.label is None

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "unknown": self.unknown}
