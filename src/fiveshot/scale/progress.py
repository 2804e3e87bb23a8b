"""Where a cluster run stands: what was done, and how fast each stage is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fiveshot.data import BadImage


@dataclass(frozen=True)
class Tally:
    """What has been done: images, the bad ones among them, and the seconds each stage was busy with them."""

    images: int = 0
    bad: tuple[BadImage, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    promised: int = 0  # images of the shards that have come to their end

    def __add__(self, other: Tally) -> Tally:
        names = dict.fromkeys((*self.seconds, *other.seconds))
        return Tally(
            self.images + other.images,
            self.bad + other.bad,
            {name: self.seconds.get(name, 0.0) + other.seconds.get(name, 0.0) for name in names},
            self.promised + other.promised,
        )

    def rates(self) -> dict[str, float]:
        """Return images per second of each stage, for one worker that never waits."""
        return {name: self.images / seconds for name, seconds in self.seconds.items() if seconds > 0}


@dataclass(frozen=True)
class ClusterProgress:
    """Images done, of how many where that is known, and the speed of each stage.

    Attributes
    ----------
    tally : Tally
        The images computed in this run.
    before : int
        Images that were finished in an earlier run.
    total : int or None
        All images, where their number is known.
    waiting : int
        Images whose vectors are computed but not yet reduced.
    shards, all_shards : int
        Shards that are finished, and their number in all.

    Examples
    --------
    >>> from fiveshot.scale import ClusterProgress
    >>> from fiveshot.scale.progress import Tally
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


OnClusterProgress = Callable[[ClusterProgress], None]


def silent(now: ClusterProgress) -> None:
    """Show nothing."""
