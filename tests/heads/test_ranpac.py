from __future__ import annotations

import pickle
from copy import copy

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, Rows, draw, flat, queries
from oracles import best_lambda, one_hot, ranpac_scores
from sklearn.linear_model import Ridge

from fiveshot.core import Calibration, calibrate, class_statistics, summarize
from fiveshot.core.draws import derived_seed, gaussian_samples, random_features, stratified_split
from fiveshot.errors import InputError
from fiveshot.heads import RanPAC, Sampling

CALIBRATIONS = [None, Calibration(alpha=0.9, beta=0.5), Calibration(alpha=0.9, beta=0.5, similarity="dot")]
SHAPES = [30, 52, 400]  # sums from the start, sums from the second session on, always the dual form
N_BASE_ROWS = sum(BASE.values())


def projection(width: int, seed: int) -> np.ndarray:
    like = np.empty(0)
    return random_features(16, width, seed=seed, like=like).projection


def sampled(rows: Rows, base: Rows, calibration: Calibration | None, *, per_class: int, seed: int) -> Rows:
    """Draw what the head draws: through the class's factor, with the seed of its label."""
    statistics = class_statistics(np.asarray(flat(base)[0]), flat(base)[1])
    drawn = {}
    for label, part in rows.items():
        gaussian = calibrate(summarize(np.asarray(part)), statistics, calibration)
        drawn[label] = gaussian_samples(gaussian, per_class, seed=derived_seed(seed, label))
    return drawn


def learn(head: RanPAC, *sessions: Rows) -> RanPAC:
    for session in sessions:
        head.partial_fit(*flat(session))
    return head


@pytest.mark.parametrize("mass", ["samples", "balanced"])
@pytest.mark.parametrize("scoring", ["cosine", "linear"])
@pytest.mark.parametrize("width", SHAPES)
def test_ranpac_is_ridge_on_random_features(width: int, scoring: str, mass: str) -> None:
    base, first, second, X = draw(BASE), draw(FIRST), draw(SECOND), queries()
    head = RanPAC(width, scoring=scoring, mass=mass, lambdas=(50.0,), random_state=3)
    total = N_BASE_ROWS / len(BASE) if mass == "balanced" else None
    known: Rows = {}
    for session in (base, first, second):
        known |= session
        expected = ranpac_scores(known, X, projection=projection(width, 3), lam=50.0, scoring=scoring, mass=total)
        scores = head.partial_fit(*flat(session)).class_scores(X)
        np.testing.assert_allclose(scores, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("mass", ["samples", "balanced"])
@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
@pytest.mark.parametrize("width", SHAPES)
def test_new_classes_are_replaced_by_their_samples(width: int, calibration: Calibration | None, mass: str) -> None:
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    head = RanPAC(
        width,
        sampling=Sampling(per_class=40),
        calibration=calibration,
        mass=mass,
        lambdas=(50.0,),
        random_state=5,
    )
    rows = base | sampled(new, base, calibration, per_class=40, seed=5)
    expected = ranpac_scores(
        rows,
        X,
        projection=projection(width, 5),
        lam=50.0,
        scoring="cosine",
        mass=N_BASE_ROWS / len(BASE) if mass == "balanced" else None,
    )
    np.testing.assert_allclose(learn(head, base, new).class_scores(X), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("classes", ["new", "all"])
@pytest.mark.parametrize("calibration", CALIBRATIONS, ids=str)
@pytest.mark.parametrize("width", SHAPES)
def test_in_closed_form_a_class_counts_as_very_many_samples_would(
    width: int, calibration: Calibration | None, classes: str
) -> None:
    """With balanced masses the number of samples changes nothing but their noise."""
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()

    def scores(sampling: Sampling) -> np.ndarray:
        head = RanPAC(width, sampling=sampling, calibration=calibration, mass="balanced", lambdas=(50.0,))
        return learn(head, base, new).class_scores(X)

    closed = scores(Sampling(40, classes, drawn=False))
    few, many = ((scores(Sampling(n, classes)) - closed).std() / closed.std() for n in (40, 8000))
    assert many < 0.3 * few
    assert many < 0.05


@pytest.mark.parametrize("width", SHAPES)
def test_all_classes_sampled_as_in_the_text(width: int) -> None:
    base, new, X = draw(BASE), draw(FIRST), queries()
    calibration = Calibration(beta=0.5)
    sampling = Sampling(per_class=25, classes="all")
    head = RanPAC(width, sampling=sampling, calibration=calibration, scoring="linear", lambdas=(50.0,))
    rows = sampled(base, base, None, per_class=25, seed=0) | sampled(new, base, calibration, per_class=25, seed=0)
    expected = ranpac_scores(rows, X, projection=projection(width, 0), lam=50.0, scoring="linear")
    np.testing.assert_allclose(learn(head, base, new).class_scores(X), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("width", [20, 300])
def test_the_linear_score_is_scikit_learns_ridge(width: int) -> None:
    base, X = draw(BASE), queries()
    head = RanPAC(width, scoring="linear", lambdas=(20.0,), random_state=1).fit(*flat(base))
    features, targets, counts = one_hot(base)
    W = projection(width, 1)
    ridge = Ridge(alpha=20.0, fit_intercept=False).fit(np.maximum(features @ W, 0), targets)
    expected = ridge.predict(np.maximum(X @ W, 0))
    np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-6, atol=1e-8)
    head.set_params(mass="balanced").fit(*flat(base))
    weights = N_BASE_ROWS / len(BASE) / counts
    ridge.fit(np.maximum(features @ W, 0), targets, sample_weight=weights)
    expected = ridge.predict(np.maximum(X @ W, 0))
    np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("mass", ["samples", "balanced"])
@pytest.mark.parametrize("width", [20, 300])
@pytest.mark.parametrize("seed", [0, 1])
def test_lambda_is_the_best_on_a_fifth_of_the_base_session(seed: int, width: int, mass: str) -> None:
    base = draw(BASE, seed=seed)
    head = RanPAC(width, mass=mass, random_state=seed).fit(*flat(base))
    features, targets, counts = one_hot(base)
    train, held_out = stratified_split(targets.argmax(axis=1), held_out=0.2, seed=seed)
    masses = N_BASE_ROWS / len(BASE) / counts if mass == "balanced" else np.ones(len(counts))
    H = np.maximum(features @ projection(width, seed), 0)
    assert head.lambda_ == best_lambda(H, targets, train, held_out, list(head.lambdas), masses)
    chosen = head.lambda_
    assert learn(head, draw(FIRST), draw(SECOND)).lambda_ == chosen, "fixed after the base session"


@pytest.mark.parametrize("mass", ["samples", "balanced"])
def test_lambda_is_chosen_again_on_the_base_session_alone_when_a_base_class_goes(mass: str) -> None:
    base, X = draw(BASE), queries()
    more = {20: 100 * draw({20: 30}, seed=1)[20]}  # came later, and would ask for a much larger λ
    kept = {label: rows for label, rows in base.items() if label != 40}
    head = learn(RanPAC(400, mass=mass), base, more).forget(40)
    never = learn(RanPAC(400, mass=mass), kept, more)
    assert head.lambda_ == never.lambda_ == RanPAC(400, mass=mass).fit(*flat(kept)).lambda_
    assert (
        head.lambda_
        < RanPAC(400, mass=mass).fit(*flat({**kept, 20: np.concatenate([kept[20], more[20]])})).lambda_
    )
    np.testing.assert_allclose(head.class_scores(X), never.class_scores(X), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("label", "sampling"), [(30, None), (77, None), (30, Sampling(per_class=40))])
def test_sums_are_folded_again_and_again(label: int, sampling: Sampling | None) -> None:
    """Each of these sessions brings more rows than there are random features, of a base or a new class."""
    base, X = draw(BASE), queries()
    more = [draw({label: 45}, seed=seed)[label] for seed in (1, 2)]
    head = learn(RanPAC(30, sampling=sampling, lambdas=(50.0,)), base, *({label: rows} for rows in more))
    rows = base | {label: np.concatenate([base.get(label, more[0][:0]), *more])}
    expected = ranpac_scores(rows, X, projection=projection(30, 0), lam=50.0, scoring="cosine")
    np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-7, atol=1e-9)


def test_many_rows_are_added_in_parts() -> None:
    base = draw({0: 3000, 1: 2600, 2: 10}, n_features=16)
    X = queries()
    head = RanPAC(20, lambdas=(50.0,)).fit(*flat(base))
    expected = ranpac_scores(base, X, projection=projection(20, 0), lam=50.0, scoring="cosine")
    np.testing.assert_allclose(head.class_scores(X), expected, rtol=1e-7, atol=1e-9)


def test_balanced_sums_refuse_what_they_cannot_do_exactly() -> None:
    head = RanPAC(30, mass="balanced").fit(*flat(draw(BASE)))
    before = head.class_scores(queries())
    message = r"cannot add samples to 30: .*mass='balanced'.*; fit a new head .*, or raise n_projections"
    with pytest.raises(InputError, match=message):
        head.partial_fit(*flat(draw({30: 2})))
    with pytest.raises(
        InputError, match=r"cannot forget 30: .*; fit a new head without it, or raise n_projections"
    ):
        head.forget(30)
    np.testing.assert_array_equal(head.class_scores(queries()), before)


def test_balance_gives_every_class_the_same_say() -> None:
    """With the linear score, repeating the rows of one class must change nothing when the mass is balanced."""
    base, X = draw(BASE), queries()
    repeated = base | {50: np.tile(base[50], (9, 1))}
    balanced = [RanPAC(300, mass="balanced", scoring="linear", lambdas=(1e-6,)) for _ in range(2)]
    one, other = (head.fit(*flat(rows)).predict(X) for head, rows in zip(balanced, (base, repeated), strict=True))
    assert one.tolist() == other.tolist()


def test_the_random_state_decides_projection_and_samples() -> None:
    base, new, X = draw(BASE), draw(FIRST), queries()
    scores = [
        learn(RanPAC(52, sampling=Sampling(40), random_state=state), base, new).class_scores(X)
        for state in (0, 0, 1)
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2], atol=1e-3)


@pytest.mark.parametrize("sampling", [None, Sampling(per_class=40), Sampling(per_class=40, drawn=False)])
@pytest.mark.parametrize("width", SHAPES)
def test_when_it_is_asked_changes_nothing(width: int, sampling: Sampling | None) -> None:
    """The regression is solved on first use, by any copy, in any order."""
    sessions, X = [draw(BASE), draw(FIRST), draw(SECOND)], queries()
    asked, waiting = (RanPAC(width, sampling=sampling, lambdas=(50.0,)) for _ in range(2))
    expected, copies = [], []
    for session in sessions:
        expected.append(learn(asked, session).class_scores(X))
        copies.append(copy(learn(waiting, session)))
    assert all("weights" not in vars(one.scorer_.model) for one in copies)
    copies.append(pickle.loads(pickle.dumps(copies[2])))
    for place in (2, 0, 3, 1):  # the last first: the sums of all sessions are shared
        scores = expected[min(place, 2)]
        np.testing.assert_allclose(copies[place].class_scores(X), scores, rtol=1e-7, atol=1e-9)
