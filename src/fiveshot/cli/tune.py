"""``fiveshot tune``: adapters for a backbone, trained on the base classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Context, Option

from fiveshot.cli import options
from fiveshot.cli.output import echo, status, tuning_bar, when_stopped
from fiveshot.errors import InputError, counted
from fiveshot.extras import require_extra
from fiveshot.loggers import Loggers

if TYPE_CHECKING:
    from fiveshot.backbones import BackboneSpec
    from fiveshot.data import ImageDataset
    from fiveshot.tuning import HeldOut, TuneResult, TuningLog


@when_stopped("finished epochs are kept, and the same command with --resume goes on from there")
def tune(
    ctx: Context,
    images: Annotated[
        str, Option(help="A folder or archive of class folders, or a protocol such as cub200/big (with --root).")
    ],
    out: Annotated[Path, Option(help="The adapter file to write, such as adapter.safetensors.")],
    recipe: options.Recipe = "ours",
    settings: options.RecipeValues = None,
    root: Annotated[Path | None, Option(help="Where the protocol's dataset lies.")] = None,
    backbone: options.Backbone = None,
    weights: options.LocalWeights = None,
    preprocessing: Annotated[
        str | None,
        Option(
            help="'weights' (as they were trained); 'paper': as the paper does with the protocol's dataset, and "
            "with images of your own as with CUB-200; or 'paper:cifar100', ..."
        ),
    ] = None,
    selection: Annotated[
        str, Option(help="Choose the number of epochs by few-shot-classes, held-out-images, or none.")
    ] = "none",
    refit: Annotated[bool, Option(help="Train again on all classes after few-shot-classes.")] = True,
    held_out: Annotated[
        float | None,
        Option(
            help="Share of the training images that is not trained on and gives the reported accuracy. Unless "
            "given, of a folder a quarter of each class, 20 at most, on which a model with this base sets its "
            "thresholds; of a protocol 0.1; with --recipe paper 0.",
            show_default=False,
        ),
    ] = None,
    device: options.Device = "auto",
    workers: Annotated[
        int | None, Option(help="Photos decoded at a time; one for each core unless given.")
    ] = None,
    compiled: Annotated[
        bool | None, Option("--compile/--no-compile", help="Compile the network; for long runs on CUDA.")
    ] = None,
    seed: options.Seed = 0,
    log: options.LogTo = None,
    skip_bad: Annotated[bool, Option("--skip-bad", help="Leave unreadable images out.")] = False,
    resume: Annotated[bool, Option("--resume", help="Go on where a stopped run was.")] = False,
    checkpoints: Annotated[Path | None, Option(help="For checkpoints; OUT.checkpoints unless given.")] = None,
    engine: Annotated[Literal["local", "ray"], Option(help="This process, or some of a Ray cluster.")] = "local",
    address: options.Address = None,
    processes: Annotated[
        int | None, Option(help="Training processes on the cluster; one for each GPU unless given.")
    ] = None,
) -> None:
    """Train AdaptFormer adapters on the base classes; the backbone stays as it is.

    Example: fiveshot tune --images photos --out adapter.safetensors

    On several GPUs: accelerate launch --multi_gpu $(which fiveshot) tune ..., or --engine ray
    """
    if engine == "ray":
        options.refuse_unused(ctx, options.LOCAL, "device")
    else:
        options.refuse_unused(ctx, options.CLUSTER, "address", "processes")
    if selection != "few-shot-classes":
        options.refuse_unused(ctx, "belongs to --selection few-shot-classes; add that, or leave it out", "refit")
    require_extra("torch", "timm")
    from fiveshot.backbones import DEFAULT, BackboneSpec
    from fiveshot.backbones.preprocessing import preprocessing_for
    from fiveshot.benchmark import PROTOCOLS
    from fiveshot.tuning import TuningLog, get_recipe, parse_setting

    loggers = Loggers(log or ())
    changes = dict(map(parse_setting, settings or []))
    if "seed" in changes:
        options.refuse_unused(ctx, "and --set seed=... contradict each other; give one of them", "seed")
    values = get_recipe(recipe).replace(**{"seed": seed, **changes})
    dataset = base_images(images, root, seed=seed)
    preprocessing = preprocessing_for(preprocessing, PROTOCOLS[images].dataset if images in PROTOCOLS else None)
    spec = BackboneSpec(backbone or DEFAULT, weights=weights, preprocessing=preprocessing)
    with status("loading PyTorch"):
        from fiveshot.tuning import Execution, started_by_launcher

    if started_by_launcher() and ":" in device:
        options.refuse_unused(
            ctx, "names one GPU, and the launcher gives every process its own; choose cuda", "device"
        )
    training: dict[str, Any] = {
        "recipe": values,
        "held_out": held_out_share(held_out, recipe, selection, own=images not in PROTOCOLS),
        "selection": selection,
        "refit": refit,
        "execution": Execution(workers=workers, compile=compiled),
        "resume": resume,
        "checkpoint_folder": checkpoints,
        "skip_bad": skip_bad,
    }
    result: TuneResult | None
    with TuningLog(loggers, out.stem, values) as epochs:
        if engine == "ray":
            from fiveshot.scale import TuningTask, tune_on_cluster

            with tuning_bar(shown=True, log=epochs) as progress:
                task = TuningTask(dataset, spec, **training)
                result = tune_on_cluster(task, out, processes=processes, address=address, progress=progress)
        else:
            result = _tune_here(spec, dataset, out, device, training, epochs)
        if result is not None:
            epochs.complete(result)
    for line in summary(result, dataset) if result is not None else ():
        echo(line)


def _tune_here(
    spec: BackboneSpec, dataset: ImageDataset, out: Path, device: str, training: dict[str, Any], log: TuningLog
) -> TuneResult | None:
    """Train on this machine; of several processes that a launcher started, one has the result."""
    import torch

    from fiveshot.backbones import load_backbone
    from fiveshot.tuning import make_accelerator, started_by_launcher
    from fiveshot.tuning import tune as tune_adapters

    where = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    accelerator = make_accelerator(cpu=where == "cpu") if started_by_launcher() else None
    main = accelerator is None or accelerator.is_main_process
    with tuning_bar(shown=main, log=log if main else None) as progress:
        loaded = load_backbone(spec.replace(device=str(accelerator.device) if accelerator else where))
        result = tune_adapters(loaded, dataset, out=out, progress=progress, accelerator=accelerator, **training)
    return result if main else None


def held_out_share(given: float | None, recipe: str, selection: str, *, own: bool) -> HeldOut:
    """Return the share of images not trained on; the paper trains on all of them.

    Of photos of one's own it is what a model with this base sets its thresholds on.

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
            raise InputError(f"--root belongs to a protocol, and {images} is a folder", hint="leave it out")
        return open_images(Path(images), seed=seed)
    if root is None:
        raise InputError(f"{images} is a protocol", hint="say where its images lie with --root DIR")
    protocol = get_protocol(images)
    return restrict(open_dataset(protocol.dataset, root, seed=seed), protocol.session_classes[0])


def summary(result: TuneResult, dataset: ImageDataset) -> Iterator[str]:
    """Yield what is said about a finished run."""
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
