from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fiveshot.benchmark import Job, Protocol
from fiveshot.benchmark._cost import operations
from fiveshot.benchmark.job import make_jobs
from fiveshot.benchmark.run import estimated_seconds, workload
from fiveshot.core.scorers import make_scorer

PROTOCOL = Protocol("small", "gaussian", n_classes=12, base_classes=6, increment=3, shots=3)


@pytest.fixture(scope="module")
def jobs(small_file: Path) -> list[Job]:
    return make_jobs(PROTOCOL, str(small_file), methods=[], seeds=2)


def test_the_sizes_are_those_of_the_features(jobs: list[Job]) -> None:
    work = workload(jobs[0])
    assert (work.base_rows, work.base_classes, work.new_classes) == (6 * 8, 6, 6)
    assert (work.rows, work.classes, work.test_rows) == (6 * 8 + 6 * 3, 12, 12 * 6)
    assert (work.n_features, work.sessions) == (16, 3)


@pytest.mark.parametrize("method", ["ncm", "c-fecam", "c-ranpac", "unbiased-lda"])
def test_more_data_never_cost_less(method: str, jobs: list[Job]) -> None:
    work, scorer = workload(jobs[0]), make_scorer(method)
    for size in ("base_rows", "new_classes", "n_features", "test_rows"):
        more = replace(work, **{size: 3 * getattr(work, size)})
        assert operations(scorer, more) > operations(scorer, work), size


def test_more_random_features_and_a_choice_by_episodes_cost_more(jobs: list[Job]) -> None:
    work = workload(jobs[0])
    small, large = (operations(make_scorer("c-ranpac", n_projections=m), work) for m in (100, 10_000))
    assert large > 100 * small
    (teen,) = make_jobs(jobs[0].protocol, jobs[0].features, methods=["teen"], seeds=1)
    chosen = replace(teen, parameters={"alpha": "auto"})
    assert estimated_seconds(chosen) > estimated_seconds(teen)


def test_a_graphics_card_is_faster(jobs: list[Job]) -> None:
    (job,) = (job for job in jobs if job.method == "c-ranpac" and job.protocol.shot_seed == 0)
    assert estimated_seconds(replace(job, parameters={"device": "cuda:1"})) < estimated_seconds(job)
