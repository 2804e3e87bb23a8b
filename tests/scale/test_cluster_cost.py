"""The model of the cost in benchmarks/ counts what the reductions take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cluster_cost import NAME_BYTES, Speeds, Workload, cost_of, merged_bytes

from fiveshot.scale._pipeline import Rows
from fiveshot.scale._reductions import PerClass, Tied

SPEEDS = Speeds(forward=1000, decode=100, reduce=50_000, merge_bytes=1e8)


def block(n: int, classes: int, width: int, seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    labels = np.array([f"class {code:05}" for code in rng.integers(0, classes, n)])
    return Rows(rng.standard_normal((n, width), dtype=np.float32), labels, ("",) * n)


def nbytes(part: Any) -> int:
    """Return the memory of a reduction, with names counted as the model counts them."""
    arrays = sum(value.nbytes for name, value in vars(part).items() if name != "labels")
    return arrays + NAME_BYTES * len(part)


@pytest.mark.parametrize(("covariance", "way"), [("class", PerClass(1)), ("tied", Tied(1))])
@pytest.mark.parametrize("images", [200, 3000])
def test_statistics_are_as_large_as_the_model_says(covariance: str, way: Any, images: int) -> None:
    found = nbytes(way.reduce(block(images, 40, 32, 0)))
    assert found == pytest.approx(Workload(images, 40, 32).statistics_bytes(covariance), rel=0.1)


@pytest.mark.parametrize(("covariance", "way"), [("class", PerClass(1)), ("tied", Tied(1))])
def test_merging_moves_as_many_bytes_as_the_model_says(covariance: str, way: Any) -> None:
    blocks, size, classes, width = 16, 250, 120, 16
    parts = [way.reduce(block(size, classes, width, seed)) for seed in range(blocks)]
    moved = 0
    while len(parts) > 1:
        moved += sum(map(nbytes, parts))
        parts = [way.merge(parts[start : start + 4]) for start in range(0, len(parts), 4)]
    work = Workload(blocks * size, classes, width)
    expected = merged_bytes(work, covariance, group_bytes=size * work.vector_bytes)
    assert moved == pytest.approx(expected, rel=0.15)


def test_time_falls_with_workers_and_the_slowest_stage_decides() -> None:
    work = Workload(10**6, 1000)
    one, two = (cost_of(work, SPEEDS, gpus=1, cores=cores) for cores in (4, 8))
    assert one.bottleneck == "cores"
    assert one.seconds == pytest.approx(2 * two.seconds)
    many = cost_of(work, SPEEDS, gpus=1, cores=1000)
    assert many.bottleneck == "GPUs"
    assert many.seconds == 1000
    assert many.gpu_hours == pytest.approx(1000 / 3600)


def test_a_million_classes_fit_where_the_covariance_is_tied() -> None:
    work = Workload(10**9, 10**6)
    assert [round(work.statistics_bytes(kind) / 1e9, 1) for kind in ("tied", "class")] == [1.7, 591.5]


def test_memory_does_not_grow_with_images_once_classes_are_known() -> None:
    sizes = [Workload(images, 1000).statistics_bytes("class") for images in (10**6, 10**9)]
    assert sizes[0] == sizes[1]
