"""Which statistics a cluster run is to make."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fiveshot.errors import unknown_name
from fiveshot.recognizer.making import require_statistics_head
from fiveshot.scale.block_reducer import Reductions
from fiveshot.scale.reduction import Embedded, PerClass, Ridge, Sample, Tied

Covariance = Literal["class", "tied"]
SAMPLE = 40


@dataclass(frozen=True)
class Wanted:
    """Which statistics to make: a covariance for each ``class`` or one (``tied``), and what else.

    With a ``head`` they are of what it makes of the vectors, as a model with this head needs them; how it does
    that is chosen on a few thousand images first. ``sample`` keeps so many vectors of each class (40 beside
    covariances of their own, none beside a tied one, unless given). ``ridge`` adds the sums of a RanPAC base
    session.

    >>> from fiveshot.scale import Ridge, Wanted
    >>> Wanted("tied", sample=5).reductions()
    {'tied': Tied(buckets=16), 'sample': Sample(per_class=5, buckets=16)}
    >>> list(Wanted(ridge=Ridge(2000)).reductions())
    ['classes', 'sample', 'ridge']
    """

    covariance: Covariance = "class"
    head: str | None = None
    sample: int | None = None
    ridge: Ridge | None = None

    def reductions(self, settings: Mapping[str, Any] | None = None) -> Reductions:
        """Return what the blocks are reduced to, by the names that statistics give them.

        A head that cannot be derived from statistics is refused.
        """
        if self.head is not None:
            require_statistics_head(self.head)
        if self.covariance not in get_args(Covariance):
            raise unknown_name("covariance", self.covariance, get_args(Covariance))
        name = "classes" if self.covariance == "class" else "tied"
        chosen: dict[str, Any] = {name: PerClass() if name == "classes" else Tied()}
        if self.head is not None and settings:
            chosen[name] = Embedded(chosen[name], self.head, json.dumps(settings, sort_keys=True))
        sample = self.sample
        if sample is None:
            sample = SAMPLE if self.covariance == "class" else 0
        if sample:
            chosen["sample"] = Sample(sample)
        if self.ridge is not None:
            chosen["ridge"] = self.ridge
        return chosen
