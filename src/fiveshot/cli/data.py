"""``fiveshot data`` and ``extract``: datasets and feature files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fiveshot.cli import completion, options
from fiveshot.cli.output import WORK_KEPT, answering, download_bar, echo, image_bar, status, when_stopped
from fiveshot.errors import counted

if TYPE_CHECKING:
    from fiveshot.data import BadImage
    from fiveshot.features import Extraction, FeatureSet

data = typer.Typer(help="List and download datasets.", no_args_is_help=True, add_completion=False)
SHOWN = 20  # bad images to list by name


@data.command("list")
def list_datasets(as_json: options.AsJson = False) -> None:
    """List the known datasets.

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
@when_stopped(WORK_KEPT)
def fetch_dataset(
    name: Annotated[
        str,
        Argument(metavar="NAME", help="Dataset. See 'fiveshot data list'.", autocompletion=completion.datasets),
    ],
    root: Annotated[Path, Option(metavar="FOLDER", help="Folder to write to.")] = Path("data"),
    as_json: options.AsJson = False,
) -> None:
    """Download, check and unpack a dataset. A stopped download continues.

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
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Folder to create.")],
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Draw small pictures of five things, to try the other commands with.

    Example: fiveshot data samples samples
    """
    from fiveshot.data import draw_samples

    with answering("data samples", as_json=as_json) as answer:
        with status("drawing"):
            drawn = draw_samples(folder, seed=seed)
        answer.result = {"folder": str(folder), "pictures": drawn}
        for part, count in drawn.items():
            answer.say(f"{folder / part}: {count} pictures")


@data.command("convert")
@options.with_home
def convert_features(
    source: Annotated[
        Path,
        Argument(
            metavar="FILE", help="Feature file (.safetensors, .npz, .parquet), or a folder of Parquet files."
        ),
    ],
    out: Annotated[Path, Argument(metavar="OUT", help="File to write (.safetensors, .npz or .parquet).")],
    as_json: options.AsJson = False,
) -> None:
    """Write feature vectors in another form, for other programs.

    Example: fiveshot data convert birds.safetensors birds.parquet
    """
    from fiveshot.features import load_features, save_features

    with answering("data convert", as_json=as_json) as answer:
        with status("converting"):
            features = load_features(source)
            save_features(features, out)
        answer.result = {"files": [str(out)]}
        answer.say(f"{out}: {contents(features)}")


@when_stopped(WORK_KEPT)
def extract(
    out: Annotated[Path, Option(metavar="FILE", help="Feature file to write (.safetensors).")],
    images: Annotated[
        str | None,
        Option(metavar="PLACE", help="Folder or archive with train/<class>/* and test/<class>/*, or <class>/*."),
    ] = None,
    dataset: Annotated[
        str | None,
        Option(
            metavar="NAME",
            help="Dataset to use instead of --images. See 'fiveshot data list'.",
            autocompletion=completion.datasets,
        ),
    ] = None,
    root: Annotated[Path | None, Option(metavar="FOLDER", help="Folder that holds the dataset.")] = None,
    seed: options.Seed = 0,
    holdout: options.Holdout = 0.2,
    skip_bad: options.SkipBad = False,
    dtype: options.Dtype = "float16",
    no_cache: Annotated[bool, Option("--no-cache", help="Do not use the feature cache.")] = False,
    backbone: options.Backbone = None,
    weights: options.LocalWeights = None,
    adapter: options.Adapter = None,
    preprocessing: options.Preprocessing = "weights",
    tokens: options.Tokens = "own",
    last_blocks: options.LastBlocks = 1,
    quick: options.Quick = False,
    careful: options.Careful = False,
    device: options.Device = "auto",
    runtime: options.Runtime = "auto",
    precision: options.Precision = "auto",
    batch_size: options.BatchSize = None,
    workers: Annotated[
        int | None, Option(metavar="N", help="Number of threads.", show_default="one per core")
    ] = None,
) -> None:
    """Compute the feature vectors of images. A stopped run continues when started again.

    Example: fiveshot extract --images photos --out photos.safetensors
    """
    from fiveshot.backbones import DEFAULT, BackboneSpec, load_embedder, preprocessing_for
    from fiveshot.features import ExtractionSettings, FeatureCache, open_labeled_images
    from fiveshot.features import extract as extract_features

    spec = BackboneSpec(
        backbone or DEFAULT,
        weights=weights,
        adapter=adapter,
        preprocessing=preprocessing_for(preprocessing, dataset),
        tokens=tokens,
        last_blocks=last_blocks,
        views=options.chosen_views(quick=quick, careful=careful),
        device=device,
        runtime=runtime,
        precision=None if precision == "auto" else precision,
    )
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
            cache=None if no_cache else FeatureCache(),
            progress=progress,
        )
    _print(done, runner.name)


def contents(features: FeatureSet) -> str:
    """Return one line about a feature file."""
    classes = counted(len(features.class_names), "class")
    return (
        f"{len(features.train_x):,} training and {len(features.test_x):,} test vectors of "
        f"{features.n_features} {features.train_x.dtype}, {classes}"
    )


def _print(done: Extraction, backbone: str) -> None:
    echo(f"{done.path}: {contents(done.features)}, {backbone}")
    if done.rate is None or done.forward_rate is None:
        echo(f"all {done.images:,} images were extracted before; nothing to do")
    else:
        before = done.images - done.computed
        already = f" ({before:,} were done before)" if before else ""
        echo(f"{counted(done.computed, 'image')} in {done.seconds:.1f} s{already}, {done.runtime}")
        echo(
            f"{done.rate:,.1f} images/s end to end, {done.forward_rate:,.1f} inside the forward pass "
            f"({done.rate / done.forward_rate:.0%})"
        )
    print_bad(done.bad)


def print_bad(bad: Sequence[BadImage]) -> None:
    """List images that were left out."""
    from fiveshot.data import bad_image_lines

    if bad:
        echo(f"left out {counted(len(bad), 'bad image')}:")
        for line in bad_image_lines(bad, SHOWN):
            echo(line)
