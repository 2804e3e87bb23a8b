"""BLAS and LAPACK come from SciPy, which is imported when something is first solved."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from libraries import made

from fiveshot.core.arrays import cholesky_, solve_lower_, solve_shifted, solve_upper_


def test_scipy_is_imported_with_the_first_solution() -> None:
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from fiveshot.core.arrays import cholesky_\n"
        "print('scipy.linalg' in sys.modules)\n"
        "print(cholesky_(np.array([[4.0, 0.0], [2.0, 5.0]])).tolist(), 'scipy.linalg' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n[[2.0, 0.0], [1.0, 2.0]] True\n"


def lower_triangle(width: int) -> np.ndarray:
    rng = np.random.default_rng(width)
    return np.tril(rng.normal(size=(width, width))) + width * np.eye(width)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [0, 1, 7])
def test_triangular_solutions_are_those_of_numpy(n: int, dtype: Any) -> None:
    lower, rows = lower_triangle(6), np.random.default_rng(1).normal(size=(n, 6))
    for given in (rows, rows.T.copy().T, np.repeat(rows, 2, axis=0)[::2]):
        for solve, matrix in ((solve_lower_, lower), (solve_upper_, lower.T)):
            found = np.asarray(solve(made(lower, dtype), made(given.copy(), dtype)))
            assert (found.dtype, found.shape) == (dtype, (n, 6))
            np.testing.assert_allclose(found, np.linalg.solve(matrix, rows.T).T, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_factor_is_that_of_numpy_and_none_where_there_is_none(dtype: Any) -> None:
    lower = lower_triangle(6)
    found = np.asarray(cholesky_(made(np.tril(lower @ lower.T), dtype)))
    np.testing.assert_allclose(found, np.linalg.cholesky(lower @ lower.T), rtol=1e-4, atol=1e-5)
    assert cholesky_(made(-np.eye(3), dtype)) is None


def test_a_part_of_a_larger_matrix_is_solved_and_left_as_it_was() -> None:
    lower, targets = lower_triangle(6), np.random.default_rng(2).normal(size=(2, 6))
    whole = np.full((9, 9), 7.0)
    whole[2:8, 1:7] = np.tril(lower @ lower.T)
    given = made(whole.copy())
    found = solve_shifted(given[2:8, 1:7], made(targets), 0.5)
    np.testing.assert_allclose(found, targets @ np.linalg.inv(lower @ lower.T + 0.5 * np.eye(6)), rtol=1e-9)
    left = np.asarray(given)
    np.testing.assert_array_equal(np.tril(left[2:8, 1:7]), np.tril(whole[2:8, 1:7]))
    left[2:8, 1:7] = whole[2:8, 1:7]
    np.testing.assert_array_equal(left, whole)
