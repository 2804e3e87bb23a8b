"""How much a photo is like a class, compared with general photographs: for models of few photos.

The file ``background.safetensors`` has the center and the whitening of 500 general photographs, for the embedded
network with its default views. ``benchmarks/background.py --save`` made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from fiveshot.core.arrays import unit_rows

Values = NDArray[np.floating]
FILE = Path(__file__).with_name("background.safetensors")
# A photo less like every class than this is unknown. Chosen on training photos of half of the classes of CUB-200
# and CIFAR-100: there it rejects at most 1 % of known photos and at least 98 % of general photographs.
LEAST_LIKENESS = 0.2
LEAST_RATE = 0.01  # of false rejections: for smaller rates this rejects too many known photos


@dataclass(frozen=True, eq=False)
class Background:
    """The center of general photographs, and the matrix that makes their variance equal in all directions."""

    center: Values  # (d,)
    whitening: Values  # (d, d)

    @classmethod
    def of(cls, X: Values) -> Background:
        """Return the background of photographs, from their features (n, d)."""
        unit = unit_rows(X)
        values, directions = np.linalg.eigh(np.cov(unit.T))
        # The mean variance is added in all directions, because few photographs do not fill all of them.
        scale = np.sqrt(values + values.mean())
        return cls(unit.mean(axis=0), (directions / scale) @ directions.T)

    @classmethod
    def load(cls, file: Path) -> Background:
        """Read what ``save`` wrote."""
        with safe_open(file, framework="np") as opened:
            return cls(*(opened.get_tensor(name).astype(np.float32) for name in ("center", "whitening")))

    def save(self, file: Path, fingerprint: str) -> None:
        """Write the file for the features of one backbone."""
        arrays = {"center": self.center.astype(np.float16), "whitening": self.whitening.astype(np.float16)}
        save_file(arrays, file, {"fingerprint": fingerprint})

    def white(self, X: Values) -> Values:
        """Return features in the space of the background, of length one, (n, d)."""
        white: Values = unit_rows((unit_rows(X) - self.center) @ self.whitening)
        return white

    def means(self, classes: Sequence[Values]) -> Values:
        """Return the mean of the photos of each class in the space of the background, (n_classes, d)."""
        counts = np.array([len(X) for X in classes])
        sums = np.add.reduceat(self.white(np.concatenate(classes)), np.cumsum(counts) - counts)
        means: Values = sums / counts[:, None].astype(sums.dtype)
        return means

    def likeness(self, X: Values, means: Values) -> Values:
        """Return how much photos are like the most similar class: the mean cosine with its photos, (n,)."""
        likeness: Values = (self.white(X) @ means.T).max(axis=1)
        return likeness

    def left_out(self, classes: Sequence[Values]) -> Values:
        """Return the likeness of the photos of classes of two or more, each left out of its class, (m,)."""
        means, found = self.means(classes), [np.empty(0)]
        for number, X in enumerate(classes):
            if len(X) > 1:
                white = self.white(X)
                cosines = white @ means.T
                # The mean of a class without a photo, whose cosine with itself is 1.
                cosines[:, number] = (len(X) * cosines[:, number] - 1) / (len(X) - 1)
                found.append(cosines.max(axis=1))
        return np.concatenate(found)


@lru_cache(maxsize=1)
def background_fingerprint() -> str:
    """Return the fingerprint of the backbone that the background is for."""
    with safe_open(FILE, framework="np") as opened:
        return str(opened.metadata()["fingerprint"])


@lru_cache(maxsize=1)
def general_background() -> Background:
    """Return the background of general photographs that comes with fiveshot."""
    return Background.load(FILE)
