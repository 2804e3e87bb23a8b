from __future__ import annotations

import pytest

from fiveshot.benchmark import Job, get_protocol
from fiveshot.core import Calibration
from fiveshot.heads import make_head
from fiveshot.reports.paper_plan import ABLATIONS, Procedure, ablation_rows, configuration_jobs

CUB = get_protocol("cub200/small")
FEATURES = "embedded:cub200"


def jobs(name: str, how: Procedure | None = None) -> list[tuple[float, Job]]:
    """Return the value of each row of an ablation with its jobs."""
    how = how or Procedure()
    rows = ablation_rows(name, how.flavor)
    return [(row.value, job) for row in rows for job in configuration_jobs(row, CUB, FEATURES, how)]


def job(name: str, method: str, value: float, how: Procedure) -> Job:
    """Return the job of one row of an ablation."""
    (found,) = [job for its, job in jobs(name, how) if (job.method, its) == (method, value)]
    return found


def seen(name: str, job) -> float:
    """Return the varied value as the head or the protocol of a job has it."""
    head = job.head()
    if name in ("tau", "alpha", "beta"):
        return getattr(head.calibration, name)
    return {
        "shots": lambda: job.protocol.shots,
        "M": lambda: head.n_projections,
        "samples": lambda: head.sampling.per_class,
    }[name]()


@pytest.mark.parametrize("name", ABLATIONS)
def test_each_job_has_the_value_it_says(name: str) -> None:
    found = jobs(name, Procedure(seeds=2))
    ablation = ABLATIONS[name]
    assert len(found) == len(ablation.methods) * len(ablation.values) * 2
    assert [value for value, _ in found] == [seen(name, job) for _, job in found]
    assert {job.protocol.shot_seed for _, job in found} == {0, 1}


@pytest.mark.parametrize("name", ABLATIONS)
def test_nothing_else_changes(name: str) -> None:
    kept = {
        "tau": "calibration",
        "alpha": "calibration",
        "beta": "calibration",
        "M": "n_projections",
        "samples": "sampling",
    }
    for value, job in jobs(name):
        own, recipe = (head.get_params(deep=False) for head in (job.head(), make_head(job.method)))
        differing = {key for key in own if own[key] != recipe[key]}
        assert differing <= {kept.get(name)}
        assert job.protocol == (CUB.replace(shots=value) if name == "shots" else CUB)


def test_shots_go_from_one_to_twenty() -> None:
    assert (min(ABLATIONS["shots"].values), max(ABLATIONS["shots"].values)) == (1, 20)


def test_the_varied_value_goes_before_a_given_one() -> None:
    given = {"n_projections": 64, "calibration": Calibration(alpha=0.5, beta=2.0)}
    how = Procedure(parameters=given)
    head = job("tau", "c-ranpac", 4, how).head()
    assert head.n_projections == 64
    assert head.calibration == Calibration(alpha=0.5, beta=2.0, tau=4)
    assert job("M", "ranpac", 500, how).head().n_projections == 500


def test_the_rest_of_a_calibration_stays_that_of_the_flavor() -> None:
    head = job("alpha", "teen", 1.0, Procedure(flavor="published")).head()
    assert head.calibration == Calibration(alpha=1.0, beta=1.0, prototypes="unit")
