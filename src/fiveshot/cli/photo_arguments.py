"""Photos on the command line, and the model that looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from fiveshot.cli.answer import Answer
    from fiveshot.recognizer import Recognizer
    from fiveshot.recognizer.photo import Photo

Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Runtime = Annotated[Literal["auto", "torch", "onnx"], typer.Option(help="What runs the network on a CPU.")]
Weights = Annotated[
    Path | None, typer.Option(help="Where the backbone's own weights are now, if the model was made from a file.")
]

FEW = 100  # photos for which making ONNX Runtime ready would take longer than it saves


def open_to_look(
    model: Path, *, photos: int, device: str, runtime: str, weights: Path | None, readonly: bool = False
) -> Recognizer:
    """Open a model that is about to look at so many photos."""
    from fiveshot.recognizer import Recognizer

    chosen = "torch" if runtime == "auto" and photos < FEW else runtime
    return Recognizer.open(model, device=device, runtime=chosen, weights=weights, readonly=readonly)


def gathered(answer: Answer, inputs: Sequence[str]) -> list[Photo]:
    """Return the photos that files, folders, patterns or ``-`` stand for, noting files that are none."""
    from fiveshot.recognizer.photo_inputs import gather_photos

    photos = gather_photos(inputs)
    note_left_out(answer, inputs)
    return photos


def note_classes_left_out(answer: Answer, folder: Path) -> None:
    """Say what was passed over in a folder of class folders: photos beside them, and files that are no photos."""
    from fiveshot.data.listing import some_of
    from fiveshot.errors import counted
    from fiveshot.recognizer.class_folders import loose_photos

    loose = loose_photos(folder)
    if loose:
        lie = "lies" if len(loose) == 1 else "lie"
        answer.note(
            f"passed over {counted(len(loose), 'photo')} that {lie} beside the class folders: {some_of(loose)}"
        )
    note_left_out(answer, [str(folder)])


def note_left_out(answer: Answer, inputs: Sequence[str]) -> None:
    """Say which files in folders were passed over: a photo in a format we do not read must not vanish."""
    from fiveshot.errors import counted
    from fiveshot.recognizer.photo_inputs import left_out

    others = left_out(inputs)
    if others:
        kinds = ", ".join(f"{suffix} ({count})" for suffix, count in sorted(others.items()))
        none = "is no photo" if others.total() == 1 else "are no photos"
        answer.note(f"passed over {counted(others.total(), 'file')} that {none} by name: {kinds}")


def total(classes: Mapping[str, Sequence[Photo]]) -> int:
    """Return the number of photos in all classes."""
    return sum(map(len, classes.values()))
