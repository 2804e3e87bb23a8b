from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fiveshot.benchmark import Job, Protocol
from fiveshot.benchmark.job import make_jobs
from fiveshot.benchmark.run import WIDTHS, estimated_seconds, quick_plan, workload
from fiveshot.heads import RECIPES, make_head

PROTOCOL = Protocol("small", "gaussian", n_classes=12, base_classes=6, increment=3, shots=3)
ENDLESS = 1e9


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
    work, head = workload(jobs[0]), make_head(method)
    for size in ("base_rows", "new_classes", "n_features", "test_rows"):
        more = replace(work, **{size: 3 * getattr(work, size)})
        assert head.operations(more) > head.operations(work), size


def test_more_random_features_and_a_choice_by_episodes_cost_more(jobs: list[Job]) -> None:
    work = workload(jobs[0])
    small, large = (make_head("c-ranpac", n_projections=m).operations(work) for m in (100, 10_000))
    assert large > 100 * small
    assert make_head("teen", alpha="auto").operations(work) > make_head("teen").operations(work)


def test_a_graphics_card_is_faster(jobs: list[Job]) -> None:
    (job,) = (job for job in jobs if job.method == "c-ranpac" and job.protocol.shot_seed == 0)
    assert estimated_seconds(replace(job, parameters={"device": "cuda:1"})) < estimated_seconds(job)


def test_with_time_enough_nothing_is_changed(jobs: list[Job]) -> None:
    plan = quick_plan(jobs, seconds=ENDLESS)
    assert (list(plan.jobs), plan.width, plan.left_out) == (jobs, None, ())


def is_narrowed(job: Job, width: int | None) -> bool:
    own = getattr(make_head(job.method), "n_projections", None)
    return own is not None and (width is None or own > width)


def test_random_features_go_first_and_are_as_many_as_there_is_time_for(jobs: list[Job]) -> None:
    def total(width: int | None) -> float:
        first = [job for job in jobs if job.protocol.shot_seed == 0]
        more = {} if width is None else {"n_projections": width}
        widened = [replace(job, parameters=more) if is_narrowed(job, width) else job for job in first]
        return sum(map(estimated_seconds, widened))

    for width in (None, *WIDTHS):
        plan = quick_plan(jobs, seconds=total(width) + 0.01)
        assert plan.width == width
        assert plan.left_out == ()
        found = {job.parameters.get("n_projections") for job in plan.jobs if is_narrowed(job, width)}
        assert found == {width}
        assert [job.method for job in plan.jobs] == [job.method for job in jobs]


def test_then_the_longest_are_left_out_unless_they_were_named(jobs: list[Job]) -> None:
    plan = quick_plan(jobs, seconds=0.5)
    left_out = [method for method, _ in plan.left_out]
    assert {"ranpac*", "c-ranpac"} <= set(left_out)
    assert {job.method for job in plan.jobs} == set(RECIPES) - set(left_out)
    order = [(time > 0.5, RECIPES[method].style is None, time) for method, time in plan.left_out]
    assert order == sorted(order, reverse=True), "too long alone, then references and variants, then the longest"
    kept = quick_plan(jobs, seconds=0.5, keep=["c-ranpac"])
    assert {"c-ranpac"} == {job.method for job in kept.jobs if "ranpac" in job.method}
    assert kept.width == WIDTHS[-1]


def test_something_always_remains(jobs: list[Job]) -> None:
    plan = quick_plan(jobs, seconds=0.0)
    assert len({job.method for job in plan.jobs}) == 1
    assert len(plan.jobs) == 2, "both draws"


def test_a_number_of_random_features_that_was_given_stays(small_file: Path) -> None:
    given = {"n_projections": 8000}
    asked = make_jobs(PROTOCOL, str(small_file), methods=["ncm", "c-ranpac"], seeds=1, parameters=given)
    plan = quick_plan(asked, keep=["ncm", "c-ranpac"], seconds=0.5)
    assert list(plan.jobs) == asked
    assert plan.width is None
