"""Photos without labels, sorted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fiveshot.errors import InputError
from fiveshot.values.photos import BadImage


@dataclass(frozen=True)
class KnownPhoto:
    """A photo that shows a known class, by its number among the sorted photos.

    The probability is None while the model has a single class. ``between`` has the two most probable classes of a
    photo whose class is unsure; it is empty otherwise.

    >>> KnownPhoto(3, "owl", 0.5, ("owl", "wren")).place, KnownPhoto(4, "owl", 0.9).place
    (None, 'owl')
    """

    photo: int
    label: str
    probability: float | None
    between: tuple[str, ...] = ()

    @property
    def place(self) -> str | None:
        """The class whose folder the photo belongs in; None if it is unsure."""
        return None if self.between else self.label


@dataclass(frozen=True)
class PhotoGroup:
    """Photos of something unknown, the most typical first. The id stays the same when photos are added.

    >>> PhotoGroup("g3", (3, 5)).photos
    (3, 5)
    """

    id: str
    photos: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """A photo to name, the photos that get the same name, how useful that is, and the class if it is known.

    >>> Question(3, (5, 8), 0.7, guess="owl").companions
    (5, 8)
    """

    photo: int
    companions: tuple[int, ...]
    value: float
    guess: str | None


@dataclass(frozen=True)
class FolderChanges:
    """Changes in a folder since it was last sorted, in photos.

    >>> FolderChanges(new=2, gone=0, changed=1).new
    2
    """

    new: int
    gone: int
    changed: int


@dataclass(frozen=True)
class Sorting:
    """Photos without labels, sorted.

    Attributes
    ----------
    photos : tuple of str
        Names of the photos; the numbers below are positions in it.
    known : tuple of KnownPhoto
        Photos of classes that the model knows, the surest first.
    groups : tuple of PhotoGroup
        The other photos, the largest group first.
    queue : tuple of Question
        What to name first: uncertain photos that differ from known ones, each with others that show the same.
    bad : tuple of BadImage
        Photos that could not be used, and why.
    state : int
        State of the model that sorted them.
    sha256s : tuple of str
        Digests of the photos.
    copies : int
        Photos that were left out because another one has the same content.
    since : FolderChanges or None
        Changes in the folder since the last time; None for the first time.
    meanwhile : tuple of str
        Names of photos that were added during the sorting: sort again to include them.
    sources : tuple of Photo
        The photos themselves, to place or learn them; not part of the JSON.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import sort_features
    >>> rng = np.random.default_rng(0)
    >>> owl, wren = rng.normal(size=(2, 1, 320))
    >>> photos = np.concatenate([owl + 0.3 * rng.normal(size=(5, 320)), wren + 0.3 * rng.normal(size=(4, 320))])
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     sorting = sort_features(birds, photos)
    >>> [(group.id, sorted(group.photos)) for group in sorting.groups]
    [('g0', [0, 1, 2, 3, 4]), ('g5', [5, 6, 7, 8])]
    """

    photos: tuple[str, ...]
    known: tuple[KnownPhoto, ...]
    groups: tuple[PhotoGroup, ...]
    queue: tuple[Question, ...]
    bad: tuple[BadImage, ...] = ()
    state: int = 0
    sha256s: tuple[str, ...] = ()
    copies: int = 0
    since: FolderChanges | None = None
    meanwhile: tuple[str, ...] = ()
    sources: tuple[Any, ...] = field(default=(), repr=False, compare=False, metadata={"json": False})

    def photos_of(self, name: str) -> tuple[int, ...]:
        """Return the photos of a group (``g3``), of a question with its companions (``q3``), or one (``3``)."""
        for group in self.groups:
            if group.id == name:
                return group.photos
        for question in self.queue:
            if f"q{question.photo}" == name:
                return (question.photo, *question.companions)
        if name.isascii() and name.isdecimal() and int(name) < len(self.photos):
            return (int(name),)
        raise InputError(
            f"there is nothing called {name!r} here",
            hint="name a group such as g3, a question such as q3, or a photo by its number",
            code="no_group",
        )
