from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from file_limits import no_file_may_grow_beyond
from numpy.typing import NDArray

from fiveshot.errors import InputError, StorageError
from fiveshot.features import FeatureSet, Provenance
from fiveshot.storage import read_tensors, write_tensors

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

MADE = Provenance("birds", "vit.ours", "ab12", {"size": (224, 224), "mean": [0.5]}, "cd34", "cls", "a note")


def make_set(dtype=np.float32, n_classes=4, per_class=6, d=5, names=True, shuffled=False) -> FeatureSet:
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(n_classes), per_class)
    if shuffled:
        y = rng.permutation(y)
    x = rng.standard_normal((len(y), d)).astype(dtype)
    image_names = tuple(f"class{label}/{row}.jpg" for row, label in enumerate(y)) if names else None
    class_names = tuple(f"class{label}" for label in range(n_classes))
    return FeatureSet(x, y, x[::2] + 1, y[::2], class_names, MADE, image_names, None)


def assert_same(a: FeatureSet, b: FeatureSet) -> None:
    for name in ("train_x", "train_y", "test_x", "test_y"):
        left, right = getattr(a, name), getattr(b, name)
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    for name in ("class_names", "provenance", "train_names", "test_names"):
        assert getattr(a, name) == getattr(b, name)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_file_gives_back_everything_as_stored(tmp_path, dtype):
    features = make_set(dtype)
    features.save(tmp_path / "f.safetensors")
    assert_same(FeatureSet.load(tmp_path / "f.safetensors"), features)
    stored = read_tensors(tmp_path / "f.safetensors", kind="features", version=1).tensors["train_x"]
    assert stored.dtype == dtype
    assert [file.name for file in tmp_path.iterdir()] == ["f.safetensors"]


def test_training_vectors_can_be_the_test_vectors(tmp_path):
    x, y = np.eye(3, dtype=np.float32), np.arange(3)
    FeatureSet(x, y, x, y, ("a", "b", "c"), MADE).save(tmp_path / "f")
    np.testing.assert_array_equal(FeatureSet.load(tmp_path / "f").test_x, x)


def test_arrays_that_cannot_be_written_to_or_are_strided_are_saved(tmp_path):
    features = make_set()
    strided = np.asfortranarray(features.train_x)
    strided.flags.writeable = False
    replace(features, train_x=strided).save(tmp_path / "f")
    assert_same(FeatureSet.load(tmp_path / "f"), features)


# File names are bytes on disk: what Python reads as lone surrogates must survive too.
file_names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.binary().map(
    lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
)


@settings(deadline=None)
@given(names=st.lists(file_names, min_size=1, max_size=6))
def test_any_image_names_survive(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("names") / "f"
    x, y = np.ones((len(names), 2), np.float16), np.zeros(len(names), int)
    FeatureSet(x, y, x[:0], y[:0], ("a",), MADE, tuple(names), ()).save(path)
    loaded = FeatureSet.load(path)
    assert loaded.train_names == tuple(names)
    assert loaded.test_names == ()


def _resident_bytes(path: Path) -> int:
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.endswith(str(path))]
    entries = (next(line for line in lines[number:] if line.startswith("Rss:")) for number in starts)
    return sum(int(entry.split()[1]) * 1024 for entry in entries)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's account of mapped memory")
def test_loading_maps_the_file_and_restrict_reads_only_its_rows(tmp_path):
    path, d = tmp_path / "big.safetensors", 512
    y = np.repeat(np.arange(32), 1024)
    x = np.ones((len(y), d), np.float16)  # 32 MiB
    names = tuple(f"class{label}" for label in range(32))
    FeatureSet(x, y, x[:32], np.arange(32), names, MADE).save(path)

    loaded = FeatureSet.load(path)
    assert loaded.train_x.nbytes == 32 * 2**20
    assert _resident_bytes(path) < 8 * 2**20
    part = loaded.restrict(["class7", "class8"])
    assert np.shares_memory(part.train_x, loaded.train_x)
    assert part.train_x.shape == (2048, d)
    assert _resident_bytes(path) < 16 * 2**20

    loaded.train_x[:] = 5  # whatever a caller does to the mapped arrays, the file stays
    assert (FeatureSet.load(path).train_x == 1).all()


@settings(deadline=None)
@given(
    chosen=st.lists(st.integers(0, 4), min_size=1, unique=True),
    shuffled=st.booleans(),
)
def test_restrict_keeps_the_rows_of_the_classes_in_the_order_given(chosen, shuffled):
    features = make_set(n_classes=5, shuffled=shuffled)
    part = features.restrict([f"class{label}" for label in chosen])
    rows = [row for row, label in enumerate(features.train_y) if label in chosen]
    np.testing.assert_array_equal(part.train_x, features.train_x[rows])
    assert [part.class_names[label] for label in part.train_y] == [f"class{features.train_y[r]}" for r in rows]
    assert part.train_names == tuple(features.train_names[row] for row in rows)
    test_rows = [row for row, label in enumerate(features.test_y) if label in chosen]
    np.testing.assert_array_equal(part.test_x, features.test_x[test_rows])
    assert part.class_names == tuple(f"class{label}" for label in chosen)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["class9"], "no class 'class9'; did you mean"),
        (["class1", "class1"], "class names given more than once: class1"),
        ([], "no training vectors"),
        ("class1", "takes a list of class names, not the text 'class1'"),
    ],
)
def test_restrict_refuses(names, message):
    with pytest.raises(InputError, match=message):
        make_set().restrict(names)


def _with(array, row, value):
    changed = array.copy()
    changed[row] = value
    return changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: {"train_x": _with(f.train_x, 7, np.nan)}, "train_x holds NaN or infinity, first in row 7"),
        (lambda f: {"test_x": _with(f.test_x, 2, np.inf)}, "test_x holds NaN or infinity, first in row 2"),
        (lambda f: {"train_x": f.train_x[0]}, r"train_x must be a matrix .* not float32 of shape \(5,\)"),
        (lambda f: {"train_x": f.train_x.astype(int)}, "train_x must be a matrix of float16, .* not int64"),
        (lambda f: {"train_x": f.train_x.tolist()}, "train_x must be a matrix .* not list"),
        (lambda f: {"test_x": f.test_x[:, :3]}, "training vectors have 5 values, test vectors 3"),
        (lambda f: {"train_y": f.train_y[:-1]}, "train: 24 vectors but 23 labels"),
        (lambda f: {"train_y": f.train_y.astype(float)}, "train_y must be a vector of integers"),
        (lambda f: {"train_y": _with(f.train_y, 0, -1)}, "train_y holds the label -1; .* 4 class names"),
        (lambda f: {"test_y": _with(f.test_y, 0, 4)}, "test_y holds the label 4; .* 4 class names"),
        (lambda f: {"train_names": ("a",)}, "train: 24 vectors but 1 names"),
        (lambda f: {"class_names": ("a", "a", "b", "c")}, "class names given more than once: a"),
        (lambda f: {"class_names": ("", "a", "b", "c")}, "none of them empty"),
        (lambda f: {"train_y": np.where(f.train_y == 2, 1, f.train_y)}, "class2: test vectors but no training"),
    ],
)
def test_what_a_benchmark_could_not_run_on_is_refused(change, message):
    features = make_set()
    with pytest.raises(InputError, match=message):
        replace(features, **change(features))


def test_nan_is_found_beyond_the_first_block():
    x = np.zeros((10_000, 1), np.float32)
    x[9_999] = np.nan
    y = np.zeros(10_000, int)
    with pytest.raises(InputError, match="row 9999"):
        FeatureSet(x, y, x[:1], y[:1], ("a",), MADE)


def _tensors(features: FeatureSet) -> dict[str, NDArray[Any]]:
    return {n: getattr(features, n).copy() for n in ("train_x", "train_y", "test_x", "test_y")}


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda tensors, meta: tensors.pop("test_y"), "test_y"),
        (lambda tensors, meta: meta.pop("class_names"), "class_names"),
        (lambda tensors, meta: meta["provenance"].pop("readout"), r"missing entries \['readout'\]"),
        (lambda tensors, meta: tensors.update(train_y=tensors["train_y"] + 9), "train_y holds the label"),
        (lambda tensors, meta: tensors.update(train_x=tensors["train_x"].astype(int)), "train_x"),
        (lambda tensors, meta: tensors.update(extra=np.zeros(1)), r"unknown tensors \['extra'\]"),
    ],
)
def test_file_with_our_header_and_wrong_contents_is_refused(tmp_path, spoil, reason):
    features = make_set()
    tensors = _tensors(features)
    meta = {"class_names": list(features.class_names), "provenance": MADE.as_dict()}
    write_tensors(tmp_path / "good", tensors, kind="features", version=1, meta=meta)
    FeatureSet.load(tmp_path / "good")
    spoil(tensors, meta)
    write_tensors(tmp_path / "bad", tensors, kind="features", version=1, meta=meta)
    with pytest.raises(StorageError, match=f"bad is a fiveshot feature file with damaged contents .*{reason}"):
        FeatureSet.load(tmp_path / "bad")


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "f.safetensors"
    small = make_set()
    small.save(path)
    with no_file_may_grow_beyond(16_384), pytest.raises(StorageError, match="nothing was left behind"):
        make_set(d=5_000).save(path)
    assert [file.name for file in tmp_path.iterdir()] == ["f.safetensors"]
    assert_same(FeatureSet.load(path), small)


def test_a_compact_file_has_a_byte_for_each_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(40, 6)) * [1, 100, 0.01, 1, 1, 0] + [0, 0, 0, 50, -50, 7]).astype(np.float32)
    y = np.arange(40) % 2
    features = FeatureSet(x[:30], y[:30], x[30:], y[30:], ("wren", "rook"), Provenance.unknown("birds"))
    features.save(tmp_path / "compact", compact=True)
    features.save(tmp_path / "plain")
    found = FeatureSet.load(tmp_path / "compact")
    step = (x.max(axis=0) - x.min(axis=0)) / 255
    for stored, original in ((found.train_x, x[:30]), (found.test_x, x[30:])):
        assert (np.abs(stored - original) <= step / 2 + 2.0**-10 * np.abs(original) + 1e-6).all()
    assert found.train_x.dtype == np.float16
    assert (tmp_path / "compact").stat().st_size < (tmp_path / "plain").stat().st_size
