"""``fiveshot new``, ``show``, ``set``, ``check`` and ``retune``: create, show, change and check a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from fiveshot.cli import completion, options
from fiveshot.cli.output import (
    CommandOutput,
    answering,
    answering_with,
    file_size,
    image_bar,
    percent,
    printable,
    status,
    tuning_bar,
)
from fiveshot.cli.photos import note_classes_left_out
from fiveshot.errors import InputError, command, counted, some_of
from fiveshot.values import to_json

if TYPE_CHECKING:
    from fiveshot.data import Photo
    from fiveshot.values import ClassInfo, ModelInfo, PhotoInfo

WIDEST = 40  # characters of the column of file names; longer names stick out


def new(
    model: options.Model,
    base: Annotated[Path | None, Option(metavar="FOLDER", help="Base classes with many photos each.")] = None,
    backbone: options.Backbone = None,
    weights: options.LocalWeights = None,
    head: Annotated[
        str,
        Option(
            metavar="NAME",
            help="Classifier; see 'bench --list'.",
            autocompletion=completion.model_heads,
        ),
    ] = "unbiased-lda",
    adapter: options.Adapter = None,
    tokens: options.Tokens = "own",
    quick: options.Quick = False,
    careful: options.Careful = False,
    tune: Annotated[bool, Option("--tune", help="Adapt the network to the base.")] = False,
    seed: options.Seed = 0,
    keep_photos: Annotated[bool, Option("--keep-photos", help="Keep the photos; 'retune' needs them.")] = False,
    no_thumbnails: Annotated[bool, Option("--no-thumbnails", help="Keep no small copies of photos.")] = False,
    no_names: Annotated[bool, Option("--no-names", help="Keep no file names of photos.")] = False,
    false_rejection: Annotated[str, Option(metavar="SHARE", help="Share of known photos called unknown.")] = "5%",
    skip_bad: options.SkipBad = False,
    exist_ok: Annotated[bool, Option("--exist-ok", help="Do nothing if the model exists.")] = False,
    device: options.Device = "auto",
    as_json: options.AsJson = False,
) -> None:
    """Create a model, empty or with the classes of a base folder.

    Example: fiveshot new birds
    """
    from fiveshot.recognizer import MAY_BE_SEEN, Recognizer

    with (
        answering("new", model, as_json=as_json) as answer,
        tuning_bar(shown=tune) as tuning,  # two bars would overwrite each other
        image_bar(f"making {model}", shown=not tune) as progress,
    ):
        given: Path | dict[str, list[Photo]] | None = None
        if base is not None:
            given = _base_photos(answer, base)
        values: dict[str, Any] = {
            "backbone": backbone,
            "weights": weights,
            "head": head,
            "adapter": adapter,
            "tokens": tokens,
            "views": options.chosen_views(quick=quick, careful=careful),
            "seed": seed,
            "keep_photos": keep_photos,
            "thumbnails": not no_thumbnails,
            "names": not no_names,
            "false_rejection": _share(false_rejection),
            "device": device,
            "progress": progress,
            "skip_bad": skip_bad,
            "on_bad": answer.note_bad,
            "exist_ok": exist_ok,
        }
        if tune:
            from fiveshot.tuning import create_tuned

            made = create_tuned(model, given, on_tuning=tuning, **values)
        else:
            made = Recognizer.create(model, base=given, **values)
        with made:
            info = made.show()
        answer.result = to_json(info)
        kind = "base class" if info.base_classes == len(info.classes) else "class"
        known = counted(len(info.classes), kind) if info.classes else "no classes yet"
        answer.say(f"{model}: {known}, {info.backbone}")
        if MAY_BE_SEEN in info.rejection:
            answer.note(MAY_BE_SEEN)
        if not info.classes:
            answer.say(f"teach it one from five photos: {command('learn', model, 'NAME', 'PHOTOS')}")


def _base_photos(answer: CommandOutput, base: Path) -> Path | dict[str, list[Photo]]:
    """Return the photos of a base; note what is skipped, and classes with a single photo."""
    from fiveshot.recognizer import find_classes

    if base.suffix in (".safetensors", ".npz"):
        return base
    found = find_classes(base)
    note_classes_left_out(answer, found)
    single = [name for name, photos in found.classes.items() if len(photos) == 1]
    if single:
        few = counted(len(single), "base class")
        answer.note(f"{few} with a single photo, which cannot show how a class varies: {some_of(single)}")
    return found.classes


def show(
    model: options.Model,
    name: Annotated[
        str | None,
        Argument(
            metavar="[NAME]",
            help="Class whose photos to list, or 'none of these'.",
            autocompletion=completion.classes,
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Show a model and its classes, or the photos of one class.

    Example: fiveshot show birds

    Example: fiveshot show birds owl
    """
    from fiveshot.recognizer import NONE, target_name

    with answering_with("show", model, as_json=as_json, readonly=True) as (answer, recognizer):
        info = recognizer.show()
        if name is None:
            answer.result = to_json(info)
            _tell_model(answer, model, info)
            return
        asked = target_name(name)
        photos = recognizer.photos(asked)
        one = _of_none(photos) if asked == NONE else next(one for one in info.classes if one.name == asked)
        answer.result = {"class": to_json(one), "photos": to_json(photos)}
        _tell_photos(answer, one, photos)


def _of_none(photos: Sequence[PhotoInfo]) -> ClassInfo:
    """Return the photos that show no class as if they were a class."""
    from fiveshot.recognizer import NONE
    from fiveshot.values import ClassInfo

    thumbnails, kept = sum(photo.thumbnail for photo in photos), sum(photo.kept for photo in photos)
    created = min((photo.added for photo in photos), default=None)
    return ClassInfo(NONE, len(photos), False, len(photos), thumbnails, kept, created)


def set_option(
    model: options.Model,
    name: Annotated[
        Literal["false-rejection", "names", "wrong-answers"],
        Argument(metavar="NAME", help="Setting to change: false-rejection, names or wrong-answers."),
    ],
    value: Annotated[str, Argument(metavar="VALUE", help="Share, such as 2% or 0.02; for names on or off.")],
    as_json: options.AsJson = False,
) -> None:
    """Change a setting of a model.

    false-rejection is the share of known photos that may be called unknown, wrong-answers the share of answers
    that may be wrong. 'names off' also erases the file names that were kept, which cannot be undone.

    Example: fiveshot set birds false-rejection 2%

    Example: fiveshot set birds wrong-answers 10%

    Example: fiveshot set birds names off
    """
    with answering_with("set", model, as_json=as_json) as (answer, recognizer):
        if name == "names":
            kept = _on(value)
            recognizer.set(names=kept)
            answer.result = {"name": name, "names": kept}
            erased = "no file names are kept, and those that were kept are erased"
            answer.say(f"{model}: {'file names are kept from now on' if kept else erased}")
            return
        share = _share(value)
        if name == "wrong-answers":
            recognizer.set(wrong_answers=share)
            answer.result = {"name": name, "rate": share}
            answer.say(f"{model}: at most {percent(share)} of the answers wrong; others are unsure")
            return
        now = recognizer.set(false_rejection=share)
        answer.result = {"name": name, **to_json(now)}
        answer.say(f"{model}: {percent(now.rate)} false rejections")
        answer.say(
            f"{now.rejected:,} of {counted(now.photos, 'learned photo')} would be called unknown when left out"
        )
        if now.negatives:
            answer.say(
                f"{now.negatives_rejected:,} of {counted(now.negatives, 'photo')} of 'none of these' would be, too"
            )
        answer.say(now.note)


def _on(text: str) -> bool:
    """Return whether a switch is on.

    >>> _on("on"), _on("Off")
    (True, False)
    """
    switches = {"on": True, "off": False}
    if text.strip().lower() not in switches:
        raise InputError(f"{text!r} is neither on nor off", hint="give one of the two")
    return switches[text.strip().lower()]


def _share(text: str) -> float:
    """Return a share that was typed as a number or as a percentage.

    >>> _share("2%"), _share(" 2.5 %"), _share("0.02")
    (0.02, 0.025, 0.02)
    """
    number = text.strip()
    try:
        return float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError:
        raise InputError(f"{text!r} is not a share", hint="give one such as 2% or 0.02") from None


def check(
    model: options.Model,
    repair: Annotated[
        bool, Option("--repair", help="Write model.toml again, and delete files of interrupted commands.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Check all files and numbers of a model. The exit status is 1 if something is wrong.

    Example: fiveshot check birds
    """
    from fiveshot.recognizer import check_model

    with answering("check", model, as_json=as_json) as answer:
        with status(f"checking {model}"):
            findings = check_model(model, repair=repair)
        answer.result = {"findings": to_json(findings)}
        for finding in findings:
            answer.say(f"{finding.severity}: {finding}" + ("; repaired" if finding.repaired else ""))
        if not findings:
            answer.say(f"{model} is sound")
        if any(finding.severity == "error" and not finding.repaired for finding in findings):
            answer.status = 1


def _tell_model(answer: CommandOutput, model: Path, info: ModelInfo) -> None:
    adapted = " with an adapter" if info.adapter else ""
    views = counted(info.views, "view")
    answer.say(f"{model}: {info.backbone}{adapted}, {views}, head {info.head}, {file_size(info.bytes_on_disk)}")
    kept = "kept" if info.keep_photos else "not kept"
    small, names = ("kept" if one else "not kept" for one in (info.thumbnails, info.names))
    answer.say(f"photos are {kept}, thumbnails are {small}, file names are {names}")
    answer.say(f"unknown photos, {percent(info.false_rejection, 0)} false rejections: {info.rejection}")
    learned = counted(info.new_classes, "class")
    if info.base_classes:
        learned = f"{counted(info.base_classes, 'base class')}, {info.new_classes:,} learned since"
    answer.say(learned if info.classes else "no classes yet")
    if info.negatives:
        answer.say(f"{counted(info.negatives, 'photo')} of none of these")
    for one in info.classes:
        answer.say(f"{one.photos:7,}  {one.name}" + ("  (base)" if one.base else ""))


def _tell_photos(answer: CommandOutput, one: ClassInfo, photos: Sequence[PhotoInfo]) -> None:
    answer.say(f"{one.name}: {counted(one.photos, 'photo')}")
    names = [printable(photo.name or "") for photo in photos]
    width = min(max(map(len, names), default=0), WIDEST)
    for photo, name in zip(photos, names, strict=True):
        score = "" if photo.score is None else f"  {percent(photo.score, 0):>5} when left out"
        taken = "" if photo.taken_for is None else f", taken for {photo.taken_for}"
        named = f"  {name:{width}}" if width else ""
        answer.say(f"{photo.id:>7}{named}  {photo.added[:16].replace('T', ' ')}{score}{taken}")
    if one.base:
        rest = counted(one.photos - len(photos), "photo")
        answer.say(f"{rest} of the base: only statistics are stored, so they have no ids and cannot be removed")


def retune(
    model: options.Model,
    base: Annotated[Path | None, Option(metavar="FOLDER", help="Photos of the base classes.")] = None,
    recipe: options.Recipe = "ours",
    settings: options.RecipeValues = None,
    skip_bad: options.SkipBad = False,
    device: options.Device = "auto",
    weights: options.Weights = None,
    as_json: options.AsJson = False,
) -> None:
    """Adapt the network to all kept photos. This cannot be undone: export the model first.

    The model must keep its photos: fiveshot new MODEL --keep-photos

    Example: fiveshot retune birds
    """
    from fiveshot.tuning import parse_setting
    from fiveshot.tuning import retune as retune_model

    with answering("retune", model, as_json=as_json) as answer:
        values = dict(map(parse_setting, settings or []))
        opened = answer.open_model(device=device, weights=weights)
        with opened as recognizer, tuning_bar(shown=not as_json) as tuning:
            if base is not None and not recognizer.show().base_classes:
                raise InputError(f"{model} has no base classes", hint="leave --base out", code="unused_option")
            done = retune_model(
                recognizer,
                base=base,
                recipe=recipe,
                settings=values,
                on_tuning=tuning,
                skip_bad=skip_bad,
                on_bad=answer.note_bad,
            )
            classes = len(recognizer.snapshot.classes)
        answer.result = {"classes": classes, "epochs": done.best_epoch, "seconds": done.seconds}
        adapted = f"{counted(classes, 'class')} in {counted(done.best_epoch, 'epoch')}"
        answer.say(f"{model}: adapted to {adapted}, {done.seconds:.0f} s")
