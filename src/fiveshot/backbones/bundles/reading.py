"""Which output of a network's graph is a photo's feature vector: a rule for each architecture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError, is_number

HIDDEN, POOLED, EMBEDDED, FEATURES = "last_hidden_state", "pooler_output", "image_embeds", "features"
_MAX_PREFIX = 64  # tokens before the patches


@dataclass(frozen=True)
class Output:
    """An output of a graph: its name, and its sides, None where they are free."""

    name: str
    shape: tuple[int | None, ...]


@dataclass(frozen=True)
class Reading:
    """What is read from a graph.

    Parameters
    ----------
    output : str
        Name of the output.
    part : {"whole", "cls", "mean", "cls+mean", "map"}
        ``whole``: a vector for each photo. ``cls``: the first token. ``mean``: the mean over the tokens of
        patches. ``map``: the mean over a map (n, channels, height, width).
    prefix : int
        How many tokens come before those of patches.
    width : int, optional
        Length of the vector, if the graph says it.

    Examples
    --------
    >>> reading = Reading("last_hidden_state", "cls+mean", prefix=1)
    >>> tokens = np.array([[[1, 2], [3, 4], [5, 6]]], np.float16)
    >>> reading.vectors(tokens)
    array([[1., 2., 4., 5.]], dtype=float32)
    >>> str(reading)
    'class token and mean of patches of last_hidden_state'
    """

    output: str
    part: str = "whole"
    prefix: int = 0
    width: int | None = None

    def vectors(self, values: NDArray[Any]) -> NDArray[np.float32]:
        """Return the vectors (n, width) from the values of the output."""
        found: NDArray[np.float32] = values.astype(np.float32, copy=False)
        if self.part == "whole":
            if found.ndim < 2 or any(side != 1 for side in found.shape[2:]):
                raise _no_vector(f"{self.output} of shape {found.shape}")
            return found.reshape(found.shape[:2])
        if self.part == "map":
            pooled: NDArray[np.float32] = found.mean(axis=(2, 3))
            return pooled
        parts = [found[:, 0]] if self.part != "mean" else []
        if self.part != "cls":
            parts.append(found[:, self.prefix :].mean(axis=1))
        return np.concatenate(parts, axis=1)

    def __str__(self) -> str:
        words = {
            "whole": self.output,
            "cls": f"class token of {self.output}",
            "mean": f"mean of patches of {self.output}",
            "cls+mean": f"class token and mean of patches of {self.output}",
            "map": f"mean over the map {self.output}",
        }
        return words[self.part]


@dataclass(frozen=True)
class _Rule:
    """How features are read from an architecture: outputs in the order of preference, and its tokens."""

    own: tuple[str, ...]  # names of outputs, or a part of the last hidden state
    prefix: int | None = None  # tokens before the patches; None: there are no tokens to choose from

    @property
    def has_class_token(self) -> bool:
        return bool(self.prefix)


_TOKENS = _Rule(("cls", POOLED), prefix=1)
_MAP = _Rule((POOLED, "map"))
_RULES = {
    "beit": _Rule((POOLED, "mean"), prefix=1),  # its classifier reads the mean of patches, after a norm
    "clip": _Rule((EMBEDDED, POOLED, "cls"), prefix=1),
    "clip_vision_model": _Rule((EMBEDDED, POOLED, "cls"), prefix=1),
    "convnext": _MAP,
    "convnextv2": _MAP,
    "data2vec-vision": _Rule((POOLED, "mean"), prefix=1),
    "deit": _Rule(("cls", POOLED), prefix=2),  # the second token is for distillation
    "dinov2": _TOKENS,
    "dinov2_with_registers": _TOKENS,  # and registers, whose number is in config.json
    "dinov3_vit": _TOKENS,
    "resnet": _MAP,
    "siglip": _Rule((EMBEDDED, POOLED), prefix=0),
    "siglip_vision_model": _Rule((EMBEDDED, POOLED), prefix=0),
    "swin": _Rule((POOLED, "mean"), prefix=0),
    "swinv2": _Rule((POOLED, "mean"), prefix=0),
    "vit": _TOKENS,
    "vit_msn": _TOKENS,
}
_UNKNOWN = _Rule((EMBEDDED, POOLED))


def choose_reading(outputs: Sequence[Output], config: Mapping[str, Any], tokens: str) -> Reading:
    """Return what is read from a graph: the architecture's rule for ``own``, or the tokens that are asked for.

    Parameters
    ----------
    outputs : sequence of Output
        The outputs of the graph.
    config : mapping
        The network's ``config.json``; its ``model_type`` decides.
    tokens : {"own", "cls", "mean", "cls+mean"}
        What is asked for.

    Returns
    -------
    Reading
        The rule.

    Raises
    ------
    InputError
        When the graph does not give it.

    Examples
    --------
    >>> hidden = Output("last_hidden_state", (None, 257, 384))
    >>> print(choose_reading([hidden], {"model_type": "dinov2"}, "own"))
    class token of last_hidden_state
    """
    shapes = {output.name: output.shape for output in outputs}
    kind = str(config.get("model_type", ""))
    rule = _RULES.get(kind, _UNKNOWN)
    if tokens != "own":
        return _chosen_tokens(shapes, rule, config, tokens, kind)
    if FEATURES in shapes and len(shapes[FEATURES]) == 2:
        return Reading(FEATURES, width=shapes[FEATURES][1])
    for wanted in rule.own:
        found = _own(shapes, rule, config, wanted)
        if found is not None:
            return found
    raise _nothing_to_read(shapes, kind)


def _own(
    shapes: Mapping[str, tuple[int | None, ...]], rule: _Rule, config: Mapping[str, Any], wanted: str
) -> Reading | None:
    if wanted in ("cls", "mean", "map"):
        hidden = shapes.get(HIDDEN, ())
        if len(hidden) != (4 if wanted == "map" else 3):
            return None
        prefix = 0 if wanted == "map" else _prefix(rule, config)
        return Reading(HIDDEN, wanted, prefix, hidden[1 if wanted == "map" else 2])
    shape = shapes.get(wanted, ())
    if len(shape) == 2 or (len(shape) == 4 and shape[2:] in ((1, 1), (None, None))):
        return Reading(wanted, width=shape[1])
    return None


def _chosen_tokens(
    shapes: Mapping[str, tuple[int | None, ...]], rule: _Rule, config: Mapping[str, Any], tokens: str, kind: str
) -> Reading:
    if tokens == "mean" and "map" in rule.own and len(shapes.get(HIDDEN, ())) == 4:
        return Reading(HIDDEN, "map", width=shapes[HIDDEN][1])
    hidden = shapes.get(HIDDEN, ())
    known = kind in _RULES
    fits = rule.has_class_token or (tokens == "mean" and rule.prefix == 0) or (tokens == "cls" and not known)
    if len(hidden) != 3 or not fits:
        what = f"a network of the kind {kind[:40]!r}" if kind else "a network whose kind is not known"
        raise InputError(
            f"tokens={tokens!r} cannot be read from {what} with the outputs {_listed(shapes)}",
            hint="leave the tokens out (--tokens own)",
        )
    width = None if hidden[2] is None else hidden[2] * (1 + (tokens == "cls+mean"))
    return Reading(HIDDEN, tokens, _prefix(rule, config), width)


def _prefix(rule: _Rule, config: Mapping[str, Any]) -> int:
    """Return how many tokens come before those of patches: the class token and registers."""
    registers = config.get("num_register_tokens", 0)
    if not is_number(registers, whole=True) or not 0 <= registers < _MAX_PREFIX:
        raise InputError(f"num_register_tokens of config.json is {registers!r}", hint="get a fresh copy of it")
    return (rule.prefix or 0) + int(registers)


def _nothing_to_read(shapes: Mapping[str, tuple[int | None, ...]], kind: str) -> InputError:
    """Return the error for a graph without a feature vector."""
    if "logits" in shapes:
        hint = "choose a repository for feature extraction, or write one: fiveshot backbone export NAME FILE"
        return InputError(
            "this graph gives the classes that it was trained on (logits), not features",
            hint=hint,
            code="bad_bundle",
        )
    if len(shapes.get(HIDDEN, ())) == 3 and kind not in _RULES:
        return InputError(
            f"it is not known what to read from a network of the kind {kind[:40]!r}",
            hint="choose its first token with tokens='cls' (--tokens cls)",
            code="bad_bundle",
        )
    return _no_vector(_listed(shapes))


def _no_vector(given: str) -> InputError:
    return InputError(
        f"this graph gives no feature vector for a photo; it gives {given}",
        hint="choose a network for feature extraction, such as one of DINOv2, CLIP or SigLIP",
        code="bad_bundle",
    )


def _listed(shapes: Mapping[str, tuple[int | None, ...]]) -> str:
    """Return outputs with their sides, such as ``logits (n, 1000)``."""
    parts = [
        f"{name[:40]} ({', '.join('n' if side is None else str(side) for side in shape)})"
        for name, shape in list(shapes.items())[:5]
    ]
    return ", ".join(parts) or "none"
