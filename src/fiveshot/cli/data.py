"""``fiveshot data``, ``backbones`` and ``extract``: datasets and networks, and the feature file made of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Context, Option

from fiveshot.cli import completion, options
from fiveshot.cli.output import KEPT, answering, cluster_bar, download_bar, echo, image_bar, status, when_stopped
from fiveshot.errors import InputError, counted

if TYPE_CHECKING:
    from fiveshot.backbones import BackboneSpec
    from fiveshot.data import BadImage
    from fiveshot.features import Extraction, FeatureSet
    from fiveshot.scale import Catalog, ClusterSettings, StatisticsPlan

data = typer.Typer(help="Datasets: what there is, and getting one.", no_args_is_help=True, add_completion=False)
SHOWN = 20  # bad images that are listed by name


@data.command("list")
def list_datasets(as_json: options.AsJson = False) -> None:
    """List the datasets that are known by name.

    Example: fiveshot data list
    """
    from fiveshot.data import dataset_specs
    from fiveshot.plugins import load_plugins

    with answering("data list", as_json=as_json) as answer:
        load_plugins()
        specs = dataset_specs().values()
        answer.result = {
            "datasets": [
                {
                    "name": spec.name,
                    "title": spec.title,
                    "classes": spec.classes,
                    "train": spec.train_count,
                    "test": spec.test_count,
                }
                for spec in specs
            ]
        }
        for spec in specs:
            answer.say(
                f"{spec.name:10} {spec.title}: {spec.classes} classes, "
                f"{spec.train_count:,} training and {spec.test_count:,} test images"
            )


@data.command("fetch")
@options.with_home
@when_stopped(KEPT)
def fetch_dataset(
    name: Annotated[str, Argument(help="One of 'fiveshot data list'.", autocompletion=completion.datasets)],
    root: Annotated[Path, Option(help="Folder to put it into.")] = Path("data"),
    as_json: options.AsJson = False,
) -> None:
    """Download a dataset, resuming where an earlier attempt stopped, check it and unpack it.

    Example: fiveshot data fetch cub200 --root data
    """
    from fiveshot.data import fetch

    with answering("data fetch", as_json=as_json) as answer:
        with download_bar(name) as progress:
            fetched = fetch(name, root, progress=progress)
        found = fetched.dataset
        answer.result = {
            "folder": str(fetched.folder),
            "train": len(found.train),
            "test": len(found.test),
            "differences": list(found.differences),
        }
        answer.say(f"{fetched.folder}: {len(found.train)} training and {len(found.test)} test images")
        for difference in found.differences:
            answer.say(f"note: {difference}")


@data.command("samples")
@options.with_home
def draw_samples(
    folder: Annotated[Path, Argument(help="A new folder.")],
    seed: Annotated[int, Option(help="Another seed draws other pictures.")] = 0,
    as_json: options.AsJson = False,
) -> None:
    """Draw small pictures of five things, to try the other commands without photos at hand.

    Example: fiveshot data samples samples
    """
    from fiveshot.data.synthetic import draw_samples

    with answering("data samples", as_json=as_json) as answer:
        with status("drawing"):
            drawn = draw_samples(folder, seed=seed)
        answer.result = {"folder": str(folder), "pictures": drawn}
        for part, count in drawn.items():
            answer.say(f"{folder / part}: {count} pictures")


def backbones(
    names: Annotated[
        list[str] | None,
        Argument(help="Any timm names; a short list unless given.", autocompletion=completion.backbones),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """List backbones with their size, cost and whether their weights are on this machine.

    Example: fiveshot backbones vit_base_patch16_224.augreg_in21k_ft_in1k
    """
    with answering("backbones", as_json=as_json) as answer:
        with status("counting what backbones cost"):
            from fiveshot.backbones import list_backbones  # here, where a missing library is an answer too

            found = list_backbones(names) if names else list_backbones()
        answer.result = {"backbones": [asdict(info) for info in found]}
        width = max(len(info.name) for info in found)
        answer.say(f"{'backbone':{width}}  parameters  GMACs/image  vector   input  weights")
        for info in found:
            cost = f"{info.parameters / 1e6:8.1f} M  {info.gmacs:11.1f}  {info.width:6,}  {info.input_size:4} px"
            answer.say(f"{info.name:{width}}  {cost}  {'here' if info.local else 'to download':11}  {info.note}")


@when_stopped(KEPT)
def extract(
    ctx: Context,
    out: Annotated[Path, Option(help="Feature file to write (.safetensors).")],
    images: Annotated[
        str | None,
        Option(
            help="Folder or archive: train/<class>/* and test/<class>/*, or <class>/* alone. With --engine ray "
            "also a URL, parquet files, or webdataset shards such as s3://photos/train-{000..127}.tar."
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        Option(
            help="Dataset by name instead, with --root; see 'fiveshot data list'.",
            autocompletion=completion.datasets,
        ),
    ] = None,
    root: Annotated[Path | None, Option(help="Folder that the dataset is in.")] = None,
    backbone: options.Backbone = None,
    weights: options.LocalWeights = None,
    adapter: Annotated[
        Path | None,
        Option(
            help="Adapter file made by 'fiveshot tune', or an embedded one such as cub200-big.",
            autocompletion=completion.adapters,
        ),
    ] = None,
    preprocessing: Annotated[
        str,
        Option(
            help="'weights': as they were trained; 'paper': as the paper does with this dataset, and with images "
            "of your own as with CUB-200; 'paper:cars', ...: as it does with that one."
        ),
    ] = "weights",
    tokens: Annotated[
        Literal["own", "cls", "mean", "cls+mean"],
        Option(help="What makes up the vector: the network's own feature, or these tokens."),
    ] = "own",
    last_blocks: Annotated[int, Option(help="Class tokens of so many last blocks, side by side.")] = 1,
    views: options.Views = None,
    quick: options.Quick = False,
    careful: options.Careful = False,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    precision: Annotated[
        Literal["auto", "float32", "tf32", "bf16"], Option(help="On CUDA; bf16 unless given.")
    ] = "auto",
    batch_size: Annotated[int | None, Option(help="Images in a forward pass.")] = None,
    workers: Annotated[
        int | None, Option(help="Threads, or backbones of a cluster; as many as there are cores or GPUs.")
    ] = None,
    dtype: Annotated[Literal["float16", "float32"], Option(help="Type of the stored vectors.")] = "float16",
    skip_bad: Annotated[bool, Option("--skip-bad", help="Leave out images that cannot be read.")] = False,
    cache: Annotated[Path | None, Option(help="Folder of extracted features and finished parts.")] = None,
    no_cache: Annotated[
        bool, Option("--no-cache", help="Look nowhere, keep finished parts beside the output only.")
    ] = False,
    seed: Annotated[int, Option(help="Seed of the held-out test images, where there is no test split.")] = 0,
    holdout: Annotated[float, Option(help="Share of every class that is held out then.")] = 0.2,
    measure: Annotated[bool, Option("--measure", help="Then time the forward pass alone, to compare.")] = False,
    engine: Annotated[
        Literal["local", "ray"], Option(help="This process, or a Ray cluster: pip install 'fiveshot\\[ray]'.")
    ] = "local",
    address: options.Address = None,
    result: Annotated[
        Literal["file", "shards", "statistics"],
        Option(help="With --engine ray: one feature file, a folder of shards, or class statistics alone."),
    ] = "file",
    layout: Annotated[
        Literal["auto", "folders", "parquet", "webdataset"], Option(help="With --engine ray: of the images.")
    ] = "auto",
    image_column: Annotated[str, Option(help="Of parquet files: the column with the images' bytes.")] = "image",
    label_column: Annotated[
        str | None, Option(help="Column of parquet files, or suffix of tar members; label or cls.")
    ] = None,
    covariance: Annotated[
        Literal["class", "tied"],
        Option(help="Of statistics: one for each class, or one for all, as very many classes need."),
    ] = "class",
    head: Annotated[
        str,
        Option(
            help="Of statistics: the head of the model they are for, or 'none'.",
            autocompletion=completion.heads_or_none,
        ),
    ] = "unbiased-lda",
) -> None:
    """Extract the features of images; stopped in the middle, the same command goes on from there.

    Example: fiveshot extract --images photos --out photos.safetensors
    """
    _check_options(ctx, engine=engine, result=result, layout=layout, dataset=dataset, device=device)
    from fiveshot.backbones import DEFAULT, BackboneSpec
    from fiveshot.backbones.preprocessing import preprocessing_for
    from fiveshot.features import open_labeled_images

    spec = BackboneSpec(
        backbone or DEFAULT,
        weights=weights,
        adapter=adapter,
        preprocessing=preprocessing_for(preprocessing, dataset),
        tokens=tokens,
        last_blocks=last_blocks,
        views=options.chosen_views(views, quick=quick, careful=careful),
        device=device,
        runtime=runtime,
        precision=None if precision == "auto" else precision,
    )
    if engine == "ray":
        from fiveshot.scale import ClusterSettings, StatisticsPlan, dataset_catalog, open_catalog

        if images is not None and dataset is None and root is None:
            catalog = open_catalog(
                images,
                seed=seed,
                holdout=None if result == "statistics" else holdout,
                layout=layout,
                image_column=image_column,
                label_column=label_column,
            )
        else:
            opened = open_labeled_images(images, dataset=dataset, root=root, seed=seed, holdout=holdout)
            catalog = dataset_catalog(opened)
        plan = StatisticsPlan(covariance, None if head == "none" else head) if result == "statistics" else None
        settings = ClusterSettings(address, workers, batch_size, dtype, skip_bad)
        _extract_on_cluster(catalog, out, plan, spec, settings, shards=result == "shards")
        return
    from fiveshot.backbones import load_embedder
    from fiveshot.features import ExtractionSettings, FeatureCache
    from fiveshot.features import extract as extract_features

    if cache is not None and no_cache:
        raise InputError("--cache and --no-cache contradict each other", hint="give one of them")
    with status("opening the images"):
        opened = open_labeled_images(images, dataset=dataset, root=root, seed=seed, holdout=holdout)
    for note in opened.differences:
        echo(f"note: {note}", err=True)
    with status("loading the backbone"):
        runner = load_embedder(spec)
    with image_bar("extracting") as progress:
        done = extract_features(
            opened,
            runner,
            ExtractionSettings(batch_size, workers, skip_bad, dtype),
            out=out,
            cache=None if no_cache else FeatureCache(cache),
            progress=progress,
        )
    _print(done, runner.name)
    if measure:
        from fiveshot.features import bare_rate

        with status("measuring the forward pass"):
            bare = bare_rate(runner, batch_size=batch_size, workers=workers)
        share = f"; end to end is {done.rate / bare:.0%} of it" if done.rate else ""
        echo(f"forward pass alone, measured: {bare:,.1f} images/s ({runner.runtime}){share}")


def _extract_on_cluster(
    catalog: Catalog,
    out: Path,
    plan: StatisticsPlan | None,
    spec: BackboneSpec,
    settings: ClusterSettings,
    *,
    shards: bool,
) -> None:
    """Make statistics where there is a plan for them, else shards or one file, and say what was done."""
    from fiveshot.scale import extract_file, extract_shards, reduce_images

    for note in catalog.notes:
        echo(f"note: {note}", err=True)
    with cluster_bar() as progress:
        if plan is not None:
            # A model computes in float32, so that it may move between machines.
            spec = replace(spec, precision=spec.precision or "float32")
            found = reduce_images(catalog, out, plan=plan, spec=spec, settings=settings, progress=progress)
        elif shards:
            done = extract_shards(catalog, out, spec=spec, settings=settings, progress=progress)
        else:
            features, done = extract_file(catalog, out, spec=spec, settings=settings, progress=progress)
    if plan is not None:
        classes = counted(len(found.pooled), "class")
        echo(f"{out}: statistics of {counted(found.images, 'image')}, {classes}")
        _print_bad(found.bad)
        return
    if shards:
        echo(f"{out}: {counted(len(done.shards), 'shard')} with vectors of {counted(done.images, 'image')}")
    else:
        echo(f"{out}: {_contents(features)}")
    if done.rate is None:
        echo(f"all {done.images:,} images were extracted before; nothing had to be computed")
    else:
        rates = ", ".join(f"{stage} {rate:,.0f}" for stage, rate in done.tally.rates().items())
        echo(f"{counted(done.tally.images, 'image')} in {done.seconds:.1f} s, {done.runtime}")
        echo(f"{done.rate:,.1f} images/s end to end; images/s of one worker: {rates}")
    _print_bad(done.bad)


def _contents(features: FeatureSet) -> str:
    classes = counted(len(features.class_names), "class")
    return (
        f"{len(features.train_x):,} training and {len(features.test_x):,} test vectors of "
        f"{features.n_features} {features.train_x.dtype}, {classes}"
    )


def _print(done: Extraction, backbone: str) -> None:
    echo(f"{done.path}: {_contents(done.features)}, {backbone}")
    if done.rate is None or done.forward_rate is None:
        echo(f"all {done.images:,} images were extracted before; nothing had to be computed")
    else:
        before = done.images - done.computed
        already = f" ({before:,} were finished before)" if before else ""
        echo(f"{counted(done.computed, 'image')} in {done.seconds:.1f} s{already}, {done.runtime}")
        echo(
            f"{done.rate:,.1f} images/s end to end, {done.forward_rate:,.1f} inside the forward pass "
            f"({done.rate / done.forward_rate:.0%})"
        )
    _print_bad(done.bad)


def _print_bad(bad: Sequence[BadImage]) -> None:
    from fiveshot.data.dataset import bad_lines

    if bad:
        echo(f"left out {counted(len(bad), 'bad image')}:")
        for line in bad_lines(bad, SHOWN):
            echo(line)


def _check_options(
    ctx: Context, *, engine: str, result: str, layout: str, dataset: str | None, device: str
) -> None:
    """Refuse options that the others leave without effect."""
    if engine == "local":
        of_a_cluster = ("address", "result", "layout", "image_column", "label_column", "covariance", "head")
        options.refuse_unused(ctx, options.CLUSTER, *of_a_cluster)
        return
    options.refuse_unused(ctx, options.LOCAL, "cache", "no_cache", "measure")
    if ":" in device:
        options.refuse_unused(
            ctx, "names a GPU of a single machine; choose cuda or cpu with --engine ray", "device"
        )
    if result != "statistics":
        why = "belongs to statistics; add --result statistics, or leave it out"
        options.refuse_unused(ctx, why, "covariance", "head")
    elif dataset is None:
        options.refuse_unused(
            ctx, "draws test images, and statistics are of all images; leave it out", "seed", "holdout"
        )
    if dataset is not None:
        options.refuse_unused(ctx, "is for --images; leave it out", "layout", "image_column", "label_column")
    if layout in ("folders", "webdataset"):
        options.refuse_unused(ctx, "is for parquet files; leave it out", "image_column")
    if layout == "folders":
        options.refuse_unused(ctx, "is for parquet files and tars; leave it out", "label_column")
