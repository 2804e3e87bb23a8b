"""What is tried when a head is tuned on its base classes: small grids around its own values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiveshot.errors import InputError, is_number
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.ncm import NCM
from fiveshot.heads.parameters import parameter, parameter_names
from fiveshot.heads.ranpac import RanPAC
from fiveshot.heads.unbiased_lda import UnbiasedLDA

Candidate = Mapping[str, Any]  # parameters to set, by their short names

VALUES: Mapping[str, tuple[float, ...]] = {
    "alpha": (0.5, 0.75, 0.9, 1.0),
    "bias": (0.0, 0.25, 0.5, 0.75, 1.0),
    "shrinkage": (0.15, 0.3, 0.6),
    "smoothing": (0.4, 0.7, 0.9),
}
FACTORS: Mapping[str, tuple[float, ...]] = {
    "tau": (0.5, 2.0),
    "beta": (0.5, 2.0),
    "gamma": (0.1, 10.0),
    "strength": (0.4, 4.0),
}


def values_to_try(head: FewShotHead, name: str) -> list[float]:
    """Return the values of one parameter that are tried beside the head's own.

    >>> from fiveshot.heads import make_head
    >>> values_to_try(make_head("c-fecam"), "alpha"), values_to_try(make_head("c-fecam"), "gamma")
    ([0.5, 0.75, 1.0], [10.0, 1000.0])
    """
    own = parameter(head, name)
    if name in VALUES:
        return [value for value in VALUES[name] if value != own]
    if _is_choosable(head, name):
        return [factor * own for factor in FACTORS[name]]
    choosable = [known for known in parameter_names(head) if _is_choosable(head, known)]
    raise InputError(
        f"{name!r} of {type(head).__name__} cannot be chosen by episodes, so give it a value; "
        f"what can be chosen: {', '.join(choosable) or 'nothing'}"
    )


def _is_choosable(head: FewShotHead, name: str) -> bool:
    return name in VALUES or (name in FACTORS and parameter(head, name) is not None)


def is_auto(head: FewShotHead, name: str, value: object) -> bool:
    """Tell whether a value asks for a choice by episodes; where a word can be a value, ``"auto"`` is one.

    >>> from fiveshot.heads import UnbiasedLDA
    >>> is_auto(NCM(), "bias", "auto"), is_auto(UnbiasedLDA(), "offset", "auto"), is_auto(NCM(), "bias", 0.5)
    (True, False, False)
    """
    return isinstance(value, str) and value == "auto" and (name in VALUES or is_number(parameter(head, name)))


def default_candidates(head: FewShotHead) -> list[Candidate]:
    """Return the changes that are tried: a small grid around the head's own values.

    >>> len(default_candidates(NCM())), default_candidates(NCM())[-1]
    (4, {'bias': 1.0})
    """
    if isinstance(head, UnbiasedLDA):
        tried = {"strength": (0.1, 1.0), "smoothing": (0.4, 0.9), "shrinkage": (0.15, 0.6)}
        return [{name: value} for name, values in tried.items() for value in values]
    if isinstance(head, RanPAC):
        calibrated = [] if head.calibration is None else ["alpha", "tau", "beta"]
        return [{name: value} for name in calibrated for value in values_to_try(head, name)]
    if not isinstance(head, NCM | FeCAM):
        raise InputError(f"no candidates are known for {type(head).__name__}; name some with candidates=[{{...}}]")
    biases: list[Candidate] = [{"bias": share} for share in (0.25, 0.5, 0.75, 1.0)]
    grid = list(biases)
    if isinstance(head, FeCAM):
        biases = biases[1::2]
        grid = [{"gamma": head.gamma * factor, **bias} for factor in (0.1, 1.0, 10.0) for bias in ({}, *biases)]
    if head.calibration is not None:
        moved: list[Candidate] = [{"alpha": alpha} for alpha in (0.75, 1.0)]
        if isinstance(head, FeCAM) and head.calibration.beta is not None:
            moved.append({"beta": head.calibration.beta / 2})
        else:
            moved += [{"tau": head.calibration.tau * factor} for factor in (0.5, 2.0)]
        grid += [{**calibration, "bias": 0.5} for calibration in moved]
    return grid
