"""The statistics of the base classes in a file of their own, named by what it holds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fiveshot.backbones.hashing import hash_tensors
from fiveshot.errors import StorageError
from fiveshot.recognizer.manifest import BaseRecord
from fiveshot.recognizer.names import check_name
from fiveshot.statistics import NO_CLASSES, ClassStatistics, ClassSummary
from fiveshot.statistics.labels import python_labels
from fiveshot.storage import read_tensors, write_tensors

KIND, VERSION = "recognizer base", 1


def write_base(folder: Path, statistics: ClassStatistics) -> BaseRecord:
    """Write the file and return what names it; equal statistics give equal bytes and so the same name."""
    if not len(statistics):
        return BaseRecord()
    labels = python_labels(statistics.labels)
    tensors = {
        "counts": statistics.counts,
        "means": statistics.means,
        "ranks": torch.tensor([len(summary.factor) for summary in statistics.summaries]),
        "factors": torch.cat([summary.factor for summary in statistics.summaries]),  # (Σ r, d)
    }
    content = hashlib.sha256(f"{hash_tensors(tensors)} {json.dumps(labels)}".encode()).hexdigest()
    name = f"base-{content[:16]}.safetensors"
    write_tensors(folder / name, tensors, kind=KIND, version=VERSION, meta={"labels": labels})
    return BaseRecord(name, file_sha256(folder / name), len(labels))


def read_base(folder: Path, record: BaseRecord) -> ClassStatistics:
    """Read the file that a manifest names; a missing, changed or damaged one is refused."""
    if not record.file:
        return NO_CLASSES
    path = folder / record.file
    if not path.is_file():
        raise StorageError(f"no such file: {path}; the model is incomplete: restore it from a copy")
    if file_sha256(path) != record.sha256:
        raise StorageError(f"{path} is damaged or was exchanged (its SHA-256 differs); restore it from a copy")
    file = read_tensors(path, kind=KIND, version=VERSION)
    try:
        tensors = {name: torch.from_numpy(array) for name, array in file.tensors.items()}
        statistics = checked_statistics(tensors, file.meta["labels"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StorageError(
            f"{path} does not hold the base classes' statistics ({error}); get a fresh copy"
        ) from error
    if len(statistics) != record.classes:
        raise StorageError(f"{path} holds {len(statistics)} classes, not {record.classes}; restore it from a copy")
    return statistics


def checked_statistics(tensors: dict[str, Tensor], labels: list[str]) -> ClassStatistics:
    """Return the statistics in these tensors after checking every shape, type and value."""
    counts, means, ranks, factors = (tensors[key] for key in ("counts", "means", "ranks", "factors"))
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ValueError("labels are not a list of names")
    n, width = len(labels), means.shape[-1]
    shapes = {"counts": (n,), "means": (n, width), "ranks": (n,), "factors": (int(ranks.sum()), width)}
    for key, shape in shapes.items():
        wanted = torch.float32 if key in ("means", "factors") else torch.int64
        if tuple(tensors[key].shape) != shape or tensors[key].dtype != wanted:
            raise ValueError(f"{key} has shape {tuple(tensors[key].shape)} and type {tensors[key].dtype}")
    if n == 0 or int(counts.min()) < 1 or int(ranks.min()) < 0 or bool((ranks > counts.clamp(max=width)).any()):
        raise ValueError("counts and ranks do not fit")
    if not bool(torch.isfinite(means).all()) or not bool(torch.isfinite(factors).all()):
        raise ValueError("a statistic is NaN or infinite")
    if labels != sorted(set(labels)) or any(check_name(label) != label for label in labels):
        raise ValueError("names are not sorted, not different or not in normal form")
    split: tuple[Tensor, ...] = torch.split(factors, ranks.tolist())
    summaries = tuple(ClassSummary(*values) for values in zip(counts.tolist(), means, split, strict=True))
    return ClassStatistics(np.array(labels), summaries)


def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
