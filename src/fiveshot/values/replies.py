"""Replies of the service about its model, classes and changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fiveshot.values.learning import LearnReport
from fiveshot.values.models import RejectedAt
from fiveshot.values.photos import PhotoChange


@dataclass(frozen=True)
class ModelState:
    """The model that is served.

    Attributes
    ----------
    classes, base_classes : int
        How many it knows, and how many of these belong to its base.
    backbone : str
        Name of the backbone.
    rejection : str
        What "unknown" is based on.
    limits : mapping of str to int
        ``photos`` and ``body_bytes`` of one request, and ``pixels`` of a photo.
    state : int
        One more with every change.
    read_only : bool
        Whether requests that would change the model are refused.

    Examples
    --------
    >>> ModelState(12, 0, "vit", "", {"photos": 50}, state=7).limits["photos"]
    50
    """

    classes: int
    base_classes: int
    backbone: str
    rejection: str
    limits: Mapping[str, int]
    state: int
    read_only: bool = False


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
        Photos with small copies.
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
    """What was found while a class was learned. The class is on the disk.

    Attributes
    ----------
    created : bool
        Whether the class is new; otherwise photos were added to it.
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
        What was done or undone.
    classes : tuple of str
        The changed classes, at most a hundred.
    total : int
        How many these are.
    state : int
        State of the model now.
    pending : str or None
        What is still to do: erase traces that another process blocks.

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
    """A change of photos that is on the disk.

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


@dataclass(frozen=True, kw_only=True)
class RejectionReply(RejectedAt):
    """How many learned photos a rate of false rejections calls unknown.

    Attributes
    ----------
    state : int
        State of the model now.

    Examples
    --------
    >>> RejectionReply(0.05, 20, 1, 0, 0, "", state=7).rejected
    1
    """

    state: int
