"""Files of every recipe: what they hold comes back, and a bad one is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cases import BASE, FIRST, Case, draw, flat, learned, queries

from fiveshot.errors import InputError, StorageError
from fiveshot.heads import load_head, save_head


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loaded_head_predicts_the_same_bits(case: Case, dtype: type, tmp_path: Path) -> None:
    X, head = queries(dtype=dtype), case.make()
    for session in (BASE, FIRST, {30: 2, 25: 2}):
        head.partial_fit(*flat(draw(session, dtype=dtype, seed=len(session))))
        save_head(head, tmp_path / "head.safetensors")
        back = load_head(tmp_path / "head.safetensors")
        assert type(back) is type(head)
        assert back.base_classes_.tolist() == head.base_classes_.tolist()
        assert back.class_scores(X).dtype == dtype
        np.testing.assert_array_equal(back.class_scores(X), head.class_scores(X))
        np.testing.assert_array_equal(back.predict_proba(X), head.predict_proba(X))
    assert [path.name for path in tmp_path.iterdir()] == ["head.safetensors"]


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
    name = "offset" if case.recipe == "unbiased-lda" else "temperature"
    head.scorer_ = head.scorer_.reconfigured({name: float("nan")})  # no JSON value
    with pytest.raises((InputError, StorageError, ValueError)):
        save_head(head, tmp_path / "head")
    assert (tmp_path / "head").read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["head"]
