"""What the paper claims, and whether it holds on the available features: each claim with its interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark import BetaAblation, PartsAblation, RunRecord, compare_runs, mean_hm, paper_result
from fiveshot.metrics import RESAMPLES, PairedDifference, mean_interval, mean_std, resampled_interval
from fiveshot.reports._bench import version_notes
from fiveshot.reports._comparison import LEADING
from fiveshot.reports._paper_figures import SimilarityPoints, similarity_points
from fiveshot.reports._paper_tables import Measured
from fiveshot.reports._table import Column, Row, Table
from fiveshot.reports._variants import Variant, method_label
from fiveshot.reports.paper_plan import Configuration

PAIRS = {"teen": "ncm", "c-fecam": "fecam", "c-ranpac": "ranpac"}  # each calibrated method, and what it calibrates
BEST = "c-ranpac"
LOWERED = ("fecam", "ranpac")  # methods that a big first task puts below NCM, says the paper
UNTESTED = "cannot be tested here"


@dataclass(frozen=True)
class Claim:
    """One claim of the paper in one setting: our result, and the paper's.

    It is about the sign of ``value``: ``below`` zero, or else above it. Without a value there are no features to
    test it on.
    """

    name: str
    setting: str
    value: float | None
    low: float | None
    high: float | None
    paper: float | None
    below: bool = False
    percent: bool = True
    detectable: float | None = None

    @classmethod
    def of(
        cls, name: str, setting: str, found: PairedDifference, paper: float | None, *, below: bool = False
    ) -> Claim:
        """Return a claim about a difference of two heads."""
        return cls(name, setting, found.mean, found.low, found.high, paper, below, detectable=found.detectable)

    @classmethod
    def untested(cls, name: str, setting: str) -> Claim:
        """Return a claim that nothing here can test."""
        return cls(name, setting, None, None, None, None)

    @property
    def verdict(self) -> str:
        """Whether it holds: the interval must lie on the claimed side of zero.

        >>> [Claim("gain", "birds", 0.02, low, 0.05, None).verdict for low in (0.01, -0.01)]
        ['holds', 'not decided']
        >>> Claim.untested("gain", "cars").verdict
        'cannot be tested here'
        """
        if self.value is None:
            return UNTESTED
        if self.low is None or self.high is None:
            return "not decided"
        low, high = (-self.high, -self.low) if self.below else (self.low, self.high)
        return "holds" if low > 0 else "does not hold" if high < 0 else "not decided"


def paper_claims(
    measured: Sequence[Measured],
    ablations: Sequence[Measured] = (),
    similarities: Sequence[Measured] = (),
    untested: Sequence[str] = (),
) -> list[Claim]:
    """Return the paper's claims: in the settings of its tables 1 to 3, its tables 5 and 6, and its figure 2.

    ``untested`` are settings without features.
    """
    found = [claim for one in measured for claim in _claims_of(one)]
    found += [claim for one in ablations for claim in (*_best_beta(one), *_parts(one))]
    for one in similarities:
        points = similarity_points(one.protocol, one.features)
        name = "near classes have similar covariances: r with distance"
        ends = _correlation_interval(points)
        where = f"figure 2, {one.protocol.name}"
        found.append(Claim(name, where, points.correlation, *ends, None, below=True, percent=False))
    return found + [Claim.untested("all claims: no features", setting) for setting in untested]


def claims_table(claims: Sequence[Claim], measured: Sequence[Measured], draws: int) -> Table:
    """Return the one-page summary: a row for each claim, with its interval and whether it holds."""
    rows = []
    for claim in claims:
        scale, digits = (100, 1) if claim.percent else (1, 2)
        value, *rest = (
            "" if x is None else f"{scale * x:+.{digits}f}"
            for x in (claim.value, claim.low, claim.high, claim.paper)
        )
        interval = f"[{rest[0]}, {rest[1]}]" if rest[0] else ""
        rows.append(Row((claim.name, value, interval, rest[2], claim.verdict), claim.setting))
    columns = tuple(map(Column, ("claim", "here", "interval", "paper", "verdict")))
    tested = [claim.verdict for claim in claims if claim.verdict != UNTESTED]
    held, against = tested.count("holds"), tested.count("does not hold")
    over = "resampled test images (one draw of the shots)"
    if draws > 1:
        over = f"{draws} draws of the shots and the test images together (hierarchical bootstrap)"
    notes = (
        f"Hold: {held} of {len(tested)}. Do not hold: {against}. Not decided: {len(tested) - held - against}.",
        "Differences are in mean A_HM, in points; the paper's are over the sessions that it prints.",
        f"95 % intervals over {over}; those of τ over draws, those of correlations over resampled classes.",
        "Of 20 such intervals, about one misses the truth.",
        "A claim holds where its interval lies on the claimed side of zero.",
        *_power_note([claim.detectable for claim in claims if claim.detectable is not None], draws),
        *version_notes([summary for one in measured for summary in one.summaries]),
    )
    return Table("What the paper claims, on these features", columns, tuple(rows), notes)


def _power_note(detectable: Sequence[float], draws: int) -> Iterator[str]:
    """Yield which differences the draws can show.

    >>> list(_power_note([0.004, 0.0125], 5))
    ['These 5 draws can show differences of 0.4 to 1.2 points, depending on the pair (found ...']
    """
    if detectable:
        least, most = (f"{100 * value:.1f}" for value in (min(detectable), max(detectable)))
        yield (
            f"These {draws} draws can show differences of {least} to {most} points, depending on the pair (found "
            "with a probability of 80 %)."
        )


def _claims_of(measured: Measured) -> Iterator[Claim]:
    """Yield the claims about methods in one setting."""
    name = measured.protocol.name
    runs = {variant.summary.method: variant.records for variant in measured.variants}
    theirs = {method: paper_result(name, method) for method in runs} if measured.protocol.is_papers else {}
    means = {method: float(np.mean(result.a_hm)) for method, result in theirs.items()}
    others = [method for method in runs if method != BEST]
    second = max(others, key=lambda method: np.mean([mean_hm(run.metrics) for run in runs[method]]))
    gap = means[BEST] - max(means[method] for method in others) if means else None
    title = f"{method_label(BEST)} leads; here before {method_label(second)}"
    yield Claim.of(title, name, _difference(runs[BEST], runs[second]), gap)
    if theirs:
        order = np.array([theirs[method].a_last for method in runs])
        mean, low, high = _order_agreement(list(runs.values()), order)
        title = "the order of methods in A_last: Kendall's τ with the paper's"
        most = float(kendall(order[:, None], order)[0])  # below 1, where the paper has ties
        yield Claim(title, name, mean, low, high, most, percent=False)
    for calibrated, plain in PAIRS.items():
        gain = means[calibrated] - means[plain] if means else None
        title = f"calibration gains: {method_label(calibrated)} less {method_label(plain)}"
        yield Claim.of(title, name, _difference(runs[calibrated], runs[plain]), gain)
    for method in LOWERED if name.endswith("/big") else ():
        loss = means[method] - means["ncm"] if means else None
        if loss is None or loss < 0:  # on Cars and Aircraft, RanPAC is above NCM in the paper itself
            title = f"a big first task puts {method_label(method)} below NCM: {method_label(method)} less NCM"
            yield Claim.of(title, name, _difference(runs[method], runs["ncm"]), loss, below=True)


def _best_beta(measured: Measured) -> Iterator[Claim]:
    """Yield for each method of table 5 whether the paper's best β is the best here."""
    families: dict[str, list[tuple[Configuration, BetaAblation, Variant]]] = {}
    for row, variant in zip(measured.setting.rows, measured.variants, strict=True):
        if isinstance(row.paper, BetaAblation):
            families.setdefault(row.method, []).append((row, row.paper, variant))
    for method, rows in families.items():
        rows.sort(key=lambda one: -one[1].a_hm)
        (best, paper, own), *rest = rows
        second = max(rest, key=lambda one: np.mean([mean_hm(run.metrics) for run in one[2].records]))
        value = best.changes["beta"]
        title = f"β = {value:g} is best for {method_label(method)}; here before β = {second[0].changes['beta']:g}"
        gap = paper.a_hm - rest[0][1].a_hm
        yield Claim.of(title, _where("table 5", measured), _difference(own.records, second[2].records), gap)


def _parts(measured: Measured) -> Iterator[Claim]:
    """Yield for each row of table 6 whether it is better than the one before it, as in the paper."""
    rows = [
        (row.paper, variant)
        for row, variant in zip(measured.setting.rows, measured.variants, strict=True)
        if isinstance(row.paper, PartsAblation)
    ]
    for (before, first), (paper, second) in pairwise(rows):
        if ("RanPAC" in before.method) == ("RanPAC" in paper.method):
            title = f"{_parts_label(paper)} less {_parts_label(before)}"
            found = _difference(second.records, first.records)
            yield Claim.of(title, _where("table 6", measured), found, paper.a_hm - before.a_hm)


def _parts_label(row: PartsAblation) -> str:
    """Return the name of a row of table 6, with what is calibrated.

    >>> _parts_label(PartsAblation("C-FeCAM", True, False, 0.2, 0.2, 0.4))
    'C-FeCAM (μ)'
    """
    parts = [name for name, there in (("μ", row.mean_calibrated), ("Σ", row.covariance_calibrated)) if there]
    return f"{row.method} ({' and '.join(parts)})" if parts else row.method


def _where(table: str, measured: Measured) -> str:
    return f"{table}, {measured.protocol.name}"


def _difference(first: Sequence[RunRecord], second: Sequence[RunRecord]) -> PairedDifference:
    """Return the difference of two heads in mean A_HM."""
    return compare_runs(first, second).differences[LEADING]


def _order_agreement(
    runs: Sequence[Sequence[RunRecord]], order: NDArray[np.float64]
) -> tuple[float, float, float]:
    """Return Kendall's τ of our A_last with the paper's, with its interval over draws, or images of one draw."""
    by_draw = np.array([[record.metrics.a_last for record in own] for own in runs])  # (methods, draws)
    spread = mean_std(kendall(by_draw, order))
    ends = mean_interval(spread)
    if ends is None:
        resampled = np.stack([own[0].resampled["a_last"] for own in runs])
        ends = resampled_interval(kendall(resampled, order))
    return spread.mean, *ends


def kendall(values: NDArray[np.float64], order: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Kendall's τ-a of each column of values with an order; equal values count nothing.

    >>> kendall(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]), np.array([0.1, 0.2, 0.3]))
    array([ 1., -1.])
    """
    pairs = list(combinations(range(len(order)), 2))
    signs = [np.sign(values[i] - values[j]) * np.sign(order[i] - order[j]) for i, j in pairs]
    return np.asarray(np.mean(signs, axis=0), dtype=np.float64)


def _correlation_interval(points: SimilarityPoints) -> tuple[float, float]:
    """Return the interval of a correlation over resampled new and base classes."""
    rng = np.random.default_rng(0)
    new, base = points.distance.shape
    found = []
    for _ in range(RESAMPLES):
        chosen = np.ix_(rng.integers(new, size=new), rng.integers(base, size=base))
        found.append(np.corrcoef(points.distance[chosen].ravel(), points.similarity[chosen].ravel())[0, 1])
    return resampled_interval(found)
