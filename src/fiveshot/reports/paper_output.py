"""From finished runs to the files of one table or figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot.benchmark import RunRecord, Summary, open_features, summarize_runs
from fiveshot.benchmark.ablation import get_ablation
from fiveshot.benchmark.paper import PREFIX
from fiveshot.data.registry import dataset_spec
from fiveshot.reports.ablation_table import ablation_table
from fiveshot.reports.canvas import save_figure
from fiveshot.reports.files import write_table
from fiveshot.reports.method_style import method_label
from fiveshot.reports.paper_plan import Setting
from fiveshot.reports.paper_tables import beta_table, main_table, parts_table
from fiveshot.reports.similarity import similarity_points
from fiveshot.reports.table import Table
from fiveshot.reports.variants import Variant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Records = Mapping[str, RunRecord]  # by the folder of their job
ONE_SETTING = {"table5": beta_table, "table6": parts_table}


def write_target(
    target: str, settings: Sequence[Setting], records: Records, folder: Path
) -> tuple[list[Path], list[Table]]:
    """Write the files of a table or figure; return them and the tables among them."""
    if not settings:
        return [], []
    files: list[Path] = []
    tables: list[Table] = []
    if target.startswith("table"):
        tables.append(_table(target, settings, records))
    elif target.startswith(PREFIX):
        table, figure = _ablation(target.removeprefix(PREFIX), settings[0], records)
        tables.append(table)
        files += save_figure(figure, folder / target)
    else:
        files += save_figure(_figure(target, settings, records), folder / target)
    tables = [replace(table, notes=(*procedure_notes(settings[0]), *table.notes)) for table in tables]
    for table in tables:
        files += write_table(table, folder / target)
    return files, tables


def procedure_notes(setting: Setting) -> tuple[str, ...]:
    """Say where a table was made in another way than the paper's text with drawn shots.

    >>> from fiveshot.reports.paper_plan import plan_target
    >>> (setting,) = plan_target("table6", {"cub200": "embedded:cub200"}, seeds=1, flavour="published")
    >>> procedure_notes(setting)
    ('Methods as in the published code.',)
    """
    notes = []
    if any(job.flavour == "published" for row in setting.rows for job in row):
        notes.append("Methods as in the published code.")
    if setting.protocol.shot_draw == "first":
        notes.append("The shots are the first images of each new class.")
    return tuple(notes)


def _table(target: str, settings: Sequence[Setting], records: Records) -> Table:
    if target in ONE_SETTING:
        (setting,) = settings
        return ONE_SETTING[target](_summaries(setting, records), setting.protocol, _provenance(setting))
    return main_table(
        target,
        {setting.protocol.name: _summaries(setting, records) for setting in settings},
        {setting.protocol.name: _provenance(setting) for setting in settings},
    )


def _figure(target: str, settings: Sequence[Setting], records: Records) -> Figure:
    from fiveshot.reports import figures

    titles = [f"{dataset_spec(s.protocol.dataset).title} ({s.protocol.name.split('/')[-1]})" for s in settings]
    if target == "figure2":
        found = [similarity_points(setting.protocol, open_features(setting.features)) for setting in settings]
        return figures.similarity_scatter(dict(zip(titles, found, strict=True)))
    variants = [_variants(setting, records) for setting in settings]
    draw = figures.old_new_bars if target == "figure1" else figures.session_curves
    return draw(dict(zip(titles, variants, strict=True)))


def _ablation(name: str, setting: Setting, records: Records) -> tuple[Table, Figure]:
    from fiveshot.reports import figures

    ablation = get_ablation(name)
    series: dict[str, list[tuple[float, Summary]]] = {}
    for value, summary in zip(setting.values, _summaries(setting, records), strict=True):
        series.setdefault(summary.method, []).append((value, summary))
    table = ablation_table(ablation, series, setting.protocol, _provenance(setting))
    return table, figures.ablation_curves(ablation, series, title=setting.protocol.name)


def _summaries(setting: Setting, records: Records) -> list[Summary]:
    return [summarize_runs([records[job.folder] for job in row]) for row in setting.rows]


def _variants(setting: Setting, records: Records) -> list[Variant]:
    found = []
    for row in setting.rows:
        members = tuple(records[job.folder] for job in row)
        summary = summarize_runs(members)
        found.append(Variant(method_label(summary.method, summary.flavour), summary, members))
    return found


def _provenance(setting: Setting) -> dict[str, Any]:
    return open_features(setting.features).provenance.as_dict()
