from __future__ import annotations

import pytest

from fiveshot.benchmark import Job, get_protocol
from fiveshot.core import Calibration
from fiveshot.errors import InputError
from fiveshot.heads import make_head
from fiveshot.reports.paper_plan import ABLATIONS, Procedure, ablation_rows, configuration_jobs

CUB = get_protocol("cub200/small")
FEATURES = "embedded:cub200"


def jobs(name: str, how: Procedure | None = None, **choice: object) -> list[tuple[float, Job]]:
    """Return the value of each row of an ablation with its jobs."""
    how = how or Procedure()
    rows = ablation_rows(name, how.flavor, **choice)
    return [(row.value, job) for row in rows for job in configuration_jobs(row, CUB, FEATURES, how)]


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


def test_values_and_methods_can_be_chosen_and_parameters_given() -> None:
    given = {"n_projections": 64, "calibration": Calibration(alpha=0.5, beta=2.0)}
    how = Procedure(parameters=given)
    ((_, job),) = jobs("tau", how, values=[2.0], methods=["c-ranpac"])
    head = job.head()
    assert head.n_projections == 64
    assert head.calibration == Calibration(alpha=0.5, beta=2.0, tau=2.0)
    ((_, job),) = jobs("M", how, values=[128], methods=["ranpac"])
    assert job.head().n_projections == 128  # the varied value goes before the given one


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gamma", {}, "no ablation 'gamma'"),
        ("tau", {"methods": ["fecam"]}, "tau means nothing to 'fecam'; choose from teen, c-fecam, c-ranpac"),
        ("M", {"methods": ["ncm"]}, r"M means nothing to 'ncm'; choose from ranpac, c-ranpac"),
        ("samples", {"methods": ["ranpac"]}, "'ranpac' draws no samples"),
        ("shots", {"values": [2.5]}, "shots must be a whole number of at least 1, not 2.5"),
        ("alpha", {"values": [2.0]}, r"alpha must lie in \[0, 1\]"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ablation_rows(name, **changes)


def test_the_rest_of_a_calibration_stays_that_of_the_flavor() -> None:
    ((_, job),) = jobs("alpha", Procedure(flavor="published"), methods=["teen"], values=[1.0])
    assert job.head().calibration == Calibration(alpha=1.0, beta=1.0, prototypes="unit")
