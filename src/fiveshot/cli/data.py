"""``fiveshot data``: datasets and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fiveshot.cli import completion
from fiveshot.cli.answer import AsJson, answering
from fiveshot.cli.stopping import KEPT, when_stopped

data = typer.Typer(help="Datasets: what there is, and getting one.", no_args_is_help=True)


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
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from fiveshot.data import fetch

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with answering("data fetch", as_json=as_json) as answer:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task(name, total=None)
            fetched = fetch(name, root, progress=lambda done, total: bar.update(task, completed=done, total=total))
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
    from fiveshot.recognizer.samples import draw_samples

    with answering("data samples", as_json=as_json) as answer:
        drawn = draw_samples(folder, seed=seed)
        answer.result = {"folder": str(folder), "pictures": drawn}
        for part, count in drawn.items():
            answer.say(f"{folder / part}: {count} pictures")
