"""What is tried when a head is tuned on its base classes: small grids around its own values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from fiveshot.errors import InputError
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.ncm import NCM
from fiveshot.heads.two_covariance import Prior
from fiveshot.heads.unbiased_lda import UnbiasedLDA

Candidate = Mapping[str, Any]  # parameters to set


def default_candidates(head: FewShotHead) -> list[Candidate]:
    """Return the changes that are tried: a small grid around the head's own values.

    >>> len(default_candidates(NCM())), default_candidates(NCM())[-1]
    (4, {'bias': 1.0})
    """
    if isinstance(head, UnbiasedLDA):
        given = head.prior or Prior()
        priors = [dataclasses.replace(given, strength=strength) for strength in (0.1, 1.0)]
        priors += [dataclasses.replace(given, smoothing=smoothing) for smoothing in (0.4, 0.9)]
        priors += [dataclasses.replace(given, shrinkage=shrinkage) for shrinkage in (0.15, 0.6)]
        return [{"prior": prior} for prior in priors]
    biases: list[Candidate] = [{"bias": share} for share in (0.25, 0.5, 0.75, 1.0)]
    if not isinstance(head, NCM | FeCAM):
        raise InputError(f"no candidates are known for {type(head).__name__}; name some with candidates=[{{...}}]")
    grid = list(biases)
    if isinstance(head, FeCAM):
        biases = biases[1::2]
        grid = [{"gamma": head.gamma * factor, **bias} for factor in (0.1, 1.0, 10.0) for bias in ({}, *biases)]
    if head.calibration is not None:
        moved = [dataclasses.replace(head.calibration, alpha=alpha) for alpha in (0.75, 1.0)]
        if isinstance(head, FeCAM) and head.calibration.beta is not None:
            moved.append(dataclasses.replace(head.calibration, beta=head.calibration.beta / 2))
        else:
            tau = head.calibration.tau
            moved += [dataclasses.replace(head.calibration, tau=value) for value in (tau / 2, tau * 2)]
        grid += [{"calibration": calibration, "bias": 0.5} for calibration in moved]
    return grid
