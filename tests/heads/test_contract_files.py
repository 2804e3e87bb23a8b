"""The contract suite, third part: a head that was saved and loaded is the same head; and devices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from cases import BASE, FIRST, SECOND, Case, draw, flat, learned, queries

from fiveshot.errors import InputError, StorageError
from fiveshot.heads import load_head, save_head


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_head_predicts_the_same_bits(case: Case, dtype: type, tmp_path: Path) -> None:
    X = queries(dtype=dtype)
    head = case.make()
    for session in (BASE, FIRST, {30: 2, 25: 2}):
        head.partial_fit(*flat(draw(session, dtype=dtype, seed=len(session))))
        save_head(head, tmp_path / "head.safetensors")
        back = load_head(tmp_path / "head.safetensors")
        assert type(back) is type(head)
        assert back.classes_.tolist() == head.classes_.tolist()
        assert back.base_classes_.tolist() == head.base_classes_.tolist()
        assert back.class_scores(X).dtype == dtype
        np.testing.assert_array_equal(back.class_scores(X), head.class_scores(X))
        np.testing.assert_array_equal(back.predict_proba(X), head.predict_proba(X))
        np.testing.assert_array_equal(back.predict(X), head.predict(X))
    assert [path.name for path in tmp_path.iterdir()] == ["head.safetensors"]


def test_a_loaded_head_goes_on_as_if_it_had_never_stopped(case: Case, tmp_path: Path) -> None:
    X = queries()
    head = learned(case, draw(BASE), draw(FIRST))
    save_head(head, tmp_path / "head")
    back = load_head(tmp_path / "head")
    for session in (SECOND, {25: 2}, {30: 3, 70: 2}):
        more = flat(draw(session, seed=8))
        head.partial_fit(*more)
        back.partial_fit(*more)
        np.testing.assert_allclose(back.class_scores(X), head.class_scores(X), rtol=1e-8, atol=1e-9)
    for label in (70, 10):
        try:
            head.forget(label)
        except InputError:
            with pytest.raises(InputError, match=f"cannot forget {label}"):
                back.forget(label)
        else:
            np.testing.assert_allclose(
                back.forget(label).class_scores(X), head.class_scores(X), rtol=1e-8, atol=1e-9
            )


def test_a_loaded_head_can_be_fitted_anew(case: Case, tmp_path: Path) -> None:
    save_head(learned(case, draw(BASE)), tmp_path / "head")
    other = draw({7: 9, 8: 9})
    again = load_head(tmp_path / "head").fit(*flat(other)).class_scores(queries())
    np.testing.assert_array_equal(again, learned(case, other).class_scores(queries()))


def test_string_labels_are_saved(case: Case, tmp_path: Path) -> None:
    (X, y), (more, late) = flat(draw(BASE)), flat(draw(FIRST))
    head = case.make().fit(X, y.astype(str)).partial_fit(more, late.astype(str))
    save_head(head, tmp_path / "head")
    assert load_head(tmp_path / "head").predict(queries()).tolist() == head.predict(queries()).tolist()


def test_a_truncated_file_is_refused(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "head"
    save_head(learned(case, draw(BASE), draw(FIRST)), path)
    whole = path.read_bytes()
    for share in (0.0, 0.01, 0.1, 0.5, 0.9, 0.999):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(StorageError, match="truncated"):
            load_head(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(StorageError, match="get a fresh copy of it"):
        load_head(path)


def test_a_failed_save_keeps_the_old_file(case: Case, tmp_path: Path) -> None:
    head = learned(case, draw(BASE))
    save_head(head, tmp_path / "head")
    old = (tmp_path / "head").read_bytes()
    head.set_params(temperature=float("nan"))  # no JSON value
    with pytest.raises((InputError, StorageError, ValueError)):
        save_head(head, tmp_path / "head")
    assert (tmp_path / "head").read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["head"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestCuda:
    def test_a_cuda_head_agrees_with_the_cpu(self, case: Case) -> None:
        head, reference = case.make_with_one_lambda(device="cuda"), case.make_with_one_lambda()
        X = queries(dtype=np.float32)
        for session in (BASE, FIRST, SECOND, {25: 2, 30: 3}):
            part = flat(draw(session, dtype=np.float32, seed=len(session)))
            head.partial_fit(*part)
            reference.partial_fit(*part)
            expected = reference.class_scores(X)
            np.testing.assert_allclose(
                head.class_scores(X), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max()
            )
        assert head.statistics_.means.device.type == "cuda"
        assert isinstance(head.class_scores(X), np.ndarray)

    def test_cuda_tensors_stay_on_their_device(self, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
        head = case.make_with_one_lambda()
        X, y = (torch.from_numpy(array).cuda() for array in flat(draw(BASE, dtype=np.float32)))
        test = torch.from_numpy(queries(dtype=np.float32)).cuda()
        moved: list[tuple[int, ...]] = []
        original = torch.Tensor.cpu

        def watched(tensor: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
            moved.append(tuple(tensor.shape))
            return original(tensor, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, "cpu", watched)
        head.fit(X, y)
        head.class_scores(test)
        assert head.statistics_.means.device.type == "cuda"
        assert tuple(X.shape) not in moved
        assert tuple(test.shape) not in moved

    def test_a_cuda_head_is_saved_and_loaded_anywhere(self, case: Case, tmp_path: Path) -> None:
        X = queries(dtype=np.float32)
        head = case.make_with_one_lambda(device="cuda").fit(*flat(draw(BASE, dtype=np.float32)))
        save_head(head, tmp_path / "head")
        np.testing.assert_array_equal(load_head(tmp_path / "head").class_scores(X), head.class_scores(X))
        expected = head.class_scores(X)
        on_cpu = load_head(tmp_path / "head", device="cpu")
        assert on_cpu.statistics_.means.device.type == "cpu"
        np.testing.assert_allclose(on_cpu.class_scores(X), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
