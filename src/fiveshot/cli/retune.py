"""``fiveshot retune``: adapt a model's backbone to everything it has learned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.answer import AsJson, Model, answering
from fiveshot.cli.photo_arguments import Device, Weights
from fiveshot.cli.unused import WITHOUT_BASE, refuse_unused
from fiveshot.errors import counted


def retune(
    ctx: typer.Context,
    model: Model,
    base: Annotated[Path | None, typer.Option(help="The photos of the base classes, if there are any.")] = None,
    recipe: Annotated[
        str,
        typer.Option(
            help="'ours', or 'paper' for the paper's own values.", autocompletion=completion.tuning_recipes
        ),
    ] = "ours",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Replace a value of the recipe: key=value, any number of times."),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out photos of the base that cannot be read.")
    ] = False,
    device: Device = "auto",
    weights: Weights = None,
    as_json: AsJson = False,
) -> None:
    """Adapt the backbone to all kept photos and switch over in one step; export the model first to go back.

    It needs a model that keeps its photos: fiveshot new MODEL --keep-photos

    Example: fiveshot retune birds
    """
    from fiveshot.cli.tune import progress_bar
    from fiveshot.recognizer import Recognizer
    from fiveshot.tuning import parse_setting

    with answering("retune", model, as_json=as_json) as answer:
        if base is None:
            refuse_unused(ctx, WITHOUT_BASE, "skip_bad")
        values = dict(map(parse_setting, settings or []))
        opened = Recognizer.open(model, device=device, weights=weights)
        with opened as recognizer, progress_bar(shown=not as_json) as tuning:
            if not recognizer.show().base_classes:
                refuse_unused(ctx, f"is for base classes, and {model} has none; leave it out", "base")
            done = recognizer.tune(
                base=base,
                recipe=recipe,
                settings=values,
                tuning=tuning,
                skip_bad=skip_bad,
                on_bad=answer.note_bad,
            )
            classes = len(recognizer.snapshot.classes)
        answer.result = {"classes": classes, "epochs": done.best_epoch, "seconds": done.seconds}
        adapted = f"{counted(classes, 'class')} in {counted(done.best_epoch, 'epoch')}"
        answer.say(f"{model}: adapted to {adapted}, {done.seconds:.0f} s")
