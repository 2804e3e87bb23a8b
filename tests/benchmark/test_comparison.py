from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fiveshot.benchmark import Protocol, RunRecord, compare_runs, run
from fiveshot.benchmark.comparison import MEASURES, RESAMPLED
from fiveshot.errors import InputError
from fiveshot.features import FeatureSet

PROTOCOL = Protocol("small", "gaussian", n_classes=12, base_classes=6, increment=2, shots=2)


@pytest.fixture(scope="module")
def heads(small_features: FeatureSet) -> dict[str, list[RunRecord]]:
    draws = [PROTOCOL.replace(shot_seed=seed) for seed in range(4)]
    return {method: [run(draw, small_features, method) for draw in draws] for method in ("ncm", "teen")}


def test_differences_over_draws_are_those_of_a_paired_t_test(heads: dict[str, list[RunRecord]]) -> None:
    found = compare_runs(heads["teen"], heads["ncm"])
    assert (found.seeds, found.left_out) == ((0, 1, 2, 3), ())
    assert set(found.differences) == set(MEASURES)
    for name, difference in found.differences.items():
        first, second = ([MEASURES[name](record) for record in heads[method]] for method in ("teen", "ncm"))
        assert found.first[name] == pytest.approx(np.mean(first))
        assert difference.mean == pytest.approx(np.mean(first) - np.mean(second))
        if np.std(np.subtract(first, second)) > 0:
            over_draws = stats.ttest_rel(first, second)
            if name in RESAMPLED:  # also over the test images, so less certain
                low, high = over_draws.confidence_interval()
                assert difference.over == "draws and images"
                assert difference.low < difference.mean < difference.high
                assert difference.detectable > 0
                assert difference.high - difference.low > 0.5 * (high - low)
            else:
                assert difference.over == "draws"
                assert difference.p == pytest.approx(over_draws.pvalue)
    assert found == compare_runs(heads["teen"], heads["ncm"])


def test_only_common_draws_are_paired(heads: dict[str, list[RunRecord]]) -> None:
    found = compare_runs(heads["teen"][:3], heads["ncm"][1:])
    assert (found.seeds, found.left_out) == ((1, 2), (0, 3))
    with pytest.raises(InputError, match="no common draw of the shots: seeds 0 and 3"):
        compare_runs(heads["teen"][:1], heads["ncm"][3:])


def test_one_draw_is_compared_on_resampled_test_images(heads: dict[str, list[RunRecord]]) -> None:
    found = compare_runs(heads["teen"][:1], heads["ncm"][:1]).differences
    assert (found["A_last"].over, found["A_last"].n) == ("images", 72)
    assert found["A_last"].low <= found["A_last"].mean <= found["A_last"].high
    assert (found["gAcc"].low, found["gAcc"].p) == (None, None)
    same = compare_runs(heads["ncm"][:1], heads["ncm"][:1]).differences["mean A_HM"]
    assert (same.mean, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_a_head_that_is_clearly_better_is_found_so(heads: dict[str, list[RunRecord]]) -> None:
    good = heads["ncm"][0]
    guessing = np.where(good.predictions >= 0, good.session_classes[0][0], -1)
    found = compare_runs([good], [replace(good, predictions=guessing)]).differences["A_last"]
    assert found.low > 0
    assert found.p < 0.01


@pytest.mark.parametrize("changes", [{"protocol": {"shots": 3}}, {"features": "others"}, {"sessions": "lists"}])
def test_runs_of_other_settings_are_not_paired(heads: dict[str, list[RunRecord]], changes: dict) -> None:
    first = heads["teen"][0]
    config = {**first.config, **changes}
    if "protocol" in changes:
        config["protocol"] = {**first.config["protocol"], **changes["protocol"]}
    with pytest.raises(InputError, match="cannot be compared"):
        compare_runs([first], [replace(heads["ncm"][0], config=config)])


def test_a_record_keeps_calibration_and_trade_off(heads: dict[str, list[RunRecord]], tmp_path) -> None:
    record = heads["teen"][0]
    record.save(tmp_path / "run")
    again = RunRecord.load(tmp_path / "run")
    assert len(record.calibration) == len(record.session_classes) == 4
    assert again.calibration == record.calibration
    assert again.trade_off.area == record.trade_off.area
    assert again.images == record.images
    assert [counts.train for counts in record.images] == [48, 4, 4, 4]
    assert [counts.test for counts in record.images] == [36, 12, 12, 12]
    steps = dict(again.logged())
    assert list(steps) == [0, 1, 2, 3]
    assert steps[3]["a_last"] == record.metrics.a_last == steps[3]["accuracy"]
    assert "a_last" not in steps[2]
