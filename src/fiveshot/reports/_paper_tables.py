"""The paper's tables with its results next to ours, and the configuration."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fiveshot.benchmark import (
    PROTOCOLS,
    BetaAblation,
    PartsAblation,
    Protocol,
    RunRecord,
    Summary,
    features_fingerprint,
    installed_versions,
    open_features,
    paper_methods,
    paper_result,
    summarize_runs,
)
from fiveshot.core.scorers import RECIPES
from fiveshot.data import dataset_spec
from fiveshot.features import FeatureSet
from fiveshot.reports._bench import (
    PAPER_BLOCK,
    alpha_notes,
    backbone_notes,
    described,
    image_notes,
    seed_words,
    version_notes,
)
from fiveshot.reports._formats import write_text
from fiveshot.reports._table import Cell, Column, Number, Row, Table
from fiveshot.reports._variants import Variant, method_label
from fiveshot.reports.paper_plan import ABLATION_PROTOCOL, SETTINGS, MissingFeatures, Procedure, Setting

MEASURES = ("A_HM", "A_last", "A_inc")
Records = Mapping[str, RunRecord]  # by the folder of their job


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
