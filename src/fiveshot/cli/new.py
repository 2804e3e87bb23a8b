"""``fiveshot new``: a model in a new directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.answer import AsJson, Model, answering
from fiveshot.cli.photo_arguments import Device, Runtime
from fiveshot.cli.unused import WITHOUT_BASE, refuse_unused
from fiveshot.errors import counted

if TYPE_CHECKING:
    from fiveshot.cli.answer import Answer


def new(
    ctx: typer.Context,
    model: Model,
    base: Annotated[
        Path | None, typer.Option(help="A folder of class folders with many photos each; none unless given.")
    ] = None,
    backbone: Annotated[
        str | None,
        typer.Option(
            help="Any timm name; the embedded ViT unless given. See 'fiveshot backbones'.",
            autocompletion=completion.backbones,
        ),
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Local weights: .safetensors, .pth or .npz.")] = None,
    head: Annotated[
        str,
        typer.Option(
            help="The classifier; 'fiveshot bench --list' describes those there are.",
            autocompletion=completion.heads,
        ),
    ] = "default",
    adapter: Annotated[
        str | None,
        typer.Option(
            help="'tune': adapt the backbone to the base; or a file of 'fiveshot tune', or cub200-big.",
            autocompletion=completion.adapters_or_tune,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    keep_photos: Annotated[
        bool, typer.Option("--keep-photos", help="Keep the photos themselves, which adapting later needs.")
    ] = False,
    thumbnails: Annotated[
        bool, typer.Option("--thumbnails/--no-thumbnails", help="Keep small copies without metadata.")
    ] = True,
    false_rejection: Annotated[
        float, typer.Option(help="Share of photos of known classes that may be called unknown.")
    ] = 0.05,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out photos of the base that cannot be read.")
    ] = False,
    device: Device = "auto",
    runtime: Runtime = "auto",
    as_json: AsJson = False,
) -> None:
    """Make a model: with no base at all, or from a folder of base classes.

    Example: fiveshot new birds
    """
    from fiveshot.cli.extract import extraction_bar
    from fiveshot.cli.tune import progress_bar
    from fiveshot.recognizer import Recognizer

    tunes = adapter == "tune"  # two bars at a time would write over each other
    with (
        answering("new", model, as_json=as_json) as answer,
        progress_bar(shown=tunes) as tuning,
        extraction_bar(shown=not tunes) as progress,
    ):
        if base is None:
            refuse_unused(ctx, WITHOUT_BASE, "skip_bad")
            refuse_unused(ctx, "is not kept in a model; give it to 'learn' and 'predict' instead", "runtime")
        else:
            _note_base(answer, base)
        made = Recognizer.create(
            model,
            base=base,
            backbone=backbone,
            weights=weights,
            head=head,
            adapter=adapter,
            seed=seed,
            keep_photos=keep_photos,
            thumbnails=thumbnails,
            false_rejection=false_rejection,
            device=device,
            runtime="torch" if base is None and runtime == "auto" else runtime,
            progress=progress,
            tuning=tuning,
            skip_bad=skip_bad,
            on_bad=answer.note_bad,
        )
        with made:
            info = made.show()
        answer.result = info.as_dict()
        known = counted(info.base_classes, "base class") if info.base_classes else "no classes yet"
        answer.say(f"{model}: {known}, {info.backbone}")
        if not info.base_classes:
            answer.say(f"teach it one from five photos: fiveshot learn {model} NAME PHOTOS")


def _note_base(answer: Answer, base: Path) -> None:
    """Say what is passed over in a base, and which of its classes cannot do what a base is for."""
    from fiveshot.cli.photo_arguments import note_classes_left_out
    from fiveshot.data.listing import some_of
    from fiveshot.recognizer.class_folders import class_folders

    if base.suffix in (".safetensors", ".npz"):
        return
    classes = class_folders(base)
    note_classes_left_out(answer, base)
    single = [name for name, photos in classes.items() if len(photos) == 1]
    if single:
        found = counted(len(single), "base class")
        answer.note(f"{found} of one photo, which shows nothing of how a class varies: {some_of(single)}")
