"""``fiveshot export``, ``import`` and ``merge``: share a model, and use shared models."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from fiveshot.cli import options
from fiveshot.cli.output import answering, answering_with, file_size, is_missing, status
from fiveshot.errors import InputError, StorageError, command, counted
from fiveshot.values import to_json

if TYPE_CHECKING:
    from fiveshot.recognizer import Recognizer

STANDARD_OUTPUT = "-"
HUB = ("hf://", "file://")  # addresses of a hub begin like this


def export(
    model: options.Model,
    file: Annotated[
        str | None,
        Argument(metavar="FILE", help="File to write, - for standard output, or hf://OWNER/NAME."),
    ] = None,
    onnx: Annotated[bool, Option("--onnx", help="Write network and classifier as ONNX.")] = False,
    all_views: Annotated[
        bool, Option("--all-views", help="With --onnx: take all views of a photo, as the model does.")
    ] = False,
    web: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="Write a page that recognizes photos in the browser."),
    ] = None,
    title: Annotated[
        str | None, Option(metavar="TEXT", help="Title of the page.", show_default="name of the model")
    ] = None,
    private: Annotated[bool, Option("--private", help="Make a new repository on the hub private.")] = False,
    evaluation: Annotated[
        Path | None,
        Option(metavar="FILE.json", help="Output of 'fiveshot evaluate --json', for the model card."),
    ] = None,
    photos: Annotated[bool, Option("--photos", help="Include the kept photos.")] = False,
    force: Annotated[bool, Option("--force", help="Replace a file that is not an export.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a model to a file for 'fiveshot import', to the hub, to ONNX, or as a web page.

    Example: fiveshot export birds birds.fiveshot

    Example: fiveshot export birds birds.onnx --onnx

    Example: fiveshot export birds --web site

    Example: fiveshot export birds hf://me/birds
    """
    from fiveshot.recognizer import export_onnx, export_web, push_to_hub

    with answering("export", model, as_json=as_json) as answer:
        published = file is not None and file.startswith(HUB)
        if (file is None) == (web is None):
            raise InputError("an export goes to one place", hint="give a FILE or --web FOLDER")
        _check_options(
            "the hub" if published else "a file" if web is None else "a page",
            onnx=onnx,
            all_views=all_views,
            photos=photos,
            force=force,
            private=private,
            evaluation=evaluation is not None,
            title=title is not None,
        )
        if onnx and photos:
            raise InputError(
                "--onnx and --photos exclude each other", hint="an ONNX file holds no photos; give one of them"
            )
        if all_views and not onnx:
            raise InputError("--all-views is for --onnx", hint="leave it out", code="unused_option")
        if file == STANDARD_OUTPUT:
            _check_output(model, onnx=onnx, force=force, as_json=as_json)
        with answer.open_model(readonly=True, device="cpu") as recognizer:
            if photos and not recognizer.show().keep_photos:
                answer.note(f"{model} keeps no photos to include")
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
                    written = [*export_onnx(recognizer, file, all_views=all_views, overwrite=force)]
                else:
                    recognizer.export(file, photos=photos, overwrite=force)
        answer.result = {"files": [str(path) for path in written]}
        for path in written:
            answer.say(f"{path}: {file_size(path.stat().st_size)}")


# The options that each kind of export does not have.
UNUSED = {
    "a file": ("private", "evaluation", "title"),
    "a page": ("private", "evaluation", "onnx", "all_views", "photos"),
    "the hub": ("onnx", "all_views", "force"),
}


def _check_options(target: str, **given: bool) -> None:
    """Refuse options that this kind of export does not have."""
    for name in UNUSED[target]:
        if given[name]:
            raise InputError(
                f"--{name.replace('_', '-')} has no effect on an export to {target}",
                hint="leave it out",
                code="unused_option",
            )


def _results(file: Path) -> dict[str, Any]:
    """Return the result in the output of 'fiveshot evaluate --json'."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror or error}") from error
    except ValueError:
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("result"), dict):
        raise InputError(
            f"{file} is not the output of 'fiveshot evaluate --json'", hint="write its output to a file"
        )
    result: dict[str, Any] = found["result"]
    return result


def _check_output(model: Path, *, onnx: bool, force: bool, as_json: bool) -> None:
    """Refuse standard output if the model cannot be written to it."""
    if force:
        raise InputError(
            "--force replaces a file, and - is standard output", hint="leave it out", code="unused_option"
        )
    if onnx:
        raise InputError(
            "--onnx writes three files, and standard output takes one", hint="name a FILE that ends in .onnx"
        )
    if as_json:
        raise InputError("--json and - both write to standard output", hint="name a FILE")
    if is_missing(sys.stdout):
        raise InputError("there is no standard output", hint="name a FILE")
    if sys.stdout.isatty():
        file = shlex.quote(f"{model.resolve().name}.fiveshot")
        raise InputError(
            "a model cannot be written to a terminal",
            hint=f"name a FILE, or: {command('export', model, '-')} > {file}",
        )


def _print_export(recognizer: Recognizer, *, photos: bool) -> None:
    """Write the complete file to standard output."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "model.fiveshot"
        recognizer.export(whole, photos=photos)
        with whole.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
        sys.stdout.buffer.flush()


def import_model(
    file: Annotated[str, Argument(metavar="FILE", help="File from 'fiveshot export', or hf://OWNER/NAME.")],
    model: options.Model,
    revision: Annotated[str | None, Option(metavar="NAME", help="Branch, tag or commit on the hub.")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Create a model from an exported file or from the hub. The file is checked first.

    Example: fiveshot import birds.fiveshot birds

    Example: fiveshot import hf://me/birds birds
    """
    from fiveshot.recognizer import from_pretrained, import_file

    with answering("import", model, as_json=as_json) as answer:
        if file.startswith(HUB):
            with status(f"fetching {file}"):
                opened = from_pretrained(file, model, revision=revision)
        else:
            if revision is not None:
                raise InputError("--revision is for the hub", hint="leave it out", code="unused_option")
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
    """Add the classes of another model that has the same base.

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
