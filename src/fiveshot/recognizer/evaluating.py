"""Measure a model on labelled photos: predict all of them, and compare with the names of their classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from fiveshot.features import Runner
from fiveshot.metrics import expected_calibration_error
from fiveshot.progress import Progress
from fiveshot.recognizer.evaluation import ClassResult, Confusion, Evaluation, WrongPhoto
from fiveshot.recognizer.extraction import see_photos
from fiveshot.recognizer.other_folders import other_folders
from fiveshot.recognizer.photo import Photo
from fiveshot.recognizer.prediction import Prediction
from fiveshot.recognizer.snapshot import Snapshot


def evaluate_photos(
    snapshot: Snapshot, runner: Runner, classes: Mapping[str, Sequence[Photo]], *, progress: Progress | None
) -> Evaluation:
    """Measure a model on photos by the names of their classes."""
    everything = [photo for photos in classes.values() for photo in photos]
    names = [name for name, photos in classes.items() for _ in photos]
    seen = see_photos(runner, everything, progress=progress)
    X = np.stack([photo.feature for photo in seen])
    photos, digests = [photo.name for photo in seen], [photo.sha256 for photo in seen]
    return evaluate_features(snapshot, X, names, photos=photos, sha256s=digests)


def evaluate_features(
    snapshot: Snapshot,
    X: NDArray[np.float32],
    names: Sequence[str],
    *,
    photos: Sequence[str] | None = None,
    sha256s: Sequence[str] = (),
) -> Evaluation:
    """Measure a model on features and the names of their classes.

    ``photos`` are names to speak of them; ``sha256s`` tell which of them the model has learned. Of base classes
    no photos are kept, so theirs are not known again.
    """
    predictions = snapshot.predict_features(X, top=1, photos=photos)
    best = np.array([one.candidates[0][0] for one in predictions])
    rejected = np.array([one.unknown for one in predictions])
    familiarity = np.array([one.familiarity for one in predictions])
    true = np.array(names)
    known = np.isin(true, snapshot.classes)
    right = best == true
    accepted = known & ~rejected
    both = known.any() and not known.all()
    learned = {sha256 for one in snapshot.contents.classes.values() for sha256 in one.sha256s}
    return Evaluation(
        photos=int(known.sum()),
        unknown_photos=int((~known).sum()),
        accuracy=_share(right, known),
        accepted_accuracy=_share(right, accepted),
        false_rejection=_share(rejected, known),
        unknown_rejection=_share(rejected, ~known),
        unknown_auroc=float(roc_auc_score(known, familiarity)) if both else None,
        calibration_error=_calibration_error(snapshot, X[known], true[known]) if known.any() else None,
        classes=tuple(_class_results(true[known], right[known], rejected[known])),
        confusions=tuple(_confusions(true[known & ~right], best[known & ~right])),
        wrong=tuple(_wrong(predictions, names, known)),
        other_folders=tuple(other_folders(names, snapshot.classes)),
        learned_photos=sum(sha256 in learned for sha256 in sha256s),
    )


def _share(of: NDArray[np.bool_], among: NDArray[np.bool_]) -> float | None:
    return float(of[among].mean()) if among.any() else None


def _calibration_error(snapshot: Snapshot, X: NDArray[np.float32], true: NDArray[np.str_]) -> float:
    columns = np.searchsorted(snapshot.memory.labels, true)
    return expected_calibration_error(snapshot.head.predict_proba(X), columns)


def _wrong(predictions: Sequence[Prediction], names: Sequence[str], known: NDArray[np.bool_]) -> list[WrongPhoto]:
    wrong = [
        WrongPhoto(one.photo, name, one.label, one.candidates[0][0])
        for one, name, is_known in zip(predictions, names, known, strict=True)
        if one.label != (name if is_known else None)
    ]
    return sorted(wrong, key=lambda one: one.shown_as is None)


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
