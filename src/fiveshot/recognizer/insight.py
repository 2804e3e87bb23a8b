"""What learning a class has shown: how well it stands apart, and which photos to look at again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fiveshot.heads import FewShotHead
from fiveshot.heads.memory import Memory
from fiveshot.recognizer.held_out import HeldOutScores, held_out_scores
from fiveshot.recognizer.learn_warnings import warnings_of
from fiveshot.recognizer.likeness import Duplicate, KnownPhotos, find_duplicates, find_outliers
from fiveshot.statistics import ClassSummary
from fiveshot.statistics.labels import Labels

Verdict = Literal["clear", "close", "confused", "unknown"]
CLEAR, CLOSE = 0.8, 0.5  # separability from which on a class stands apart, and from which on it is still told
CENTRED_FROM = 5  # other classes whose common mean says where the middle of all photos is


@dataclass(frozen=True)
class LearnReport:
    """What was seen while a class was learned; ``warnings`` says it in sentences.

    ``accuracy`` is the share of photos that are recognised when each is left out of its own class;
    ``confusion`` the share that is taken for ``nearest``, the existing class most like this one, and
    ``confused`` the names of those among the photos just learned;
    ``separability`` the mean probability of the own class against the strongest other one. They are None
    where there is nothing to compare with: the first class, or a single photo.

    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot import Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 384))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     report = birds.learn_features("wren", [*-owls, owls[0]])
    >>> report.photos, report.nearest, report.duplicates[0].photo, report.duplicates[0].label
    (6, 'owl', 'photo 6', 'owl')
    """

    name: str
    photos: int  # of the class, now
    added: int  # of those, learned just now
    accuracy: float | None = None
    nearest: str | None = None
    confusion: float | None = None
    separability: float | None = None
    verdict: Verdict = "unknown"
    duplicates: tuple[Duplicate, ...] = ()
    outliers: tuple[str, ...] = ()
    confused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def inspect_class(
    head: FewShotHead,
    memory: Memory,
    name: str,
    X: Tensor,
    *,
    photos: Sequence[str],
    sha256s: Sequence[str],
    earlier: KnownPhotos | None = None,
) -> LearnReport:
    """Look at photos of a class that are about to be learned: features ``X``, names and digests.

    ``head`` is fitted on ``memory`` or on a memory before it, and is not changed; ``memory`` is that before the
    photos are learned, and may know the class from earlier ones. ``earlier`` are all photos learned so far
    whose features are at hand.
    """
    others = _without(memory, name)
    before = None if others is memory else memory.statistics[name]
    known, rows = _own_photos(before, name, X, earlier)
    scores = held_out_scores(head, others, rows, known=known) if len(others.labels) else None
    centre = others.statistics.means.mean(dim=0) if len(others.labels) >= CENTRED_FROM else None
    first = len(rows) - len(X)  # rows before it were learned earlier
    report = LearnReport(
        name,
        photos=len(X) + (before.count if before else 0),
        added=len(X),
        duplicates=find_duplicates(name, X, photos=photos, sha256s=sha256s, earlier=earlier),
        outliers=tuple(photos[i - first] for i in find_outliers(head.embed(rows), centre=centre) if i >= first),
    )
    if scores is not None:
        report = _with_scores(report, scores, others.labels, photos)
    return replace(report, warnings=tuple(warnings_of(report)))


def _without(memory: Memory, name: str) -> Memory:
    base = memory.base.drop([name]) if name in memory.base else memory.base
    new = memory.new.drop([name]) if name in memory.new else memory.new
    return memory if base is memory.base and new is memory.new else Memory(base, new)


def _own_photos(
    before: ClassSummary | None, name: str, X: Tensor, earlier: KnownPhotos | None
) -> tuple[ClassSummary | None, Tensor]:
    """Return what is known of the class beside single photos, and the features of its photos."""
    if before is None:
        return None, X
    kept = earlier.of(name) if earlier is not None else X[:0]
    if len(kept) == before.count:
        return None, torch.cat([kept.to(X), X])
    return before, X  # a base class, of which no single photos are kept


def _with_scores(report: LearnReport, scores: HeldOutScores, labels: Labels, photos: Sequence[str]) -> LearnReport:
    strongest = scores.others.argmax(axis=1)
    recognised = scores.own > scores.others.max(axis=1)
    # The class that takes most photos, and with none taken the one that scores best on the whole.
    taken = np.bincount(strongest[~recognised], minlength=len(labels))
    nearest = int(taken.argmax()) if taken.any() else int(scores.others.mean(axis=0).argmax())
    separability = float(scores.share.mean())
    last = slice(len(recognised) - len(photos), None)  # rows before were learned earlier
    confused = (~recognised & (strongest == nearest))[last]
    return replace(
        report,
        accuracy=float(recognised.mean()),
        nearest=str(labels[nearest]),
        confusion=float(taken[nearest] / len(recognised)),
        separability=separability,
        verdict="clear" if separability >= CLEAR else "close" if separability >= CLOSE else "confused",
        confused=tuple(photo for photo, taken_for in zip(photos, confused, strict=True) if taken_for),
    )
