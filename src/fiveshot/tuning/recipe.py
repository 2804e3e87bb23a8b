"""How adapters are tuned: every value in one frozen place, under two names."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from fiveshot.errors import InputError, unknown_name

Optimizer = Literal["sgd", "adamw"]
Schedule = Literal["cosine", "cosine-per-epoch", "constant"]
Mixing = Literal["none", "mixup", "cutmix"]


@dataclass(frozen=True)
class TuneRecipe:
    """All values of a tuning run; ``replace`` changes single ones.

    >>> from fiveshot.tuning import TuneRecipe
    >>> TuneRecipe(lr=0.01).replace(epochs=2).epochs
    2
    """

    optimizer: Optimizer = "adamw"
    lr: float = 5e-3
    momentum: float = 0.9  # of SGD; AdamW keeps its own
    weight_decay: float = 0.01
    batch_size: int = 64  # over all processes together
    epochs: int = 20
    schedule: Schedule = "cosine"  # to 0 at the end of the last epoch
    warmup: float = 0.0  # share of all steps in which the rate rises from 0
    grad_clip: float = 0.0  # largest norm of the gradient; 0: any
    bottleneck: int = 64
    scale: float = 0.1
    dropout: float = 0.1
    head_scale: float = 16.0  # what cosines are multiplied with before the softmax
    head_scale_learnable: bool = False
    head_lr: float = 1.0  # learning rate of the temporary classifier, in multiples of lr
    label_smoothing: float = 0.0
    margin: float = 0.0  # taken off the true class's cosine while training
    mixing: Mixing = "none"
    mixing_alpha: float = 1.0  # of the Beta distribution that the shares are drawn from
    rotation_classes: int = 1  # 2 or 4: images turned by 180 or 90 degrees are classes of their own
    crop_scale: tuple[float, float] | None = None  # share of the area; None: the preprocessing's own
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    colour_jitter: float = 0.0  # largest relative change of brightness, contrast and saturation
    ema: float = 0.0  # decay of the moving average that is kept instead of the last weights; 0: none
    early_stopping: bool = False  # leave after `patience` epochs without a better selection score
    patience: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse values that cannot be trained with."""
        for name, choices in (("optimizer", Optimizer), ("schedule", Schedule), ("mixing", Mixing)):
            if getattr(self, name) not in get_args(choices):
                raise unknown_name(name, getattr(self, name), get_args(choices))
        for name, (allowed, words) in _RANGES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not allowed(value):
                raise InputError(f"{name}={value!r} cannot be used; it must be {words}")
        if self.rotation_classes not in (1, 2, 4):
            raise InputError(f"rotation_classes={self.rotation_classes!r} cannot be used; choose 1, 2 or 4")
        for name in ("crop_scale", "crop_ratio"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _checked_range(name, value))

    def replace(self, **changes: Any) -> TuneRecipe:
        """Return the recipe with some values changed; an unknown name fails and names the nearest one."""
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


def _whole(value: float) -> bool:
    return isinstance(value, int)


_RANGES: dict[str, tuple[Any, str]] = {
    "lr": (lambda v: 0 < v < math.inf, "a number above 0"),
    "momentum": (lambda v: 0 <= v < 1, "from 0 to below 1"),
    "weight_decay": (lambda v: 0 <= v < math.inf, "0 or more"),
    "batch_size": (lambda v: _whole(v) and v >= 1, "a whole number of 1 or more"),
    "epochs": (lambda v: _whole(v) and v >= 1, "a whole number of 1 or more"),
    "warmup": (lambda v: 0 <= v < 1, "from 0 to below 1"),
    "grad_clip": (lambda v: 0 <= v < math.inf, "0 (off) or more"),
    "bottleneck": (lambda v: _whole(v) and v >= 1, "a whole number of 1 or more"),
    "scale": (lambda v: 0 < v < math.inf, "a number above 0"),
    "dropout": (lambda v: 0 <= v < 1, "from 0 to below 1"),
    "head_scale": (lambda v: 0 < v < math.inf, "a number above 0"),
    "head_lr": (lambda v: 0 <= v < math.inf, "0 or more"),
    "label_smoothing": (lambda v: 0 <= v < 1, "from 0 to below 1"),
    "margin": (lambda v: 0 <= v < 2, "from 0 to below 2"),
    "mixing_alpha": (lambda v: 0 < v < math.inf, "a number above 0"),
    "rotation_classes": (_whole, "1, 2 or 4"),
    "flip": (lambda v: 0 <= v <= 1, "from 0 to 1"),
    "colour_jitter": (lambda v: 0 <= v < 1, "from 0 to below 1"),
    "ema": (lambda v: 0 <= v < 1, "from 0 (off) to below 1"),
    "patience": (lambda v: _whole(v) and v >= 1, "a whole number of 1 or more"),
    "seed": (lambda v: _whole(v) and 0 <= v < 2**63, "a whole number of 0 or more"),
}


def _checked_range(name: str, value: Any) -> tuple[float, float]:
    most = 1.0 if name == "crop_scale" else math.inf
    try:
        low, high = (float(bound) for bound in value)
    except (TypeError, ValueError):
        raise InputError(f"{name}={value!r} cannot be used; give two numbers") from None
    if not 0 < low <= high <= most:
        raise InputError(f"{name}={json.dumps([low, high])} cannot be used; it must rise from above 0 to {most:g}")
    return low, high
