"""Options and arguments that several commands share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from typer import Argument, Option

from fiveshot.cli import completion
from fiveshot.errors import InputError

Given = ParamSpec("Given")
Result = TypeVar("Result")

Model = Annotated[Path, Argument(metavar="MODEL", help="Folder of the model.")]
AsJson = Annotated[bool, Option("--json", help="Print the result as JSON.")]

Backbone = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Network, as 'backbones' lists, or bundle.",
        autocompletion=completion.backbones,
    ),
]
LocalWeights = Annotated[Path | None, Option(metavar="FILE", help="File with the weights of the network.")]
Weights = Annotated[Path | None, Option(metavar="FILE", help="File of the network, if it was moved.")]
Adapter = Annotated[
    str | None,
    Option(
        metavar="FILE|NAME",
        help="Adapter of the network: file or name.",
        autocompletion=completion.adapters,
    ),
]
Preprocessing = Annotated[
    str,
    Option(metavar="NAME", help="weights: as the network was trained; paper; or paper:cars and so on."),
]
Tokens = Annotated[
    Literal["own", "cls", "mean", "cls+mean"],
    Option(metavar="TOKENS", show_default=False, help="own (default), cls, mean or cls+mean."),
]
LastBlocks = Annotated[int, Option(metavar="N", help="Join the class tokens of the last N blocks.")]
Precision = Annotated[
    Literal["auto", "float32", "tf32", "bf16"], Option(help="Number format on CUDA; 'auto' is bf16.")
]
BatchSize = Annotated[int | None, Option(metavar="N", help="Images per forward pass.")]
Dtype = Annotated[Literal["float16", "float32"], Option(help="Number format of the stored vectors.")]
Holdout = Annotated[
    float, Option(metavar="SHARE", help="Share of each class used for testing, if there is no test folder.")
]
Nested = Annotated[bool, Option("--nested", help="Learn classes in folders such as owl/barn.")]
Sure = Annotated[float | None, Option(metavar="P", help="Answer only with this probability or more.")]
Quick = Annotated[bool, Option("--quick", help="One view: faster, less accurate.")]
Careful = Annotated[bool, Option("--careful", help="Four views: slower, more accurate.")]
Into = Annotated[Path | None, Option(metavar="FOLDER", help="Put photos into class folders in FOLDER.")]
By = Annotated[
    Literal["copy", "link", "move"] | None,
    Option(metavar="WAY", help="With --into: copy (default), link or move."),
]
DryRun = Annotated[bool, Option("--dry-run", help="With --into: only say what would be done.")]
Device = Annotated[str, Option(metavar="NAME", show_default=False, help="auto (default), cpu, cuda or cuda:1.")]
Runtime = Annotated[
    Literal["auto", "torch", "onnx", "compiled"],
    Option(metavar="NAME", show_default=False, help="auto (default), torch, onnx or compiled."),
]
HeadDevice = Annotated[str | None, Option(metavar="NAME", help="Device for the heads, such as cuda.")]
Projections = Annotated[int | None, Option(metavar="N", help="Number of random features; the paper uses 10000.")]

Recipe = Annotated[
    str,
    Option(
        metavar="NAME", help="'ours', or 'paper' for the paper's values.", autocompletion=completion.tuning_recipes
    ),
]
RecipeValues = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a value of the recipe; repeatable.")
]
Seed = Annotated[int, Option(metavar="N", help="Random seed.")]
InBox = Annotated[
    list[str] | None,
    Option(
        "--box",
        metavar="BOX|FILE",
        help="Part X,Y,W,H, or file of boxes; repeatable.",
    ),
]
Confidence = Annotated[float, Option(metavar="P", help="Least confidence of boxes.")]
BadPhotos = Annotated[
    Literal["report", "skip", "refuse"],
    Option("--bad", metavar="WAY", show_default=False, help="Bad photos: report (default), skip, refuse."),
]
SkipBad = Annotated[bool, Option("--skip-bad", help="Skip images that cannot be read.")]
Seeds = Annotated[int | None, Option(metavar="N", help="Number of draws of the shots: 1, or 5 with --full.")]
Full = Annotated[bool, Option("--full", help="Run everything: 5 draws, all methods.")]
LogTo = Annotated[
    list[str] | None,
    Option("--log", metavar="KIND=PLACE", help="Log to csv=FILE or tensorboard=DIR; repeatable."),
]
Flavor = Annotated[Literal["paper", "published"], Option(help="Follow the paper's text, or its published code.")]


def chosen_views(*, quick: bool, careful: bool) -> int | None:
    """Return the number of views that the options ask for; None is the default.

    >>> chosen_views(quick=False, careful=True)
    4
    """
    if quick and careful:
        raise InputError("--quick and --careful exclude each other", hint="give one of them")
    return 1 if quick else 4 if careful else None


# Text parameters that may hold a path: each may also hold something else, such as an address or a name.
PATHS = frozenset(
    {"adapter", "backbone", "box", "ca", "certificate", "credentials", "features", "file", "ids", "images"}
    | {"mqtt_credentials", "photo", "photos", "place"}
)


def at_home(text: str) -> str:
    """Replace ``~`` at the beginning of a path by the home folder; shells do not do so in quotes.

    If there is a file or folder with this very name, the path is not changed.

    >>> at_home("photos/~"), at_home("~/x.jpg") == str(Path.home() / "x.jpg")
    ('photos/~', True)
    """
    if not text.startswith("~") or os.path.lexists(text):
        return text
    return os.path.expanduser(text)  # noqa: PTH111  # Path raises an error for an unknown user


def with_home(run: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a command accept paths that begin with ``~``."""

    @wraps(run)
    def running(*arguments: Given.args, **given: Given.kwargs) -> Result:
        for name, value in given.items():
            given[name] = _at_home(name, value)
        return run(*arguments, **given)

    return running


def _at_home(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_at_home(name, one) for one in value]
    if isinstance(value, Path):
        return Path(at_home(str(value)))
    return at_home(value) if isinstance(value, str) and name in PATHS else value


# Head parameters that cannot be set as a whole, with what to set instead.
WHOLE = {
    "device": "use --device",
    "calibration": "set its fields: alpha, beta, tau, similarity or prototypes",
    "prior": "set its fields: shrinkage, strength, smoothing, bias or posterior",
    "sampling": "set its fields: per_class or classes",
}


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Parse the values of --set for heads, each NAME=VALUE.

    >>> parse_settings(["alpha=auto", "gamma=10"])
    {'alpha': 'auto', 'gamma': 10}
    """
    given: dict[str, Any] = {}
    for name, value in map(_named_value, settings):
        if name in given:
            raise _twice(name)
        given[name] = value
    return given


def head_parameters(
    projections: int | None, device: str | None, given: Mapping[str, Any] | None = None, *, here: bool = True
) -> dict[str, Any]:
    """Return the given parameters under the names that heads use.

    The device must exist, unless the heads run on other machines (``here`` is False).

    >>> head_parameters(None, "cpu"), head_parameters(500, None, {"alpha": "auto"})
    ({'device': 'cpu'}, {'alpha': 'auto', 'n_projections': 500})
    """
    parameters = dict(given or {})
    if projections is not None:
        if "n_projections" in parameters:
            raise _twice("n_projections")
        parameters["n_projections"] = projections
    if device is not None:
        from fiveshot.backbones import choose_device

        parameters["device"] = choose_device(device) if here else device
    return parameters


def _twice(name: str) -> InputError:
    return InputError(f"{name} is given twice", hint="give it once")


def _named_value(text: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        example = "for example --set alpha=0.75 or --set alpha=auto"
        raise InputError(f"--set takes NAME=VALUE, got {text!r}", hint=example)
    if name in WHOLE:
        raise InputError(f"--set cannot set {name!r}", hint=WHOLE[name])
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a word, such as auto or cosine
