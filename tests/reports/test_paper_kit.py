"""The summary of claims and the configuration that go with all tables and figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fiveshot.benchmark import RunRecord, compare_runs, paper_result, run_job
from fiveshot.reports._claims import Claim, claims_table, kendall, paper_claims
from fiveshot.reports._paper import distinct_jobs
from fiveshot.reports._paper_figures import similarity_points
from fiveshot.reports._paper_tables import Measured
from fiveshot.reports.paper_plan import Procedure, plan_target


@pytest.fixture(scope="module")
def measured(toy_folder: Path) -> list[Measured]:
    sources = {"cifar100": str(toy_folder / "cifar100.safetensors")}
    settings = plan_target("table3", sources, Procedure(seeds=2, parameters={"n_projections": 32}))
    records = {job.folder: run_job(job) for job in distinct_jobs([settings])}
    return [Measured.of(setting, records) for setting in settings]


def test_gains_are_paired_differences_over_draws_and_images(measured: list[Measured]) -> None:
    records = {variant.summary.method: variant.records for variant in measured[0].variants}
    summary = claims_table(paper_claims(measured, similarities=measured), measured, draws=2)
    rows = {row.cells[0]: row.cells for row in summary.rows}
    assert len(rows) == 6
    for label, calibrated, plain in (("TEEN less NCM", "teen", "ncm"), ("C-FeCAM less FeCAM", "c-fecam", "fecam")):
        first, second = (mean_hms(records[method]) for method in (calibrated, plain))
        found = compare_runs(records[calibrated], records[plain]).differences["mean A_HM"]
        _, value, interval, paper, verdict = rows[f"calibration gains: {label}"]
        assert value == f"{100 * (np.mean(first) - np.mean(second)):+.1f}"
        assert interval == f"[{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
        theirs = [np.mean(paper_result("cifar100/small", method).a_hm) for method in (calibrated, plain)]
        assert paper == f"{100 * (theirs[0] - theirs[1]):+.1f}"
        assert verdict == ("holds" if found.low > 0 else "does not hold" if found.high < 0 else "not decided")
    trend = next(row for name, row in rows.items() if "near classes" in name)
    points = similarity_points(measured[0].protocol, measured[0].features)
    assert trend[1] == f"{points.correlation:+.2f}"
    low, high = map(float, trend[2].strip("[]").split(", "))
    assert low < points.correlation < high
    notes = " ".join(summary.notes)
    assert "2 draws of the shots and the test images together" in notes
    assert "Made by fiveshot" in notes


def test_the_ablations_and_what_cannot_be_tested_have_rows_too(toy_folder: Path) -> None:
    sources = {"cars": str(toy_folder / "cars.safetensors")}
    how = Procedure(parameters={"n_projections": 32})
    plans = [plan_target(name, sources, how) for name in ("table5", "table6")]
    records = {job.folder: run_job(job) for job in distinct_jobs(plans)}
    ablations = [Measured.of(setting, records) for plan in plans for setting in plan]
    claims = paper_claims([], ablations, untested=["aircraft/big"])
    names = [claim.name for claim in claims]
    assert [name.split(";")[0] for name in names[:2]] == [
        "β = 1 is best for C-FeCAM",
        "β = 0.5 is best for C-RanPAC",
    ]
    assert names[2:-1] == [
        "C-FeCAM (μ) less FeCAM",
        "C-FeCAM (μ and Σ) less C-FeCAM (μ)",
        "RanPAC* less RanPAC",
        "C-RanPAC (μ) less RanPAC*",
        "C-RanPAC (μ and Σ) less C-RanPAC (μ)",
    ]
    assert [round(100 * claim.paper, 2) for claim in claims[2:4]] == [1.05, 4.41]
    assert (claims[-1].setting, claims[-1].verdict) == ("aircraft/big", "cannot be tested here")
    own = {variant.summary.method: variant for variant in ablations[1].variants}
    assert claims[4].value == pytest.approx(
        np.mean(mean_hms(own["ranpac*"].records)) - np.mean(mean_hms(own["ranpac"].records))
    )


@pytest.mark.parametrize(("protocol", "methods"), [("cub200/big", ["FeCAM", "RanPAC"]), ("cars/big", ["FeCAM"])])
def test_what_a_big_first_task_does_is_claimed_where_the_paper_shows_it(
    protocol: str, methods: list[str], toy_folder: Path
) -> None:
    target, dataset = ("table1", "cub200") if "cub" in protocol else ("table2", "cars")
    sources = {protocol: str(toy_folder / f"{dataset}.safetensors")}
    settings = plan_target(target, sources, Procedure(parameters={"n_projections": 32}))
    records = {job.folder: run_job(job) for job in distinct_jobs([settings])}
    found = [
        one for one in paper_claims([Measured.of(one, records) for one in settings]) if "big first" in one.name
    ]
    assert [claim.name for claim in found] == [
        f"a big first task puts {method} below NCM: {method} less NCM" for method in methods
    ]
    assert all(claim.below and claim.paper < 0 for claim in found)


def mean_hms(records: Iterable[RunRecord]) -> list[float]:
    return [float(np.mean([session.a_hm for session in record.metrics.sessions[1:]])) for record in records]


def test_kendalls_tau_is_scipys() -> None:
    rng = np.random.default_rng(0)
    values, order = rng.normal(size=(6, 20)), rng.normal(size=6)
    expected = [stats.kendalltau(values[:, column], order).statistic for column in range(20)]
    np.testing.assert_allclose(kendall(values, order), expected)


@pytest.mark.parametrize(
    ("low", "high", "below", "verdict"),
    [
        (0.1, 0.2, False, "holds"),
        (-0.2, -0.1, False, "does not hold"),
        (-0.2, -0.1, True, "holds"),
        (-0.1, 0.1, True, "not decided"),
        (None, None, False, "not decided"),
    ],
)
def test_a_claim_holds_where_its_interval_is_on_its_side(low, high, below: bool, verdict: str) -> None:
    assert Claim("any", "birds", 0.0, low, high, None, below).verdict == verdict
