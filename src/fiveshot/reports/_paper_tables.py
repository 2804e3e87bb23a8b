"""The paper's tables with its results next to ours, the claims that hold, and the configuration."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.benchmark import (
    PROTOCOLS,
    BetaAblation,
    PartsAblation,
    Protocol,
    RunRecord,
    Summary,
    compare_runs,
    features_fingerprint,
    installed_versions,
    mean_hm,
    open_features,
    paper_methods,
    paper_result,
    summarize_runs,
)
from fiveshot.core.scorers import RECIPES
from fiveshot.data import dataset_spec
from fiveshot.features import FeatureSet
from fiveshot.metrics import RESAMPLES, mean_interval, mean_std, resampled_interval
from fiveshot.reports._bench import (
    PAPER_BLOCK,
    alpha_notes,
    backbone_notes,
    described,
    image_notes,
    seed_words,
    version_notes,
)
from fiveshot.reports._comparison import LEADING
from fiveshot.reports._formats import write_text
from fiveshot.reports._paper_figures import SimilarityPoints, similarity_points
from fiveshot.reports._table import Cell, Column, Number, Row, Table
from fiveshot.reports._variants import Variant, method_label
from fiveshot.reports.paper_plan import ABLATION_PROTOCOL, SETTINGS, MissingFeatures, Procedure, Setting

MEASURES = ("A_HM", "A_last", "A_inc")
Records = Mapping[str, RunRecord]  # by the folder of their job
PAIRS = {"teen": "ncm", "c-fecam": "fecam", "c-ranpac": "ranpac"}  # each calibrated method, and what it calibrates
BEST = "c-ranpac"


@dataclass(frozen=True, eq=False)
class Measured:
    """A setting of a table or figure, and for each of its rows the runs."""

    setting: Setting
    variants: tuple[Variant, ...]

    @classmethod
    def of(cls, setting: Setting, records: Records) -> Measured:
        """Return a setting with its runs among these."""
        found = []
        for row in setting.jobs:
            members = tuple(records[job.folder] for job in row)
            summary = summarize_runs(members)
            found.append(Variant(method_label(summary.method, summary.flavor), summary, members))
        return cls(setting, tuple(found))

    @property
    def protocol(self) -> Protocol:
        """The protocol of the setting."""
        return self.setting.protocol

    @property
    def features(self) -> FeatureSet:
        """The features of the runs."""
        return open_features(self.setting.features)

    @property
    def summaries(self) -> list[Summary]:
        """One for each row."""
        return [variant.summary for variant in self.variants]


def main_table(target: str, measured: Sequence[Measured]) -> Table:
    """Return table 1, 2 or 3 in the paper's layout: a block per dataset, columns for small and big start.

    A setting that is not in ``measured`` is left empty; a dataset without any setting is left out.
    """
    known = {one.protocol.name: {summary.method: summary for summary in one.summaries} for one in measured}
    settings = [PROTOCOLS[name] for name in SETTINGS[target]]
    datasets = dict.fromkeys(protocol.dataset for protocol in settings if protocol.name in known)
    starts = list(dict.fromkeys(protocol.name.split("/")[1] for protocol in settings))
    rows: list[Row] = []
    for dataset in datasets:
        title = dataset_spec(dataset).title
        here = [PROTOCOLS[f"{dataset}/{start}"] for start in starts]
        ours = [known.get(protocol.name, {}) for protocol in here]
        for method in (method for method in RECIPES if any(method in found for found in ours)):
            pairs = zip(ours, here, strict=True)
            cells = [cell for found, protocol in pairs for cell in _own(found.get(method), protocol)]
            rows.append(Row((method_label(method), *cells), title))
        for name in paper_methods(here[0]):
            cells = [cell for protocol in here for cell in _papers(name, protocol)]
            rows.append(Row((name, *cells), f"{title}: {PAPER_BLOCK}"))
    columns = [Column("method")]
    for start in starts:
        protocol = next(setting for setting in settings if setting.name.endswith(start))
        group = start if len(starts) > 1 else ""
        columns += [Column(f"A_HM {n}", group, True, 2, spread=False, marked=2) for n in protocol.paper_sessions]
        columns += [Column(name, group, True, 2, marked=2) for name in MEASURES[1:]]
    seeds = seed_words([summary for one in measured for summary in one.summaries])
    notes = [f"Accuracies in % ({seeds}), A_HM n after session n."]
    for one in measured:
        images = image_notes(one.summaries[0].images, one.protocol)
        notes += [f"{one.protocol.name}: {note}" for note in images]
    notes += [note for one in measured for note in alpha_notes(one.summaries, one.protocol.dataset)]
    notes += dict.fromkeys(note for one in measured for note in _backbone_notes(one))
    notes += version_notes([summary for one in measured for summary in one.summaries])
    return Table(f"Table {target[-1]}", tuple(columns), tuple(rows), tuple(notes))


def beta_table(measured: Measured) -> Table:
    """Return table 5, the ablation over beta."""
    rows = []
    for row, summary in zip(measured.setting.rows, measured.summaries, strict=True):
        cells = (str(row.changes["beta"]), *_last_measures(summary), *_last_measures(row.paper))
        rows.append(Row(cells, method_label(row.method)))
    columns = (Column("β"), *_beside())
    return Table("Table 5: scale β of the covariance", columns, tuple(rows), _notes(measured))


def parts_table(measured: Measured) -> Table:
    """Return table 6, the effect of calibrating means and covariances."""
    rows = []
    for row, summary in zip(measured.setting.rows, measured.summaries, strict=True):
        assert row.calibrated is not None  # every row of table 6 has it
        ticks = ("✓" if part else "×" for part in row.calibrated)
        cells = (*_last_measures(summary), *_last_measures(row.paper))
        family = "FeCAM" if "fecam" in row.method else "RanPAC"
        rows.append(Row((method_label(row.method), *ticks, *cells), f"{family} and variants"))
    meaning = (
        "μ, Σ: whether the mean and the covariance of new classes are calibrated. "
        "RanPAC*: samples of the new classes, not calibrated."
    )
    columns = (Column("method"), Column("μ"), Column("Σ"), *_beside())
    return Table("Table 6: what is calibrated", columns, tuple(rows), (meaning, *_notes(measured)))


def _last_measures(found: Summary | BetaAblation | PartsAblation | None) -> tuple[Cell, ...]:
    """Return A_HM after the last session, A_last and A_inc, of our results or of the paper's row."""
    if isinstance(found, Summary):
        return tuple(map(Number.of, (found.a_hm[-1], found.a_last, found.a_inc)))
    return (None,) * 3 if found is None else tuple(map(Number, (found.a_hm, found.a_last, found.a_inc)))


def _own(summary: Summary | None, protocol: Protocol) -> list[Cell]:
    """Return our results for a method under a protocol, in the columns of a main table."""
    if summary is None:
        return [None] * (len(protocol.paper_sessions) + 2)
    after = [Number.of(summary.a_hm[number - 1]) for number in protocol.paper_sessions]
    return [*after, Number.of(summary.a_last), Number.of(summary.a_inc)]


def _papers(name: str, protocol: Protocol) -> list[Cell]:
    """Return the paper's results, in the same columns."""
    theirs = paper_result(protocol, name)
    return [*map(Number, theirs.a_hm), Number(theirs.a_last), Number(theirs.a_inc)]


def _beside() -> tuple[Column, ...]:
    """Return the columns of an ablation: ours, and next to them the paper's."""
    return tuple(Column(name, group, True, 2, marked=1) for group in ("here", "paper") for name in MEASURES)


def _notes(measured: Measured) -> tuple[str, ...]:
    """Return notes on the setting of an ablation."""
    protocol, summaries = measured.protocol, measured.summaries
    seeds = seed_words(summaries)
    notes = [
        f"Here: {protocol.name}, {described(protocol)}; accuracies in % ({seeds}), A_HM after the last session.",
        *image_notes(summaries[0].images, protocol),
    ]
    if protocol.name != ABLATION_PROTOCOL:
        notes.append(f"The paper ablates on {ABLATION_PROTOCOL}, whose features are not there or not asked for.")
    return (*notes, *_backbone_notes(measured), *version_notes(summaries))


def _backbone_notes(measured: Measured) -> tuple[str, ...]:
    return backbone_notes(measured.features.provenance.as_dict(), paper=True)


@dataclass(frozen=True)
class Claim:
    """One claim of the paper in one setting: our result, and the paper's.

    It is about the sign of ``value``: ``below`` zero, or else above it.
    """

    name: str
    setting: str
    value: float
    low: float | None
    high: float | None
    paper: float | None
    below: bool = False
    percent: bool = True

    @property
    def verdict(self) -> str:
        """Whether it holds: the interval must lie on the claimed side of zero.

        >>> [Claim("gain", "birds", 0.02, low, 0.05, None).verdict for low in (0.01, -0.01)]
        ['holds', 'not decided']
        """
        if self.low is None or self.high is None:
            return "not decided"
        low, high = (-self.high, -self.low) if self.below else (self.low, self.high)
        return "holds" if low > 0 else "does not hold" if high < 0 else "not decided"


def paper_claims(measured: Sequence[Measured], similarities: Sequence[Measured]) -> list[Claim]:
    """Return the paper's claims for the settings with features."""
    found = [claim for one in measured for claim in _claims_of(one)]
    for one in similarities:
        points = similarity_points(one.protocol, one.features)
        name = "near classes have similar covariances: r with distance"
        ends = _correlation_interval(points)
        where = f"figure 2, {one.protocol.name}"
        found.append(Claim(name, where, points.correlation, *ends, None, below=True, percent=False))
    return found


def claims_table(claims: Sequence[Claim], draws: int) -> Table:
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
    held = sum(claim.verdict == "holds" for claim in claims)
    against = sum(claim.verdict == "does not hold" for claim in claims)
    over = "resampled test images (one draw of the shots)"
    if draws > 1:
        over = f"{draws} draws of the shots, Student's t"
    notes = (
        f"{held} of {len(claims)} hold, {against} do not, {len(claims) - held - against} not decided.",
        "Gains are differences in mean A_HM, in points; the paper's are over the sessions that it prints.",
        f"95 % intervals over {over}; those of correlations over resampled classes.",
        "A claim holds where its interval lies on the claimed side of zero.",
    )
    return Table("What the paper claims, on these features", columns, tuple(rows), notes)


def write_configuration(
    folder: Path,
    plans: Mapping[str, Sequence[Setting]],
    how: Procedure,
    records: Records,
    *,
    files: Sequence[Path],
    missing: Sequence[MissingFeatures],
) -> Path:
    """Write the configuration: the procedure, versions, seeds, hashes of features, weights and files."""
    sources = {setting.protocol.name: setting.features for plan in plans.values() for setting in plan}
    features = {
        name: {
            "source": source,
            "sha256": features_fingerprint(source),
            "provenance": open_features(source).provenance.as_dict(),
        }
        for name, source in sources.items()
    }
    about: dict[str, Any] = {
        "target": "all",
        "procedure": {**asdict(how), "parameters": dict(how.parameters)},
        "seeds": sorted({record.seed for record in records.values()}),
        "versions": installed_versions(),
        "machine": platform.platform(),
        "features": features,
        "runs": {folder: record.config for folder, record in sorted(records.items())},
        "files": {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        "missing": list(map(str, missing)),
    }
    return write_text(folder / "configuration.json", json.dumps(about, indent=1, default=str))


def _claims_of(measured: Measured) -> Iterator[Claim]:
    """Yield the claims about methods in one setting."""
    name = measured.protocol.name
    runs = {variant.summary.method: variant.records for variant in measured.variants}
    theirs = {method: paper_result(name, method) for method in runs} if measured.protocol.is_papers else {}
    means = {method: float(np.mean(result.a_hm)) for method, result in theirs.items()}
    others = [method for method in runs if method != BEST]
    second = max(others, key=lambda method: np.mean([mean_hm(run.metrics) for run in runs[method]]))
    found = compare_runs(runs[BEST], runs[second]).differences[LEADING]
    gap = means[BEST] - max(means[method] for method in others) if means else None
    title = f"{method_label(BEST)} leads; here before {method_label(second)}"
    yield Claim(title, name, found.mean, found.low, found.high, gap)
    if theirs:
        order = np.array([theirs[method].a_last for method in runs])
        mean, low, high = _order_agreement(list(runs.values()), order)
        title = "the order of methods in A_last: Kendall's τ with the paper's"
        most = float(kendall(order[:, None], order)[0])  # below 1, where the paper has ties
        yield Claim(title, name, mean, low, high, most, percent=False)
    for calibrated, plain in PAIRS.items():
        found = compare_runs(runs[calibrated], runs[plain]).differences[LEADING]
        gain = means[calibrated] - means[plain] if means else None
        title = f"calibration gains: {method_label(calibrated)} less {method_label(plain)}"
        yield Claim(title, name, found.mean, found.low, found.high, gain)


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
