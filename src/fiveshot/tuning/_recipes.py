"""Recipes of tuning: all values in one frozen dataclass, two named recipes, and parsing of ``key=value``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

from fiveshot.errors import InputError, is_number, unknown_name

Optimizer = Literal["sgd", "adamw"]
Schedule = Literal["cosine", "cosine-per-epoch"]
ClassifierStart = Literal["random", "means"]


_RANGES: tuple[tuple[tuple[str, ...], Callable[[Any], bool], str], ...] = (
    (("lr", "scale", "head_scale"), lambda v: 0 < v < math.inf, "a number above 0"),
    (("momentum", "dropout", "label_smoothing"), lambda v: 0 <= v < 1, "from 0 to below 1"),
    (("weight_decay", "margin"), lambda v: 0 <= v < math.inf, "0 or more"),
    (
        ("batch_size", "epochs", "bottleneck"),
        lambda v: isinstance(v, int) and v >= 1,
        "a whole number of 1 or more",
    ),
    (("flip", "whole"), lambda v: 0 <= v <= 1, "from 0 to 1"),
    (("seed",), lambda v: isinstance(v, int) and 0 <= v < 2**63, "a whole number of 0 or more"),
)


def _checked_range(name: str, value: Any) -> tuple[float, float]:
    most = 1.0 if name == "crop_scale" else math.inf
    try:
        low, high = (float(bound) for bound in value)
    except (TypeError, ValueError):
        raise InputError(f"{name}={value!r} cannot be used", hint="give two numbers") from None
    if not 0 < low <= high <= most:
        given = json.dumps([low, high])
        raise InputError(f"{name}={given} cannot be used", hint=f"it must rise from above 0 to {most:g}")
    return low, high


@dataclass(frozen=True)
class TuneRecipe:
    """All values of a tuning run.

    Parameters
    ----------
    optimizer : {"adamw", "sgd"}
        The optimizer.
    lr : float
        Initial learning rate.
    momentum : float
        Momentum of SGD; AdamW uses its own.
    weight_decay : float
        Weight decay of all trained weights.
    batch_size : int
        Images in a step, for all processes together.
    epochs : int
        How often each image is shown.
    schedule : {"cosine", "cosine-per-epoch"}
        Whether the rate falls with every step or with every epoch; it reaches 0 at the end of the last epoch.
    bottleneck, scale, dropout : int, float, float
        Of the adapters: hidden units, factor of their output, and share of inputs left out in training.
    head_scale : float
        Factor of the cosines before the softmax.
    head_scale_learnable : bool
        Whether that factor is trained too.
    classifier_start : {"random", "means"}
        Initial weights of the temporary classifier: random, or the mean of each class's features. With the means,
        training does not first move the features towards random directions.
    margin : float
        Subtracted from the cosine of the right class before the softmax, so that it must lead by this margin.
    label_smoothing : float
        Share of the target that is spread over all classes.
    crop_scale : pair of float, optional
        Range of a random crop's share of the area; by default that of the preprocessing.
    crop_ratio : pair of float
        Range of a random crop's ratio of width to height.
    flip : float
        Probability of mirroring an image left and right.
    whole : float
        Probability of showing the whole image, squeezed to a square, instead of a random crop. Features are
        averaged over this view, too.
    seed : int
        Random seed.

    Examples
    --------
    >>> from fiveshot.tuning import TuneRecipe
    >>> TuneRecipe(lr=0.01).replace(epochs=2).epochs
    2
    """

    optimizer: Optimizer = "adamw"
    lr: float = 5e-3
    momentum: float = 0.9
    weight_decay: float = 0.01
    batch_size: int = 64
    epochs: int = 20
    schedule: Schedule = "cosine"
    bottleneck: int = 64
    scale: float = 0.1
    dropout: float = 0.1
    head_scale: float = 16.0
    head_scale_learnable: bool = False
    classifier_start: ClassifierStart = "random"
    margin: float = 0.0
    label_smoothing: float = 0.0
    crop_scale: tuple[float, float] | None = None
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    whole: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        for name, choices in (
            ("optimizer", Optimizer),
            ("schedule", Schedule),
            ("classifier_start", ClassifierStart),
        ):
            if getattr(self, name) not in get_args(choices):
                raise unknown_name(name, getattr(self, name), get_args(choices))
        for names, allowed, words in _RANGES:
            for name in names:
                value = getattr(self, name)
                if not is_number(value) or not allowed(value):
                    raise InputError(f"{name}={value!r} cannot be used", hint=f"it must be {words}")
        for name in ("crop_scale", "crop_ratio"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _checked_range(name, value))

    def replace(self, **changes: Any) -> TuneRecipe:
        """Return the recipe with some values changed; the error for an unknown name suggests the nearest one."""
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise unknown_name("recipe value", name, known)
        return dataclasses.replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TuneRecipe:
        """Read what ``to_json`` wrote; unknown keys fail."""
        return cls().replace(**values)


TUNE_RECIPES: dict[str, TuneRecipe] = {
    "paper": TuneRecipe(
        optimizer="sgd",
        lr=0.01,
        momentum=0.9,
        weight_decay=5e-4,
        batch_size=48,
        epochs=40,
        schedule="cosine-per-epoch",
        head_scale=1.0,
        head_scale_learnable=True,
    ),
    "ours": TuneRecipe(
        optimizer="adamw",
        lr=1e-3,
        weight_decay=0.01,
        batch_size=64,
        epochs=20,
        head_scale=16.0,
        classifier_start="means",
        margin=0.1,
        whole=0.25,
    ),
}
"""The recipes by name: ``paper`` has the paper's values, ``ours`` is the default of ``tune``."""


def get_recipe(name: str) -> TuneRecipe:
    """Return a recipe by its name.

    Parameters
    ----------
    name : str
        ``ours`` or ``paper``.

    Returns
    -------
    TuneRecipe
        Its values.

    Raises
    ------
    InputError
        When there is no such recipe; the nearest name is suggested.

    Examples
    --------
    >>> from fiveshot.tuning import get_recipe
    >>> get_recipe("ours").optimizer
    'adamw'
    >>> get_recipe("papr")
    Traceback (most recent call last):
    fiveshot.errors.InputError: no recipe 'papr'; did you mean 'paper'? choose from ours, paper
    """
    if name not in TUNE_RECIPES:
        raise unknown_name("recipe", name, TUNE_RECIPES)
    return TUNE_RECIPES[name]


def parse_setting(text: str) -> tuple[str, Any]:
    """Parse one ``key=value`` of the command line into the recipe's type.

    Parameters
    ----------
    text : str
        A setting such as ``epochs=10``.

    Returns
    -------
    tuple of str and value
        An argument for :meth:`TuneRecipe.replace`.

    Raises
    ------
    InputError
        When the recipe has no such value, or the text cannot be parsed.

    Examples
    --------
    >>> from fiveshot.tuning import parse_setting
    >>> parse_setting("lr=1e-3"), parse_setting("crop_scale=0.2,1"), parse_setting("flip=0")
    (('lr', 0.001), ('crop_scale', (0.2, 1.0)), ('flip', 0.0))
    """
    key, equals, value = text.partition("=")
    key = key.strip().replace("-", "_")
    kinds = get_type_hints(TuneRecipe)
    if not equals:
        raise InputError(f"{text!r} is not a setting", hint="write key=value, such as epochs=10")
    if key not in kinds:
        raise unknown_name("recipe value", key, kinds)
    return key, _parsed(key, value.strip(), kinds[key])


_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _parsed(key: str, value: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return _WORDS[value.lower()]
        if kind in (int, float):
            return kind(value)
        if key.startswith("crop_"):
            return None if value.lower() == "none" else tuple(float(part) for part in value.split(","))
    except (KeyError, ValueError):
        wanted = "two numbers such as 0.2,1" if key.startswith("crop_") else f"a value of type {kind.__name__}"
        raise InputError(f"{key}={value!r} cannot be read", hint=f"give {wanted}") from None
    return value
