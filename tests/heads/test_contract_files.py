"""The contract suite, third part: a head that was saved and loaded is the same head."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, Case, draw, flat, learned, queries

from fiveshot.errors import InputError, StorageError
from fiveshot.heads import FewShotHead, load_head, save_head


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


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda head: pickle.loads(pickle.dumps(head))])
def test_a_copy_goes_its_own_way(case: Case, copied: Callable[[FewShotHead], FewShotHead]) -> None:
    """What a session learns, and what a ridge head sums up in place meanwhile, stays out of other copies."""
    base, first, second, X = draw(BASE), draw(FIRST), draw(SECOND), queries()
    head = learned(case, base, first)
    before = head.class_scores(X)
    twin = copied(head).partial_fit(*flat(second))
    np.testing.assert_array_equal(head.class_scores(X), before)
    case.close(twin.class_scores(X), learned(case, base, first, second).class_scores(X))
    other = draw({70: 3})
    case.close(head.partial_fit(*flat(other)).class_scores(X), learned(case, base, first, other).class_scores(X))


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
    head.set_params(
        **{"offset" if case.recipe == "unbiased-lda" else "temperature": float("nan")}
    )  # no JSON value
    with pytest.raises((InputError, StorageError, ValueError)):
        save_head(head, tmp_path / "head")
    assert (tmp_path / "head").read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["head"]
