"""Where a cluster run stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fiveshot.scale.rows import Tally


@dataclass(frozen=True)
class ClusterProgress:
    """Images done, of how many where that is known, and what each stage manages.

    ``tally`` counts the images computed in this run, ``before`` those that were finished earlier, and
    ``waiting`` those whose vectors are there but not yet reduced.

    >>> from fiveshot.scale import ClusterProgress
    >>> from fiveshot.scale.rows import Tally
    >>> now = ClusterProgress(Tally(images=30, seconds={"forward": 2.0}), before=10, total=100, waiting=5)
    >>> f"{now.done} of {now.total} images, {now.stages()}"
    '45 of 100 images, forward 15/s'
    """

    tally: Tally = field(default_factory=Tally)
    before: int = 0
    total: int | None = None
    waiting: int = 0
    shards: int = 0
    all_shards: int = 0

    @property
    def done(self) -> int:
        """Images that have a vector, in this run and before."""
        done = self.before + self.tally.images + self.waiting
        return done if self.total is None else min(done, self.total)

    def stages(self) -> str:
        """Return one line with the images per second of a worker of each stage.

        >>> ClusterProgress(Tally(30, (), {"read": 0.1, "forward": 2.0})).stages()
        'read 300/s, forward 15/s'
        """
        return ", ".join(f"{name} {rate:,.0f}/s" for name, rate in self.tally.rates().items())


OnProgress = Callable[[ClusterProgress], None]


def silent(now: ClusterProgress) -> None:
    """Show nothing."""
