from __future__ import annotations

import numpy as np
import pytest
import torch

from fiveshot.tuning import TuneRecipe
from fiveshot.tuning._trainer import Batch, tuning_loss


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.35])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_spelled_out(margin: float, smoothing: float) -> None:
    rng = np.random.default_rng(0)
    cosines, labels = rng.uniform(-1, 1, (5, 4)), rng.integers(4, size=5)

    def loss(row: int, label: int) -> float:
        logits = 7.0 * cosines[row]
        logits[label] -= 7.0 * margin  # the right class must lead by the margin
        log_p = logits - np.log(np.exp(logits).sum())
        return float(-((1 - smoothing) * log_p[label] + smoothing * log_p.mean()))

    expected = np.mean([loss(row, label) for row, label in enumerate(labels)])
    batch = Batch(torch.zeros(5, 0), torch.from_numpy(labels))
    scale = torch.tensor(7.0, dtype=torch.float64)
    recipe = TuneRecipe(margin=margin, label_smoothing=smoothing)
    ours = tuning_loss(torch.from_numpy(cosines), scale, batch, recipe)
    assert ours.item() == pytest.approx(expected, rel=1e-6)
