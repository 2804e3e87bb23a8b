"""BLAS and LAPACK come from SciPy, without the package around them, and from it where they lie elsewhere."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from fiveshot.core import arrays


def test_solving_imports_no_more_of_scipy_than_it_needs() -> None:
    code = (
        "import sys\n"
        "import numpy as np\n"
        "from fiveshot.core.arrays import cholesky_, solve_lower_\n"
        "factor = cholesky_(np.array([[4.0, 0.0], [2.0, 5.0]]))\n"
        "print(factor.tolist(), solve_lower_(factor, np.array([[2.0, 5.0]])).tolist())\n"
        "print({'scipy.linalg', 'numpy.f2py', 'numpy.testing'} & set(sys.modules))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[[2.0, 0.0], [1.0, 2.0]] [[1.0, 2.0]]\nset()\n"


@pytest.mark.parametrize("name", ["blas", "lapack"])
def test_another_layout_of_scipy_is_imported_as_a_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = arrays._library(name)
    monkeypatch.setattr(arrays, "EXTENSION_SUFFIXES", [])
    whole = arrays._library.__wrapped__(name)
    assert (quick.__name__, whole.__name__) == (f"fiveshot.core.arrays._f{name}", f"scipy.linalg.{name}")
    routine, given = ("strsm", (1.0, 2 * np.eye(3, dtype=np.float32), np.ones((3, 2), np.float32)))
    if name == "lapack":
        routine, given = "spotrf", (4 * np.eye(3, dtype=np.float32),)
    np.testing.assert_array_equal(
        np.asarray(getattr(quick, routine)(*given)[0]), np.asarray(getattr(whole, routine)(*given)[0])
    )
