"""The contract suite, fourth part: a head on a CUDA device is the head on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, Case, draw, flat, queries

from fiveshot.core import SummedGaussian
from fiveshot.core.scorers import ScoreTable
from fiveshot.errors import InputError
from fiveshot.features import embedded_features
from fiveshot.heads import load_head, make_head, save_head

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
SESSIONS = (BASE, FIRST, SECOND, {25: 2, 30: 3})


def close(found: np.ndarray, expected: np.ndarray) -> None:
    tolerance = 1e-4 if expected.dtype == np.float32 else 1e-8
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale)


def as_close(found: np.ndarray, expected: np.ndarray, exact: np.ndarray) -> None:
    """Compare scores with those of the CPU, which themselves may err by more than the tolerance in float32."""
    if expected.dtype == np.float32 and np.abs(expected - exact).max() > 3e-5 * max(1.0, np.abs(exact).max()):
        assert np.abs(found - exact).max() <= 4 * np.abs(expected - exact).max()
    else:
        close(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_cuda_head_agrees_with_the_cpu(case: Case, dtype: type) -> None:
    head, reference, exact = case.make_with_one_lambda(device="cuda"), *(case.make_with_one_lambda() for _ in "12")
    X = queries(dtype=dtype)
    table = None
    for session in SESSIONS:
        rows, labels = flat(draw(session, dtype=dtype, seed=len(session)))
        head.partial_fit(rows, labels)
        reference.partial_fit(torch.from_numpy(rows), labels)  # random numbers of torch, as on the device
        exact.partial_fit(torch.from_numpy(rows).double(), labels)
        table = table or ScoreTable(X)
        expected, in_double = reference.class_scores(X), exact.class_scores(X.astype(np.float64))
        as_close(head.class_scores(X), expected, in_double)
        as_close(table.scores(head.scorer_).cpu().numpy(), expected, in_double)
        close(head.predict_proba(X).sum(axis=1), np.ones(len(X), dtype=dtype))
    assert head.statistics_.means.device.type == "cuda"
    assert isinstance(head.class_scores(X), np.ndarray)
    try:
        reference.forget(25)
    except InputError:
        with pytest.raises(InputError, match="cannot forget 25"):
            head.forget(25)
    else:
        in_double = exact.forget(25).class_scores(X.astype(np.float64))
        as_close(head.forget(25).class_scores(X), reference.class_scores(X), in_double)


def test_lambda_is_chosen_alike(case: Case) -> None:
    if not case.ridge:
        pytest.skip("no λ")
    X, y = flat(draw(BASE))
    assert case.make(device="cuda").fit(X, y).lambda_ == case.make().fit(X, y).lambda_


def test_cuda_tensors_make_no_round_trip(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    if case.recipe == "knn":
        pytest.skip("scikit-learn computes on the CPU")
    X, y = (torch.from_numpy(array).cuda() for array in flat(draw(BASE, dtype=np.float32)))
    test = torch.from_numpy(queries(dtype=np.float32)).cuda()
    to_cpu: list[tuple[int, ...]] = []

    def watch(name: str) -> None:
        original = getattr(torch.Tensor, name)

        def watched(tensor: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
            result = original(tensor, *args, **kwargs)
            if tensor.is_cuda and not (isinstance(result, torch.Tensor) and result.is_cuda):
                to_cpu.append(tuple(tensor.shape))
            return result

        monkeypatch.setattr(torch.Tensor, name, watched)

    for name in ("cpu", "to", "tolist"):
        watch(name)
    head = case.make_with_one_lambda().fit(X, y)
    head.class_scores(test)
    assert head.statistics_.means.device.type == "cuda"
    assert not any(len(shape) == 2 and shape[1] == X.shape[1] for shape in to_cpu), "features left the device"
    assert (len(test), len(BASE)) in to_cpu, "scores are handed out as NumPy arrays"


def test_numpy_questions_to_a_head_that_learned_on_the_device(case: Case) -> None:
    X, y = flat(draw(BASE, dtype=np.float32))
    head = case.make_with_one_lambda().fit(torch.from_numpy(X).cuda(), torch.from_numpy(y).cuda())
    test = queries(dtype=np.float32)
    np.testing.assert_array_equal(head.class_scores(test), head.class_scores(torch.from_numpy(test).cuda()))
    assert head.partial_fit(*flat(draw(FIRST, dtype=np.float32))).statistics_.means.device.type == "cuda"


def test_a_cuda_head_is_saved_and_loaded_anywhere(case: Case, tmp_path: Path) -> None:
    X = queries(dtype=np.float32)
    head = case.make_with_one_lambda(device="cuda").fit(*flat(draw(BASE, dtype=np.float32)))
    save_head(head, tmp_path / "head")
    expected = head.class_scores(X)
    np.testing.assert_array_equal(load_head(tmp_path / "head").class_scores(X), expected)
    on_cpu = load_head(tmp_path / "head", device="cpu")
    assert isinstance(on_cpu.statistics_.means, np.ndarray)
    close(on_cpu.class_scores(X), expected)
    on_cpu.partial_fit(*flat(draw(FIRST, dtype=np.float32)))


@pytest.mark.parametrize("recipe", ["ranpac", "ranpac*", "c-ranpac"])
def test_ten_thousand_random_features_answer_as_numpy_does_in_double_precision(recipe: str) -> None:
    birds = embedded_features("cub200")
    head, oracle = (make_head(recipe, n_projections=10_000) for _ in range(2))
    for session, shots in ((range(100), None), (range(100, 110), 5)):
        rows = np.concatenate([np.flatnonzero(birds.train_y == label)[:shots] for label in session])
        X, y = birds.train_x[rows], birds.train_y[rows]
        head.partial_fit(torch.from_numpy(X).float().cuda(), y)
        oracle.partial_fit(X.astype(np.float64), y)
    test = birds.test_x[birds.test_y < 110]
    found = head.class_scores(torch.from_numpy(test).float().cuda())
    expected = oracle.class_scores(test.astype(np.float64))
    assert head.lambda_ == oracle.lambda_
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(axis=1), expected.argmax(axis=1))


@pytest.mark.parametrize("seed", range(8))
def test_the_factor_of_a_nearly_singular_covariance_is_finite(seed: int) -> None:
    """CUDA's Cholesky decomposition of such a matrix may say that it succeeded, and return NaN."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.normal(size=(320, 320)))[0]
    covariance = torch.from_numpy((axes * np.logspace(0, -9, 320) @ axes.T).astype(np.float32)).cuda()
    factor = SummedGaussian(torch.zeros(320).cuda(), covariance).factor.cpu().numpy()
    np.testing.assert_allclose(factor.T @ factor, covariance.cpu().numpy(), atol=1e-5)
