"""What the promises of a head are held to: sentences in place of bare assertions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.errors import InputError
from fiveshot.heads.contract_material import Rows, flat, queries
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.registry import Make

# Of the largest score: what summing in another order may change.
ROUNDING = {np.dtype(np.float64): 1e-6, np.dtype(np.float32): 1e-4}


def learned(make: Make, *sessions: Rows) -> FewShotHead:
    """Return a head that has learned the sessions one after the other."""
    head = make()
    for session in sessions:
        head.partial_fit(*flat(session))
    return head


def require(kept: bool, head: FewShotHead, sentence: str) -> None:
    """Raise an AssertionError, also where Python runs without assertions."""
    if not kept:
        raise AssertionError(f"{type(head).__name__}: {sentence}")


def require_finite(head: FewShotHead) -> None:
    """Refuse scores that are no numbers."""
    bad = head.classes_[~np.isfinite(head.class_scores(queries())).all(axis=0)].tolist()
    seen = {label: head.statistics_[label].count for label in bad}
    require(not bad, head, f"scores are not finite for classes of so many samples: {seen}; is n − 1 divided by?")


def require_close(head: FewShotHead, found: NDArray[Any], expected: NDArray[Any], sentence: str) -> None:
    """Refuse scores that differ by more than rounding."""
    require(found.shape == expected.shape, head, f"{sentence}: {found.shape} instead of {expected.shape} of them")
    apart = np.abs(found - expected).max()
    allowed = ROUNDING[expected.dtype] * max(1.0, np.abs(expected).max())
    require(bool(apart <= allowed), head, f"{sentence}, by up to {apart:.2g} where rounding makes {allowed:.1g}")


def require_same(head: FewShotHead, other: FewShotHead, sentence: str) -> None:
    """Refuse two heads that score differently."""
    require_close(head, head.class_scores(queries()), other.class_scores(queries()), sentence)


def require_forgotten(make: Make, seen: tuple[Rows, ...], never_seen: tuple[Rows, ...], label: int) -> None:
    """Refuse a head that forgot a class and is not as if it had never seen it; it may decline to forget."""
    head = learned(make, *seen)
    before = head.class_scores(queries())
    try:
        head.forget(label)
    except InputError:
        require(np.array_equal(head.class_scores(queries()), before), head, "changes when it declines to forget")
        return
    require_same(head, learned(make, *never_seen), "a forgotten class leaves something behind")
