"""What was found while a class was learned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["clear", "close", "confused", "unknown"]
"""How well a class stands apart from the others, in a word."""


@dataclass(frozen=True)
class Duplicate:
    """A duplicate photo: ``label`` is the class of the other photo, ``of`` its name if it is known.

    >>> Duplicate("a.jpg", "owl", same_file=True).label
    'owl'
    """

    photo: str
    label: str
    same_file: bool
    of: str | None = None


@dataclass(frozen=True)
class LearnReport:
    """What was found while a class was learned.

    Figures are None if there is nothing to compare with: for the first class, or a single photo.

    Attributes
    ----------
    name : str
        Name of the class.
    photos, added : int
        Photos of the class now, and those learned just now.
    accuracy : float or None
        Share of the photos that are recognized when each is left out of its own class.
    nearest : str or None
        The existing class that is most like this one.
    confusion : float or None
        Share of the photos that are taken for ``nearest``.
    separability : float or None
        Mean probability of the own class against the strongest other one.
    verdict : {"clear", "close", "confused", "unknown"}
        The separability in a word.
    duplicates : tuple of Duplicate
        Duplicate photos.
    outliers, confused : tuple of str
        Names of photos that are unlike the others, and of those just learned that are taken for ``nearest``.
    warnings : tuple of str
        All of this in sentences.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     report = birds.learn_features("wren", [*-owls, owls[0]])
    >>> report.photos, report.nearest, report.duplicates[0].photo, report.duplicates[0].label
    (6, 'owl', 'photo 6', 'owl')
    """

    name: str
    photos: int
    added: int
    accuracy: float | None = None
    nearest: str | None = None
    confusion: float | None = None
    separability: float | None = None
    verdict: Verdict = "unknown"
    duplicates: tuple[Duplicate, ...] = ()
    outliers: tuple[str, ...] = ()
    confused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
