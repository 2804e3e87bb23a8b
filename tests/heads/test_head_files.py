"""Files of heads. That every head predicts the same bits after loading is in the contract suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import BASE, CASES, FIRST, SECOND, Case, draw, flat, learned, queries
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from fiveshot.core import Calibration
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.heads import NCM, FeCAM, RanPAC, Sampling, load_head, save_head
from fiveshot.storage import read_tensors, write_tensors


@pytest.mark.parametrize("n_features", [5, 7, 13, 33])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shots", [1, 4, 40])
def test_any_shape_scores_the_same_bits_after_loading(
    tmp_path: Path, n_features: int, dtype: type, shots: int
) -> None:
    """Rows, columns and alignments that a file may change; classes with more samples than features among them."""
    base = draw({1: 3, 2: 40, 3: 1}, n_features=n_features, dtype=dtype)
    new = draw({4: shots, 0: 2}, n_features=n_features, dtype=dtype)
    more = draw({2: 3, 4: 2}, seed=1, n_features=n_features, dtype=dtype)
    X = flat(draw({1: 9, 4: 9}, seed=2, n_features=n_features, dtype=dtype))[0]
    for kind in ("correlation", "rows", "none"):
        head = FeCAM(20.0, normalization=kind, calibration=Calibration())
        for session in (base, new, more):
            head.partial_fit(*flat(session))
        save_head(head, tmp_path / "head")
        np.testing.assert_array_equal(load_head(tmp_path / "head").class_scores(X), head.class_scores(X))


@pytest.mark.parametrize(
    "head",
    [
        NCM("euclidean", calibration=Calibration(alpha=0.3, beta=None, tau=2, prototypes="unit"), temperature=2.0),
        FeCAM(3.0, normalization="rows", normalize=False),
        RanPAC(
            12, sampling=Sampling(9, "all"), scoring="linear", mass="balanced", lambdas=(1, 2.5), random_state=9
        ),
        RanPAC(np.int64(12), lambdas=np.logspace(-1, 2, 4), random_state=np.int64(3)),
        RanPAC(12, lambdas=[1.0, 10.0], sampling=Sampling(np.int64(9))),
        FeCAM(np.float32(4.0), temperature=np.float64(0.5)),
    ],
    ids=repr,
)
def test_parameters_come_back(tmp_path: Path, head: Any) -> None:
    head.fit(*flat(draw(BASE)))
    save_head(head, tmp_path / "head")
    back = load_head(tmp_path / "head")
    assert type(back) is type(head)
    mine, theirs = head.get_params(deep=False), back.get_params(deep=False)
    for parameter, value in mine.items():
        if parameter == "lambdas":
            assert list(theirs[parameter]) == list(value)
        elif parameter == "device":
            assert str(theirs[parameter]) == str(value)
        else:
            assert theirs[parameter] == value
    assert back.n_features_in_ == head.n_features_in_


def test_labels_come_back_with_their_type(tmp_path: Path) -> None:
    X = queries(4)
    for labels in ([3, -7, 2**40, 0], ["wren", "Ωwl", "", "with space"]):
        head = NCM().fit(X, labels)
        save_head(head, tmp_path / "head")
        back = load_head(tmp_path / "head")
        assert back.classes_.dtype.kind == head.classes_.dtype.kind
        assert back.predict(X).tolist() == labels


def test_the_file_holds_tensors_and_json_only(tmp_path: Path) -> None:
    save_head(learned(Case("c-ranpac", "paper", 30), draw(BASE), draw(FIRST)), tmp_path / "head")
    with safe_open(tmp_path / "head", framework="numpy") as file:
        header = json.loads(file.metadata()["fiveshot"])
    assert header["kind"] == "head"
    assert isinstance(header["version"], int)
    assert header["meta"]["scorer"] == "RanPACScorer"


@pytest.mark.parametrize(
    "case", [CASES[0], CASES[6], Case("c-ranpac", "paper", 30), Case("ranpac", "paper", 400)], ids=str
)
def test_saving_what_was_loaded_gives_the_same_file(tmp_path: Path, case: Case) -> None:
    save_head(learned(case, draw(BASE), draw(FIRST)), tmp_path / "one")
    save_head(load_head(tmp_path / "one"), tmp_path / "two")
    one, two = load_file(tmp_path / "one"), load_file(tmp_path / "two")
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_saving_over_the_file_it_came_from(tmp_path: Path) -> None:
    head = learned(Case("ranpac", "paper", 30), draw(BASE))
    save_head(head, tmp_path / "head")
    back = load_head(tmp_path / "head").partial_fit(*flat(draw(SECOND)))
    save_head(back, tmp_path / "head")
    expected = back.class_scores(queries())
    np.testing.assert_array_equal(load_head(tmp_path / "head").class_scores(queries()), expected)


def test_all_classes_seen_once(tmp_path: Path) -> None:
    for case in (Case("c-fecam", "paper"), Case("c-ranpac", "published", 30)):
        head = learned(case, draw(dict.fromkeys(BASE, 1)), draw({60: 1}))
        save_head(head, tmp_path / "head")
        np.testing.assert_array_equal(
            load_head(tmp_path / "head").class_scores(queries()), head.class_scores(queries())
        )


def test_a_device_comes_back(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    save_head(NCM(device=torch.device("cpu")).fit(*flat(draw(BASE))), tmp_path / "head")
    assert str(load_head(tmp_path / "head").device) == "cpu"


def test_an_unfitted_head_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="NCM has learned nothing yet; fit it before saving"):
        save_head(NCM(), tmp_path / "head")
    assert list(tmp_path.iterdir()) == []


def test_a_head_from_a_cuda_machine_says_how_to_load_it_here(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    if torch.cuda.is_available():
        pytest.skip("needs a machine without CUDA")
    head = NCM().fit(*flat(draw(BASE)))
    head.scorer_.device = "cuda:0"
    save_head(head, tmp_path / "head")
    with pytest.raises(FiveshotError, match=r"cuda:0.*device=\"cpu\""):
        load_head(tmp_path / "head")
    np.testing.assert_array_equal(
        load_head(tmp_path / "head", device="cpu").predict(queries()),
        head.predict(queries()),
    )


def damage(path: Path, **changes: Any) -> None:
    """Rewrite a head file with other metadata, tensors left out, or another kind or version."""
    file = read_tensors(path, kind="head", version=2)
    tensors = {
        name: tensor.copy() for name, tensor in file.tensors.items() if name not in changes.get("without", ())
    }
    meta = file.meta | changes.get("meta", {})
    write_tensors(path, tensors, kind=changes.get("kind", "head"), version=changes.get("version", 2), meta=meta)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 99}, "format version 99, this release reads up to 2; upgrade with: pip install"),
        ({"kind": "adapter"}, "is a fiveshot adapter file, not a head file"),
        (
            {"meta": {"scorer": "Oracle"}},
            "does not hold a complete head .*'Oracle' is not one; name the file .* --plugin .* get a fresh copy",
        ),
        ({"meta": {"parameters": {"gamma": -1, "wings": 2}}}, "does not hold a complete head"),
        ({"meta": {"labels": {"base": [1, 2], "new": []}}}, "2 labels"),
        ({"meta": {"labels": {}}}, "does not hold a complete head"),
        ({"without": ("base.means",)}, "does not hold a complete head .*base.means"),
        ({"without": ("weights",)}, "does not hold a complete head .*weights"),
        ({"without": ("projection",)}, "does not hold a complete head .*projection"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    save_head(learned(Case("ranpac", "paper", 400), draw(BASE)), tmp_path / "head")
    damage(tmp_path / "head", **changes)
    with pytest.raises(StorageError, match=message) as caught:
        load_head(tmp_path / "head")
    assert str(tmp_path / "head") in str(caught.value), "the file is named"


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    save_file({"weight": np.zeros(3)}, tmp_path / "other")
    with pytest.raises(StorageError, match="holds no fiveshot head: it was written by another program"):
        load_head(tmp_path / "other")
