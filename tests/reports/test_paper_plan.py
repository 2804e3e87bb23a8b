from __future__ import annotations

import pytest

from fiveshot.benchmark import get_protocol, paper_beta_ablation, paper_parts_ablation, paper_protocols
from fiveshot.benchmark.job import make_jobs
from fiveshot.core import Calibration
from fiveshot.core.scorers import make_scorer, own_parameters
from fiveshot.errors import InputError
from fiveshot.reports.paper_plan import (
    MAIN_METHODS,
    TARGETS,
    Configuration,
    Procedure,
    ablation_rows,
    configuration_jobs,
    configurations,
    parts_rows,
    resolve_target,
    target_protocols,
)

CUB = "embedded:cub200"  # any features do where nothing runs


def names(target: str) -> list[str]:
    return [protocol.name for protocol in target_protocols(target)]


def test_tables_and_figures_cover_the_paper() -> None:
    assert names("table1") == ["cub200/small", "cub200/big", "aircraft/small", "aircraft/big"]
    assert names("table1") + names("table2") + names("table3") == [
        *names("table1"),
        "cars/small",
        "cars/big",
        "cifar100/small",
    ]
    assert {*names("table1"), *names("table2"), *names("table3")} == set(paper_protocols())
    assert names("table5") == names("table6") == names("figure2") == ["cars/small"]
    assert names("figure1") == ["cub200/big", "cars/big"]
    assert names("figure3") == ["cub200/big", "cars/big", "aircraft/big"]
    for target in ("table1", "table2", "table3", "figure1", "figure3"):
        assert [row.method for row in configurations(target)] == list(MAIN_METHODS)
        assert not any(row.changes for row in configurations(target))
    assert configurations("figure2") == ()


def test_targets_by_name() -> None:
    assert resolve_target("all") == TARGETS
    assert resolve_target("figure3") == ("figure3",)
    assert resolve_target("ablation-tau") == ("ablation-tau",)
    with pytest.raises(InputError, match="the paper has no table or figure of results 'figure4'"):
        resolve_target("figure4")


def test_only_ablations_can_move_to_another_protocol() -> None:
    other = get_protocol("cub200/big")
    assert target_protocols("table6", other) == (other,)
    assert target_protocols("ablation-M", other) == (other,)
    assert target_protocols("table2", other) == target_protocols("table2")


def test_table_5_has_the_papers_rows() -> None:
    assert [(row.method, row.changes["beta"]) for row in configurations("table5")] == [
        (row.method.lower(), row.beta) for row in paper_beta_ablation()
    ]


def test_table_6_has_the_papers_rows_and_the_ones_it_leaves_out() -> None:
    rows = [(row.method, *(row.calibrated or ())) for row in parts_rows()]
    papers = [(r.method.lower(), r.mean_calibrated, r.covariance_calibrated) for r in paper_parts_ablation()]
    assert [row for row in rows if row in papers] == papers
    assert [row for row in rows if row not in papers] == [("c-fecam", False, True), ("c-ranpac", False, True)]


def test_parts_are_turned_off_where_a_row_says_so() -> None:
    cars = get_protocol("cars/small")
    for row in parts_rows():
        mean, covariance = row.calibrated or ()
        (job,) = configuration_jobs(row, cars, CUB, Procedure())
        calibration = job.head().get_params(deep=False)["calibration"]
        if row.method.startswith("c-"):
            assert (calibration.alpha == 1.0) == (not mean)
            assert (calibration.beta is None) == (not covariance)
        else:
            assert calibration is None


@pytest.mark.parametrize(
    ("protocol", "alpha"), [("cifar100/small", 0.75), ("cars/big", 0.9), ("cub200/small", 0.9)]
)
@pytest.mark.parametrize("method", ["teen", "c-fecam", "c-ranpac"])
def test_alpha_is_the_papers_for_the_dataset(protocol: str, alpha: float, method: str) -> None:
    jobs = configuration_jobs(Configuration(method), get_protocol(protocol), CUB, Procedure(seeds=2))
    assert [job.head().calibration.alpha for job in jobs] == [alpha, alpha]
    assert [job.protocol.shot_seed for job in jobs] == [0, 1]


CALIBRATED = ("teen", "c-fecam", "c-ranpac", "teen+", "c-fecam+")


def test_a_benchmark_has_the_papers_alpha_too() -> None:
    cifar, cub = get_protocol("cifar100/small"), get_protocol("cub200/small")
    for flavor in ("paper", "published"):
        heads = {job.method: job.head() for job in make_jobs(cifar, CUB, methods=(), seeds=1, flavor=flavor)}
        found = {
            name: head.calibration.alpha for name, head in heads.items() if getattr(head, "calibration", None)
        }
        assert found == dict.fromkeys(CALIBRATED, 0.75)
        for name in set(heads) - set(CALIBRATED):
            expected = make_scorer(name, flavor, **{"random_state": 0} if "ranpac" in name else {})
            assert own_parameters(heads[name].unlearned_scorer()) == own_parameters(expected)
    assert all(job.head().calibration.alpha == 0.9 for job in make_jobs(cub, CUB, methods=CALIBRATED, seeds=1))


def test_an_alpha_that_is_given_stays() -> None:
    cifar = get_protocol("cifar100/small")
    for given in ({"calibration": Calibration(alpha=0.9)}, {"alpha": 0.9}):
        (job,) = make_jobs(cifar, CUB, methods=["c-fecam"], seeds=1, parameters=given)
        assert job.head().calibration.alpha == 0.9
    (job,) = make_jobs(cifar, CUB, methods=["c-fecam"], seeds=1, parameters={"alpha": "auto"})
    assert job.head().auto == ("alpha",)
    varied = [row for row in ablation_rows("alpha") if row.method == "teen" and row.value in (0.5, 0.9)]
    jobs = [job for row in varied for job in configuration_jobs(row, cifar, CUB, Procedure())]
    assert [job.head().calibration.alpha for job in jobs] == [0.5, 0.9]
    (row,) = [row for row in ablation_rows("tau") if (row.method, row.value) == ("teen", 8)]
    (other,) = configuration_jobs(row, cifar, CUB, Procedure())
    assert (other.head().calibration.alpha, other.head().calibration.tau) == (0.75, 8)


def test_a_row_that_spells_out_the_recipe_is_the_same_run() -> None:
    cub = get_protocol("cub200/small")
    (plain,) = configuration_jobs(Configuration("c-fecam"), cub, CUB, Procedure())
    (spelled,) = configuration_jobs(Configuration("c-fecam", {"beta": 1.0}), cub, CUB, Procedure())
    (other,) = configuration_jobs(Configuration("c-fecam", {"beta": 1.5}), cub, CUB, Procedure())
    assert plain.folder == spelled.folder != other.folder


def test_parameters_go_to_the_heads_that_have_them() -> None:
    cub, how = get_protocol("cub200/small"), Procedure(parameters={"n_projections": 64})
    (ranpac,) = configuration_jobs(Configuration("ranpac"), cub, CUB, how)
    (ncm,) = configuration_jobs(Configuration("ncm"), cub, CUB, how)
    assert ranpac.head().n_projections == 64
    assert ncm.parameters == {}
