"""Make the paper's tables and figures from the available features: plan the runs, run them, write files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fiveshot.benchmark import (
    WIDTHS,
    Job,
    Outcome,
    Protocol,
    ShotDraw,
    Summary,
    estimated_seconds,
    get_protocol,
    sweep,
)
from fiveshot.core.scorers import Flavor
from fiveshot.data import dataset_spec
from fiveshot.reports._bench import ablation_table, described
from fiveshot.reports._claims import claims_table, paper_claims
from fiveshot.reports._formats import write_table
from fiveshot.reports._paper_tables import (
    Measured,
    beta_table,
    main_table,
    parts_table,
    write_configuration,
)
from fiveshot.reports._table import Table
from fiveshot.reports.paper_plan import (
    ABLATION_PROTOCOL,
    ABLATIONS,
    PREFIX,
    SETTINGS,
    SUBSTITUTED,
    MissingFeatures,
    Procedure,
    Setting,
    find_feature_files,
    missing_features,
    plan_target,
    resolve_target,
    target_protocols,
)
from fiveshot.storage import FilePath, make_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RunJobs = Callable[[Sequence[Job], Path], Iterable[Outcome]]
MAIN_TABLES = ("table1", "table2", "table3")
PAPER_WIDTH = 10_000  # random features
ONE_SETTING = {"table5": beta_table, "table6": parts_table}


@dataclass(frozen=True)
class PaperOutput:
    """The files and tables that were made, and the missing features.

    Attributes
    ----------
    files : tuple of Path
        What was written.
    tables : tuple of Table
        The tables, as values.
    missing : tuple of MissingFeatures
        Datasets without features, with the commands that get them.
    width : int or None
        Reduced number of random features, if the heads' own number would have taken too long.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.reports import make_paper
    >>> with TemporaryDirectory() as out:
    ...     made = make_paper("table2", features_dir=None, out=out)
    >>> made.files, made.tables, [missing.dataset for missing in made.missing]
    ((), (), ['cars'])
    """

    files: tuple[Path, ...]
    tables: tuple[Table, ...]
    missing: tuple[MissingFeatures, ...]
    width: int | None = None


def make_paper(
    target: str,
    *,
    features_dir: FilePath | None,
    out: FilePath,
    embedded: bool = True,
    seeds: int = 1,
    flavor: Flavor = "paper",
    shot_draw: ShotDraw = "random",
    parameters: Mapping[str, Any] | None = None,
    protocol: Protocol | None = None,
    seconds: float | None = None,
    run: RunJobs = sweep,
) -> PaperOutput:
    """Make a table or figure of the paper, all of them (``all``), or an ablation (``ablation-tau``).

    Runs are kept below ``out/runs`` and not repeated.

    Parameters
    ----------
    target : str
        What to make.
    features_dir : path or None
        A folder of feature files.
    out : path
        Folder for the files.
    embedded : bool, default True
        Use the embedded features for datasets without a file.
    seeds : int
        Draws of the shots.
    flavor, shot_draw : str
        ``"published"`` and ``"first"`` follow the published code.
    parameters : mapping, optional
        Parameters for the heads that have them.
    protocol : Protocol, optional
        Replaces ``cars/small`` in tables 5 and 6, figure 2 and the ablations. By default ``cub200/small`` replaces
        it if there are no features of cars.
    seconds : float, optional
        Approximate time limit of each draw. Heads use fewer random features to stay below it.
    run : callable, optional
        Takes jobs and the folder of runs, and yields outcomes.

    Returns
    -------
    PaperOutput
        Files, tables, and missing features.

    Raises
    ------
    InputError
        If the paper has no such target, or no head has such a parameter.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.features import FeatureSet, Provenance
    >>> from fiveshot.reports import make_paper
    >>> arrays = gaussian_classes(n_classes=100, n_features=4, train_per_class=6, test_per_class=2, seed=0)
    >>> toys = FeatureSet(*arrays, tuple(map(str, range(100))), Provenance.unknown("cifar100"))
    >>> with TemporaryDirectory() as folder:
    ...     toys.save(Path(folder) / "cifar100.safetensors")
    ...     made = make_paper("table3", features_dir=folder, out=folder, parameters={"n_projections": 32})
    >>> [file.name for file in made.files]
    ['table3.txt', 'table3.md', 'table3.tex', 'table3.csv']
    """
    targets = resolve_target(target)
    sources = find_feature_files(features_dir, embedded=embedded)
    parameters = parameters or {}
    unlimited = seconds is None or "n_projections" in parameters
    for width in (None,) if unlimited else (None, *WIDTHS):
        how = Procedure(seeds, flavor, shot_draw, parameters, width)
        plans = {name: plan_target(name, sources, how, protocol) for name in targets}
        jobs = distinct_jobs(plans.values())
        if seconds is None or sum(map(estimated_seconds, jobs)) <= seconds * seeds:
            break
    folder = make_folder(Path(out))
    records = {outcome.job.folder: outcome.record for outcome in run(jobs, folder / "runs")}
    found = {name: [Measured.of(setting, records) for setting in plan] for name, plan in plans.items()}
    files: list[Path] = []
    tables: list[Table] = []
    for name, measured in found.items():
        written, made = _write_target(name, measured, folder)
        files += written
        tables += made
    wanted = [entry for name in targets for entry in _wanted(name, protocol)]
    missing = missing_features(wanted, sources, features_dir)
    if target == "all" and files:
        summary = _summary(found, seeds)
        files += write_table(summary, folder / "summary")
        tables.append(summary)
        files.append(write_configuration(folder, plans, how, records, files=files, missing=missing))
    return PaperOutput(tuple(files), tuple(tables), missing, how.width)


def _summary(found: Mapping[str, Sequence[Measured]], seeds: int) -> Table:
    """Return which of the paper's claims hold on the available features."""
    main = [measured for name in MAIN_TABLES for measured in found[name]]
    ablations = [measured for name in ONE_SETTING for measured in found[name]]
    there = {measured.protocol.name for measured in main}
    untested = [name for table in MAIN_TABLES for name in SETTINGS[table] if name not in there]
    if any(measured.protocol.name != ABLATION_PROTOCOL for measured in (*ablations, *found["figure2"])):
        untested.append(f"tables 5 and 6 and figure 2, {ABLATION_PROTOCOL}")
    claims = paper_claims(main, ablations, found["figure2"], untested)
    table = claims_table(claims, main, seeds)
    how = dict.fromkeys(note for measured in main for note in procedure_notes(measured.setting))
    return replace(table, notes=(*how, *table.notes))


def distinct_jobs(plans: Iterable[Iterable[Setting]]) -> list[Job]:
    """Return every job of these plans once; tables and figures share many."""
    jobs = (job for settings in plans for setting in settings for row in setting.jobs for job in row)
    return list({job.folder: job for job in jobs}.values())


def procedure_notes(setting: Setting) -> tuple[str, ...]:
    """Return notes on differences from the paper's text with drawn shots.

    >>> (setting,) = plan_target("table6", {"cub200": "embedded:cub200"}, Procedure(flavor="published"))
    >>> procedure_notes(setting)
    ('Methods as in the published code.',)
    """
    notes = []
    if any(job.flavor == "published" for row in setting.jobs for job in row):
        notes.append("Methods as in the published code.")
    given = {job.parameters.get("n_projections", PAPER_WIDTH) for row in setting.jobs for job in row}
    widths = given - {PAPER_WIDTH}
    if len(widths) == 1:  # if it varies, the rows show it
        notes.append(f"RanPAC heads with {widths.pop():,} random features; the paper has {PAPER_WIDTH:,}.")
    if setting.protocol.shot_draw == "first":
        notes.append("The shots are the first images of each new class.")
    return tuple(notes)


def _write_target(target: str, measured: Sequence[Measured], folder: Path) -> tuple[list[Path], list[Table]]:
    """Write the files of a table or figure; return them and the tables among them."""
    if not measured:
        return [], []
    table, figure = None, None
    if target in ONE_SETTING:
        table = ONE_SETTING[target](measured[0])
    elif target in MAIN_TABLES:
        table = main_table(target, measured)
    elif target.startswith(PREFIX):
        table, figure = _ablation(target.removeprefix(PREFIX), measured[0])
    else:
        figure = _figure(target, measured)
    files: list[Path] = []
    if figure is not None:
        from fiveshot.reports._paper_figures import save_figure

        files += save_figure(figure, folder / target)
    if table is None:
        return files, []
    table = replace(table, notes=(*procedure_notes(measured[0].setting), *table.notes))
    return [*files, *write_table(table, folder / target)], [table]


def _figure(target: str, measured: Sequence[Measured]) -> Figure:
    """Return a figure of the paper, with one panel for each setting."""
    from fiveshot.reports import _paper_figures as figures

    protocols = [one.protocol for one in measured]
    titles = [f"{dataset_spec(own.dataset).title} ({own.name.split('/')[-1]})" for own in protocols]
    if target == "figure2":
        points = [figures.similarity_points(one.protocol, one.features) for one in measured]
        return figures.similarity_scatter(dict(zip(titles, points, strict=True)))
    draw = figures.old_new_bars if target == "figure1" else figures.session_curves
    return draw(dict(zip(titles, (one.variants for one in measured), strict=True)))


def _ablation(name: str, measured: Measured) -> tuple[Table, Figure]:
    """Return the table and the curves of an ablation."""
    from fiveshot.reports import _paper_figures as figures

    symbol, protocol = ABLATIONS[name].symbol, measured.protocol
    series: dict[str, list[tuple[float, Summary]]] = {}
    for row, summary in zip(measured.setting.rows, measured.summaries, strict=True):
        assert row.value is not None  # every row of an ablation has one
        series.setdefault(summary.method, []).append((row.value, summary))
    sessions = described(protocol) if name != "shots" else f"{protocol.n_classes} classes"
    title = f"{symbol} on {protocol.name}: {sessions}"
    table = ablation_table(title, symbol, series, measured.features.provenance.as_dict())
    return table, figures.ablation_curves(symbol, series, title=protocol.name)


def _wanted(target: str, protocol: Protocol | None) -> tuple[Protocol, ...]:
    """Return the expected protocols; for an ablation that the paper does not have, any protocol will do."""
    if protocol is not None and (target in SUBSTITUTED or target.startswith(PREFIX)):
        return (protocol,)
    return () if target.startswith(PREFIX) else target_protocols(target, get_protocol(ABLATION_PROTOCOL))
