"""Compare two heads on the same draws: the difference in each measure, and its confidence interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark.record import RunRecord, mean_hm
from fiveshot.errors import InputError, some_of
from fiveshot.metrics import (
    PairedDifference,
    hierarchical_difference,
    mean_std,
    paired_difference,
    resampled_difference,
)

# Each measure of a run, or None.
MEASURES: dict[str, Callable[[RunRecord], float | None]] = {
    "mean A_HM": lambda record: mean_hm(record.metrics),
    "A_last": lambda record: record.metrics.a_last,
    "A_inc": lambda record: record.metrics.a_inc,
    "gAcc": lambda record: record.metrics.g_acc,
    "forgetting": lambda record: record.metrics.forgetting.mean,
    "area": lambda record: record.area,
    "ECE": lambda record: record.calibration[-1] if record.calibration else None,
}
LOWER_IS_BETTER = ("forgetting", "ECE")
RESAMPLED = {"mean A_HM": "a_hm_mean", "A_last": "a_last", "A_inc": "a_inc"}


@dataclass(frozen=True)
class Comparison:
    """Two heads under one protocol, on the same features and draws.

    Attributes
    ----------
    seeds : tuple of int
        The draws of both heads.
    left_out : tuple of int
        Draws of only one head.
    first, second : mapping of str to float
        Each measure's mean over the draws.
    differences : mapping of str to PairedDifference
        The first minus the second.

    Examples
    --------
    >>> from fiveshot.benchmark import compare_runs, get_protocol, run
    >>> from fiveshot.features import embedded_features
    >>> teen, ncm = (run(get_protocol("cub200/big"), embedded_features(), method) for method in ("teen", "ncm"))
    >>> found = compare_runs([teen], [ncm])
    >>> found.seeds, found.differences["A_last"].over, found.differences["A_last"].n
    ((0,), 'images', 5794)
    """

    seeds: tuple[int, ...]
    left_out: tuple[int, ...]
    first: Mapping[str, float]
    second: Mapping[str, float]
    differences: Mapping[str, PairedDifference]


def compare_runs(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> Comparison:
    """Compare two heads by the draws of the shots that both were run with.

    Over several draws the intervals and p of mean A_HM, A_last and A_inc come from a hierarchical bootstrap: they
    cover other shots and other test images. Those of the other measures come from Student's paired t-test over the
    draws. With one draw, only test images are resampled, so other shots are not covered.

    Parameters
    ----------
    first, second : sequence of RunRecord
        The runs of each head, which differ only in their seed.

    Returns
    -------
    Comparison
        Means and differences.

    Raises
    ------
    InputError
        If the runs have different protocols or features, or no common draw.

    Examples
    --------
    >>> from fiveshot.benchmark import Protocol, compare_runs, run
    >>> from fiveshot.features import embedded_features
    >>> birds = embedded_features("cub200").restrict(["001.Black_footed_Albatross", "002.Laysan_Albatross"])
    >>> draws = [Protocol("two birds", "cub200", 2, 1, 1, shot_seed=seed) for seed in range(3)]
    >>> teen, ncm = ([run(draw, birds, method) for draw in draws] for method in ("teen", "ncm"))
    >>> compare_runs(teen, ncm).differences["A_last"].n
    3
    """
    runs = [{record.seed: record for record in records} for records in (first, second)]
    seeds = tuple(sorted(runs[0].keys() & runs[1].keys()))
    if not seeds:
        raise InputError(
            f"the runs have no common draw of the shots: seeds {_listed(runs[0])} and {_listed(runs[1])}",
            hint="run both with the same --shot-seed",
        )
    pairs = [(runs[0][seed], runs[1][seed]) for seed in seeds]
    for pair in pairs:
        _require_same_setting(*pair)
    means: tuple[dict[str, float], dict[str, float]] = ({}, {})
    differences: dict[str, PairedDifference] = {}
    for name, measure in MEASURES.items():
        sides = [[measure(record) for record in side] for side in zip(*pairs, strict=True)]
        known = [[value for value in side if value is not None] for side in sides]
        if known == sides:
            means[0][name], means[1][name] = (mean_std(side).mean for side in known)
            differences[name] = paired_difference(*known)
            if name in RESAMPLED:
                differences[name] = _resampled(pairs, RESAMPLED[name], np.subtract(known[0], known[1]))
    left_out = tuple(sorted(runs[0].keys() ^ runs[1].keys()))
    return Comparison(seeds, left_out, *means, differences)


def _listed(seeds: Iterable[int]) -> str:
    return some_of([str(seed) for seed in sorted(seeds)])


def _resampled(
    pairs: Sequence[tuple[RunRecord, RunRecord]], key: str, values: NDArray[np.float64]
) -> PairedDifference:
    """Return the mean of a difference over draws, with an interval that covers other test images."""
    images = np.stack([one.resampled[key] - other.resampled[key] for one, other in pairs])  # (draws, resamples)
    if len(pairs) == 1:
        return resampled_difference(float(values[0]), images[0], len(pairs[0][0].y_true))
    return hierarchical_difference(values, images)


def _require_same_setting(first: RunRecord, second: RunRecord) -> None:
    """Refuse runs that differ in more than the head."""
    what = {
        "protocols": [record.config["protocol"] | {"paper_sessions": None} for record in (first, second)],
        "session lists": [record.config.get("sessions") for record in (first, second)],
        "features": [record.config["features"] for record in (first, second)],
        "test images": [record.y_true.tolist() for record in (first, second)],
    }
    for name, (one, other) in what.items():
        if one != other:
            raise InputError(
                f"runs with different {name} cannot be compared",
                hint="compare heads under one protocol on one set of features",
            )
