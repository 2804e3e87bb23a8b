"""The summary of claims and the configuration that go with all tables and figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fiveshot.benchmark import RunRecord, open_features, paper_result, run_job
from fiveshot.reports._paper import distinct_jobs
from fiveshot.reports._paper_figures import similarity_points
from fiveshot.reports._paper_tables import Claim, Measured, claims_table, kendall, paper_claims
from fiveshot.reports.paper_plan import Procedure, plan_target


def test_gains_have_the_interval_of_a_paired_t_test(toy_folder: Path) -> None:
    sources = {"cifar100": str(toy_folder / "cifar100.safetensors")}
    settings = plan_target("table3", sources, Procedure(seeds=2, parameters={"n_projections": 32}))
    records = {job.folder: run_job(job) for job in distinct_jobs([settings])}
    measured = [Measured.of(setting, records) for setting in settings]
    summary = claims_table(paper_claims(measured, measured), draws=2)
    rows = {row.cells[0]: row.cells for row in summary.rows}
    assert len(rows) == 6
    for label, calibrated, plain in (("TEEN less NCM", "teen", "ncm"), ("C-FeCAM less FeCAM", "c-fecam", "fecam")):
        first, second = (mean_hms(records.values(), method) for method in (calibrated, plain))
        low, high = stats.ttest_rel(first, second).confidence_interval(0.95)
        _, value, interval, paper, verdict = rows[f"calibration gains: {label}"]
        assert value == f"{100 * (np.mean(first) - np.mean(second)):+.1f}"
        assert interval == f"[{100 * low:+.1f}, {100 * high:+.1f}]"
        theirs = [np.mean(paper_result("cifar100/small", method).a_hm) for method in (calibrated, plain)]
        assert paper == f"{100 * (theirs[0] - theirs[1]):+.1f}"
        assert verdict == ("holds" if low > 0 else "does not hold" if high < 0 else "not decided")
    trend = next(row for name, row in rows.items() if "near classes" in name)
    points = similarity_points(settings[0].protocol, open_features(sources["cifar100"]))
    assert trend[1] == f"{points.correlation:+.2f}"
    low, high = map(float, trend[2].strip("[]").split(", "))
    assert low < points.correlation < high
    assert "2 draws" in " ".join(summary.notes)


def mean_hms(records: Iterable[RunRecord], method: str) -> list[float]:
    own = sorted((record for record in records if record.method == method), key=lambda record: record.seed)
    return [float(np.mean([session.a_hm for session in record.metrics.sessions[1:]])) for record in own]


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
