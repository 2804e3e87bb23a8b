"""``fiveshot paper``: make the paper's tables and figures again, from features or from photos."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from fiveshot.cli import completion, options
from fiveshot.cli.bench import PHOTOS_PANEL, PhotoBackbone, PhotoWeights, draws, duration, followed
from fiveshot.cli.output import WORK_KEPT, echo, image_bar, print_table, status, tuning_bar, when_stopped
from fiveshot.errors import InputError, counted

if TYPE_CHECKING:
    from fiveshot.reports import PaperOutput


@when_stopped(WORK_KEPT)
def paper(
    target: Annotated[
        str,
        Argument(
            metavar="TARGET",
            help="table1, table2, table3, table5, table6, figure1, figure2, figure3, ablation-..., or all.",
            autocompletion=completion.paper_targets,
        ),
    ],
    features_dir: Annotated[
        Path | None, Option(metavar="FOLDER", help="Folder of feature files to use beside the embedded ones.")
    ] = None,
    out: Annotated[Path, Option(metavar="FOLDER", help="Folder for tables, figures and runs.")] = Path("paper"),
    seeds: options.Seeds = None,
    full: options.Full = False,
    workers: Annotated[int, Option(metavar="N", help="Number of processes.")] = 1,
    flavor: options.Flavor = "paper",
    shot_draw: Annotated[
        Literal["random", "first"], Option(help="Draw the shots, or take the first as the published code does.")
    ] = "random",
    projections: options.Projections = None,
    device: options.HeadDevice = None,
    root: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help="Folder of datasets: tune the network on their photos and extract features first.",
            rich_help_panel=PHOTOS_PANEL,
        ),
    ] = None,
    backbone: PhotoBackbone = None,
    weights: PhotoWeights = None,
    preprocessing: Annotated[
        str,
        Option(
            metavar="NAME", help="paper; or weights: as the network was trained.", rich_help_panel=PHOTOS_PANEL
        ),
    ] = "paper",
) -> None:
    """Make a table or figure of the paper again.

    Without --full it uses one draw of the shots, and fewer random features where they take over a minute.
    If some features are missing, it says which. If all are missing, it fails.

    With --root it starts from photos: for each protocol it tunes the network on the base classes with the
    paper's recipe. Then it extracts features with and without the adapter. The network is the paper's, or that
    of --backbone. A stopped run continues.

    Example: fiveshot paper table1 --features-dir features
    """
    if target == "ablation-M" and projections is not None:
        raise InputError("ablation-M varies --projections itself", hint="leave it out", code="unused_option")
    with status("loading"):
        from fiveshot.benchmark import MINUTE, PLAIN, sweep
        from fiveshot.reports import MAIN_TABLES, make_paper, resolve_target

    targets = resolve_target(target)
    from_photos = root is not None
    if root is not None:
        if features_dir is not None:
            raise InputError("--root and --features-dir exclude each other", hint="give one of them")
        _make_features(target, root, out, name=backbone, weights=weights, preprocessing=preprocessing)
        features_dir = out / "features"
    elif backbone is not None or weights is not None:
        raise InputError(
            "--backbone and --weights need photos", hint="name their folder with --root", code="unused_option"
        )
    make: Any = partial(
        make_paper,
        embedded=not from_photos,
        seeds=draws(seeds, full=full),
        flavor=flavor,
        shot_draw=shot_draw,
        parameters=options.head_parameters(projections, device),
        seconds=None if full else MINUTE,
        run=lambda jobs, folder: followed(partial(sweep, workers=workers), jobs, folder),
    )
    made = make(target, features_dir=features_dir, out=out)
    _print(made)
    for line in made.missing:
        words = f"photos of {line.dataset} in {root} (for {', '.join(line.protocols)})"
        echo(f"missing: {words if from_photos else line}", err=True)
    for name in (name for name in targets if from_photos and name in MAIN_TABLES):
        _print(make(name, features_dir=out / PLAIN / "features", out=out / PLAIN))
    if made.tables and not full and seeds is None:
        echo("for the paper's full setting (five draws, 10,000 random features) add --full", err=True)
    if not made.files:
        raise typer.Exit(1)


def _print(made: PaperOutput) -> None:
    for table in made.tables:
        print_table(table, "terminal")
    for file in made.files:
        echo(file)
    if made.width is not None:
        echo(f"note: RanPAC heads with {made.width:,} random features instead of the paper's 10,000", err=True)


def _make_features(
    target: str, root: Path, out: Path, *, name: str | None, weights: Path | None, preprocessing: str
) -> None:
    """Tune and extract all that a table or figure needs and that is not there; say how long it will take."""
    from fiveshot.backbones import PAPER_BACKBONE, BackboneSpec, refuse_bundle
    from fiveshot.benchmark import find_datasets, first_task_seconds, first_tasks
    from fiveshot.extras import require_extra
    from fiveshot.reports import DATASETS, protocols_of

    refuse_bundle(name or PAPER_BACKBONE)
    require_extra("torch", "timm")
    spec = BackboneSpec(name or PAPER_BACKBONE, weights=weights, preprocessing=preprocessing, precision="float32")
    with status("opening the datasets"):
        datasets = find_datasets(DATASETS, root)
    protocols = protocols_of(target, datasets)
    for dataset in dict.fromkeys(protocol.dataset for protocol in protocols):
        for note in datasets[dataset].differences:
            echo(f"note: {dataset}: {note}", err=True)
    tasks = first_tasks(protocols, datasets, spec, out)
    with status("measuring the network"):
        seconds = first_task_seconds(tasks, spec)
    if seconds:
        adapters = counted(len(protocols), "adapter")
        files = counted(len(tasks), "feature file")
        echo(f"{adapters} and {files} to make, about {duration(seconds)} on this machine", err=True)
    for task in tasks:
        with tuning_bar(shown=True) as training:
            tuned = task.tune(training)
        if tuned:
            echo(task.adapter, err=True)
        with image_bar(f"extracting {task.name}") as progress:
            computed = task.extract(progress)
        echo(f"{task.features} ({counted(computed, 'image')} computed)", err=True)
