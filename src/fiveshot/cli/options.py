"""Options and arguments that several commands share, and what is refused of them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from typer import Argument, Context, Option

from fiveshot.cli import completion
from fiveshot.errors import InputError

Given = ParamSpec("Given")
Result = TypeVar("Result")

Model = Annotated[Path, Argument(metavar="MODEL", help="The directory of the model.")]
AsJson = Annotated[
    bool, Option("--json", help="Print one JSON object: command, model, ok (true or false), and result or error.")
]

Backbone = Annotated[
    str | None,
    Option(
        help="Any timm name; the embedded network unless given. See 'fiveshot backbones'.",
        autocompletion=completion.backbones,
    ),
]
LocalWeights = Annotated[Path | None, Option(help="Local weights: .safetensors, .pth or .npz.")]
Weights = Annotated[
    Path | None, Option(help="Where the backbone's weights are now, if the model was made from a file.")
]
Nested = Annotated[bool, Option("--nested", help="Every folder with photos is a class, such as owl/barn owl.")]
Sure = Annotated[
    float | None,
    Option(help="Probability that an answer needs; a group of classes may have it where no class has."),
]
Views = Annotated[
    int | None, Option(help="Views of a photo that are averaged: 1, 2 or 4; 2 unless given, 1 with the paper's.")
]
Quick = Annotated[bool, Option("--quick", help="One view: half the time, somewhat less accurate.")]
Careful = Annotated[bool, Option("--careful", help="Four views: twice the time, more accurate.")]
Into = Annotated[Path | None, Option(help="Put each photo into the folder of its class below this one.")]
By = Annotated[Literal["copy", "link", "move"], Option(help="How photos are put into the folders of --into.")]
DryRun = Annotated[bool, Option("--dry-run", help="Only say what --into would do; nothing is written.")]
Device = Annotated[str, Option(help="auto, cpu, cuda or cuda:1.")]
Runtime = Annotated[
    Literal["auto", "torch", "onnx", "compiled"],
    Option(help="What runs the network; compiled is a little faster on a GPU."),
]
HeadDevice = Annotated[str | None, Option(help="Where heads compute, for example cuda.")]
Projections = Annotated[int | None, Option(help="Random features of heads that have them; the paper uses 10000.")]

Recipe = Annotated[
    str, Option(help="'ours', or 'paper' for the paper's own values.", autocompletion=completion.tuning_recipes)
]
RecipeValues = Annotated[
    list[str] | None, Option("--set", help="Replace a value of the recipe: key=value, any number of times.")
]
Seed = Annotated[int, Option(help="Of everything random.")]
InBox = Annotated[
    list[str] | None,
    Option(
        "--box",
        metavar="X,Y,W,H",
        help="The part of each photo to look at, in pixels or as shares of its sides; any number of times.",
    ),
]
Boxes = Annotated[Path | None, Option(help="Boxes: COCO or MegaDetector JSON, CSV, YOLO text or a folder of it.")]
Confidence = Annotated[float, Option(help="Boxes of a detector that was less sure are passed over.")]
Strict = Annotated[bool, Option("--strict", help="Refuse everything if one photo cannot be used, as learn does.")]
SkipBad = Annotated[bool, Option("--skip-bad", help="End with status 0, not 3, when photos are left out.")]
Address = Annotated[str | None, Option(help="Of the Ray cluster, or 'auto'; one is started here unless given.")]
Seeds = Annotated[int | None, Option(help="Seeds, each of which draws other shots; 1, or 5 with --full.")]
Full = Annotated[bool, Option("--full", help="Everything, however long it takes: 5 draws, every method.")]
LogTo = Annotated[
    list[str] | None,
    Option(
        "--log",
        metavar="KIND=PLACE",
        help="Log to csv=FILE or tensorboard=DIR, any number of times.",
    ),
]
Flavor = Annotated[
    Literal["paper", "published"], Option(help="'paper' follows the paper's text, 'published' its published code.")
]


def chosen_views(views: int | None, *, quick: bool, careful: bool) -> int | None:
    """Return the number of views that one of three options asks for.

    >>> chosen_views(None, quick=False, careful=True)
    4
    """
    if (views is not None) + quick + careful > 1:
        raise InputError("--views, --quick and --careful exclude each other", hint="give one of them")
    return 1 if quick else 4 if careful else views


# Parameters that are paths and yet texts: they may be something else as well, such as an address or a name.
PATHS = frozenset(
    {"adapter", "ca", "credentials", "features", "file", "ids", "images", "photo", "photos", "place"}
    | {"mqtt_ca", "mqtt_certificate", "mqtt_credentials", "mqtt_key"}
)


def at_home(text: str) -> str:
    """Return a path in the home folder for one that begins with ``~``, which a shell does not see in quotes.

    A file or folder of that very name is meant itself: a pattern of the shell may have named it.

    >>> at_home("photos/~"), at_home("~/x.jpg") == str(Path.home() / "x.jpg")
    ('photos/~', True)
    """
    if not text.startswith("~") or os.path.lexists(text):
        return text
    return os.path.expanduser(text)  # noqa: PTH111  # Path raises an error for a user who is not known


def with_home(run: Callable[Given, Result]) -> Callable[Given, Result]:
    """Make a command take paths that begin with ``~``."""

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


LOCAL = "is for a single machine; leave it out with --engine ray"
CLUSTER = "belongs to a cluster; add --engine ray, or leave it out"
WITHOUT_BASE = "is for the photos of a base; add --base DIR, or leave it out"

# Parameters of heads that are objects, and what to set instead.
WHOLE = {
    "device": "use --device",
    "calibration": "set its fields: alpha, beta, tau, similarity or prototypes",
    "prior": "set its fields: shrinkage, strength, smoothing, bias or posterior",
    "sampling": "set its fields: per_class or classes",
}


def refuse_unused(ctx: Context, why: str, *options: str) -> None:
    """Refuse the first of these options that was typed: it would change nothing.

    ``why`` goes on after its name, and says the way out. Options are named as the command's arguments are. One
    that a default or the environment gives is let pass.
    """
    known = {parameter.name: parameter for parameter in ctx.command.params}
    for name in options:
        parameter = known[name]
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            raise InputError(
                f"{'/'.join([*parameter.opts, *parameter.secondary_opts])} {why}", code="unused_option"
            )


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Read what --set was given for heads, of the form NAME=VALUE.

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
    """Return the parameters that were given, by the names that heads have for them.

    A device must be there, unless heads compute on other machines and not ``here``.

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
