from __future__ import annotations

import numpy as np
import pytest
import torch

from fiveshot.tuning import TuneRecipe
from fiveshot.tuning._trainer import Batch, tuning_loss


def test_the_loss_spelled_out() -> None:
    rng = np.random.default_rng(0)
    cosines, labels = rng.uniform(-1, 1, (5, 4)), rng.integers(4, size=5)

    def loss(row: int, label: int) -> float:
        logits = 7.0 * cosines[row]
        log_p = logits - np.log(np.exp(logits).sum())
        return float(-(0.9 * log_p[label] + 0.1 * log_p.mean()))

    expected = np.mean([loss(row, label) for row, label in enumerate(labels)])
    batch = Batch(torch.zeros(5, 0), torch.from_numpy(labels))
    scale = torch.tensor(7.0, dtype=torch.float64)
    ours = tuning_loss(torch.from_numpy(cosines), scale, batch, TuneRecipe(label_smoothing=0.1))
    assert ours.item() == pytest.approx(expected, rel=1e-6)
