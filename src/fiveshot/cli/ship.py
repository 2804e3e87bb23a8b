"""``fiveshot export``, ``import`` and ``merge``: a model goes to another machine, and comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fiveshot.cli.answer import AsJson, Model, answering, file_size
from fiveshot.errors import counted


def export(
    model: Model,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)],
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Backbone and classifier as ONNX, for a runtime without PyTorch.")
    ] = False,
    photos: Annotated[
        bool, typer.Option("--photos", help="Take kept photos along; otherwise only what was learned goes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a model to one portable file for 'fiveshot import', or to ONNX with a JSON file beside it.

    Example: fiveshot export birds birds.fiveshot

    Example: fiveshot export birds birds.onnx --onnx
    """
    from fiveshot.errors import InputError
    from fiveshot.recognizer import Recognizer

    with answering("export", model, as_json=as_json) as answer:
        if onnx and photos:
            raise InputError("--onnx and --photos contradict each other; an ONNX file holds no photos")
        with Recognizer.open(model, readonly=True, device="cpu", runtime="torch") as recognizer:
            written = [file]
            if onnx:
                from fiveshot.recognizer.onnx_export import export_model

                written.append(export_model(recognizer, file))
            else:
                recognizer.export(file, photos=photos)
        answer.result = {"files": [str(path) for path in written]}
        for path in written:
            answer.say(f"{path}: {file_size(path.stat().st_size)}")


def import_model(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of 'fiveshot export'.", show_default=False)],
    model: Model,
    as_json: AsJson = False,
) -> None:
    """Make a model from an exported file, which is checked as a stranger's.

    Example: fiveshot import birds.fiveshot birds
    """
    from fiveshot.recognizer import Recognizer

    opened = answering("import", model, as_json=as_json)
    with opened as answer, Recognizer.import_file(file, model) as recognizer:
        info = recognizer.show()
        answer.result = info.as_dict()
        answer.say(f"{model}: {counted(len(info.classes), 'class')}, {info.backbone}")


def merge(
    model: Model,
    other: Annotated[
        Path,
        typer.Argument(metavar="OTHER", help="Another model, or an exported file.", show_default=False),
    ],
    as_json: AsJson = False,
) -> None:
    """Take over the classes that another model with the same base has learned.

    Example: fiveshot merge birds birds-of-the-coast
    """
    from fiveshot.recognizer import Recognizer

    with answering("merge", model, as_json=as_json) as answer, Recognizer.open(model) as recognizer:
        report = recognizer.merge(other)
        answer.result = report.as_dict()
        same = f"; {len(report.same):,} were the same in both" if report.same else ""
        added, photos = counted(len(report.added), "class"), counted(report.photos, "photo")
        answer.say(f"{model}: {added} from {other}, {photos}{same}")
