"""Join the finished parts of an extraction into one feature file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fiveshot.data import BadImage
from fiveshot.errors import InputError, counted
from fiveshot.features.checks import listing
from fiveshot.features.extraction_job import DTYPES, ExtractionJob, digest
from fiveshot.features.feature_file import write_feature_file
from fiveshot.features.partial_features import PartialFeatures
from fiveshot.storage import Blocks


class FeatureAssembly:
    """What the parts of all images say together; the vectors stay on disk."""

    def __init__(self, job: ExtractionJob, store: PartialFeatures) -> None:
        """Read everything but the vectors; the parts in ``store`` cover all images of the job."""
        self._job = job
        self._store = store
        content, kept, bad = [], [], []
        for part in store.parts():
            content.append(part.content.copy())  # copies, or the files would stay mapped
            kept.append(part.kept.copy())
            bad += [image for _, image in part.bad]
        self.content: str = digest(np.concatenate(content))
        self.bad: tuple[BadImage, ...] = tuple(bad)
        self._kept = np.concatenate(kept)

    def write(self, path: Path) -> None:
        """Write the feature file, one part in memory at a time; it is complete or absent."""
        data, n_train = self._job.dataset, len(self._job.dataset.train)
        train = self._kept[self._kept < n_train]
        test = self._kept[self._kept >= n_train] - n_train
        self._check_classes(data.train.labels[train])
        images = self._job.images
        write_feature_file(
            path,
            {
                "train_x": self._vectors(len(train), 0, n_train),
                "train_y": data.train.labels[train],
                "test_x": self._vectors(len(test), n_train, len(images)),
                "test_y": data.test.labels[test],
            },
            {
                "train_names": tuple(images[position].name for position in train),
                "test_names": tuple(images[position + n_train].name for position in test),
            },
            class_names=data.class_names,
            provenance=replace(
                self._job.provenance, note=f"{self._job.dtype} vectors; {self._job.embedder.runtime}"
            ),
        )

    def _vectors(self, rows: int, first: int, last: int) -> Blocks:
        blocks = (
            part.vectors[(part.kept >= first) & (part.kept < last)]
            for part in self._store.parts()
            if part.start < last and part.stop > first
        )
        return Blocks(np.dtype(DTYPES[self._job.dtype]), (rows, self._job.embedder.width), blocks)

    def _check_classes(self, trained: NDArray[np.int64]) -> None:
        gone = np.setdiff1d(self._job.dataset.train.labels, trained)
        if len(gone):
            names = [self._job.dataset.class_names[label] for label in gone]
            raise InputError(
                f"{counted(len(gone), 'class')} without a usable training image: {listing(names)}; "
                "repair some of them, or remove the classes"
            )
