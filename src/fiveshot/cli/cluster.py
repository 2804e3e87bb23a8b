"""``fiveshot cluster``: extraction, statistics, benchmarks and tuning on a Ray cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

from fiveshot.cli import bench as benchmarks
from fiveshot.cli import completion, options
from fiveshot.cli import tune as tuning
from fiveshot.cli.data import contents, print_bad
from fiveshot.cli.output import WORK_KEPT, cluster_bar, echo, status, tuning_bar, when_stopped
from fiveshot.errors import counted
from fiveshot.loggers import Loggers

cluster = typer.Typer(
    help="Run extract, bench and tune on a Ray cluster. Needs: pip install 'fiveshot\\[ray]'",
    no_args_is_help=True,
    add_completion=False,
)

Address = Annotated[
    str | None,
    Option(metavar="HOST:PORT", help="Ray cluster to use, or 'auto'.", show_default="start one on this machine"),
]
Images = Annotated[
    str,
    Option(
        metavar="PLACE", help="Folder, URL, parquet files, or shards such as s3://photos/train-{000..127}.tar."
    ),
]
ImageColumn = Annotated[str, Option(metavar="NAME", help="Column of parquet files that holds the images.")]
LabelColumn = Annotated[
    str | None,
    Option(metavar="NAME", help="Column of parquet files, or suffix in tar files, that holds the labels."),
]
Device = Annotated[Literal["auto", "cpu", "cuda"], Option(help="Device for the network.")]
Workers = Annotated[
    int | None,
    Option(metavar="N", help="Number of copies of the network.", show_default="one per GPU, or per core"),
]


@cluster.command()
@options.with_home
@when_stopped(WORK_KEPT)
def extract(
    images: Images,
    out: Annotated[Path, Option(metavar="PATH", help="Feature file to write, or folder with --shards.")],
    shards: Annotated[bool, Option("--shards", help="Write a folder of files instead of one file.")] = False,
    image_column: ImageColumn = "image",
    label_column: LabelColumn = None,
    seed: options.Seed = 0,
    holdout: options.Holdout = 0.2,
    skip_bad: options.SkipBad = False,
    dtype: options.Dtype = "float16",
    backbone: options.Backbone = None,
    weights: options.LocalWeights = None,
    adapter: options.Adapter = None,
    preprocessing: options.Preprocessing = "weights",
    tokens: options.Tokens = "own",
    last_blocks: options.LastBlocks = 1,
    quick: options.Quick = False,
    careful: options.Careful = False,
    device: Device = "auto",
    runtime: options.Runtime = "auto",
    precision: options.Precision = "auto",
    batch_size: options.BatchSize = None,
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Compute the feature vectors of images. A stopped run continues when started again.

    Example: fiveshot cluster extract --images photos --out photos.safetensors
    """
    from fiveshot.backbones import DEFAULT, BackboneSpec
    from fiveshot.scale import ClusterSettings, extract_file, extract_shards, open_catalog

    spec = BackboneSpec(
        backbone or DEFAULT,
        weights=weights,
        adapter=adapter,
        preprocessing=preprocessing,
        tokens=tokens,
        last_blocks=last_blocks,
        views=options.chosen_views(quick=quick, careful=careful),
        device=device,
        runtime=runtime,
        precision=None if precision == "auto" else precision,
    )
    catalog = open_catalog(
        images, seed=seed, holdout=holdout, image_column=image_column, label_column=label_column
    )
    _print_notes(catalog.notes)
    settings = ClusterSettings(address, workers, batch_size, dtype, skip_bad)
    with cluster_bar() as progress:
        if shards:
            done = extract_shards(catalog, out, spec=spec, settings=settings, progress=progress)
            made = f"{counted(len(done.shards), 'shard')} with vectors of {counted(done.images, 'image')}"
        else:
            features, done = extract_file(catalog, out, spec=spec, settings=settings, progress=progress)
            made = contents(features)
    echo(f"{out}: {made}")
    if done.rate is None:
        echo(f"all {done.images:,} images were extracted before; nothing to do")
    else:
        rates = ", ".join(f"{stage} {rate:,.0f}" for stage, rate in done.tally.rates().items())
        echo(f"{counted(done.tally.images, 'image')} in {done.seconds:.1f} s, {done.runtime}")
        echo(f"{done.rate:,.1f} images/s end to end; images/s of one worker: {rates}")
    print_bad(done.bad)


@cluster.command()
@options.with_home
@when_stopped(WORK_KEPT)
def statistics(
    images: Images,
    out: Annotated[Path, Option(metavar="FILE", help="File to write.")],
    covariance: Annotated[
        Literal["class", "tied"], Option(help="One covariance per class, or one for all classes.")
    ] = "class",
    head: Annotated[
        str,
        Option(
            metavar="NAME", help="Head of the model to make, or 'none'.", autocompletion=completion.heads_or_none
        ),
    ] = "unbiased-lda",
    image_column: ImageColumn = "image",
    label_column: LabelColumn = None,
    skip_bad: options.SkipBad = False,
    backbone: options.Backbone = None,
    weights: options.LocalWeights = None,
    adapter: options.Adapter = None,
    preprocessing: options.Preprocessing = "weights",
    quick: options.Quick = False,
    careful: options.Careful = False,
    device: Device = "auto",
    runtime: options.Runtime = "auto",
    batch_size: options.BatchSize = None,
    workers: Workers = None,
    address: Address = None,
) -> None:
    """Compute class statistics for a model, without keeping the vectors.

    Example: fiveshot cluster statistics --images photos --out photos.statistics
    """
    from fiveshot.backbones import DEFAULT, BackboneSpec
    from fiveshot.scale import ClusterSettings, StatisticsPlan, open_catalog, reduce_images

    spec = BackboneSpec(
        backbone or DEFAULT,
        weights=weights,
        adapter=adapter,
        preprocessing=preprocessing,
        views=options.chosen_views(quick=quick, careful=careful),
        device=device,
        runtime=runtime,
        precision="float32",  # as a model computes, so that it may move between machines
    )
    catalog = open_catalog(images, seed=0, holdout=None, image_column=image_column, label_column=label_column)
    _print_notes(catalog.notes)
    plan = StatisticsPlan(covariance, None if head == "none" else head)
    settings = ClusterSettings(address, workers, batch_size, skip_bad=skip_bad)
    with cluster_bar() as progress:
        found = reduce_images(catalog, out, plan=plan, spec=spec, settings=settings, progress=progress)
    echo(f"{out}: statistics of {counted(found.images, 'image')}, {counted(len(found.pooled), 'class')}")
    print_bad(found.bad)


def _print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        echo(f"note: {note}", err=True)


@cluster.command()
@options.with_home
@when_stopped(benchmarks.WHEN_STOPPED)
def bench(
    protocol: benchmarks.Protocol = None,
    methods: benchmarks.Methods = None,
    seeds: options.Seeds = None,
    full: options.Full = False,
    features: benchmarks.Features = None,
    flavor: options.Flavor = "paper",
    projections: options.Projections = None,
    settings: benchmarks.HeadSettings = None,
    device: options.HeadDevice = None,
    address: Address = None,
    base: benchmarks.Base = None,
    increment: benchmarks.Increment = None,
    shots: benchmarks.Shots = None,
    order_seed: benchmarks.OrderSeed = None,
    shot_seed: benchmarks.ShotSeed = None,
    shot_draw: benchmarks.ShotDraw = None,
    sessions: benchmarks.Sessions = None,
    out: benchmarks.Out = Path("runs"),
    fresh: benchmarks.Fresh = False,
    output: benchmarks.Format = "terminal",
    log: options.LogTo = None,
) -> None:
    """Run a benchmark, each run as a task of the cluster.

    Example: fiveshot cluster bench cub200/big --seeds 20 --address auto
    """
    from fiveshot.scale import sweep_on_cluster

    printing = benchmarks.choose_printing(output, None)
    loggers = Loggers(log or ())
    plan = benchmarks.plan_runs(
        protocol,
        features,
        methods=benchmarks.chosen_methods(methods, full=full),
        seeds=benchmarks.draws(seeds, full=full),
        flavor=flavor,
        projections=projections,
        settings=settings or (),
        device=device,
        sessions=sessions,
        changes={
            "base_classes": base,
            "increment": increment,
            "shots": shots,
            "order_seed": order_seed,
            "shot_seed": shot_seed,
            "shot_draw": shot_draw,
        },
        here=False,
    )
    records = benchmarks.run_and_log(
        lambda jobs, folder, on_session: sweep_on_cluster(jobs, folder, address=address, fresh=fresh),
        plan,
        out,
        loggers,
        fresh=fresh,
    )
    benchmarks.print_results(plan, records, printing)


@cluster.command()
@options.with_home
@when_stopped(tuning.WHEN_STOPPED)
def tune(
    images: tuning.Images,
    out: tuning.Out,
    root: tuning.Root = None,
    backbone: options.Backbone = None,
    weights: options.LocalWeights = None,
    preprocessing: options.Preprocessing = "weights",
    skip_bad: options.SkipBad = False,
    seed: options.Seed = 0,
    processes: Annotated[
        int | None, Option(metavar="N", help="Number of training processes.", show_default="one per GPU")
    ] = None,
    address: Address = None,
    recipe: options.Recipe = "ours",
    settings: options.RecipeValues = None,
    selection: tuning.Selection = "none",
    held_out: tuning.HeldOutShare = None,
    workers: tuning.Workers = None,
    compiled: tuning.Compile = None,
    resume: tuning.Resume = False,
    checkpoints: tuning.Checkpoints = None,
    log: options.LogTo = None,
) -> None:
    """Train adapters for a network on the base classes.

    Example: fiveshot cluster tune --images photos --out adapter.safetensors --processes 8
    """
    task = tuning.prepare(
        images,
        root,
        spec={"name": backbone, "weights": weights, "preprocessing": preprocessing},
        recipe=recipe,
        settings=settings or (),
        seed=seed,
        selection=selection,
        held_out=held_out,
    )
    with status("loading PyTorch"):
        from fiveshot.scale import TuningTask, tune_on_cluster
        from fiveshot.tuning import Execution, TuningLog

    training = TuningTask(
        task.dataset,
        task.spec,
        recipe=task.recipe,
        selection=task.selection,
        held_out=task.held_out,
        execution=Execution(workers=workers, compile=compiled),
        resume=resume,
        checkpoint_folder=checkpoints,
        skip_bad=skip_bad,
    )
    with TuningLog(Loggers(log or ()), out.stem, task.recipe) as epochs:
        with tuning_bar(shown=True, log=epochs) as progress:
            result = tune_on_cluster(training, out, processes=processes, address=address, progress=progress)
        epochs.complete(result)
    for line in tuning.summary(result, task.dataset):
        echo(line)
