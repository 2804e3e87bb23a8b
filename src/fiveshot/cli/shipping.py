"""``fiveshot export``, ``import`` and ``merge``: a model goes to another machine, and comes back."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Context, Option

from fiveshot.cli import options
from fiveshot.cli.output import answering, answering_with, file_size, is_missing, status
from fiveshot.errors import InputError, StorageError, command, counted
from fiveshot.values import to_json

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer

STANDARD_OUTPUT = "-"
PUBLISHED_AT = ("hf://", "file://")  # where models are published


def export(
    ctx: Context,
    model: options.Model,
    file: Annotated[
        str | None,
        Argument(metavar="FILE", help="The file to write, - for standard output, or hf://OWNER/NAME on the hub."),
    ] = None,
    onnx: Annotated[bool, Option("--onnx", help="Backbone and classifier as ONNX, without PyTorch.")] = False,
    web: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="A page that recognizes photos in the browser, for any web server."),
    ] = None,
    title: Annotated[str | None, Option(help="What the page is called; as the model unless given.")] = None,
    private: Annotated[bool, Option("--private", help="A repository of the hub that is made is private.")] = False,
    evaluation: Annotated[
        Path | None,
        Option(metavar="FILE.json", help="What 'fiveshot evaluate --json' printed, for the model's card."),
    ] = None,
    photos: Annotated[
        bool, Option("--photos", help="Take kept photos along; otherwise only what was learned goes.")
    ] = False,
    force: Annotated[
        bool, Option("--force", help="Replace any file of that name; an earlier export is replaced without.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a model to a portable file for 'fiveshot import', to the hub, to ONNX, or as a page for the browser.

    Example: fiveshot export birds birds.fiveshot

    Example: fiveshot export birds birds.onnx --onnx

    Example: fiveshot export birds --web site

    Example: fiveshot export birds hf://me/birds
    """
    from fiveshot.recognizer import export_onnx, export_web, push_to_hub

    with answering("export", model, as_json=as_json) as answer:
        published = file is not None and file.startswith(PUBLISHED_AT)
        _check_targets(ctx, file, web, published=published)
        if onnx and photos:
            raise InputError(
                "--onnx and --photos contradict each other", hint="an ONNX file holds no photos; give one of them"
            )
        if file == STANDARD_OUTPUT:
            options.refuse_unused(ctx, "is for a file, and standard output is none; leave it out", "force")
            _check_output(model, onnx=onnx, as_json=as_json)
        with answer.open_model(readonly=True, device="cpu") as recognizer:
            if photos and not recognizer.show().keep_photos:
                answer.note(f"{model} keeps no photos to take along")
            with status(f"exporting {model}"):
                if web is not None:
                    page = export_web(recognizer, web, title=title, overwrite=force)
                    answer.result = to_json(page)
                    try_it = f"python -m http.server --bind 127.0.0.1 --directory {shlex.quote(str(web))}"
                    answer.say(f"{web}: a page that loads {file_size(page.size)}; try it: {try_it}")
                    return
                assert file is not None  # checked above
                if published:
                    measured = None if evaluation is None else _results(evaluation)
                    where = push_to_hub(
                        recognizer, file, private=private, photos=photos, evaluation=measured, title=title
                    )
                    answer.result = {"place": where}
                    answer.say(f"{model}: published at {where}")
                    return
                if file == STANDARD_OUTPUT:
                    _print_export(recognizer, photos=photos)
                    return
                written = [Path(file)]
                if onnx:
                    written.append(export_onnx(recognizer, file, overwrite=force))
                else:
                    recognizer.export(file, photos=photos, overwrite=force)
        answer.result = {"files": [str(path) for path in written]}
        for path in written:
            answer.say(f"{path}: {file_size(path.stat().st_size)}")


def _check_targets(ctx: Context, file: str | None, web: Path | None, *, published: bool) -> None:
    """Refuse two places to write to, or none, and options of another one."""
    if (file is None) == (web is None):
        raise InputError("an export goes to one place", hint="give a FILE or --web FOLDER")
    if web is not None:
        options.refuse_unused(ctx, "is for a file; leave it out with --web", "onnx", "photos")
    if published:
        options.refuse_unused(ctx, "is for a file here; leave it out", "onnx", "force")
    else:
        options.refuse_unused(
            ctx, "is for the hub; export to hf://OWNER/NAME, or leave it out", "private", "evaluation"
        )
    if web is None and not published:
        options.refuse_unused(ctx, "is for a page; add --web FOLDER, or leave it out", "title")


def _results(file: Path) -> dict[str, Any]:
    """Return what 'fiveshot evaluate --json' has found."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("result"), dict):
        raise InputError(
            f"{file} is not what 'fiveshot evaluate --json' prints", hint="write its output to a file"
        )
    result: dict[str, Any] = found["result"]
    return result


def _check_output(model: Path, *, onnx: bool, as_json: bool) -> None:
    """Refuse standard output where a model cannot go there."""
    if onnx:
        raise InputError(
            "--onnx writes two files, and standard output takes one", hint="name a FILE that ends in .onnx"
        )
    if as_json:
        raise InputError("--json and - contradict each other: both go to standard output", hint="name a FILE")
    if is_missing(sys.stdout):
        raise InputError("there is no standard output for the model to go to", hint="name a FILE")
    if sys.stdout.isatty():
        file = shlex.quote(f"{model.resolve().name}.fiveshot")
        raise InputError(
            "a terminal cannot take a model", hint=f"name a FILE, or: {command('export', model, '-')} > {file}"
        )


def _print_export(recognizer: Recognizer, *, photos: bool) -> None:
    """Write the portable file to standard output, once it is complete."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "model.fiveshot"
        recognizer.export(whole, photos=photos)
        with whole.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def import_model(
    ctx: Context,
    file: Annotated[str, Argument(metavar="FILE", help="A file of 'fiveshot export', or hf://OWNER/NAME.")],
    model: options.Model,
    revision: Annotated[str | None, Option(help="A branch, tag or commit of the hub.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Make a model from an exported file or from the hub; it is checked as a stranger's.

    Example: fiveshot import birds.fiveshot birds

    Example: fiveshot import hf://me/birds birds
    """
    from fiveshot.recognizer import from_pretrained, import_file

    with answering("import", model, as_json=as_json) as answer:
        if file.startswith(PUBLISHED_AT):
            with status(f"fetching {file}"):
                opened = from_pretrained(file, model, revision=revision)
        else:
            options.refuse_unused(ctx, "is for the hub; leave it out", "revision")
            with status(f"importing {file}"):
                opened = import_file(file, model)
        with opened as recognizer:
            info = recognizer.show()
        answer.result = to_json(info)
        answer.say(f"{model}: {counted(len(info.classes), 'class')}, {info.backbone}")


def merge(
    model: options.Model,
    other: Annotated[Path, Argument(metavar="OTHER", help="Another model, or an exported file.")],
    as_json: options.AsJson = False,
) -> None:
    """Take over the classes that another model with the same base has learned.

    Example: fiveshot merge birds birds-of-the-coast
    """
    with answering_with("merge", model, as_json=as_json) as (answer, recognizer):
        with status(f"merging {other}"):
            report = recognizer.merge(other)
        answer.result = to_json(report)
        were = "was" if len(report.same) == 1 else "were"
        same = f"; {len(report.same):,} {were} the same in both" if report.same else ""
        added, photos = counted(len(report.added), "class"), counted(report.photos, "photo")
        answer.say(f"{model}: {added} from {other}, {photos}{same}")
