"""How well a model recognizes labeled photos: right and wrong, known and unknown, sure and unsure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import Embedder
from fiveshot.data import BadImage, Photo
from fiveshot.errors import command
from fiveshot.metrics import expected_calibration_error
from fiveshot.recognizer.names import ALIKE
from fiveshot.recognizer.photos.embedding import OnBad, photo_records, records_or_bad, refusal
from fiveshot.recognizer.photos.inputs import ClassInputs, gather_classes
from fiveshot.recognizer.recognition.levels import full_names, is_within
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.store.rows import PhotoRecord, photo_features
from fiveshot.values import Neighbor, Prediction
from fiveshot.work import Progress

if TYPE_CHECKING:
    from fiveshot.recognizer._recognizer import Recognizer

COMPARED = 100_000  # pairs of a folder and a class, about a second: of more, only other capitals are found out


@dataclass(frozen=True)
class ClassResult:
    """The photos of one class: how many, how many recognized, how many called unknown.

    >>> ClassResult("owl", photos=8, right=6, rejected=1).accuracy
    0.75
    """

    DERIVED: ClassVar = ("accuracy",)

    name: str
    photos: int
    right: int
    rejected: int

    @property
    def accuracy(self) -> float:
        """Share of the photos whose best candidate is the class."""
        return self.right / self.photos


@dataclass(frozen=True)
class Confusion:
    """``count`` photos of one class whose best candidate was another."""

    name: str
    taken_for: str
    count: int


@dataclass(frozen=True)
class WrongPhoto:
    """A photo without the right answer: ``shown_as`` another class, unsure ``between`` two, or called unknown.

    ``name`` is its class; a photo of a class that the model does not know should have been called unknown.
    A group is a right answer for all its classes. ``shown_as`` is None, and ``between`` empty, where they do not
    apply. ``most_like`` is the best candidate in any case, and ``why`` the learned photo that it is most like.

    >>> WrongPhoto("1.jpg", "owl", None, "wren", between=("wren", "owl")).answer
    'unsure: wren or owl'
    """

    photo: str
    name: str
    shown_as: str | None
    most_like: str
    why: tuple[Neighbor, ...] = ()
    between: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The answer in words."""
        if self.shown_as is not None:
            return f"shown as {self.shown_as}"
        return f"unsure: {' or '.join(self.between)}" if self.between else "called unknown"


@dataclass(frozen=True)
class OtherFolder:
    """Photos under a name that is not a class of the model; ``like`` is a class that may have been meant.

    >>> str(OtherFolder("FISH", photos=3, like="fish")), str(OtherFolder("moss", photos=3))
    ("FISH (like 'fish'?)", 'moss')
    """

    name: str
    photos: int
    like: str | None = None

    def __str__(self) -> str:
        return self.name if self.like is None else f"{self.name} (like {self.like!r}?)"


@dataclass(frozen=True)
class Answers:
    """Answers of one kind: the share of all known photos that they are, and the share of them that is right."""

    share: float
    right: float | None


@dataclass(frozen=True)
class LevelResults:
    """How a model with groups does at both levels, on photos of known classes.

    ``group_accuracy`` is the share whose most probable group, or class without one, is theirs.
    """

    group_accuracy: float
    by_class: Answers
    by_group: Answers


@dataclass(frozen=True)
class Evaluation:
    """Figures on photos of known classes, and on those of classes the model does not know.

    A figure is None if there is nothing to measure it on.

    Attributes
    ----------
    photos, unknown_photos : int
        Photos of known classes, and of others.
    accuracy : float or None
        Share of the known photos whose best candidate is their class.
    accepted_accuracy : float or None
        The same among those that were not called unknown.
    false_rejection, unknown_rejection : float or None
        Shares of the known and of the other photos that were called unknown.
    unsure : float or None
        Share of the known photos that were unsure between two classes.
    named : Answers or None
        Answers with a name, of a class or a group: at most the model's share of wrong answers should be wrong.
    unknown_auroc : float or None
        How well familiarity alone separates known from unknown photos.
    calibration_error : float or None
        Expected calibration error of the probabilities.
    classes : tuple of ClassResult
        The known classes.
    confusions : tuple of Confusion
        Classes taken for others, the most frequent first.
    wrong : tuple of WrongPhoto
        Photos with a wrong name first, then those called unknown, then unsure ones.
    other_folders : tuple of OtherFolder
        Folders that are not classes of the model: they test the rejection.
    learned_photos : int
        Photos that the model has learned, by their SHA-256: results on them mean nothing.
    levels : LevelResults or None
        Answers by class and by group; None for a model without groups.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 320))
    >>> from fiveshot.recognizer.advice.evaluation import evaluate_features
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls), birds.learn_features("wren", -owls)
    ...     measured = evaluate_features(birds.snapshot, owls[:4], ["owl", "owl", "wren", "stork"])
    >>> measured.photos, measured.unknown_photos, round(measured.accuracy, 2), measured.confusions
    (3, 1, 0.67, (Confusion(name='wren', taken_for='owl', count=1),))
    """

    photos: int
    unknown_photos: int
    accuracy: float | None
    accepted_accuracy: float | None
    false_rejection: float | None
    unknown_rejection: float | None
    unknown_auroc: float | None
    calibration_error: float | None
    classes: tuple[ClassResult, ...]
    confusions: tuple[Confusion, ...]
    wrong: tuple[WrongPhoto, ...] = ()
    other_folders: tuple[OtherFolder, ...] = ()
    learned_photos: int = 0
    levels: LevelResults | None = None
    unsure: float | None = None
    named: Answers | None = None


def evaluate(
    model: Recognizer,
    classes: ClassInputs,
    *,
    nested: bool = False,
    progress: Progress | None = None,
    on_bad: OnBad | None = None,
) -> Evaluation:
    """Measure the model on labeled photos; classes it does not know test the rejection.

    Parameters
    ----------
    model : Recognizer
        The model.
    classes : mapping, str or path
        Photos by the name of their class, or a folder (or an archive) of class folders. A name may be given
        without its groups if only one class has this name.
    nested : bool
        As in ``learn_many``.
    progress : callable, optional
        Called with the number of photos done and the number of all photos.
    on_bad : callable, optional
        Called with the photos that cannot be used, as ``BadImage``. The others are measured. Without ``on_bad``,
        such a photo is an error.

    Returns
    -------
    Evaluation
        The figures, the folders that are not classes of the model, and the number of learned photos.

    Raises
    ------
    InputError
        If a photo cannot be used, or the model knows no class yet.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from fiveshot import Recognizer
    >>> from fiveshot.recognizer import evaluate
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("red", "blue"):
    ...     (folder / name).mkdir()
    ...     Image.new("RGB", (64, 64), name).save(folder / name / "1.png")
    >>> with Recognizer.create(tempfile.mkdtemp()) as colors:
    ...     _ = colors.learn("red", folder / "red")
    ...     measured = evaluate(colors, folder)
    >>> measured.photos, measured.accuracy, measured.unknown_photos
    (1, 1.0, 1)
    """
    advice = "" if isinstance(classes, Mapping) else without_labels(model.path, classes)
    gathered, snapshot = gather_classes(classes, nested=nested, without_labels=advice), model.refresh()
    snapshot.require_classes()
    embedder = model.embedder_of(snapshot)
    return evaluate_photos(snapshot, embedder, gathered, progress=progress, on_bad=on_bad)


def without_labels(model: Path, folder: object) -> str:
    """Return the hint for a folder of photos without class folders."""
    asked = command("predict", model, folder)
    return f"to measure, put each photo into the folder of its class; to see what they show: {asked}"


def evaluate_photos(
    snapshot: Snapshot,
    embedder: Embedder,
    classes: Mapping[str, Sequence[Photo]],
    *,
    progress: Progress | None,
    on_bad: OnBad | None = None,
) -> Evaluation:
    """Measure a model on photos by the names of their classes; with ``on_bad``, on those that can be read."""
    everything = [photo for photos in classes.values() for photo in photos]
    names = [name for name, photos in classes.items() for _ in photos]
    if on_bad is None:
        photos = photo_records(embedder, everything, progress=progress)
    else:
        found = records_or_bad(embedder, everything, progress=progress)
        names = [name for name, one in zip(names, found, strict=True) if isinstance(one, PhotoRecord)]
        photos = [one for one in found if isinstance(one, PhotoRecord)]
        bad = [one for one in found if isinstance(one, BadImage)]
        if not photos:
            raise refusal(bad, len(everything))
        if bad:
            on_bad(bad)
    return evaluate_features(
        snapshot,
        photo_features(photos),
        names,
        photos=[photo.name for photo in photos],
        sha256s=[photo.sha256 for photo in photos],
    )


def evaluate_features(
    snapshot: Snapshot,
    X: NDArray[np.float32],
    names: Sequence[str],
    *,
    photos: Sequence[str] | None = None,
    sha256s: Sequence[str] = (),
) -> Evaluation:
    """Measure a model on features and the names of their classes.

    ``photos`` are names for the report; ``sha256s`` show which photos the model has learned. Photos of base
    classes are not stored, so they are not recognized.
    """
    snapshot.require_classes()
    names = full_names(names, snapshot.classes)
    answer = snapshot.answer(X)
    predictions = snapshot.predictions(answer, 1, photos=photos)
    best = np.array([one.candidates[0].label for one in predictions])
    rejected = np.array([one.unknown for one in predictions])
    familiarity = np.array([-np.inf if one.familiarity is None else one.familiarity for one in predictions])
    true = np.array(names)
    known = np.isin(true, snapshot.classes)
    right = best == true
    accepted = known & ~rejected
    both = known.any() and not known.all()
    codes = np.searchsorted(snapshot.memory.labels, true[known])
    learned = {sha256 for one in snapshot.contents.classes.values() for sha256 in one.sha256s}
    return Evaluation(
        photos=int(known.sum()),
        unknown_photos=int((~known).sum()),
        accuracy=_share(right, known),
        accepted_accuracy=_share(right, accepted),
        false_rejection=_share(rejected, known),
        unknown_rejection=_share(rejected, ~known),
        unknown_auroc=_auroc(familiarity, known) if both else None,
        calibration_error=expected_calibration_error(answer.probabilities[known], codes) if len(codes) else None,
        classes=tuple(_class_results(true[known], right[known], rejected[known])),
        confusions=tuple(_confusions(true[known & ~right], best[known & ~right])),
        wrong=tuple(_wrong(snapshot, X, predictions, names, known)),
        other_folders=tuple(other_folders(names, snapshot.classes)),
        learned_photos=sum(sha256 in learned for sha256 in sha256s),
        levels=_levels(predictions, names, known) if snapshot.groups.members and known.any() else None,
        unsure=_share(np.array([one.unsure for one in predictions]), known),
        named=_answers(predictions, names, known, ("class", "group")) if known.any() else None,
    )


def _levels(predictions: Sequence[Prediction], names: Sequence[str], known: NDArray[np.bool_]) -> LevelResults:
    widest = np.array([is_within(name, one.levels[0].label) for one, name in zip(predictions, names, strict=True)])
    by_class, by_group = (_answers(predictions, names, known, (kind,)) for kind in ("class", "group"))
    return LevelResults(float(widest[known].mean()), by_class, by_group)


def _answers(
    predictions: Sequence[Prediction], names: Sequence[str], known: NDArray[np.bool_], kinds: Sequence[str]
) -> Answers:
    given = np.array([one.answer in kinds for one in predictions])
    right = np.array([_is_right(one, name) for one, name in zip(predictions, names, strict=True)])
    return Answers(float(given[known].mean()), _share(right, known & given))


def _is_right(prediction: Prediction, name: str) -> bool:
    if prediction.label is None:
        return False
    return prediction.label == name if prediction.answer == "class" else is_within(name, prediction.label)


def _auroc(values: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Return the probability that a positive has the larger value; equal values count half.

    >>> _auroc(np.array([1.0, 2.0, 2.0, 3.0]), np.array([False, False, True, True]))
    0.875
    """
    negatives = np.sort(values[~positive])
    below = np.searchsorted(negatives, values[positive], "left")
    not_above = np.searchsorted(negatives, values[positive], "right")
    return float((below + not_above).mean() / 2 / len(negatives))


def _share(of: NDArray[np.bool_], among: NDArray[np.bool_]) -> float | None:
    return float(of[among].mean()) if among.any() else None


def _wrong(
    snapshot: Snapshot,
    X: NDArray[np.float32],
    predictions: Sequence[Prediction],
    names: Sequence[str],
    known: NDArray[np.bool_],
) -> list[WrongPhoto]:
    rows = [
        row
        for row, (one, name, is_known) in enumerate(zip(predictions, names, known, strict=True))
        # An unknown class may still belong to a known group.
        if not (_is_right(one, name) or (one.unknown and not is_known))
    ]
    near = snapshot.neighbors(X[rows], 1) if rows else []
    wrong = [
        WrongPhoto(one.photo, names[row], one.label, one.candidates[0].label, why, one.between)
        for row, why in zip(rows, near, strict=True)
        for one in [predictions[row]]
    ]
    return sorted(wrong, key=lambda one: (one.shown_as is None, bool(one.between)))


def _class_results(
    true: NDArray[np.str_], right: NDArray[np.bool_], rejected: NDArray[np.bool_]
) -> list[ClassResult]:
    results = []
    for name in np.unique(true):
        own = true == name
        results.append(ClassResult(str(name), int(own.sum()), int(right[own].sum()), int(rejected[own].sum())))
    return results


def _confusions(true: NDArray[np.str_], best: NDArray[np.str_]) -> list[Confusion]:
    pairs = Counter(zip(true.tolist(), best.tolist(), strict=True))
    ordered = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
    return [Confusion(name, other, count) for (name, other), count in ordered]


def other_folders(names: Sequence[str], classes: Sequence[str]) -> list[OtherFolder]:
    """Return the names, one for each photo, that are not classes.

    >>> [str(one) for one in other_folders(["owl", "Owl", "wern", "moss"], ["owl", "wren"])]
    ["Owl (like 'owl'?)", 'moss', 'wern']
    """
    known = set(classes)
    counts = Counter(name for name in names if name not in known)
    by_folded = {name.casefold(): name for name in reversed(classes)}
    compared = COMPARED // max(1, len(by_folded))  # folders, each with all classes
    found = []
    for number, (name, photos) in enumerate(sorted(counts.items())):
        like = by_folded.get(name.casefold())
        if like is None and number < compared:
            like = next((by_folded[one] for one in get_close_matches(name.casefold(), by_folded, 1, ALIKE)), None)
        found.append(OtherFolder(name, photos, like))
    return found
