"""Feature sets small enough that the paper's protocols run in no time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fiveshot.benchmark import RunRecord
from fiveshot.features import FeatureSet, Provenance


def toy_features(dataset: str, n_classes: int, *, rng: np.random.Generator, backbone: str = "toy") -> FeatureSet:
    means = 2 * rng.normal(size=(n_classes, 4))
    train, test = (np.repeat(np.arange(n_classes), times) for times in (6, 2))

    def vectors(labels: np.ndarray) -> np.ndarray:
        return (means[labels] + rng.normal(size=(len(labels), 4))).astype(np.float32)

    names = tuple(f"{dataset} {number}" for number in range(n_classes))
    return FeatureSet(vectors(train), train, vectors(test), test, names, Provenance(dataset, backbone, "0"))


def base_session_only(record: RunRecord) -> RunRecord:
    """Return a run as if it had ended after its base session."""
    names = ("session_classes", "predictions", "train_counts", "calibration")
    return replace(record, trade_off=None, **{name: getattr(record, name)[:1] for name in names})
