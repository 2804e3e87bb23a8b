from __future__ import annotations

import numpy as np
import pytest

from fiveshot.core.labels import as_labels, python_label, python_labels, refuse_other_kind, same_kind
from fiveshot.errors import InputError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([3, -1, 3], [3, -1, 3]),
        ((0, 1), [0, 1]),
        (np.array([7, 8], dtype=np.uint8), [7, 8]),
        (np.array([2.0, -5.0]), [2, -5]),
        (np.array([1, 2], dtype=object), [1, 2]),
        (range(3), [0, 1, 2]),
        (np.array([[1], [2]])[:, 0], [1, 2]),
    ],
)
def test_integers_become_int64(given: object, expected: list[int]) -> None:
    labels = as_labels(given)
    assert labels.dtype == np.int64
    assert labels.tolist() == expected


def test_tensors_become_int64() -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    for dtype in (torch.int64, torch.int16):
        labels = as_labels(torch.tensor([4, 5], dtype=dtype))
        assert labels.dtype == np.int64
        assert labels.tolist() == [4, 5]


@pytest.mark.parametrize(
    "given",
    [
        ["wren", "owl", "Ωwl", ""],
        np.array(["wren", "owl", "Ωwl", ""]),
        np.array(["wren", "owl", "Ωwl", ""], dtype=object),
        np.array(["wren", "owl", "Ωwl", ""], dtype=np.dtypes.StringDType()),
        [np.str_("wren"), "owl", "Ωwl", ""],
    ],
)
def test_strings_stay_strings(given: object) -> None:
    labels = as_labels(given)
    assert labels.dtype.kind == "U"
    assert labels.tolist() == ["wren", "owl", "Ωwl", ""]


def test_a_numeral_is_not_a_number() -> None:
    assert as_labels(["1", "10", "2"]).tolist() == ["1", "10", "2"]


@pytest.mark.parametrize("given", [["owl", 1], (1, "owl"), np.array(["owl", 1.5], dtype=object), ["owl", None]])
def test_a_mixture_is_refused(given: object) -> None:
    with pytest.raises(InputError, match=r"labels mix types: 'owl' is a string, .* is not; use one type"):
        as_labels(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0.5, 1.0], "continuous value .*0.5.*; classes are named by strings or integers"),
        ([1.0, np.nan], "contains NaN or infinity; every sample needs a label"),
        ([1.0, np.inf], "contains NaN or infinity; every sample needs a label"),
        ([b"owl"], "labels must be strings, integers or booleans, got .S3; convert them with"),
        ([None, None], "labels must be strings, integers or booleans, got object; convert them with"),
        ([True, 2], "labels mix types: True is a boolean, 2 is not; use one type"),
        (np.array([0, np.True_], dtype=object), "labels mix types: .*True.* is a boolean, 0 is not; use one type"),
    ],
)
def test_other_labels_are_refused(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_labels(given)


@pytest.mark.parametrize(
    "given", [[True, False], np.array([True, False]), np.array([True, False], dtype=object), (np.True_, np.False_)]
)
def test_booleans_stay_booleans(given: object) -> None:
    labels = as_labels(given)
    assert (labels.dtype, labels.tolist()) == (np.bool_, [True, False])


@pytest.mark.parametrize("given", [np.zeros((2, 2), dtype=int), "owl", 3, [[1, 2], [3]]])
def test_labels_that_are_no_list_are_refused(given: object) -> None:
    with pytest.raises(InputError):
        as_labels(given)


@pytest.mark.parametrize("given", [np.array([2**63 + 5], dtype=np.uint64), np.array([1e20])])
def test_labels_beyond_int64_are_not_changed_silently(given: np.ndarray) -> None:
    with pytest.raises(InputError):
        as_labels(given)


def test_no_label_fits_every_kind() -> None:
    none, integers, strings = as_labels([]), as_labels([1]), as_labels(["a"])
    assert same_kind(none, integers)
    assert same_kind(strings, none)
    assert not same_kind(strings, integers)


def test_the_error_for_another_kind_shows_both() -> None:
    with pytest.raises(InputError, match=r"label 3 does not fit: .* strings \(for example 'owl'\); use one"):
        refuse_other_kind(as_labels(["owl"]), as_labels([3]))
    with pytest.raises(InputError, match=r"label 'owl' does not fit: .* integers \(for example 3\)"):
        refuse_other_kind(as_labels([3]), as_labels(["owl"]))


def test_plain_values_come_out() -> None:
    assert type(python_label(np.int64(3))) is int
    assert type(python_label(np.str_("a"))) is str
    assert python_label("a") == "a"
    assert [type(label) for label in python_labels(as_labels([1, 2]))] == [int, int]
