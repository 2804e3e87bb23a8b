"""The head that a name stands for under a protocol: its recipe, with what the protocol decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fiveshot.benchmark.protocol import Protocol
from fiveshot.heads import FewShotHead, make_head
from fiveshot.heads.recipes import Flavour

ALPHA = {"cifar100": 0.75}  # by dataset, as the paper has it; 0.9 for all others, as the recipes have it
WITH_ALPHA = ("teen", "c-fecam", "c-ranpac", "teen+", "c-fecam+")  # recipes of this package with an alpha


def protocol_head(
    method: str, protocol: Protocol, flavour: Flavour = "paper", parameters: Mapping[str, Any] | None = None
) -> FewShotHead:
    """Return the unfitted head of a name; whatever ``parameters`` say about it stays as they say.

    Otherwise its random numbers follow the seed of the shots, and a calibration has the alpha that the paper uses
    for the dataset.

    >>> from fiveshot.benchmark import get_protocol
    >>> cifar = get_protocol("cifar100/small").replace(shot_seed=3)
    >>> head = protocol_head("c-ranpac", cifar)
    >>> head.calibration.alpha, head.random_state
    (0.75, 3)
    """
    given = dict(parameters or {})
    if method in WITH_ALPHA and protocol.dataset in ALPHA and not {"alpha", "calibration"} & set(given):
        given["alpha"] = ALPHA[protocol.dataset]
    head = make_head(method, flavour, **given)
    if "random_state" in head.get_params(deep=False) and "random_state" not in given:
        head.set_params(random_state=protocol.shot_seed)
    return head
