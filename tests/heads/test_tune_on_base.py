"""Parameters picked by episodes: what is picked, when nothing is, and that nothing else leaks in."""

from __future__ import annotations

import numpy as np
import pytest

from fiveshot.core.episodes import Episode
from fiveshot.core.memory import Memory
from fiveshot.core.scorers import RECIPES, FeCAMScorer, parameter_names
from fiveshot.data.synthetic import gaussian_classes
from fiveshot.errors import InputError
from fiveshot.heads import NCM, FeCAM, make_head
from fiveshot.heads.tuned import (
    SEARCHED,
    _pick,
    default_candidates,
    episode_scores,
    score_at,
    tune_on_base,
    tuning_episodes,
)

D = 16
SAMPLED = {name: {"per_class": 40} for name in ("ranpac*", "c-ranpac")}


def base(n_classes: int = 16, samples: int = 20, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X, y, _, _ = gaussian_classes(
        n_classes=n_classes, n_features=D, train_per_class=samples, test_per_class=1, seed=seed
    )
    return X, y


def test_a_candidate_that_is_clearly_better_is_picked_and_set() -> None:
    """Classes that differ only in length: the cosine cannot separate them, the distance can."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 15)
    X = (1.0 + y)[:, None] * np.ones(D) + 0.1 * rng.normal(size=(len(y), D))
    tuned = tune_on_base(NCM("cosine"), X, y, candidates=[{"temperature": 1.0}, {"metric": "euclidean"}])
    assert tuned.parameters == {"metric": "euclidean"}
    assert tuned.head.metric == "euclidean"
    assert not hasattr(tuned.head, "classes_")
    assert set(tuned.single_picks) == {2}
    assert tuned.scores[2].mean > 0.99 > tuned.scores[0].mean


def test_candidates_that_change_no_answer_leave_the_head_as_it_was() -> None:
    X, y = base()
    tuned = tune_on_base(NCM("euclidean"), X, y, candidates=[{"temperature": 1.0}], episodes=4)
    assert tuned.picked == 0
    assert tuned.parameters == {}
    assert tuned.scores[0].mean == tuned.scores[1].mean


def test_the_spread_is_that_of_a_sample_and_unknown_from_one_episode() -> None:
    X, y = base()
    two, one = (tune_on_base(NCM("euclidean"), X, y, candidates=[], episodes=n).scores[0] for n in (2, 1))
    first = one.mean  # the first of the two episodes is the same
    assert two.spread == pytest.approx(abs(first - two.mean) * 2**0.5)
    assert one.spread is None


def test_a_gain_within_its_standard_error_is_no_gain() -> None:
    noisy = np.array([[0.5, 0.9], [0.5, 0.2], [0.5, 0.5]])
    steady = np.array([[0.5, 0.6], [0.4, 0.5], [0.3, 0.39]])
    assert (_pick(noisy), _pick(steady)) == (0, 1)


def test_the_score_is_the_mean_of_accuracy_and_harmonic_mean_over_the_classes_known_so_far() -> None:
    nobody = np.empty(0, dtype=np.intp)
    asked = np.zeros((6, 1)), np.array([0, 0, 1, 1, 2, 2])
    episode = Episode(Memory(), *asked, np.array([False, True, True]), nobody, nobody, nobody)
    # Of class 0 both are right, of class 1 one, of class 2 one; at half depth class 2 is not there yet, and the
    # second sample of class 1, which it would have taken, is right.
    scores = np.eye(3)[[0, 0, 1, 2, 2, 0]] + 0.5 * np.eye(3)[[0, 0, 1, 1, 2, 2]]
    full = (4 / 6 + 2 * 1 * 0.5 / 1.5) / 2
    assert score_at(scores, episode, 1.0) == pytest.approx(full)
    assert score_at(scores, episode, 0.5) == pytest.approx(1.0)


def test_the_same_seed_gives_the_same_table_and_order_of_classes_or_more_classes_do_not_break_it() -> None:
    X, y = base()
    one, two = (tune_on_base(make_head("teen"), X, y, episodes=3, seed=5) for _ in range(2))
    assert [s.mean for s in one.scores] == [s.mean for s in two.scores]
    other = tune_on_base(make_head("teen"), X, y, episodes=3, seed=6)
    assert [s.mean for s in one.scores] != [s.mean for s in other.scores]
    many = base(n_classes=80, samples=8)
    assert len(tune_on_base(NCM(), *many, episodes=2).single_picks) == 2


@pytest.mark.parametrize("name", RECIPES)
def test_every_head_can_be_tuned(name: str) -> None:
    X, y = base(n_classes=10)
    before = X.copy()
    head = make_head(name, **SAMPLED.get(name, {}))
    scorer = head.unlearned_scorer()
    if "n_projections" in parameter_names(scorer):
        head.set_params(n_projections=64)
    own = type(scorer) in SEARCHED  # others must be told some
    tried = default_candidates(scorer) if own else [{"temperature": 0.5}]
    tuned = tune_on_base(head, X, y, candidates=None if own else tried, episodes=2)
    assert len(tuned.scores) == 1 + len(tried)
    assert all(0 < score.mean <= 1 for score in tuned.scores)
    assert tuned.head.fit(X, y).score(X, y) > 0.3
    np.testing.assert_array_equal(X, before)


@pytest.mark.parametrize(("n_classes", "samples"), [(9, 20), (16, 6), (1, 20)])
def test_with_too_little_the_head_stays_as_it_is(n_classes: int, samples: int) -> None:
    tuned = tune_on_base(NCM(bias=0.3), *base(n_classes, samples))
    assert (tuned.head.bias, tuned.parameters, tuned.scores, tuned.single_picks) == (0.3, {}, (), ())


def test_sharing_metrics_between_biases_changes_no_score() -> None:
    X, y = base()
    settings = [{"bias": 0.3}, {"bias": 1.0}, {"gamma": 5.0, "bias": 0.3}]
    together = tune_on_base(FeCAM(20.0), X, y, candidates=settings, episodes=2)
    for index, change in enumerate(settings, start=1):
        alone = tune_on_base(FeCAM(**{"gamma": 20.0} | change), X, y, candidates=[], episodes=2)
        assert alone.scores[0].mean == pytest.approx(together.scores[index].mean)
    scorer = FeCAMScorer(20.0, bias=0.3)
    episode, samples, labels = next(tuning_episodes(scorer, X, y, shots=5, episodes=1, seed=0))
    shared = episode_scores(scorer, episode, samples, labels, settings=None, shared={})
    alone = scorer.adopt(episode.memory).scores(samples[episode.asked_rows])
    np.testing.assert_allclose(shared, alone, rtol=1e-4, atol=1e-5)


def test_string_labels_and_lists_work() -> None:
    X, y = base()
    names = [f"class {label}" for label in y]
    assert tune_on_base(NCM(), X.tolist(), names, episodes=2).scores


def test_the_noise_of_means_is_found_to_matter() -> None:
    """Far more dimensions than separation: the penalty for few samples decides, and episodes see it."""
    rng = np.random.default_rng(1)
    centers = 0.45 * rng.normal(size=(30, 128))
    y = np.repeat(np.arange(30), 40)
    X = centers[y] + 2 * rng.normal(size=(len(y), 128))
    tuned = tune_on_base(NCM("euclidean"), X, y)
    assert tuned.parameters["bias"] >= 0.5
    assert min(tuned.single_picks) > 0


def test_what_cannot_be_tuned_is_refused() -> None:
    X, y = base()
    with pytest.raises(InputError, match=r"Invalid parameter 'gamma' for NCMScorer.*'bias', 'calibration'"):
        tune_on_base(NCM(), X, y, candidates=[{"gamma": 1.0}])
    with pytest.raises(InputError, match="shots and episodes must be at least 1, got 0 and 8"):
        tune_on_base(FeCAM(), X, y, shots=0)
    with pytest.raises(InputError, match="NaN"):
        tune_on_base(NCM(), np.full_like(X, np.nan), y)
