"""Learned photos, changes of photos, and photos that cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PhotoInfo:
    """A photo that a class was learned from.

    Attributes
    ----------
    id : str
        Its id, to remove or move it: ``p`` and a number that the model never uses again.
    label : str
        Its class.
    added : str
        When it was learned, in UTC.
    sha256 : str
        Digest of the file that was given.
    score : float or None
        Probability of its class against the strongest other one, by a model that has not seen the photo; None if
        there is nothing to compare with: a single class, or a class of one photo.
    taken_for : str or None
        The class that it is then taken for; None if it is recognized.
    thumbnail, kept : bool
        Whether a small copy and the file itself are stored.
    name : str or None
        Name of the file, without folders; None if it is not known, or the model keeps no names.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(3, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
    ...     [photo.id for photo in birds.photos("wren")]
    ['p4', 'p5', 'p6']
    """

    id: str
    label: str
    added: str
    sha256: str
    score: float | None = None
    taken_for: str | None = None
    thumbnail: bool = False
    kept: bool = False
    name: str | None = None


def shown_photo(id: str, name: str | None) -> str:
    """Return the id of a photo with the name of its file, if that is known.

    >>> shown_photo("p17", "owl.jpg"), shown_photo("p17", None)
    ('p17 (owl.jpg)', 'p17')
    """
    return id if name is None else f"{id} ({name})"


@dataclass(frozen=True)
class PhotoChange:
    """A change of photos.

    Attributes
    ----------
    action : {"remove", "move", "correct", "none", "review", "keep", "dismiss"}
        What was done; "none": photos were learned as none of the classes.
    ids : tuple of str
        The photos; for "dismiss" the sightings.
    counts : mapping of str to int
        Number of photos of the changed classes now; 0 for a class that was deleted with its last photo.
        Photos of none of the classes are counted as ``none of these``.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     birds.move(["p2", "p3"], to="barn owl")
    PhotoChange(action='move', ids=('p2', 'p3'), counts={'owl': 3, 'barn owl': 2})
    """

    action: str
    ids: tuple[str, ...]
    counts: Mapping[str, int] = field(hash=False)


@dataclass(frozen=True)
class BadImage:
    """An image that cannot be used, and why.

    Parameters
    ----------
    name : str
        The image.
    reason : str
        Why it cannot be used.
    code : str
        The same in one word, for programs.

    Examples
    --------
    >>> BadImage("cat/1.jpg", "the file is empty").reason
    'the file is empty'
    """

    name: str
    reason: str
    code: str = field(default="bad_image", compare=False, repr=False)
