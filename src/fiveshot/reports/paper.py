"""Make the paper's tables and figures anew from whatever features are there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fiveshot.benchmark import Job, Outcome, Protocol, get_protocol, sweep
from fiveshot.benchmark.paper import ABLATION_PROTOCOL, PREFIX, SUBSTITUTED, resolve_target, target_protocols
from fiveshot.benchmark.protocol import ShotDraw
from fiveshot.heads.recipes import Flavour
from fiveshot.reports.feature_files import MissingFeatures, find_feature_files, missing_features
from fiveshot.reports.files import make_folder
from fiveshot.reports.paper_output import write_target
from fiveshot.reports.paper_plan import Setting, plan_target
from fiveshot.reports.table import Table


@dataclass(frozen=True)
class PaperResult:
    """What was written, the tables as values, and which features were not there.

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


def make_paper(
    target: str,
    *,
    features_dir: str | os.PathLike[str] | None,
    out: str | os.PathLike[str],
    seeds: int = 1,
    workers: int = 1,
    flavour: Flavour = "paper",
    shot_draw: ShotDraw = "random",
    parameters: Mapping[str, Any] | None = None,
    protocol: Protocol | None = None,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> PaperResult:
    """Regenerate a table or figure of the paper, all of them (``all``), or an ablation (``ablation-tau``).

    Whatever features ``features_dir`` and the package have are used, and what is missing is told. Runs are
    kept below ``out/runs`` and not repeated. ``parameters`` go to the heads that have them. ``protocol`` takes
    the place of ``cars/small`` in tables 5 and 6, figure 2 and the ablations; ``cub200/small`` does where
    nothing is given and there are no features of cars. ``flavour="published"`` with ``shot_draw="first"`` is the
    published code's way. ``on_outcome`` is called with each run as it is there.

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
    sources = find_feature_files(features_dir)
    plans = {
        name: plan_target(
            name,
            sources,
            seeds=seeds,
            flavour=flavour,
            shot_draw=shot_draw,
            parameters=parameters,
            protocol=protocol,
        )
        for name in targets
    }
    folder = make_folder(Path(out))
    records = {}
    for outcome in sweep(distinct_jobs(plans.values()), folder / "runs", workers=workers):
        records[outcome.job.folder] = outcome.record
        if on_outcome is not None:
            on_outcome(outcome)
    files: list[Path] = []
    tables: list[Table] = []
    for name, settings in plans.items():
        written, made = write_target(name, settings, records, folder)
        files += written
        tables += made
    wanted = [entry for name in targets for entry in _wanted(name, protocol)]
    return PaperResult(tuple(files), tuple(tables), missing_features(wanted, sources, features_dir))


def distinct_jobs(plans: Iterable[Iterable[Setting]]) -> list[Job]:
    """Return every job of these plans once; tables and figures share many."""
    jobs = (job for settings in plans for setting in settings for row in setting.rows for job in row)
    return list({job.folder: job for job in jobs}.values())


def _wanted(target: str, protocol: Protocol | None) -> tuple[Protocol, ...]:
    """Return the protocols a reader would expect; an ablation the paper does not have is content with any."""
    if protocol is not None and (target in SUBSTITUTED or target.startswith(PREFIX)):
        return (protocol,)
    return () if target.startswith(PREFIX) else target_protocols(target, get_protocol(ABLATION_PROTOCOL))
