"""``fiveshot show`` and ``fiveshot check``: what a model holds, and whether it is sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli.answer import AsJson, Model, answering, file_size, percent
from fiveshot.errors import counted

if TYPE_CHECKING:
    from fiveshot.cli.answer import Answer
    from fiveshot.recognizer.info import ModelInfo


def show(model: Model, as_json: AsJson = False) -> None:
    """Show the classes of a model, how it was made and what it takes.

    Example: fiveshot show birds
    """
    from fiveshot.recognizer import Recognizer

    opened = answering("show", model, as_json=as_json)
    with opened as answer, Recognizer.open(model, readonly=True) as recognizer:
        info = recognizer.show()
        answer.result = info.as_dict()
        _tell(answer, info)


def check(
    model: Model,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write model.toml anew and remove what an interruption left behind.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Verify every file and number of a model; the exit status is 1 where something is wrong.

    Example: fiveshot check birds
    """
    from fiveshot.recognizer.checking import check_model

    with answering("check", model, as_json=as_json) as answer:
        findings = check_model(model, repair=repair)
        answer.result = {"findings": [finding.as_dict() for finding in findings]}
        for finding in findings:
            answer.say(f"{finding.severity}: {finding.text}" + ("; repaired" if finding.repaired else ""))
        if not findings:
            answer.say(f"{model} is sound")
        if any(finding.severity == "error" and not finding.repaired for finding in findings):
            answer.fail()


def _tell(answer: Answer, info: ModelInfo) -> None:
    adapted = " with an adapter" if info.adapter else ""
    answer.say(f"{info.path}: {info.backbone}{adapted}, head {info.head}, {file_size(info.bytes_on_disk)}")
    kept = "kept" if info.keep_photos else "not kept"
    answer.say(f"photos are {kept}, thumbnails are {'kept' if info.thumbnails else 'not kept'}")
    answer.say(f"unknown photos, {percent(info.false_rejection, 0)} false rejections: {info.rejection}")
    answer.say(f"{counted(info.base_classes, 'base class')}, {info.new_classes:,} learned since")
    for one in info.classes:
        answer.say(f"{one.photos:7,}  {one.name}" + ("  (base)" if one.base else ""))
