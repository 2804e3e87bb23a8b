"""One state of a model, ready to recognize: never changed, so readers keep theirs while a writer commits."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fiveshot.core import NO_CLASSES, class_statistics
from fiveshot.core.labels import python_labels
from fiveshot.core.memory import Memory
from fiveshot.errors import InputError, StorageError, is_number
from fiveshot.heads import FewShotHead, make_head
from fiveshot.heads.files import plain_parameters
from fiveshot.recognizer.recognition.rejection import Rejection, rejection_from_shots
from fiveshot.recognizer.store.contents import Contents
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest
from fiveshot.threads import one_thread

# Many small matrices, so one thread: several wait for each other, on a busy machine a hundred times longer than
# they work.
MOST_BEHIND = 32  # states after which a head is derived from the beginning, so that not too much is made up for
FEW = 64  # rows up to which this goes for scores, too


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


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The classes of one state with the head derived from them, which happens when it is first needed.

    The head of the snapshot before is where deriving starts, so a new class costs what it adds.

    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 384))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     before = birds.snapshot
    ...     _ = birds.learn_features("owl", owls)
    ...     before.classes, birds.snapshot.classes
    ((), ('owl',))
    """

    contents: Contents
    _derived: dict[str, Any] = field(repr=False)  # "start", the head of an earlier state, until there is "head"
    _behind: int = 0
    _lock: Any = field(default_factory=threading.RLock, repr=False)

    @classmethod
    def of(cls, contents: Contents, start: FewShotHead, *, behind: int = 0) -> Snapshot:
        """Return the snapshot of a state; ``start`` is a head fitted on one so many before, or unfitted."""
        if contents.manifest.head.settings and not hasattr(start, "memory_"):
            check_width(start, contents.manifest)
        return cls(contents, {"start": start}, behind)

    @property
    def state(self) -> int:
        """Number of the state, one more with every change."""
        return self.contents.state

    @property
    def manifest(self) -> Manifest:
        """What the model is made of."""
        return self.contents.manifest

    @property
    def memory(self) -> Memory:
        """Raw statistics of all classes."""
        return self.contents.memory

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of all classes, sorted."""
        return tuple(str(name) for name in python_labels(self.memory.labels))

    @property
    def is_derived(self) -> bool:
        """Whether the head is ready."""
        return "head" in self._derived

    @property
    def head(self) -> FewShotHead:
        """The head fitted on these classes."""
        with self._lock:
            if "head" not in self._derived:
                with one_thread():
                    self._derived["head"] = self._adopted(self._derived["start"])
                del self._derived["start"]
            head: FewShotHead = self._derived["head"]
            return head

    @property
    def rejection(self) -> Rejection:
        """The thresholds of rejection: the base's, or without one those that the learned photos give."""
        with self._lock:
            if "rejection" not in self._derived:
                with one_thread():
                    self._derived["rejection"] = self._thresholds()
            rejection: Rejection = self._derived["rejection"]
            return rejection

    @property
    def nearby_head(self) -> FewShotHead:
        """A head of this state or of one shortly before: what can be had without deriving one."""
        with self._lock:
            start: FewShotHead = self._derived.get("start", self)
            if self.is_derived or not hasattr(start, "memory_") or self._behind > MOST_BEHIND:
                return self.head
            return start

    def embed(self, X: Tensor) -> Tensor:
        """Return what the head makes of features before it keeps statistics of them."""
        embedded: Tensor = self.nearby_head.embed(X)
        return embedded

    def next(self, contents: Contents) -> Snapshot:
        """Return the snapshot of a later state; it starts from what is derived here."""
        if contents.manifest.head != self.manifest.head:
            return Snapshot.of(contents, restored_head(contents.manifest.head))
        with self._lock:
            start: FewShotHead = self._derived["head" if self.is_derived else "start"]
        return Snapshot.of(contents, start, behind=1 if self.is_derived else self._behind + 1)

    def predict_features(
        self, X: NDArray[Any] | Tensor, top: int = 5, *, photos: Sequence[str] | None = None
    ) -> list[Prediction]:
        """Return what each row of features shows; ``photos`` are the names to report them by."""
        check_top(top)
        if not len(self.memory.labels):
            raise InputError(
                "the model knows no class yet",
                hint="teach it one: fiveshot learn MODEL NAME PHOTOS",
                code="no_classes",
            )
        head, labels = self.head, self.classes
        with one_thread() if len(X) <= FEW else nullcontext():
            probabilities = head.predict_proba(X)  # (n, n_classes)
            familiarity = head.familiarity(X)  # (n,)
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
        counts = self.memory.statistics.counts.numpy()[order[:, 0]]
        thresholds = self.rejection.thresholds_of(counts)
        names = [f"photo {number}" for number in range(1, len(order) + 1)] if photos is None else photos
        return [
            _prediction(name, [(labels[i], float(row[i])) for i in best], float(like), float(limit))
            for name, row, best, like, limit in zip(
                names, probabilities, order, familiarity, thresholds, strict=True
            )
        ]

    def _adopted(self, start: FewShotHead) -> FewShotHead:
        if not len(self.memory.labels):
            return copy(start)
        settings = dict(self.manifest.head.settings) or None
        # What a head has learned is immutable and replaced, so the head of the state before keeps its own.
        return copy(start).adopt(self.memory, settings)

    def _thresholds(self) -> Rejection:
        if self.manifest.rejection:
            of_base = Rejection.from_dict(self.manifest.rejection)
            if of_base.counts:
                return of_base
        rate = self.manifest.options.false_rejection
        if not len(self.memory.labels):
            return Rejection(rate, note="nothing is rejected yet: no class is known")
        return rejection_from_shots(self.head, self.memory, self.contents.photos, false_rejection=rate)


def check_top(top: int) -> None:
    """Refuse a number of candidates that makes no sense, before a backbone runs for nothing."""
    if not is_number(top, whole=True) or top < 1:
        raise InputError(f"top={top!r} is not a whole number from 1 on", hint="give one such as 5")


def require_statistics_head(name: str) -> None:
    """Refuse a head that needs samples: a model keeps statistics, and derives its head from them alone."""
    head = make_head(name)
    two = class_statistics(head.embed(torch.eye(4)), ["a", "a", "b", "b"])
    head.adopt(Memory(NO_CLASSES, two))


def restored_head(record: HeadRecord) -> FewShotHead:
    """Return the head that a manifest describes, unfitted, with its very parameters and settings."""
    head = make_head(record.name)
    own = plain_parameters(head)
    changed = {key: value for key, value in record.parameters.items() if own.get(key, head) != value}
    if any(isinstance(value, list | dict) or key not in own for key, value in changed.items()):
        raise StorageError(
            f"the model was made with another {record.name!r} head ({', '.join(sorted(changed))} differ)",
            hint="use the release that made it, or make a new model",
        )
    head = make_head(record.name, **changed)
    if record.settings:
        try:
            head.apply_settings(record.settings)  # so that it embeds as it did, also before it knows a class
        except (LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise _wrong_settings(record.name, error) from error
    return head


def check_width(head: FewShotHead, manifest: Manifest) -> None:
    """Refuse a head whose settings are of other features than the backbone's, before the first photo comes."""
    try:
        head.embed(torch.zeros(1, manifest.backbone.width))
    except (TypeError, ValueError, RuntimeError) as error:
        raise _wrong_settings(manifest.head.name, error) from error


def _wrong_settings(name: str, error: Exception) -> StorageError:
    return StorageError(
        f"the settings of the {name!r} head are damaged or were changed by hand ({error})",
        hint="restore the model from a copy",
    )


def head_record(name: str) -> HeadRecord:
    """Return the record of a head by name."""
    head = make_head(name)
    parameters = {key: value for key, value in plain_parameters(head).items() if key != "device"}
    return HeadRecord(name, parameters)


def _prediction(
    photo: str, candidates: list[tuple[str, float]], familiarity: float, threshold: float
) -> Prediction:
    label, probability = candidates[0]
    rejects = threshold != -np.inf
    unknown = rejects and familiarity < threshold
    return Prediction(
        photo,
        None if unknown else label,
        probability,
        tuple(candidates),
        familiarity,
        threshold if rejects else None,
    )
