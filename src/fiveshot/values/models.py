"""The contents of a model, its rejection, and its history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True)
class ClassInfo:
    """A class, and the stored data of its photos.

    Attributes
    ----------
    name : str
        Name of the class.
    photos : int
        Photos it was learned from.
    base : bool
        Whether it is a base class.
    features, thumbnails, kept_photos : int
        Photos whose features, small copies, or files are stored. Photos of base classes are not stored.
    created : str or None
        When it was learned, in UTC; None for a base class.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     (owl,) = birds.show().classes
    >>> owl.name, owl.photos, owl.base, owl.features, owl.thumbnails, owl.kept_photos
    ('owl', 5, False, 5, 0, 0)
    """

    name: str
    photos: int
    base: bool
    features: int = 0
    thumbnails: int = 0
    kept_photos: int = 0
    created: str | None = None


@dataclass(frozen=True)
class ModelInfo:
    """A model at a glance.

    Attributes
    ----------
    path : str
        The directory.
    state : int
        Number of the state, one more with every change.
    classes : tuple of ClassInfo
        The classes, sorted by name.
    backbone, head : str
        Their names.
    adapter : bool
        Whether the backbone is adapted.
    negatives : int
        Photos that show none of the classes.
    width : int
        Length of a feature vector.
    views : int
        How many views of a photo are averaged.
    keep_photos, thumbnails, names, false_rejection
        What was chosen when the model was made: see :meth:`Recognizer.create`.
    wrong_answers : float
        Share of the answers that may be wrong: see :meth:`Recognizer.set`.
    rejection : str
        What the thresholds of rejection are based on, or why there are none.
    bytes_on_disk : int
        Size of the directory.
    bytes_per_class : int
        Average size of the statistics and features of a class learned after the base.
    made_with : str
        The release that made the model.
    settings : mapping
        What the head chose on the base session.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot import Recognizer
    >>> with Recognizer.create(tempfile.mkdtemp(), false_rejection=0.1) as birds:
    ...     info = birds.show()
    >>> info.backbone, info.false_rejection, info.new_classes
    ('tiny_vit_5m_224.dist_in22k', 0.1, 0)
    """

    DERIVED: ClassVar = ("base_classes", "new_classes")

    path: str
    state: int
    classes: tuple[ClassInfo, ...]
    backbone: str
    adapter: bool
    negatives: int
    width: int
    views: int
    head: str
    keep_photos: bool
    thumbnails: bool
    names: bool
    false_rejection: float
    wrong_answers: float
    rejection: str
    bytes_on_disk: int
    bytes_per_class: int
    made_with: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def base_classes(self) -> int:
        """Number of base classes."""
        return sum(one.base for one in self.classes)

    @property
    def new_classes(self) -> int:
        """Number of classes learned after the base."""
        return len(self.classes) - self.base_classes


@dataclass(frozen=True)
class RejectedAt:
    """How many photos a rate of false rejections would call unknown, each of them left out of the model.

    Attributes
    ----------
    rate : float
        The rate.
    photos, rejected : int
        Learned photos that were left out in turn, and how many of them would be called unknown.
    negatives, negatives_rejected : int
        Photos of none of the classes, and how many of them would be called unknown.
    note : str
        What the thresholds are based on, or why there are none.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> rng = np.random.default_rng(0)
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     for name in ("owl", "wren", "kite", "rook"):
    ...         _ = birds.learn_features(name, rng.normal(size=320) + rng.normal(size=(5, 320)))
    ...     [birds.snapshot.rejected_at(rate).rejected for rate in (0.05, 0.2, 0.5)]
    [0, 3, 9]
    """

    rate: float
    photos: int
    rejected: int
    negatives: int
    negatives_rejected: int
    note: str


@dataclass(frozen=True)
class HistoryEntry:
    """A change of the model.

    Attributes
    ----------
    seq : int
        Its number.
    at : str
        When it was made, in UTC.
    action : str
        create, import, learn, add, forget, remove, move, correct, none, review, keep, rename, set, merge,
        retune or undo.
    classes : tuple of str
        Names of the changed classes.
    photos : int
        Number of photos that were added, moved or removed.
    undoable : bool
        Whether it can be undone.
    undone_by : int or None
        Number of the change that undid it.
    detail : mapping
        More about it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     entry = birds.history(1)[0]
    >>> entry.action, entry.classes, entry.photos, entry.undoable
    ('learn', ('owl',), 5, True)
    """

    seq: int
    at: str
    action: str
    classes: tuple[str, ...]
    photos: int
    undoable: bool
    undone_by: int | None
    detail: Mapping[str, Any] = field(default_factory=dict, hash=False)
