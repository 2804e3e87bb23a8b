from __future__ import annotations

import pytest

from fiveshot.benchmark import get_protocol
from fiveshot.benchmark.ablation import ABLATIONS, ablation_jobs
from fiveshot.errors import InputError
from fiveshot.heads import make_head
from fiveshot.statistics import Calibration

CUB = get_protocol("cub200/small")
FEATURES = "embedded:cub200"


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
    found = ablation_jobs(name, CUB, FEATURES, seeds=2)
    ablation = ABLATIONS[name]
    assert len(found) == len(ablation.methods) * len(ablation.values) * 2
    assert [entry.value for entry in found] == [seen(name, entry.job) for entry in found]
    assert {entry.job.protocol.shot_seed for entry in found} == {0, 1}


@pytest.mark.parametrize("name", ABLATIONS)
def test_nothing_else_changes(name: str) -> None:
    kept = {
        "tau": "calibration",
        "alpha": "calibration",
        "beta": "calibration",
        "M": "n_projections",
        "samples": "sampling",
    }
    for entry in ablation_jobs(name, CUB, FEATURES, seeds=1):
        own, recipe = (head.get_params(deep=False) for head in (entry.job.head(), make_head(entry.job.method)))
        differing = {key for key in own if own[key] != recipe[key]}
        assert differing <= {kept.get(name)}
        assert entry.job.protocol == (CUB.replace(shots=entry.value) if name == "shots" else CUB)


def test_shots_go_from_one_to_twenty() -> None:
    assert (min(ABLATIONS["shots"].values), max(ABLATIONS["shots"].values)) == (1, 20)


def test_values_and_methods_can_be_chosen_and_parameters_given() -> None:
    given = {"n_projections": 64, "calibration": Calibration(alpha=0.5, beta=2.0)}
    found = ablation_jobs("tau", CUB, FEATURES, seeds=1, values=[2.0], methods=["c-ranpac"], parameters=given)
    (entry,) = found
    head = entry.job.head()
    assert head.n_projections == 64
    assert head.calibration == Calibration(alpha=0.5, beta=2.0, tau=2.0)
    (entry,) = ablation_jobs("M", CUB, FEATURES, seeds=1, values=[128], methods=["ranpac"], parameters=given)
    assert entry.job.head().n_projections == 128  # the varied value goes before the given one


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
        ablation_jobs(name, CUB, FEATURES, seeds=1, **changes)


def test_the_rest_of_a_calibration_stays_that_of_the_flavour() -> None:
    (entry,) = ablation_jobs("alpha", CUB, FEATURES, seeds=1, methods=["teen"], values=[1.0], flavour="published")
    assert entry.job.head().calibration == Calibration(alpha=1.0, beta=1.0, prototypes="unit")
