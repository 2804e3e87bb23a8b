"""One thread for each call of a numerical library, while others do the same: the process stays as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import threadpoolctl

from fiveshot.work import one_thread

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def of_a_new_thread() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return found[0]


def of_blas() -> set[int]:
    """Return the numbers of the pools that have one for the process: with OpenMP each thread has its own."""
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    return {pool["num_threads"] for pool in pools if pool["threading_layer"] != "openmp"}


class Other:
    """A thread that enters the block and leaves it on request."""

    def __init__(self, own: int | None = None) -> None:
        self.own = own  # its number of threads, where it is not that of the process
        self.inside, self.leave = threading.Event(), threading.Event()
        self.counts: list[int] = []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        self.inside.wait()

    def run(self) -> None:
        if self.own is not None:
            torch.set_num_threads(self.own)
        with one_thread():
            self.counts.append(torch.get_num_threads())
            self.inside.set()
            self.leave.wait()
        self.counts.append(torch.get_num_threads())

    def end(self) -> None:
        self.leave.set()
        self.thread.join()


def test_threads_that_overlap_leave_the_process_as_it_was() -> None:
    with one_thread():
        assert (torch.get_num_threads(), of_a_new_thread()) == (1, 1)
        other = Other()
    assert torch.get_num_threads() == 3
    assert of_a_new_thread() == 1, "the other is still inside"
    other.end()
    assert other.counts == [1, 3]
    assert (torch.get_num_threads(), of_a_new_thread()) == (3, 3)


def test_any_order_of_leaving() -> None:
    other = Other()
    with one_thread():
        other.end()
        assert (torch.get_num_threads(), of_a_new_thread()) == (1, 1)
        with one_thread():
            pass
        assert (torch.get_num_threads(), of_a_new_thread()) == (1, 1)
    assert (torch.get_num_threads(), of_a_new_thread()) == (3, 3)


def test_the_last_to_leave_has_its_own_number_again() -> None:
    with one_thread():
        other = Other(own=2)
    other.end()
    assert other.counts == [1, 2]
    assert (torch.get_num_threads(), of_a_new_thread()) == (3, 3)


def test_an_error_inside() -> None:
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert (torch.get_num_threads(), of_a_new_thread()) == (3, 3)


def test_the_pools_of_blas_have_one_thread_until_the_last_has_left() -> None:
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = of_blas()  # {2}, but for libraries that were built for one
        with one_thread():
            assert of_blas() == {1}
            other = Other()
        assert of_blas() == {1}, "the other is still inside"
        other.end()
        assert of_blas() == before


def test_a_library_that_is_imported_inside_is_limited_too() -> None:
    code = (
        "import sys\n"
        "import numpy as np\n"
        "import threadpoolctl\n"
        "from fiveshot.core.arrays import cholesky_\n"
        "from fiveshot.work import one_thread\n"
        "def counts():\n"
        "    pools = threadpoolctl.threadpool_info()\n"
        "    return sorted(pool['num_threads'] for pool in pools if pool['user_api'] == 'blas')\n"
        "before = counts()\n"
        "assert 'scipy.linalg' not in sys.modules\n"
        "with one_thread():\n"
        "    cholesky_(np.eye(3))\n"
        "    inside = counts()\n"
        "print(len(inside) > len(before), set(inside), set(before) == set(counts()))\n"
    )
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "True {1} True\n"


def test_importing_fiveshot_changes_no_environment_variable_and_loads_no_library() -> None:
    program = (
        "import os, sys; before = dict(os.environ)\n"
        "import fiveshot; print(before == os.environ, 'numpy' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"]
