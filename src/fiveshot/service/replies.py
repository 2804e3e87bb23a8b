"""What the service says of classes and changes, and its client hands out: plain values."""

from __future__ import annotations

from dataclasses import dataclass

from fiveshot.recognizer.correction import PhotoChange
from fiveshot.recognizer.insight import LearnReport


@dataclass(frozen=True)
class ServedClass:
    """A class of the model.

    Attributes
    ----------
    name : str
        Its name.
    photos : int
        Photos it was learned from.
    base : bool
        Whether it belongs to the base.
    thumbnails : int
        Photos of which there are small copies.
    version : int
        State in which it was last changed.

    Examples
    --------
    >>> ServedClass("owl", photos=5, base=False, thumbnails=5, version=7).name
    'owl'
    """

    name: str
    photos: int
    base: bool
    thumbnails: int
    version: int


@dataclass(frozen=True, kw_only=True)
class LearnedClass(LearnReport):
    """What was seen while a class was learned; it is on the disk.

    Attributes
    ----------
    created : bool
        Whether the class is new; else photos were added to it.
    state : int
        State of the model now.

    Examples
    --------
    >>> LearnedClass("owl", 5, 5, created=True, state=7).photos
    5
    """

    created: bool
    state: int


@dataclass(frozen=True)
class ChangeMade:
    """A change of classes that is on the disk.

    Attributes
    ----------
    action : str
        What was done, or taken back.
    classes : tuple of str
        Classes that it touched, a hundred at most.
    total : int
        How many these are.
    state : int
        State of the model now.
    pending : str or None
        What is still to be done: traces that another process keeps from being erased.

    Examples
    --------
    >>> ChangeMade("forget", ("owl",), 1, state=8).pending is None
    True
    """

    action: str
    classes: tuple[str, ...]
    total: int
    state: int
    pending: str | None = None


@dataclass(frozen=True, kw_only=True)
class PhotosMade(PhotoChange):
    """What became of photos; it is on the disk.

    Attributes
    ----------
    state : int
        State of the model now.
    pending : str or None
        As in :class:`ChangeMade`.

    Examples
    --------
    >>> PhotosMade("move", ("p17",), {"owl": 4, "wren": 6}, state=9).counts["wren"]
    6
    """

    state: int
    pending: str | None = None
