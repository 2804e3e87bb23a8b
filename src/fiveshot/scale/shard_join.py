"""Join the shards of a cluster run into the one feature file that a single machine would have written."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError, counted
from fiveshot.features.checks import listing
from fiveshot.features.extraction_job import DTYPES
from fiveshot.features.feature_file import write_feature_file
from fiveshot.features.feature_set import FeatureSet
from fiveshot.scale.backbone_spec import BackboneFacts
from fiveshot.scale.raw_image import TEST, TRAIN
from fiveshot.scale.shard_file import FeatureShard
from fiveshot.storage import Blocks

Shards = Callable[[], Iterable[FeatureShard]]  # the same ones at every call
SPLITS = {"train": TRAIN, "test": TEST}


def join_shards(shards: Shards, facts: BackboneFacts, out: str | os.PathLike[str], *, runtime: str) -> FeatureSet:
    """Write the feature file, one shard in memory at a time, and map it.

    Classes are numbered in the order of their names; every class needs a training image that could be read.
    """
    class_names = _class_names(shards())
    number = {name: label for label, name in enumerate(class_names)}
    arrays: dict[str, NDArray[Any] | Blocks] = {}
    names: dict[str, tuple[str, ...]] = {}
    for split, code in SPLITS.items():
        labels = [_labels(shard, number)[shard.splits == code] for shard in shards()]
        joined = np.concatenate([*labels, np.zeros(0, np.int64)])
        shape = (len(joined), facts.width)
        arrays[f"{split}_x"] = Blocks(np.dtype(DTYPES[facts.dtype]), shape, _vectors(shards, code))
        arrays[f"{split}_y"] = joined
        if code == TRAIN:
            _check_classes(class_names, joined)
        names[f"{split}_names"] = tuple(_names(shards(), code))
    provenance = replace(facts.provenance, note=f"{facts.dtype} vectors; {runtime}")
    write_feature_file(out, arrays, names, class_names=class_names, provenance=provenance)
    return FeatureSet.load(out)


def _class_names(shards: Iterable[FeatureShard]) -> tuple[str, ...]:
    found = {name for shard in shards for name in shard.class_names}
    return tuple(sorted(found - {""}))


def _labels(shard: FeatureShard, number: dict[str, int]) -> NDArray[np.int64]:
    table = np.array([number.get(name, -1) for name in shard.class_names], dtype=np.int64)
    return table[shard.codes] if len(table) else shard.codes


def _vectors(shards: Shards, code: int) -> Iterator[NDArray[Any]]:
    return (shard.vectors[shard.splits == code] for shard in shards())


def _names(shards: Iterable[FeatureShard], code: int) -> Iterator[str]:
    for shard in shards:
        yield from (name for name, split in zip(shard.names, shard.splits.tolist(), strict=True) if split == code)


def _check_classes(class_names: tuple[str, ...], trained: NDArray[np.int64]) -> None:
    gone = np.setdiff1d(np.arange(len(class_names)), trained)
    if len(gone):
        names = listing([class_names[i] for i in gone])
        raise InputError(
            f"{counted(len(gone), 'class')} without a usable training image: {names}; "
            "repair some of them, or remove the classes"
        )
