"""The default head against its equations spelled out in NumPy, and what must hold of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import roc_auc_score

from fiveshot.core import NO_CLASSES, class_statistics, episodes
from fiveshot.core.episodes import DEFAULT_OFFSET, Choice, play_episodes
from fiveshot.core.lda import default_shrinkage, estimate_spectrum, tied_covariance
from fiveshot.core.memory import Memory
from fiveshot.errors import InputError
from fiveshot.heads import NCM, Prior, UnbiasedLDA, load_head, save_head

D = 12


def classes(
    n_classes: int, shots: int, *, seed: int, first: int = 0, spread: float = 3.0
) -> tuple[np.ndarray, ...]:
    """Draw correlated classes; the center of a class depends only on its number."""
    mixing = np.random.default_rng(99).normal(size=(D, D))
    rows, labels = [], []
    for label in range(first, first + n_classes):
        center = spread * np.random.default_rng([label, 5]).normal(size=D)
        noise = np.random.default_rng([label, seed, 6]).normal(size=(shots, D)) @ mixing
        rows.append(5 + center + noise)
        labels += [label] * shots
    return np.concatenate(rows), np.array(labels)


def spelled_out(X: np.ndarray, y: np.ndarray, n_base: int, asked: np.ndarray, *, offset: float) -> np.ndarray:
    """The equations of fiveshot.core.lda, class by class."""
    prior = Prior()
    Z = X / np.linalg.norm(X, axis=1, keepdims=True)
    Q = asked / np.linalg.norm(asked, axis=1, keepdims=True)
    labels = np.unique(y)
    means = np.stack([Z[y == c].mean(axis=0) for c in labels])
    counts = np.array([(y == c).sum() for c in labels])
    new = np.arange(len(labels)) >= n_base
    scatters = [(Z[y == c] - means[i]).T @ (Z[y == c] - means[i]) for i, c in enumerate(labels)]
    dof = int((counts - 1).sum())
    share = default_shrinkage(D, dof)
    pooled = sum(scatters)
    sigma = (1 - share) * pooled / dof + share * np.trace(pooled) / dof / D * np.eye(D)
    inverse = np.linalg.inv(sigma)

    def noise(members: np.ndarray) -> float:
        own = sum(scatters[i] for i in np.flatnonzero(members))
        q = np.trace(inverse @ own) / (counts[members] - 1).sum()
        return q / (1 - (1 - share) * q / dof) / D

    u = np.where(new, noise(new), noise(~new)) / counts
    origin = means[~new].mean(axis=0)
    L = np.linalg.cholesky(sigma)
    white = np.linalg.solve(L, (means - origin).T).T
    values, vectors = np.linalg.eigh(white.T @ white / len(labels))
    b = np.clip(values - u.mean(), 0, None)
    if len(labels) < D:  # the scatter of C class means has C directions, the others get the sphere's share alone
        b[: D - len(labels)] = 0
    sphere = b.sum() / D
    b = (1 - prior.smoothing) * b + prior.smoothing * sphere
    scores = []
    for i in range(len(labels)):
        K = vectors @ np.diag(prior.strength * b / (prior.strength * b + u[i])) @ vectors.T
        B = vectors @ np.diag(b) @ vectors.T
        guess = K @ white[i]
        length = np.sqrt(guess @ guess - u[i] * np.trace(K @ K))
        expected = np.trace(K @ B) / np.sqrt(np.trace(K @ K @ B))
        best = np.sqrt(np.trace(B))
        raw = np.linalg.solve(L, (Q - origin).T).T @ guess / length / best
        scores.append(raw + offset * (1 - expected / best))
    return np.stack(scores, axis=1)


@pytest.mark.parametrize(("n_base", "n_new"), [(6, 3), (20, 4)])  # fewer classes than features, and more
def test_scores_are_those_of_the_equations(n_base: int, n_new: int) -> None:
    X, y = classes(n_base, 15, seed=0)
    new_X, new_y = classes(n_new, 5, seed=1, first=n_base)
    asked, _ = classes(n_base + n_new, 3, seed=2)
    head = UnbiasedLDA(0, offset=0.6, sharpness=10.0, center=False).fit(X, y).partial_fit(new_X, new_y)
    expected = spelled_out(np.concatenate([X, new_X]), np.concatenate([y, new_y]), n_base, asked, offset=0.6)
    np.testing.assert_allclose(head.class_scores(asked), expected, rtol=1e-8, atol=1e-10)


def test_centring_is_a_shift_of_the_features() -> None:
    X, y = classes(12, 10, seed=0)
    asked, _ = classes(12, 2, seed=1)
    centered = UnbiasedLDA(0, offset=0.5, sharpness=10.0).fit(X, y)
    shifted = UnbiasedLDA(0, offset=0.5, sharpness=10.0, center=False).fit(X - X.mean(axis=0), y)
    np.testing.assert_allclose(
        centered.class_scores(asked), shifted.class_scores(asked - X.mean(axis=0)), atol=1e-9
    )


def test_it_beats_the_nearest_mean_on_correlated_classes() -> None:
    X, y = classes(20, 30, seed=0, spread=1.5)
    new_X, new_y = classes(20, 5, seed=1, first=20, spread=1.5)
    asked, truth = classes(40, 10, seed=2, spread=1.5)
    ours, nearest = (
        head.fit(X, y).partial_fit(new_X, new_y).predict(asked) == truth
        for head in (UnbiasedLDA(), NCM("euclidean"))
    )
    new = truth >= 20
    assert ours.mean() > nearest.mean() + 0.1
    assert ours[new].mean() > nearest[new].mean() + 0.1


@pytest.mark.parametrize("shots", [2, 5])
def test_a_class_scores_on_its_own_samples_what_the_equations_expect(shots: int) -> None:
    """m(n) / m(∞): without the subtracted noise, prototypes of few samples are too long and score too little."""
    X, y = classes(60, 30, seed=0, spread=3.0)
    new_X, new_y = classes(120, shots, seed=1, first=60, spread=3.0)
    asked, truth = classes(180, 10, seed=2, spread=3.0)
    of_new = truth >= 60
    found = {}
    for bias in (0.0, 1.0):
        prior = Prior(bias=bias, strength=1.0, smoothing=0.0)
        head = UnbiasedLDA(0, prior=prior, offset=0.0, sharpness=10.0).fit(X, y).partial_fit(new_X, new_y)
        own = head.class_scores(asked)[np.arange(len(truth)), truth]
        found[bias] = own[of_new].mean()
        expected = 1 - float(head.scorer_.model.spaces[0].gaps[60:].mean())
        assert own[~of_new].mean() == pytest.approx(1, abs=0.02)
    assert found[1.0] == pytest.approx(expected, abs=0.03)
    assert found[0.0] < found[1.0] - 0.04


def test_noise_is_that_of_samples_which_did_not_make_the_covariance() -> None:
    rng = np.random.default_rng(0)
    d, n = 40, 120
    mixing = rng.normal(size=(d, d))
    samples, others = rng.normal(size=(n, d)) @ mixing, rng.normal(size=(20_000, d)) @ mixing
    nothing = np.zeros((d, d))
    made = tied_covariance(samples.T @ samples, n, nothing, 0, spread=1.0, shrinkage=0.1, pool_new=True)
    white = np.linalg.solve(made.cholesky, others.T)
    inside = np.linalg.solve(made.cholesky, samples.T)
    assert float(made.noise) == pytest.approx((white**2).mean(), rel=0.06)
    assert (inside**2).mean() < 0.85 * (white**2).mean(), "the optimistic estimate would be far off"


@pytest.mark.parametrize("n_classes", [2, 5, 9, 10, 30])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.2])
def test_the_spectrum_is_that_of_the_class_means(n_classes: int, noise: float) -> None:
    white = np.random.default_rng(n_classes).normal(size=(n_classes, 9))
    found = estimate_spectrum(white, np.full(n_classes, noise), prior=Prior(smoothing=0.0))
    identity = found.directions.T @ found.directions
    np.testing.assert_allclose(identity, np.eye(len(identity)), atol=1e-6)
    values = np.linalg.eigvalsh(white.T @ white / n_classes)[-len(found.variances) :]
    np.testing.assert_allclose(np.sort(found.variances), np.clip(values - noise, 0, None), atol=1e-9)


def test_no_base_session_at_all() -> None:
    X, y = classes(30, 5, seed=1, spread=1.5)
    asked, truth = classes(30, 10, seed=2, spread=1.5)
    head = UnbiasedLDA()
    head.adopt(Memory(NO_CLASSES, class_statistics(head.unlearned_scorer().embed(X), y)))
    nearest = NCM("euclidean").fit(X, y)
    assert head.choice_.episodes == 0
    assert (head.predict(asked) == truth).mean() > (nearest.predict(asked) == truth).mean()


def wide(counts: list[int], *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw classes in more dimensions than there are samples, of features that vary more and less."""
    y = np.repeat(np.arange(len(counts)), counts)
    scale = np.random.default_rng(7).uniform(0.1, 3.0, size=200)
    centers = 0.5 * scale * np.random.default_rng(8).normal(size=(len(counts), 200))
    return 2 + centers[y] + scale * np.random.default_rng(seed).normal(size=(len(y), 200)), y


def test_a_first_session_of_a_few_samples_is_not_a_base() -> None:
    X, y = wide([5] * 8, seed=0)
    asked, _ = wide([10] * 8, seed=1)
    fitted = UnbiasedLDA().fit(X, y)
    adopted = UnbiasedLDA()
    adopted.adopt(Memory(NO_CLASSES, class_statistics(adopted.unlearned_scorer().embed(X), y)))
    in_parts = UnbiasedLDA().fit(X[y < 3], y[y < 3]).partial_fit(X[y >= 3], y[y >= 3])
    for other in (adopted, in_parts):
        np.testing.assert_allclose(other.class_scores(asked), fitted.class_scores(asked), rtol=1e-9)
        np.testing.assert_allclose(other.predict_proba(asked), fitted.predict_proba(asked), rtol=1e-9)


def test_forgetting_without_a_base_leaves_no_trace() -> None:
    X, y = wide([5, 1, 3, 2, 4], seed=0)
    asked, _ = wide([10] * 5, seed=1)
    parts = [(X[y == label], y[y == label]) for label in range(5)]
    head = UnbiasedLDA().fit(*parts[0])
    for part in (parts[4], parts[2], parts[1], parts[3]):
        head.partial_fit(*part)
    kept = y != 4
    never = UnbiasedLDA().fit(X[kept], y[kept])
    np.testing.assert_allclose(head.forget(4).class_scores(asked), never.class_scores(asked), rtol=1e-9)


def test_a_file_of_a_few_samples_brings_the_same_answers_back(tmp_path: Path) -> None:
    X, y = wide([5, 1, 3, 2], seed=0)
    asked, _ = wide([10] * 4, seed=1)
    head = UnbiasedLDA().fit(X[y < 2], y[y < 2]).partial_fit(X[y >= 2], y[y >= 2])
    save_head(head, tmp_path / "head.safetensors")
    again = load_head(tmp_path / "head.safetensors")
    assert again.choice_ == head.choice_
    np.testing.assert_array_equal(again.predict_proba(asked), head.predict_proba(asked))


def test_it_beats_the_nearest_mean_and_ridge_without_a_base() -> None:
    X, y = wide([2] * 20, seed=0)
    asked, truth = wide([30] * 20, seed=1)
    ours, nearest, ridge = (
        (head.fit(X, y).predict(asked) == truth).mean()
        for head in (UnbiasedLDA(), NCM("cosine"), RidgeClassifier())
    )
    assert ours > max(nearest, ridge) + 0.02


def test_among_a_few_classes_one_with_a_single_sample_is_found() -> None:
    X, y = wide([1, 8, 8, 8, 8], seed=0)
    asked, truth = wide([100] * 5, seed=1)
    right = UnbiasedLDA().fit(X, y).predict(asked) == truth
    plain = UnbiasedLDA(offset=0.0).fit(X, y).predict(asked) == truth
    assert right[truth == 0].mean() > plain[truth == 0].mean() + 0.1
    assert right.mean() > plain.mean()


@pytest.mark.parametrize(("n_classes", "sharpness"), [(4, 12.0), (40, 12 + 3 * np.log10(2))])
def test_without_a_base_the_sharpness_grows_with_the_samples(n_classes: int, sharpness: float) -> None:
    X, y = wide([5] * n_classes, seed=0)
    head = UnbiasedLDA().fit(X, y)
    assert head.choice_.sharpness == pytest.approx(sharpness)
    powers = np.exp(sharpness * (head.class_scores(X) - head.class_scores(X).max(axis=1, keepdims=True)))
    np.testing.assert_allclose(head.predict_proba(X), powers / powers.sum(axis=1, keepdims=True), rtol=1e-6)
    assert UnbiasedLDA(sharpness=9.0).fit(X, y).choice_.sharpness == 9.0


def test_with_a_base_the_sharpness_grows_with_later_samples() -> None:
    X, y = wide([20] * 15 + [5] * 30, seed=0)
    base = y < 15  # 300 samples, then 450
    head = UnbiasedLDA().fit(X[base], y[base])
    before = head.choice_.sharpness
    grown = (12 + 3 * np.log10(4.5)) / (12 + 3 * np.log10(3))
    assert head.partial_fit(X[~base], y[~base]).choice_.sharpness == pytest.approx(before * grown)


@pytest.mark.parametrize("scale", [0.5, 1.5])
def test_the_chosen_sharpness_is_near_the_likeliest_for_held_out_samples(scale: float) -> None:
    """Narrow classes are told apart surely, wide ones are not; with 100 classes the default counts little."""
    rng = np.random.default_rng(1)
    means, noise = rng.normal(size=(200, 16)), scale * rng.normal(size=(40 * 200, 16))
    y = np.tile(np.arange(200), 40)
    X, old, place = means[y] + noise, y < 100, np.arange(len(y)) // 200
    base, shots, asked = old & (place < 30), ~old & (place < 5), place >= 30
    head = UnbiasedLDA(0).fit(X[base], y[base]).partial_fit(X[shots], y[shots])

    def likelihood(sharpness: float) -> float:
        logits = sharpness * head.class_scores(X[asked]).astype(float)
        logits -= logits.max(axis=1, keepdims=True)
        return float(np.mean(logits[np.arange(len(logits)), y[asked]] - np.log(np.exp(logits).sum(axis=1))))

    best = max(np.geomspace(1, 100, 100), key=likelihood)
    missed, default = (abs(np.log(value / best)) for value in (head.choice_.sharpness, 15.0))
    assert missed < default / 2


def test_adopting_statistics_is_learning_them() -> None:
    X, y = classes(15, 12, seed=0)
    new_X, new_y = classes(3, 5, seed=1, first=15)
    asked, _ = classes(18, 2, seed=2)
    learned = UnbiasedLDA(20).fit(X.astype(np.float32), y).partial_fit(new_X.astype(np.float32), new_y)
    adopted = UnbiasedLDA(20).adopt(learned.memory_, learned.settings())
    np.testing.assert_allclose(adopted.class_scores(asked), learned.class_scores(asked), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(adopted.predict_proba(asked), learned.predict_proba(asked), rtol=1e-3, atol=1e-5)


def test_forgetting_a_new_class_leaves_no_trace_in_what_is_derived() -> None:
    X, y = classes(15, 12, seed=0)
    new_X, new_y = classes(4, 5, seed=1, first=15)
    asked, _ = classes(19, 2, seed=2)
    kept = new_y != 16
    head = UnbiasedLDA(20).fit(X, y).partial_fit(new_X, new_y).forget(16)
    never = UnbiasedLDA(20).fit(X, y).partial_fit(new_X[kept], new_y[kept])
    np.testing.assert_allclose(head.class_scores(asked), never.class_scores(asked), rtol=1e-12, atol=1e-12)


def test_files_keep_center_and_choice(tmp_path: Path) -> None:
    X, y = classes(15, 12, seed=0)
    asked, _ = classes(15, 2, seed=2)
    head = UnbiasedLDA(20, random_state=3).fit(X, y)
    save_head(head, tmp_path / "head.safetensors")
    again = load_head(tmp_path / "head.safetensors")
    assert again.choice_ == head.choice_ != Choice()
    np.testing.assert_array_equal(again.predict_proba(asked), head.predict_proba(asked))


def test_episodes_use_held_out_samples_of_every_class() -> None:
    X, y = classes(12, 14, seed=0)
    found = list(play_episodes(X, y, shots=5, episodes=3, seed=0))
    assert len(found) == 3
    for episode in found:
        assert len(episode.memory.base) == len(episode.memory.new) == 6
        assert set(episode.memory.new.counts.tolist()) == {5}
        known = np.concatenate([episode.memory.base.means, episode.memory.new.means])
        assert len(np.unique(episode.codes)) == 12
        assert len(episode.X) == 12 * 4
        assert np.isfinite(known).all()
    again = list(play_episodes(X, y, shots=5, episodes=3, seed=0))
    assert all(np.array_equal(one.X, other.X) for one, other in zip(found, again, strict=True))


def test_episodes_ask_about_no_more_samples_than_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = classes(12, 20, seed=0)
    whole = list(play_episodes(X, y, shots=5, episodes=2, seed=0))
    monkeypatch.setattr(episodes, "MOST_ASKED", 30)
    for every, some in zip(whole, play_episodes(X, y, shots=5, episodes=2, seed=0), strict=True):
        assert len(every.asked_rows) == 12 * 6
        assert len(some.asked_rows) == len(some.X) == len(some.codes) == 30
        assert set(some.asked_rows) < set(every.asked_rows)
        assert some.new_rows.tolist() == every.new_rows.tolist(), "what is learned stays"
        np.testing.assert_array_equal(some.memory.labels[some.codes], y[some.asked_rows])


def test_too_few_classes_take_the_defaults() -> None:
    X, y = classes(9, 14, seed=0)
    assert UnbiasedLDA().fit(X, y).choice_.offset == DEFAULT_OFFSET
    X, y = classes(10, 14, seed=0)
    assert UnbiasedLDA().fit(X, y).choice_.episodes == 6


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_random": -1}, "n_random must be a whole number of at least 0"),
        ({"random_weight": 1.5}, "random_weight must lie in"),
        ({"offset": "best"}, "offset must be 'auto' or be finite"),
        ({"sharpness": -1.0}, "sharpness must be 'auto' or be finite"),
        ({"pooled": "new"}, "no choice of pooled classes 'new'"),
        ({"random_state": None}, "random_state must be a whole number"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        UnbiasedLDA(**parameters).fit(*classes(3, 4, seed=0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shrinkage": -1.0}, r"shrinkage must be None or lie in \[0, 1\], got -1.0"),
        ({"shrinkage": 5}, "shrinkage .*5"),
        ({"shrinkage": float("nan")}, "shrinkage .*nan"),
        ({"shrinkage": "0.3"}, "shrinkage .*'0.3'"),
        ({"strength": -1.0}, "strength must be positive and finite, got -1.0; the default is 0.25"),
        ({"strength": 0}, "strength .*0"),
        ({"strength": float("inf")}, "strength .*inf"),
        ({"smoothing": 1.1}, r"smoothing must lie in \[0, 1\], got 1.1"),
        ({"smoothing": None}, "smoothing .*None"),
        ({"bias": -0.1}, "bias must be finite and not negative, got -0.1"),
        ({"bias": float("nan")}, "bias .*nan"),
        ({"posterior": 1}, "posterior must be True or False, got 1"),
    ],
)
def test_a_prior_that_makes_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Prior(**values)


def test_a_singular_covariance_is_said_in_our_words() -> None:
    X, y = classes(2, 2, seed=0)  # four samples do not span the space
    with pytest.raises(InputError, match=r"covariance of all classes is singular.*give more shrinkage"):
        UnbiasedLDA(0, prior=Prior(shrinkage=0.0)).fit(X, y)
    UnbiasedLDA(0, prior=Prior(shrinkage=0.1)).fit(X, y)


@pytest.mark.parametrize("n_random", [0, 20])
def test_the_matrices_to_export_score_as_the_head_does(n_random: int) -> None:
    X, y = classes(12, 10, seed=0)
    asked, _ = classes(14, 3, seed=1)
    head = UnbiasedLDA(n_random).fit(X, y).partial_fit(*classes(2, 5, seed=1, first=12))
    scores, probabilities, familiarity = head.scorer_.linear()(asked)
    np.testing.assert_allclose(scores, head.class_scores(asked), atol=1e-10)
    np.testing.assert_allclose(probabilities, head.predict_proba(asked), atol=1e-10)
    np.testing.assert_allclose(familiarity, head.familiarity(asked), atol=1e-10)


def test_the_matrices_to_export_score_as_the_head_does_without_a_base() -> None:
    X, y = wide([5, 1, 3, 2], seed=0)
    asked, _ = wide([10] * 4, seed=1)
    head = UnbiasedLDA().fit(np.exp(X), y)
    scores, probabilities, familiarity = head.scorer_.linear()(np.exp(asked))
    np.testing.assert_allclose(scores, head.class_scores(np.exp(asked)), atol=1e-10)
    np.testing.assert_allclose(probabilities, head.predict_proba(np.exp(asked)), atol=1e-10)
    np.testing.assert_allclose(familiarity, head.familiarity(np.exp(asked)), atol=1e-10)


@pytest.mark.parametrize(("base", "strength"), [(True, 0.25), (False, 1.0)])
def test_familiarity_by_its_equation(base: bool, strength: float) -> None:
    X, y = (classes if base else wide)([9, 5, 7, 2] if not base else 12, *([8] if base else []), seed=0)
    asked = np.concatenate([X + 0.1, -X[:5]])
    head = UnbiasedLDA(0).fit(X, y)
    space, statistics = head.scorer_.model.spaces[0], head.memory_.statistics
    covariance, spectrum = space.shared.covariance, space.shared.spectrum
    width, r = spectrum.directions.shape
    off = np.eye(width) - spectrum.directions @ spectrum.directions.T
    between = spectrum.directions @ np.diag(spectrum.variances) @ spectrum.directions.T + spectrum.rest * off
    whole = np.trace(between) + width * covariance.noise
    share, chance = (spectrum.variances.sum() + r * covariance.noise) / whole, r * covariance.noise / whole
    unit = head.scorer_.embed(asked)
    white = covariance.whiten(unit - space.origin)
    for row, best in enumerate(head.predict_proba(asked).argmax(axis=1)):
        mean, n = statistics.means[best], statistics.summaries[best].count
        keep = n * strength * between @ np.linalg.inv(n * strength * between + covariance.noise * np.eye(width))
        own, x = covariance.whiten((mean - space.origin)[None])[0], white[row]
        guess, cosine = keep @ own, unit[row] @ mean / np.linalg.norm(mean)
        expected = x @ guess / (guess @ guess)
        if base:
            inside = np.linalg.norm(x @ spectrum.directions) ** 2 / (x @ x)
            expected += 1.8 * (x @ own) / np.linalg.norm(x) / np.linalg.norm(own)
            expected -= 1.8 * (max(inside, share) - chance)
            expected -= 0.3 * sorted(head.class_scores(asked)[row])[-2]
        else:
            expected += 1.5 * cosine
        assert head.familiarity(asked[[row]])[0] == pytest.approx(expected, rel=1e-6)


def test_a_sample_between_two_classes_is_less_familiar_than_one_of_either() -> None:
    X, y = classes(20, 20, seed=0)
    head = UnbiasedLDA().fit(X, y)
    means = np.stack([X[y == label].mean(axis=0) for label in np.unique(y)])
    between = head.familiarity((means[:-1] + means[1:]) / 2)
    assert (between < np.minimum(*(head.familiarity(each) for each in (means[:-1], means[1:])))).mean() > 0.9


def test_long_tails_are_shortened_without_a_base_and_symmetric_values_are_not() -> None:
    rng = np.random.default_rng(0)
    symmetric, tails = rng.normal(size=(5, 400)), rng.exponential(size=(5, 400)) ** 2
    labels = ["a", "a", "b", "b", "c"]

    def unit(rows: np.ndarray) -> np.ndarray:
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    without = UnbiasedLDA().fit(symmetric, labels)
    np.testing.assert_allclose(without.scorer_.embed(symmetric), unit(symmetric), rtol=1e-4)
    largest = [
        (rows.max(axis=1) / rows.mean(axis=1)).min() for rows in (without.scorer_.embed(tails), unit(tails))
    ]
    assert largest[0] < 0.5 * largest[1]
    assert (without.scorer_.embed(tails).argsort(axis=1) == tails.argsort(axis=1)).all()
    np.testing.assert_allclose(without.scorer_.embed(7 * tails), without.scorer_.embed(tails), rtol=1e-9)
    base = UnbiasedLDA(0, center=False).fit(np.exp(rng.normal(size=(60, 20))), np.arange(60) % 4)
    np.testing.assert_allclose(base.scorer_.embed(tails[:, :20]), unit(tails[:, :20]), rtol=1e-9)


def test_unknown_classes_are_less_familiar_than_known_ones() -> None:
    X, y = classes(20, 20, seed=0)
    head = UnbiasedLDA().fit(X, y).partial_fit(*classes(10, 5, seed=1, first=20))
    known, _ = classes(30, 10, seed=2)
    unknown, _ = classes(30, 10, seed=2, first=30)
    values = np.concatenate([head.familiarity(known), head.familiarity(unknown)])
    assert roc_auc_score(np.repeat([1, 0], len(known)), values) > 0.75


SETTLED = {"n_random": 30, "offset": 0.5, "sharpness": 9.0}


def test_with_one_sum_of_the_base_the_answers_are_the_same() -> None:
    base, new, more = classes(12, 20, seed=0), classes(3, 5, seed=0, first=12), classes(2, 4, seed=3)
    asked, _ = classes(15, 6, seed=1)
    each, summed = (UnbiasedLDA(kept=kept, **SETTLED) for kept in ("classes", "sums"))
    for X, y in (base, new, more):  # the last are samples of base classes
        expected = each.partial_fit(X, y).class_scores(asked)
        np.testing.assert_allclose(summed.partial_fit(X, y).class_scores(asked), expected, rtol=1e-7, atol=1e-9)
    assert len(each.scorer_.model.spaces) == 2


def test_with_one_sum_of_the_base_memory_does_not_grow_with_its_samples() -> None:
    few, many = (UnbiasedLDA(kept="sums").fit(*classes(12, shots, seed=0)) for shots in (20, 80))
    assert (
        few.memory_.statistics.nbytes == many.memory_.statistics.nbytes == 12 * len(few.memory_.base.means[0]) * 8
    )
    assert many.choice_.episodes == 6
    assert many.choice_.offset != DEFAULT_OFFSET, "episodes are played even so"


def test_with_one_sum_of_the_base_new_classes_can_be_forgotten_and_base_classes_cannot(tmp_path: Path) -> None:
    asked, _ = classes(15, 6, seed=1)
    head = UnbiasedLDA(kept="sums", **SETTLED).fit(*classes(12, 20, seed=0))
    never = head.class_scores(asked)
    head.partial_fit(*classes(3, 5, seed=0, first=12))
    with pytest.raises(InputError, match=r"cannot forget 4: its samples are part of a sum over all base classes"):
        head.forget(4)
    with pytest.raises(InputError, match="fit it with kept='classes'"):
        head.settings()
    save_head(head, tmp_path / "head.safetensors")
    again = load_head(tmp_path / "head.safetensors")
    np.testing.assert_array_equal(again.class_scores(asked), head.class_scores(asked))
    np.testing.assert_allclose(again.forget([12, 13, 14]).class_scores(asked), never, rtol=1e-9)


def test_a_small_first_session_is_kept_class_by_class_whatever_is_asked_for() -> None:
    X, y = classes(3, 3, seed=0)
    each, summed = (UnbiasedLDA(kept=kept).fit(X, y).forget(1) for kept in ("classes", "sums"))
    np.testing.assert_array_equal(each.class_scores(X), summed.class_scores(X))


def test_samples_asked_together_move_the_means_by_their_shares() -> None:
    """One round is the step of a mixture model: known samples count one, asked ones by their probability."""
    X, y = classes(12, 20, seed=0)
    new_X, new_y = classes(4, 2, seed=1, first=12)
    asked, _ = classes(16, 10, seed=2)
    alone = UnbiasedLDA(0).fit(X, y).partial_fit(new_X, new_y)
    head = UnbiasedLDA(0, together=1).fit(X, y).partial_fit(new_X, new_y)
    shares = alone.predict_proba(asked)
    known = alone.memory_.statistics
    expected = (known.counts[:, None] * known.means + shares.T @ alone.scorer_.embed(asked)) / (
        known.counts + shares.sum(axis=0)
    )[:, None]
    moved = head.scorer_.moved_by(asked)
    np.testing.assert_allclose(moved.memory.statistics.means, expected, rtol=1e-12)
    np.testing.assert_array_equal(moved.memory.statistics.counts, known.counts + shares.sum(axis=0).round())
    np.testing.assert_array_equal(moved.classify(asked), head.predict(asked))
    np.testing.assert_array_equal(head.memory_.statistics.means, known.means)  # nothing was learned
    assert alone.scorer_.moved_by(asked) is alone.scorer_


def test_one_shot_classes_gain_by_samples_asked_together() -> None:
    X, y = classes(12, 20, seed=0, spread=1.2)
    new_X, new_y = classes(12, 1, seed=1, first=12, spread=1.2)
    asked, truth = classes(24, 30, seed=2, spread=1.2)
    right = [
        (UnbiasedLDA(together=rounds).fit(X, y).partial_fit(new_X, new_y).predict(asked) == truth).mean()
        for rounds in (0, 3)
    ]
    assert right[1] > right[0] + 0.03
