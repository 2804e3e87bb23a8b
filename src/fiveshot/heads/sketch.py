"""Scores of a few other classes beside those of a head, without estimating anew what all classes share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fiveshot.heads.memory import Memory
from fiveshot.heads.two_covariance import Prior, SpaceModel, further_classes


def sketched_spaces(
    spaces: Sequence[SpaceModel], parts: Sequence[slice], known: Memory, wanted: Memory, *, prior: Prior
) -> tuple[SpaceModel, ...]:
    """Return the spaces of ``wanted``: classes whose statistics are those in ``known`` keep their scores.

    ``parts`` are the columns of each space in the statistics.
    """
    here, there = known.statistics.summaries, wanted.statistics.summaries
    places = {id(summary): place for place, summary in enumerate(here)}
    fresh = [(summary, is_new) for _, summary, is_new in wanted if id(summary) not in places]
    places |= {id(summary): len(here) + number for number, (summary, _) in enumerate(fresh)}
    like = wanted.statistics.means
    rows = torch.tensor([places[id(summary)] for summary in there], device=like.device)
    means = torch.stack([summary.mean for summary, _ in fresh]) if fresh else like[:0]
    counts = like.new_tensor([summary.count for summary, _ in fresh])
    new = torch.tensor([is_new for _, is_new in fresh], dtype=torch.bool, device=like.device)
    found = []
    for space, part in zip(spaces, parts, strict=True):
        more = further_classes(space, means[:, part], counts, new=new, prior=prior)
        weights, gaps = torch.cat([space.weights, more.weights]), torch.cat([space.gaps, more.gaps])
        found.append(SpaceModel(space.origin, weights[rows], gaps[rows], space.shared))
    return tuple(found)
