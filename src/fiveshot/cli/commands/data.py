"""``fiveshot data`` and ``backbones``: datasets and networks, what there is and where it comes from."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.failures import KEPT, when_stopped
from fiveshot.cli.options import AsJson
from fiveshot.cli.output import answering, print_rich
from fiveshot.cli.progress import download_bar, status

if TYPE_CHECKING:
    from fiveshot.backbones import BackboneInfo

data = typer.Typer(help="Datasets: what there is, and getting one.", no_args_is_help=True, add_completion=False)


@data.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets that are known by name.

    Example: fiveshot data list
    """
    from fiveshot.data import dataset_specs
    from fiveshot.plugins import load_plugins

    with answering("data list", as_json=as_json) as answer:
        load_plugins()
        specs = dataset_specs().values()
        answer.result = {
            "datasets": [
                {
                    "name": spec.name,
                    "title": spec.title,
                    "classes": spec.classes,
                    "train": spec.train_count,
                    "test": spec.test_count,
                }
                for spec in specs
            ]
        }
        for spec in specs:
            answer.say(
                f"{spec.name:10} {spec.title}: {spec.classes} classes, "
                f"{spec.train_count:,} training and {spec.test_count:,} test images"
            )


@data.command("fetch")
@when_stopped(KEPT)
def fetch_dataset(
    name: Annotated[
        str, typer.Argument(help="A dataset; see 'fiveshot data list'.", autocompletion=completion.datasets)
    ],
    root: Annotated[Path, typer.Option(help="Folder to put it into.")] = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Download a dataset, resuming where an earlier attempt stopped, check it and unpack it.

    Example: fiveshot data fetch cub200 --root data
    """
    from fiveshot.data import fetch

    with answering("data fetch", as_json=as_json) as answer:
        with download_bar(name) as progress:
            fetched = fetch(name, root, progress=progress)
        found = fetched.dataset
        answer.result = {
            "folder": str(fetched.folder),
            "train": len(found.train),
            "test": len(found.test),
            "differences": list(found.differences),
        }
        answer.say(f"{fetched.folder}: {len(found.train)} training and {len(found.test)} test images")
        for difference in found.differences:
            answer.say(f"note: {difference}")


@data.command("samples")
def draw_samples(
    folder: Annotated[Path, typer.Argument(help="A new folder.", show_default=False)],
    seed: Annotated[int, typer.Option(help="Another seed draws other pictures.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Draw small pictures of five things, to try the other commands without photos at hand.

    Example: fiveshot data samples samples
    """
    from fiveshot.data.synthetic import draw_samples

    with answering("data samples", as_json=as_json) as answer:
        with status("drawing"):
            drawn = draw_samples(folder, seed=seed)
        answer.result = {"folder": str(folder), "pictures": drawn}
        for part, count in drawn.items():
            answer.say(f"{folder / part}: {count} pictures")


def backbones(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Any timm names; a short list unless given.", autocompletion=completion.backbones),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List backbones with their size, cost and whether their weights are on this machine.

    Example: fiveshot backbones vit_base_patch16_224.augreg_in21k_ft_in1k
    """
    with answering("backbones", as_json=as_json) as answer:
        with status("counting what backbones cost"):
            from fiveshot.backbones import list_backbones  # here, where a missing library is an answer too

            found = list_backbones(names) if names else list_backbones()
        answer.result = {"backbones": [asdict(info) for info in found]}
        if not as_json:
            _print_backbones(found)


def _print_backbones(found: list[BackboneInfo]) -> None:
    from rich.table import Table

    table = Table("backbone", box=None, pad_edge=False)
    for heading in ("parameters", "GMACs/image", "vector", "input"):
        table.add_column(heading, justify="right")
    table.add_column("weights")
    table.add_column("")
    for info in found:
        table.add_row(
            info.name,
            f"{info.parameters / 1e6:.1f} M",
            f"{info.gmacs:.1f}",
            f"{info.width:,}",
            f"{info.input_size} px",
            "here" if info.local else "to download",
            info.note,
        )
    print_rich(table)
