"""``fiveshot backbones`` and ``fiveshot backbone``: choose a network, and keep one in a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fiveshot.cli import completion, options
from fiveshot.cli.output import answering, file_size, status

if TYPE_CHECKING:
    from fiveshot.backbones import BackboneChoice, BackboneFile

backbone = typer.Typer(
    help="Write a network to one file, and show such files.", no_args_is_help=True, add_completion=False
)


def backbones(
    names: Annotated[
        list[str] | None,
        Argument(
            metavar="NAMES",
            help="Names of timm, or ONNX bundles; a short list by default.",
            autocompletion=completion.backbones,
        ),
    ] = None,
    measure: Annotated[
        bool, Option("--measure", help="Measure the time for one photo with those on this machine.")
    ] = False,
    as_json: options.AsJson = False,
) -> None:
    """List networks to choose from: size, cost, license, and what they are good at.

    Example: fiveshot backbones

    Example: fiveshot backbones vit_base_patch16_224.augreg_in21k_ft_in1k --measure
    """
    from fiveshot.backbones import backbone_choices

    with answering("backbones", as_json=as_json) as answer:
        with status("measuring the backbones" if measure else "listing the backbones"):
            found = backbone_choices(names, measure=measure) if names else backbone_choices(measure=measure)
        answer.result = {"backbones": [asdict(one) for one in found]}
        for line in _table(found, measured=measure):
            answer.say(line)


def _table(found: Sequence[BackboneChoice], *, measured: bool) -> list[str]:
    """Return the lines of a table: one for each backbone, below the names of the columns."""
    rows = [["backbone", "download", "weights", "parameters", "GMACs", "license", "needs", "good at"]]
    for one in found:
        weights = {True: "here", False: "to download", None: "-"}[one.local]
        row = [
            one.name,
            "none" if one.download == 0 else f"{one.download / 1e6:,.0f} MB",
            weights,
            f"{one.parameters / 1e6:.1f} M",
            "-" if one.gmacs is None else f"{one.gmacs:.1f}",
            one.license or "-",
            _needs(one),
            one.note or "-",
        ]
        rows.append(row)
    if measured:
        times = ["-" if one.milliseconds is None else f"{one.milliseconds:,.1f}" for one in found]
        for row, text in zip(rows, ["ms/photo", *times], strict=True):
            row.insert(-1, text)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _needs(one: BackboneChoice) -> str:
    """Return what to install for a backbone."""
    from fiveshot.backbones import is_bundle

    if is_bundle(one.name):
        return "fiveshot[onnx,hub]" if one.download else "fiveshot[onnx]"
    return "fiveshot[torch]" if one.needs_torch else "nothing"


@backbone.command("export")
@options.with_home
def export_file(
    name: Annotated[
        str,
        Argument(metavar="NAME", help="Network. See 'fiveshot backbones'.", autocompletion=completion.backbones),
    ],
    file: Annotated[
        Path,
        Argument(metavar="FILE", help="File to write: .onnx runs without torch, .safetensors holds weights."),
    ],
    weights: options.LocalWeights = None,
    adapter: options.Adapter = None,
    preprocessing: options.Preprocessing = "weights",
    tokens: options.Tokens = "own",
    last_blocks: options.LastBlocks = 1,
    quick: options.Quick = False,
    careful: options.Careful = False,
    half: Annotated[bool, Option("--half", help="Store the weights of an .onnx file in half precision.")] = False,
    force: Annotated[bool, Option("--force", help="Replace a file that is not an export.")] = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a network, its adapter and its preprocessing to one file. Needs torch, and onnx for .onnx files.

    Example: fiveshot backbone export vit_small_patch16_224.augreg_in21k_ft_in1k small.onnx

    Example: fiveshot backbone export tiny_vit_5m_224.dist_in22k birds.onnx --adapter cub200-big --half
    """
    from fiveshot.backbones import BackboneSpec, export_backbone

    with answering("backbone export", as_json=as_json) as answer:
        spec = BackboneSpec(
            name,
            weights=weights,
            adapter=adapter,
            preprocessing=preprocessing,
            tokens=tokens,
            last_blocks=last_blocks,
            views=options.chosen_views(quick=quick, careful=careful),
        )
        with status(f"exporting {name}"):
            made = export_backbone(spec, file, half=half, overwrite=force)
        answer.result = {"file": str(file), **made.to_json()}
        answer.say(f"{file}: {file_size(made.bytes)}, {_summary(made)}")


@backbone.command("show")
@options.with_home
def show_file(
    file: Annotated[Path, Argument(metavar="FILE", help="File of a network or adapter, or an ONNX bundle.")],
    as_json: options.AsJson = False,
) -> None:
    """Show what a file of a network or an adapter is.

    Example: fiveshot backbone show small.onnx
    """
    from fiveshot.backbones import describe_file

    with answering("backbone show", as_json=as_json) as answer:
        with status(f"reading {file}"):
            found = describe_file(file)
        answer.result = {"file": str(file), **found.to_json()}
        answer.say(f"{file}: {_summary(found)}")
        for label, text in _details(found):
            answer.say(f"{label:14}{text}")


KINDS = {
    "onnx": "a graph that runs without torch",
    "weights": "weights",
    "adapter": "an adapter for it",
    "bundle": "a graph of another program, which runs without torch",
}


def _summary(file: BackboneFile) -> str:
    adapted = " with an adapter" if file.adapter and file.kind != "adapter" else ""
    return f"{file.backbone}{adapted}, {KINDS[file.kind]}"


def _details(file: BackboneFile) -> list[tuple[str, str]]:
    """Return the label and the text of each line about a file."""
    lines = [("size", file_size(file.bytes))]
    if file.precision != "float32":
        lines.append(("weights in", file.precision))
    if file.width is not None:
        lines.append(("vector", f"{file.width} values"))
    prepared = file.preprocessing
    if prepared is not None:
        views = f"{prepared.views} {'view' if prepared.views == 1 else 'views'}"
        lines += [
            ("input", f"{prepared.size} px, {views}, {prepared.interpolation}"),
            ("short side", f"{prepared.resize} px"),
            ("mean, std", f"{_numbers(prepared.mean)}; {_numbers(prepared.std)}"),
        ]
    if file.reads:
        lines.append(("read", file.reads))
    if file.kind != "bundle":
        lines.append(("adapter", file.adapter or "none"))
    lines.append(("weights hash", file.weights_hash))
    return [*lines, ("license", file.license or "not known")] if file.kind != "adapter" else lines


def _numbers(values: Sequence[float]) -> str:
    return " ".join(f"{value:g}" for value in values)
