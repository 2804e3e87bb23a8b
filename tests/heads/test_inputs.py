"""What may be given to a head, and what becomes of it; what may not be given is in test_bad_input.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cases import BASE, FIRST, Case, draw, flat, queries
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fiveshot.heads import NCM, FeCAM, RanPAC

ROWS = [[1.0, 2.0], [3.0, 4.5]]


def checked(X: Any) -> Any:
    """Return features as a head passes them on."""
    return NCM().validated_session(X, ["owl"] * len(X))[0]


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (ROWS, np.float64),
        (np.array(ROWS), np.float64),
        (np.array(ROWS, dtype=np.float32), np.float32),
        (np.array(ROWS, dtype=np.float16), np.float32),
        (np.array(ROWS).astype(object), np.float64),
        (np.array(ROWS)[::-1], np.float64),
        (np.asfortranarray(ROWS), np.float64),
    ],
)
def test_features_become_a_float_matrix(given: object, dtype: object) -> None:
    features = checked(given)
    assert features.dtype == dtype
    assert isinstance(features, np.ndarray)
    expected = ROWS[::-1] if isinstance(given, np.ndarray) and given.strides[0] < 0 else ROWS
    assert features.tolist() == expected


@pytest.mark.parametrize(
    ("given", "kept"),
    [("float32", "float32"), ("float64", "float64"), ("float16", "float32"), ("bfloat16", "float32")],
)
def test_tensors_stay_tensors(given: str, kept: str) -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    rows = torch.tensor(ROWS, dtype=getattr(torch, given), requires_grad=True)
    features = checked(rows)
    assert isinstance(features, torch.Tensor)
    assert features.dtype == getattr(torch, kept)
    assert not features.requires_grad
    assert features.tolist() == ROWS


def test_whole_numbers_become_floats() -> None:
    assert checked(np.array([[1, 2]])).dtype == np.float64
    assert checked([[1, 2]]).dtype == np.float64


def test_a_read_only_array_is_accepted_without_a_warning() -> None:
    X = np.array(ROWS)
    X.flags.writeable = False
    assert checked(X).tolist() == ROWS


def test_the_number_of_features_is_learned_once() -> None:
    head = NCM().fit(np.ones((1, 5)), ["owl"])
    assert head.n_features_in_ == 5
    assert head.partial_fit(np.ones((2, 5)), ["wren", "wren"]).n_features_in_ == 5


def test_labels_of_all_kinds_fit_a_session() -> None:
    for y in ([4, 4], (4, 4), np.array([4, 4]), np.array([4.0, 4.0])):
        _, labels = NCM().validated_session(ROWS, y)
        assert labels.tolist() == [4, 4]
        assert labels.dtype == np.int64


def test_announced_classes_are_optional_and_may_be_given_in_any_order() -> None:
    X, y = flat(draw(BASE))
    head = NCM().partial_fit(X, y, classes=sorted(BASE, reverse=True))
    plain = NCM().partial_fit(X, y)
    assert head.classes_.tolist() == plain.classes_.tolist() == sorted(BASE)


@pytest.mark.parametrize("kind", [NCM, FeCAM, lambda: RanPAC(40)])
def test_double_precision_is_computed_in_double(kind: type) -> None:
    X, y = flat(draw(BASE))
    double, single = kind().fit(X, y), kind().fit(X.astype(np.float32), y)
    assert double.class_scores(queries()).dtype == np.float64
    assert single.class_scores(queries()).dtype == np.float32
    assert double.statistics_.means.dtype == np.float64
    assert double.predict_proba(queries()).dtype == np.float64


@pytest.mark.parametrize("kind", [NCM, FeCAM, lambda: RanPAC(40)])
def test_the_base_session_decides_the_precision(kind: type) -> None:
    base, first, X = draw(BASE), draw(FIRST), queries()
    head = kind().fit(*flat(base))
    expected = kind().fit(*flat(base))
    head.partial_fit(flat(first)[0].astype(np.float32), flat(first)[1])
    expected.partial_fit(flat(first)[0].astype(np.float32).astype(np.float64), flat(first)[1])
    np.testing.assert_array_equal(head.class_scores(X), expected.class_scores(X))
    assert head.class_scores(X.astype(np.float32)).dtype == np.float64


def test_a_pipeline_passes_its_features_on(case: Case) -> None:
    X, y = flat(draw(BASE))
    scaler = StandardScaler().fit(X)
    pipeline = make_pipeline(StandardScaler(), case.make()).fit(X, y)
    alone = case.make().fit(scaler.transform(X), y)
    np.testing.assert_array_equal(pipeline.predict(queries()), alone.predict(scaler.transform(queries())))
    assert pipeline.score(X, y) > 0.5
