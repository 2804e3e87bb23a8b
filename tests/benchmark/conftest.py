from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fiveshot.data.synthetic import gaussian_classes
from fiveshot.features import FeatureSet, Provenance


@pytest.fixture(scope="session")
def small_features() -> FeatureSet:
    """Twelve classes of eight images in sixteen dimensions."""
    train_x, train_y, test_x, test_y = gaussian_classes(
        n_classes=12, n_features=16, train_per_class=8, test_per_class=6, seed=3
    )
    names = tuple(f"class {label:02}" for label in range(12))
    return FeatureSet(train_x, train_y, test_x, test_y, names, Provenance.unknown("gaussian"))


@pytest.fixture(scope="session")
def small_file(small_features: FeatureSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("features") / "small.npz"
    arrays = {name: getattr(small_features, name) for name in ("train_x", "train_y", "test_x", "test_y")}
    np.savez(path, **arrays, class_names=np.array(small_features.class_names))
    return path
