"""``fiveshot tune``: train adapters for a network on the base classes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from typer import Option

from fiveshot.cli import options
from fiveshot.cli.output import echo, status, tuning_bar, when_stopped
from fiveshot.errors import InputError, counted
from fiveshot.extras import require_extra
from fiveshot.loggers import Loggers

if TYPE_CHECKING:
    from fiveshot.backbones import BackboneSpec
    from fiveshot.data import ImageDataset
    from fiveshot.tuning import HeldOut, TuneRecipe, TuneResult, TuningLog


WHEN_STOPPED = "finished epochs are kept; add --resume to continue"

# Options of 'tune' and 'cluster tune'.
SelectionName: TypeAlias = Literal["few-shot-classes", "held-out-images", "none"]
TRAINING, FILES = "Training", "Checkpoints and logs"
Images = Annotated[
    str, Option(metavar="PLACE", help="Folder or archive of class folders, or a protocol such as cub200/big.")
]
Out = Annotated[Path, Option(metavar="FILE", help="Adapter file to write (.safetensors).")]
Root = Annotated[Path | None, Option(metavar="FOLDER", help="Folder that holds the dataset of the protocol.")]
Selection = Annotated[
    SelectionName,
    Option(
        metavar="WAY",
        help="Choose the number of epochs by few-shot-classes or held-out-images, or not (none).",
        rich_help_panel=TRAINING,
    ),
]
HeldOutShare = Annotated[
    float | None,
    Option(
        "--held-out",
        metavar="SHARE",
        help="Share of the images to test on instead of training. By default a quarter of a folder (at most 20 of "
        "each class), a tenth of a protocol, nothing with --recipe paper.",
        show_default=False,
        rich_help_panel=TRAINING,
    ),
]
Workers = Annotated[
    int | None,
    Option(metavar="N", help="Photos to decode at a time.", show_default="one per core", rich_help_panel=TRAINING),
]
Compile = Annotated[
    bool | None,
    Option(
        "--compile/--no-compile", help="Compile the network.", show_default="on CUDA", rich_help_panel=TRAINING
    ),
]
Resume = Annotated[bool, Option("--resume", help="Continue a stopped run.", rich_help_panel=FILES)]
Checkpoints = Annotated[
    Path | None,
    Option(
        metavar="FOLDER", help="Folder for checkpoints.", show_default="OUT.checkpoints", rich_help_panel=FILES
    ),
]


@when_stopped(WHEN_STOPPED)
def tune(
    images: Images,
    out: Out,
    root: Root = None,
    backbone: options.Backbone = None,
    weights: options.LocalWeights = None,
    preprocessing: options.Preprocessing = "weights",
    skip_bad: options.SkipBad = False,
    device: options.Device = "auto",
    seed: options.Seed = 0,
    recipe: options.Recipe = "ours",
    settings: options.RecipeValues = None,
    selection: Selection = "none",
    held_out: HeldOutShare = None,
    workers: Workers = None,
    compiled: Compile = None,
    resume: Resume = False,
    checkpoints: Checkpoints = None,
    log: options.LogTo = None,
) -> None:
    """Train adapters for a network on the base classes; the network itself does not change.

    Example: fiveshot tune --images photos --out adapter.safetensors

    On several GPUs: accelerate launch --multi_gpu $(which fiveshot) tune ...
    """
    task = prepare(
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
        from fiveshot.tuning import Execution, TuningLog, started_by_launcher

    if started_by_launcher() and ":" in device:
        raise InputError(
            f"the launcher chooses the GPU of each process, so --device {device} cannot", hint="give --device cuda"
        )
    how = {
        "execution": Execution(workers=workers, compile=compiled),
        "resume": resume,
        "checkpoint_folder": checkpoints,
        "skip_bad": skip_bad,
    }
    with TuningLog(Loggers(log or ()), out.stem, task.recipe) as epochs:
        result = _tune_here(task, out, device, how, epochs)
        if result is not None:
            epochs.complete(result)
    for line in summary(result, task.dataset) if result is not None else ():
        echo(line)


@dataclass(frozen=True)
class Training:
    """What is trained, and how, as the options say."""

    dataset: ImageDataset
    spec: BackboneSpec
    recipe: TuneRecipe
    selection: SelectionName
    held_out: HeldOut


def prepare(
    images: str,
    root: Path | None,
    *,
    spec: dict[str, Any],
    recipe: str,
    settings: Iterable[str],
    seed: int,
    selection: SelectionName,
    held_out: float | None,
) -> Training:
    """Read the recipe and open the images, before PyTorch is loaded."""
    from fiveshot.backbones import DEFAULT, BackboneSpec, preprocessing_for, refuse_bundle

    refuse_bundle(spec["name"] or DEFAULT)
    require_extra("torch", "timm")
    from fiveshot.benchmark import PROTOCOLS
    from fiveshot.tuning import get_recipe, parse_setting

    changes = dict(map(parse_setting, settings))
    if "seed" in changes:
        raise InputError("--set cannot set the seed", hint="use --seed")
    values = get_recipe(recipe).replace(seed=seed, **changes)
    dataset = base_images(images, root, seed=seed)
    protocol = PROTOCOLS.get(images)
    chosen = BackboneSpec(
        spec["name"] or DEFAULT,
        weights=spec["weights"],
        preprocessing=preprocessing_for(spec["preprocessing"], protocol.dataset if protocol else None),
    )
    share = held_out_share(held_out, recipe, selection, own=protocol is None)
    return Training(dataset, chosen, values, selection, share)


def _tune_here(task: Training, out: Path, device: str, how: dict[str, Any], log: TuningLog) -> TuneResult | None:
    """Train on this machine. If a launcher started several processes, only one of them returns the result."""
    import torch

    from fiveshot.backbones import load_backbone
    from fiveshot.tuning import make_accelerator, started_by_launcher
    from fiveshot.tuning import tune as tune_adapters

    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    accelerator = make_accelerator(cpu=where == "cpu") if started_by_launcher() else None
    main = accelerator is None or accelerator.is_main_process
    with tuning_bar(shown=main, log=log if main else None) as progress:
        loaded = load_backbone(task.spec.replace(device=str(accelerator.device) if accelerator else where))
        result = tune_adapters(
            loaded,
            task.dataset,
            out=out,
            recipe=task.recipe,
            selection=task.selection,
            held_out=task.held_out,
            progress=progress,
            accelerator=accelerator,
            **how,
        )
    return result if main else None


def held_out_share(given: float | None, recipe: str, selection: str, *, own: bool) -> HeldOut:
    """Return the share of images to test on; the paper trains on all images.

    A model with own photos as its base sets its thresholds on this share.

    >>> held_out_share(None, "ours", "none", own=True), held_out_share(None, "ours", "none", own=False)
    ('auto', 0.1)
    >>> held_out_share(None, "paper", "none", own=True), held_out_share(0.2, "paper", "none", own=True)
    (0.0, 0.2)
    """
    if given is not None:
        return given
    if recipe == "paper" and selection != "held-out-images":
        return 0.0
    return "auto" if own else 0.1


def base_images(images: str, root: Path | None, *, seed: int) -> ImageDataset:
    """Return the images of a folder, or of a protocol's base classes."""
    from fiveshot.benchmark import PROTOCOLS, get_protocol
    from fiveshot.data import open_dataset, open_images, restrict
    from fiveshot.errors import unknown_name

    if images not in PROTOCOLS:
        if not Path(images).exists():
            error = unknown_name("folder or protocol", images, PROTOCOLS)
            raise InputError(error.message, hint=f"{error.hint}; or name a folder that exists", code=error.code)
        if root is not None:
            raise InputError(f"--root is for protocols, and {images} is a folder", hint="leave it out")
        return open_images(Path(images), seed=seed)
    if root is None:
        raise InputError(f"{images} is a protocol", hint="name the folder of its images with --root FOLDER")
    protocol = get_protocol(images)
    return restrict(open_dataset(protocol.dataset, root, seed=seed), protocol.session_classes[0])


def summary(result: TuneResult, dataset: ImageDataset) -> Iterator[str]:
    """Yield the lines to print about a finished run."""
    best = result.best
    yield (
        f"{result.out}: {counted(len(dataset.class_names), 'base class')}, {counted(result.best_epoch, 'epoch')}, "
        f"{result.seconds:.0f} s, {result.images_per_second:.0f} images/s"
    )
    if best.held_out_accuracy is not None:
        yield f"accuracy on held-out training images {100 * best.held_out_accuracy:.1f} %"
    scores = [
        record.few_shot
        for run in result.selection
        for record in run
        if record.few_shot is not None and record.epoch == result.best_epoch
    ]
    if scores:
        new = sum(score.new for score in scores) / len(scores)
        yield f"base classes played as new ones, 5 shots each: {100 * new:.1f} %"
    for difference in dataset.differences:
        yield f"note: {difference}"
