"""Two numbers chosen on episodes: how much of the gap of few-shot classes is closed, and how sure to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DEFAULT_OFFSET = 0.6  # a little over half of the gap, which is the middle between old and new classes
DEFAULT_SHARPNESS = 12.0
OFFSETS = np.arange(0, 1.55, 0.05)
SHARPNESSES = np.geomspace(2, 80, 40)
DEPTHS = (1 / 3, 1.0)  # shares of the new classes at which an episode is scored: sessions come one after the other


@dataclass(frozen=True, eq=False)
class Played:
    """Scores of one episode before any offset."""

    scores: Tensor  # (n, n_classes)
    gaps: Tensor  # (n_classes,)
    codes: NDArray[np.intp]  # (n,)
    new: NDArray[np.bool_]  # (n_classes,)


@dataclass(frozen=True)
class Choice:
    """What was chosen, the spread of the choice over single episodes, and how many there were."""

    offset: float = DEFAULT_OFFSET
    sharpness: float = DEFAULT_SHARPNESS
    offset_spread: float = 0.0
    episodes: int = 0


def choose(played: Sequence[Played]) -> Choice:
    """Return the offset of the best mean of accuracy and A_HM, and the sharpness of the highest likelihood.

    Both are averaged over the episodes before the best is taken, the offset over neighbouring candidates too,
    because single ones are noisy. Both then go half of the way from their defaults: the classes of an episode are
    base classes, which an adapted backbone tells apart better than those that will come.
    """
    if not played:
        return Choice()
    curves = np.stack([_offset_curve(episode) for episode in played])  # (episodes, candidates)
    offset = (DEFAULT_OFFSET + _peak(curves.mean(axis=0))) / 2
    single = np.array([_peak(curve) for curve in curves])
    likelihoods = np.stack([_likelihoods(episode, offset) for episode in played]).mean(axis=0)
    sharpness = float(DEFAULT_SHARPNESS * SHARPNESSES[int(likelihoods.argmax())]) ** 0.5
    return Choice(offset, sharpness, float(single.std()), len(played))


def _peak(curve: NDArray[np.float64]) -> float:
    smooth = np.convolve(np.pad(curve, 2, mode="edge"), np.full(5, 0.2), mode="valid")
    return float(OFFSETS[int(smooth.argmax())])


def _offset_curve(episode: Played) -> NDArray[np.float64]:
    curve: NDArray[np.float64] = np.mean([_depth_curve(episode, depth) for depth in DEPTHS], axis=0)
    return curve


def _depth_curve(episode: Played, depth: float) -> NDArray[np.float64]:
    """Return (accuracy + A_HM) / 2 for every candidate, with a share of the new classes."""
    new = np.flatnonzero(episode.new)
    kept = np.sort(np.concatenate([np.flatnonzero(~episode.new), new[: max(1, round(depth * len(new)))]]))
    asked = np.isin(episode.codes, kept)
    scores = episode.scores[torch.as_tensor(asked)][:, torch.as_tensor(kept)]
    codes = torch.as_tensor(np.searchsorted(kept, episode.codes[asked]), device=scores.device)
    is_new = torch.as_tensor(episode.new[kept], device=scores.device)
    of_new = is_new[codes]
    values = []
    for offset in OFFSETS:
        right = ((scores + offset * episode.gaps[torch.as_tensor(kept)]).argmax(dim=1) == codes).double()
        old_right, new_right = float(right[~of_new].mean()), float(right[of_new].mean())
        harmonic = 2 * old_right * new_right / max(old_right + new_right, 1e-12)
        values.append((float(right.mean()) + harmonic) / 2)
    return np.array(values)


def _likelihoods(episode: Played, offset: float) -> NDArray[np.float64]:
    scores = episode.scores + offset * episode.gaps
    codes = torch.as_tensor(episode.codes, device=scores.device)
    return np.array(
        [-float(torch.nn.functional.cross_entropy(scores * sharpness, codes)) for sharpness in SHARPNESSES]
    )
