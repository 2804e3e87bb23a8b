"""One state of a model, ready to recognize: never changed, so readers keep theirs while a writer commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from fiveshot.core import NO_CLASSES, Memory, class_statistics
from fiveshot.core.arrays import unit_rows
from fiveshot.core.labels import python_labels
from fiveshot.core.scorers import Answer, Scorer, make_scorer, own_parameters, plain_parameters
from fiveshot.errors import InputError, StorageError, is_number
from fiveshot.recognizer.recognition.background import general_background
from fiveshot.recognizer.recognition.levels import Groups, check_sure, surest
from fiveshot.recognizer.recognition.rejection import (
    NO_CLASS,
    LeftOut,
    Rejection,
    Strangers,
    base_thresholds,
    beside_background,
    leave_out,
    rejection_at,
    some_strangers,
    sure_of_base,
)
from fiveshot.recognizer.recognition.sureness import chains_of, sure_threshold, threshold_in
from fiveshot.recognizer.store.contents import Contents
from fiveshot.recognizer.store.manifest import HeadRecord, Manifest, check_rate
from fiveshot.recognizer.store.rows import Floats, PhotoRecord, photo_features, photo_id
from fiveshot.values import Candidate, Neighbor, Prediction, RejectedAt
from fiveshot.work import one_thread

T = TypeVar("T")
MOST_BEHIND = 32  # states after which a head is derived from scratch, not from an earlier head
FEW = 64  # rows up to which scores are computed on one thread; on a busy machine several take far longer


class Snapshot:
    """One state of a model: its classes, and the head derived from them when it is first needed.

    It never changes. What is derived from it, such as the head, is computed once, starting from the head of an
    earlier snapshot. So learning a class costs only what the class adds.

    Parameters
    ----------
    contents : Contents
        Everything that the model holds in this state.
    earlier : Scorer, optional
        A head of an earlier state, to start from.
    behind : int
        How many states ago that was.
    derived : mapping, optional
        Values that the snapshot before has derived and that are the same in this state.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     before = birds.snapshot
    ...     _ = birds.learn_features("owl", owls)
    ...     before.classes, birds.snapshot.classes
    ((), ('owl',))
    """

    def __init__(
        self,
        contents: Contents,
        *,
        earlier: Scorer | None = None,
        behind: int = 0,
        derived: Mapping[str, Any] | None = None,
    ) -> None:
        self.contents = contents
        self._earlier, self._behind = earlier, behind
        self._derived: dict[str, Any] = dict(derived or {})
        self._lock = threading.RLock()

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
    def head(self) -> Scorer:
        """The head fitted on these classes."""
        return self._once("head", self._fitted)

    def _once(self, key: str, make: Callable[[], T]) -> T:
        """Return what is derived from this state; it is computed at the first call, on one thread."""
        with self._lock:
            if key not in self._derived:
                with one_thread():
                    self._derived[key] = make()
            derived: T = self._derived[key]
            return derived

    @property
    def rejection(self) -> Rejection:
        """The thresholds of rejection: those of the base, or without a base those from the learned photos."""
        return self._once("rejection", self._thresholds)

    @property
    def left_out(self) -> LeftOut:
        """The familiarity of learned photos that are left out, and of photos of none of the classes."""
        return self._once(
            "left_out", lambda: leave_out(self.head, self.memory, self.contents.photos, self._negatives)
        )

    @property
    def _negatives(self) -> Floats:
        row = self.contents.negatives
        return np.zeros((0, self.contents.width), np.float32) if row is None else row.features

    def rejected_at(self, rate: float) -> RejectedAt:
        """Return how many of the learned photos a rate would reject, each left out of the model."""
        if not len(self.memory.labels):
            return RejectedAt(float(check_rate(rate)), 0, 0, 0, 0, NO_CLASS)
        rejection = self._rejection_at(check_rate(rate))
        if rejection.background is not None:
            return self._rejected_beside_background(rejection, rejection.background)
        rejected, strange = self.left_out.rejected(rejection)
        photos = len(self.left_out.familiar), len(self.left_out.strange)
        return RejectedAt(float(rate), photos[0], rejected, photos[1], strange, rejection.note)

    def _rejection_at(self, rate: float) -> Rejection:
        return beside_background(rejection_at(self.left_out, rate, base_thresholds(self.manifest)), self.contents)

    def _rejected_beside_background(self, rejection: Rejection, least: float) -> RejectedAt:
        left = general_background().left_out([one.features for one in self.contents.classes.values()])
        like = self._like_classes(self._negatives)
        rejected, strange = (int((each < least).sum()) for each in (left, like))
        return RejectedAt(rejection.false_rejection, len(left), rejected, len(like), strange, rejection.note)

    def _like_classes(self, X: Floats) -> Floats:
        """Return how much photos are like a class, compared with general photographs."""
        background = general_background()
        features = [one.features for one in self.contents.classes.values()]
        return background.likeness(X, self._once("background", lambda: background.means(features)))

    @property
    def nearby_head(self) -> Scorer:
        """The head of this state, or one of a recent state if that is derived already."""
        with self._lock:
            return self.head if self._earlier is None or self._behind > MOST_BEHIND else self._earlier

    def embed(self, X: Floats) -> Floats:
        """Return features in the form that the head keeps statistics of."""
        embedded: Floats = self.nearby_head.embed(X)
        return embedded

    def next(self, contents: Contents) -> Snapshot:
        """Return the snapshot of a later state; it starts from what is derived here."""
        if contents.manifest.head != self.manifest.head:
            return Snapshot(contents)
        with self._lock:
            derived = self._derived.get("head")
            start = self._earlier if derived is None else derived
        if start is None or not start.learned:
            return Snapshot(contents)
        if derived is not None and contents.same_photos(self.contents):  # only a setting has changed
            kept = {key: value for key, value in self._derived.items() if key in ("head", "left_out", "strangers")}
            return Snapshot(contents, derived=kept)
        return Snapshot(contents, earlier=start, behind=1 if derived is not None else self._behind + 1)

    def require_classes(self) -> None:
        """Raise an error if no class is known."""
        if not len(self.memory.labels):
            raise InputError(
                "the model knows no class yet",
                hint="teach it one: fiveshot learn MODEL NAME PHOTOS",
                code="no_classes",
            )

    def predict_photos(
        self, seen: Sequence[PhotoRecord], top: int = 5, *, sure: float | None = None, why: int = 0
    ) -> list[Prediction]:
        """Return what photos show, whose features are computed."""
        names = [photo.name for photo in seen]
        found = self.predict_features(photo_features(seen), top, sure=sure, why=why, photos=names)
        boxes = [None if photo.box is None else photo.box.values for photo in seen]
        return [replace(one, box=box) if box else one for one, box in zip(found, boxes, strict=True)]

    def predict_features(
        self,
        X: Floats,
        top: int = 5,
        *,
        sure: float | None = None,
        why: int = 0,
        photos: Sequence[str] | None = None,
    ) -> list[Prediction]:
        """Return what each row of features shows; ``photos`` are the names to report them by."""
        check_asked(top, sure, why)
        self.require_classes()
        found = self.predictions(self.answer(X), top, sure=sure, photos=photos)
        if not why:
            return found
        return [replace(one, why=near) for one, near in zip(found, self.neighbors(X, why), strict=True)]

    def neighbors(self, X: Floats, most: int) -> list[tuple[Neighbor, ...]]:
        """Return for each row of features the most similar learned photos."""
        known, learned = self._once("learned", self._learned)
        if not known:
            return [()] * len(X)
        likeness = np.clip(unit_rows(X) @ learned.T, -1, 1)
        order = np.argsort(-likeness, axis=1, kind="stable")[:, :most]
        return [
            tuple(
                Neighbor(photo_id(number), label, float(row[place]), name)
                for place in best
                for number, label, name in [known[place]]
            )
            for row, best in zip(likeness, order, strict=True)
        ]

    def _learned(self) -> tuple[list[tuple[int, str, str | None]], Floats]:
        """Return number, class and file name of every learned photo, and their features scaled to length one."""
        classes = self.contents.classes.values()
        known = [
            (number, one.name, name)
            for one in classes
            for number, name in zip(one.photos.ids, one.photos.names, strict=True)
        ]
        features = [unit_rows(one.features) for one in classes]
        return known, np.concatenate(features) if features else np.zeros((0, 0), np.float32)

    def answer(self, X: Floats) -> Answer:
        """Return scores, probabilities and familiarity of features, from one pass."""
        with one_thread() if len(X) <= FEW else nullcontext():
            answer = self.head.answer(X)
            if self.rejection.background is not None:
                return replace(answer, familiarity=self._like_classes(X))
            return answer if self.strangers is None else self.strangers.judged(X, answer)

    @property
    def strangers(self) -> Strangers | None:
        """The photos of none of the classes, if they decide what is unknown; otherwise None."""
        if self.rejection.standing is None:
            return None
        return self._once("strangers", lambda: Strangers(self.head, some_strangers(self._negatives)))

    @property
    def sure(self) -> float:
        """The probability from which an answer is sure, so that few answers are wrong."""
        return self._once("sure", self._sure_threshold)

    @property
    def groups(self) -> Groups:
        """The groups of the classes, by their names."""
        return self._once("groups", lambda: Groups.of(self.classes))

    def predictions(
        self, answer: Answer, top: int, *, sure: float | None = None, photos: Sequence[str] | None = None
    ) -> list[Prediction]:
        """Return the predictions of an answer: names of classes and groups, or unknown."""
        labels = self.classes
        single = len(labels) == 1
        least = 0.0 if single else self.sure if sure is None else sure
        order = np.argsort(-answer.probabilities, axis=1, kind="stable")[:, : max(top, 2)]
        thresholds = self.rejection.thresholds_in(self.memory, order[:, 0])
        if self.rejection.background is not None:
            thresholds = np.full(len(order), self.rejection.background)
        names = [f"photo {number}" for number in range(1, len(order) + 1)] if photos is None else photos
        return [
            _prediction(
                name,
                [Candidate(labels[i], None if single else float(row[i])) for i in best],
                float(like),
                float(limit),
                levels,
                least,
                tuple(labels[i] for i in two),
            )
            for name, row, best, two, like, limit, levels in zip(
                names,
                answer.probabilities,
                order[:, :top],
                order[:, :2],
                answer.familiarity,
                thresholds,
                self.groups.chains(answer.probabilities),
                strict=True,
            )
        ]

    def _fitted(self) -> Scorer:
        settings = dict(self.manifest.head.settings) or None
        start = self._earlier
        if start is None:
            start = restored_head(self.manifest.head)
            if settings:
                check_width(start, self.manifest)
        head = start.adopt(self.memory, settings) if len(self.memory.labels) else start
        self._earlier = None
        return head

    def _thresholds(self) -> Rejection:
        if not len(self.memory.labels):
            return Rejection(self.manifest.options.false_rejection, note=NO_CLASS)
        of_base = base_thresholds(self.manifest)
        if of_base is not None and self.contents.negatives is None:
            return of_base
        return self._rejection_at(self.manifest.options.false_rejection)

    def _sure_threshold(self) -> float:
        rate, of_base = self.manifest.options.wrong_answers, sure_of_base(self.manifest)
        if of_base and len(self.memory.base) >= len(self.memory.new):
            return threshold_in(of_base, rate)
        left = self.left_out
        return sure_threshold(chains_of(self.classes, left.chances), left.truth, rate)


def check_asked(top: int, sure: float | None, why: int) -> None:
    """Check the arguments of a prediction before the backbone runs."""
    check_top(top)
    check_sure(sure)
    if not is_number(why, whole=True) or why < 0:
        raise InputError(f"why={why!r} is not a whole number of at least 0", hint="give one such as 3")


def check_top(top: int) -> None:
    """Raise an error for an impossible number of candidates."""
    if not is_number(top, whole=True) or top < 1:
        raise InputError(f"top={top!r} is not a whole number from 1 on", hint="give one such as 5")


def _prediction(
    photo: str,
    candidates: list[Candidate],
    familiarity: float,
    threshold: float,
    levels: tuple[Candidate, ...],
    sure: float,
    two: tuple[str, ...],
) -> Prediction:
    rejects = threshold != -np.inf
    unknown = rejects and familiarity < threshold
    answer = None if unknown else surest(levels or candidates[:1], sure)
    unsure = answer is None and not unknown
    return Prediction(
        photo,
        None if answer is None else answer.label,
        (answer or candidates[0]).probability,
        tuple(candidates),
        familiarity if np.isfinite(familiarity) else None,
        threshold if rejects else None,
        levels,
        unsure=unsure,
        between=two if unsure else (),
    )


def head_record(name: str) -> HeadRecord:
    """Return the record of a head by name."""
    parameters = {
        key: value for key, value in plain_parameters(own_parameters(make_scorer(name))).items() if key != "device"
    }
    return HeadRecord(name, parameters)


def require_statistics_head(name: str) -> None:
    """Refuse a head that needs samples: a model derives its head from statistics alone."""
    head = make_scorer(name)
    two = class_statistics(head.embed(np.eye(4, dtype=np.float32)), ["a", "a", "b", "b"])
    head.adopt(Memory(NO_CLASSES, two))


def restored_head(record: HeadRecord) -> Scorer:
    """Return the head that a manifest describes, unfitted, with the same parameters and settings."""
    head = make_scorer(record.name)
    own = plain_parameters(own_parameters(head))
    changed = {key: value for key, value in record.parameters.items() if own.get(key, head) != value}
    if any(isinstance(value, list | dict) or key not in own for key, value in changed.items()):
        raise StorageError(
            f"the model was made with another {record.name!r} head ({', '.join(sorted(changed))} differ)",
            hint="use the release that made it, or make a new model",
        )
    head = make_scorer(record.name, **changed)
    if record.settings:
        try:
            return head.with_settings(record.settings)  # then it embeds as before, even without a class
        except (LookupError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise _wrong_settings(record.name, error) from error
    return head


def check_width(head: Scorer, manifest: Manifest) -> None:
    """Raise an error if the settings of a head do not fit the width of the features."""
    try:
        head.embed(np.zeros((1, manifest.backbone.width), np.float32))
    except (TypeError, ValueError, RuntimeError) as error:
        raise _wrong_settings(manifest.head.name, error) from error


def _wrong_settings(name: str, error: Exception) -> StorageError:
    return StorageError(
        f"the settings of the {name!r} head are damaged or were changed by hand ({error})",
        hint="restore the model from a copy",
    )
