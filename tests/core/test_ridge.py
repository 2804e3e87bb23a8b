from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from libraries import made, same
from oracles import best_lambda as brute_force
from oracles import ridge_weights
from sklearn.linear_model import Ridge

from fiveshot.core import arrays, ridge
from fiveshot.core.arrays import add_gram_, lower_norm, row_gram
from fiveshot.core.draws import RandomFeatures
from fiveshot.core.ridge import GramSums, RowBlock, best_lambda, dual_weights, given, solve_ridge
from fiveshot.errors import InputError


def problem(n: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return np.maximum(rng.normal(size=(n, width)), 0), np.eye(4)[rng.integers(0, 4, n)]


def rectified(values: Any) -> Any:
    return values * (values > 0)


def lower_gram(H: np.ndarray, dtype: Any = np.float64) -> Any:
    """Return the Gram matrix with a useless upper triangle, as it stands after symmetric updates."""
    gram = np.tril(H.T @ H)
    return made(gram + np.triu(np.full_like(gram, 7e7), 1), dtype)


@pytest.mark.parametrize(("n", "width"), [(50, 12), (12, 12), (5, 12), (200, 60)])
@pytest.mark.parametrize("lam", [0.1, 100.0])
def test_the_primal_form_is_the_formula_and_scikit_learns(n: int, width: int, lam: float) -> None:
    H, Y = problem(n, width)
    found = np.asarray(solve_ridge(lower_gram(H), made(Y.T @ H), lam))
    np.testing.assert_allclose(found, ridge_weights(H, Y, lam).T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, Ridge(alpha=lam, fit_intercept=False).fit(H, Y).coef_, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("n", "width"), [(5, 12), (11, 12), (30, 200)])
@pytest.mark.parametrize("lam", [0.1, 100.0])
def test_the_dual_form_is_the_same_matrix(n: int, width: int, lam: float) -> None:
    H, Y = problem(n, width)
    found = np.asarray(dual_weights(made(H), made(Y), lam))
    np.testing.assert_allclose(found, ridge_weights(H, Y, lam).T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found, Ridge(alpha=lam, fit_intercept=False).fit(H, Y).coef_, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("tile", [4, 7, 1024])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solving_leaves_the_sums_as_they_were(tile: int, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "TILE", tile)
    H, Y = problem(40, 21)
    gram = lower_gram(H, dtype)
    targets = made(Y.T @ H, dtype)
    before, targets_before = np.tril(gram), made(targets)
    first = solve_ridge(gram, targets, 1.0)
    assert np.array_equal(np.tril(gram), before)
    assert same(targets, targets_before)
    assert same(solve_ridge(gram, targets, 1.0), first)
    tolerance = 1e-9 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(first, ridge_weights(H, Y, 1.0).T, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 9, 40])
def test_symmetric_updates_add_up_in_the_lower_triangle(n: int, dtype: Any) -> None:
    H, _ = problem(n, 13)
    rows = made(H, dtype)
    gram = made(np.full((13, 13), 2.0), dtype)
    kept = made(rows)
    add_gram_(gram, rows)
    add_gram_(gram, rows[: n // 2 + 1])
    expected = 2 + H.T @ H + H[: n // 2 + 1].T @ H[: n // 2 + 1]
    np.testing.assert_allclose(np.tril(gram), np.tril(expected), rtol=1e-5 if dtype == np.float32 else 1e-12)
    assert (np.triu(gram, 1) == np.triu(np.full((13, 13), 2.0), 1)).all(), "the upper one is left alone"
    assert same(rows, kept)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_between_rows_are_in_the_lower_triangle(dtype: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(7, 11)).astype(dtype)
    for ordered in (made(rows), made(rows.T.copy()).T):
        expected = np.tril(rows.astype(np.float64) @ rows.astype(np.float64).T)
        np.testing.assert_allclose(np.tril(row_gram(ordered)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("block", [4, 7, 1024])
def test_the_norm_of_a_symmetric_matrix_is_that_of_its_lower_triangle(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "BLOCK", block)
    H, _ = problem(40, 21)
    assert lower_norm(lower_gram(H)) == pytest.approx(np.linalg.norm(H.T @ H), rel=1e-12)


def test_rows_in_any_memory_order_are_added() -> None:
    H, _ = problem(9, 13)
    for rows in (made(H.T.copy()).T, made(np.repeat(H, 2, axis=0))[::2]):
        gram = made(np.zeros((13, 13)))
        add_gram_(gram, rows)
        np.testing.assert_allclose(np.tril(gram), np.tril(H.T @ H), atol=1e-12)


def test_a_part_of_a_larger_matrix_is_added_to_alone() -> None:
    H, _ = problem(9, 13)
    whole = made(np.full((20, 20), 2.0))
    add_gram_(whole[3:16, 4:17], made(H))
    expected = np.full((20, 20), 2.0)
    expected[3:16, 4:17] += np.tril(H.T @ H)
    np.testing.assert_allclose(np.asarray(whole), expected, rtol=1e-12)


def test_a_matrix_in_columns_is_added_to_as_well() -> None:
    H, _ = problem(9, 13)
    columns = made(np.full((13, 13), 2.0))
    add_gram_(columns.T, made(H))
    np.testing.assert_allclose(np.asarray(columns.T), 2 + np.tril(H.T @ H), rtol=1e-12)


COUNTS = (3, 1, 25, 10, 7, 31, 2)


def row_blocks() -> list[RowBlock]:
    rng = np.random.default_rng(1)
    return [
        RowBlock(f"class {number}", object(), count, 0.5 + number, given(made(rng.normal(size=(count, 4)))))
        for number, count in enumerate(COUNTS)
    ]


@pytest.mark.parametrize("at_once", [1, 8, 1600])
def test_sums_are_the_formula_however_many_rows_are_added_at_once(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ridge, "ROWS_AT_ONCE", at_once)
    W = np.random.default_rng(0).normal(size=(4, 11))
    sums, blocks = GramSums(made(np.zeros((11, 11))), {"class 2": made(np.ones(11))}), row_blocks()
    sums.add_(blocks, RandomFeatures(made(W)))
    mapped = [block.weight**0.5 * np.maximum(np.asarray(block.rows()) @ W, 0) for block in blocks]
    H = np.concatenate(mapped)
    np.testing.assert_allclose(np.tril(sums.gram), np.tril(H.T @ H), rtol=1e-12)
    for block, own in zip(blocks, mapped, strict=True):
        expected = block.weight**0.5 * own.sum(axis=0) + (block.label == "class 2")
        np.testing.assert_allclose(np.asarray(sums.targets[block.label]), expected, rtol=1e-12)
        assert sums.tokens[block.label] is block.token


def test_a_lambda_below_single_precision_is_solved_in_double() -> None:
    # Whole numbers, so the sums are exact in single precision; but there λ vanishes beside them, and without λ
    # the matrix is singular.
    H = np.random.default_rng(0).integers(500, 1000, size=(3, 6)).astype(float)
    Y = np.eye(3)
    found = solve_ridge(lower_gram(H, np.float32), made(Y.T @ H, np.float32), 1e-3)
    assert found.dtype == made([0], np.float32).dtype
    np.testing.assert_allclose(found, ridge_weights(H, Y, 1e-3).T, rtol=1e-4, atol=1e-6)


def test_a_singular_system_is_refused() -> None:
    gram = made(np.zeros((3, 3)))
    with pytest.raises(InputError, match="the ridge system is singular with lambda = 0; choose a larger one"):
        solve_ridge(gram, made(np.ones((2, 3))), 0.0)
    assert same(gram, made(np.zeros((3, 3))))


@pytest.mark.parametrize("n", [24, 90])  # below and above the width: dual and primal decomposition
def test_lambda_is_the_brute_force_choice(n: int) -> None:
    lambdas = [10.0**k for k in range(-1, 9)]
    chosen = set()
    for seed, scale in enumerate(np.logspace(-1.5, 3, 12)):
        rng = np.random.default_rng(seed)
        X, W = scale * rng.normal(size=(n, 6)), rng.normal(size=(6, 40))
        H = np.maximum(X @ W, 0)
        Y = np.eye(3)[(X[:, 0] + scale * rng.normal(size=n) > 0).astype(int) + (X[:, 1] > scale)]
        roots = rng.uniform(0.5, 2.0, size=(n, 1))
        order = rng.permutation(n)
        train, held_out = order[n // 5 :], order[: n // 5]
        found = best_lambda(
            made(X * roots),
            made(Y * roots),
            lambda part, W=W: rectified(part @ made(W)),
            train=train,
            held_out=held_out,
            lambdas=lambdas,
        )
        assert found == brute_force(H, Y, train, held_out, lambdas, roots[:, 0] ** 2)
        chosen.add(found)
    assert len(chosen) >= 7, "the choice would prove little if it were always the same"


def test_a_lambda_that_single_precision_cannot_resolve_is_passed_over() -> None:
    X, Y = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32) * 1e4, np.eye(2)[np.arange(30) % 2]
    largest = np.linalg.eigvalsh(np.maximum(X, 0).T.astype(float) @ np.maximum(X, 0))[-1]
    found = best_lambda(
        made(X),
        made(Y, np.float32),
        rectified,
        train=np.arange(24),
        held_out=np.arange(24, 30),
        lambdas=[1e-8, 1e-4, 1e12],
    )
    assert largest * np.finfo(np.float32).eps > 1e-4
    assert found == 1e12


def test_with_nothing_to_hold_out_the_middle_is_taken() -> None:
    one = made(np.ones((2, 3)))
    chosen = best_lambda(
        one,
        made(np.eye(2)),
        rectified,
        train=np.arange(2),
        held_out=np.empty(0, dtype=int),
        lambdas=(100.0, 1.0, 10.0),
    )
    assert chosen == 10.0
