from __future__ import annotations

import numpy as np
import pytest
import torch

from fiveshot.errors import InputError
from fiveshot.tuning import few_shot_score
from fiveshot.tuning.material import FewShotTest, draw_episodes


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def predicted(x: np.ndarray, prototypes: dict[int, np.ndarray]) -> int:
    return max(prototypes, key=lambda label: float(x @ prototypes[label]))


def oracle(
    base: np.ndarray,
    base_y: np.ndarray,
    new: np.ndarray,
    new_y: np.ndarray,
    held: np.ndarray,
    held_y: np.ndarray,
    episodes: np.ndarray,
) -> tuple[float, float]:
    """Return both accuracies, image by image and draw by draw."""
    origin = base.mean(axis=0)
    base, new, held = unit(base - origin), unit(new - origin), unit(held - origin)
    right_new, right_old = [], []
    for shots in episodes:
        prototypes = {label: unit(base[base_y == label].mean(axis=0)) for label in np.unique(base_y)}
        for label, rows in zip(np.unique(new_y), shots, strict=True):
            prototypes[label] = unit(new[rows].mean(axis=0))
        used = set(shots.ravel().tolist())
        right_new += [predicted(new[i], prototypes) == new_y[i] for i in range(len(new)) if i not in used]
        right_old += [predicted(held[i], prototypes) == held_y[i] for i in range(len(held))]
    return float(np.mean(right_new)), float(np.mean(right_old))


def clouds(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    centres = rng.normal(size=(20, 6))
    return centres[labels] + 0.9 * rng.normal(size=(len(labels), 6)) + 2.0


def test_the_score_is_the_oracle_s() -> None:
    rng = np.random.default_rng(0)
    base_y, new_y = np.repeat([2, 5, 7, 11], 9), np.repeat([3, 9, 10], 8)
    held_y = np.repeat([2, 5, 7, 11], 3)
    features = clouds(np.concatenate([base_y, new_y, held_y]), rng)
    base, new, held = np.split(features, [len(base_y), len(base_y) + len(new_y)])
    score = few_shot_score(
        *(torch.from_numpy(base), base_y, torch.from_numpy(new), new_y, torch.from_numpy(held), held_y),
        shots=2,
        draws=7,
        rng=np.random.default_rng(4),
    )
    episodes = draw_episodes(new_y, shots=2, draws=7, rng=np.random.default_rng(4))
    accuracy_new, accuracy_old = oracle(base, base_y, new, new_y, held, held_y, episodes)
    assert 0.2 < accuracy_new < 1
    assert 0.2 < accuracy_old < 1
    assert score.new == pytest.approx(accuracy_new)
    assert score.old == pytest.approx(accuracy_old)
    assert score.harmonic == pytest.approx(2 * accuracy_new * accuracy_old / (accuracy_new + accuracy_old))


def test_base_classes_are_rivals() -> None:
    base = torch.tensor([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, -0.1]])
    new = base[:2].repeat(3, 1)  # lies where a base class lies
    arguments = (base, np.array([0, 0, 1, 1]), new, np.full(6, 2), base[:0], np.empty(0, dtype=np.int64))
    alone = few_shot_score(*arguments, shots=2, draws=4, rivals=False, rng=np.random.default_rng(0))
    among = few_shot_score(*arguments, shots=2, draws=4, rng=np.random.default_rng(0))
    assert alone.new == 1.0
    assert among.new < 0.8
    assert among.old is None
    assert among.harmonic == among.new


def test_shots_come_from_their_own_class_and_differ() -> None:
    labels = np.array([4, 4, 4, 4, 1, 1, 1])
    episodes = draw_episodes(labels, shots=2, draws=30, rng=np.random.default_rng(0))
    assert episodes.shape == (30, 2, 2)
    assert (labels[episodes[:, 0]] == 1).all()
    assert (labels[episodes[:, 1]] == 4).all()
    assert (episodes[:, :, 0] != episodes[:, :, 1]).all()
    assert len(np.unique(episodes[:, 1], axis=0)) > 3


def test_a_class_without_an_image_to_test_on_is_refused() -> None:
    with pytest.raises(InputError, match="class 8 has 2 images"):
        draw_episodes(np.array([1, 1, 1, 8, 8]), shots=2, draws=1, rng=np.random.default_rng(0))


@pytest.mark.parametrize("wrong", [{"shots": 0}, {"draws": 0}, {"metric": "old"}])
def test_tests_of_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        FewShotTest(**wrong)
