from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.features import OWN_SPLIT, Provenance, load_features, load_npz

hypothesis = pytest.importorskip("hypothesis", reason="hypothesis is not installed")
given, settings, st = hypothesis.given, hypothesis.settings, hypothesis.strategies

X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
Y = np.array([0, 0, 1, 1, 2, 2])


def write(path: Path, **changes) -> Path:
    arrays = {"train_x": X, "train_y": Y, "test_x": X[1::2] + 1, "test_y": Y[1::2], **changes}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", ">f8"])
def test_floats_keep_their_precision(tmp_path, dtype):
    x = X.astype(dtype)
    loaded = load_npz(write(tmp_path / "f.npz", train_x=x, test_x=x[:3]))
    np.testing.assert_array_equal(loaded.train_x, x)
    assert loaded.train_x.dtype == np.dtype(dtype).newbyteorder("=")
    loaded.save(tmp_path / "f.safetensors")
    np.testing.assert_array_equal(load_features(tmp_path / "f.safetensors").train_x, x)


@pytest.mark.parametrize(
    ("dtype", "becomes"), [("u1", "f4"), ("i2", "f4"), ("?", "f4"), ("i8", "f8"), (np.longdouble, "f8")]
)
def test_other_numbers_become_floats_without_loss(tmp_path, dtype, becomes):
    x = np.arange(18).reshape(6, 3).astype(dtype)
    loaded = load_npz(write(tmp_path / "f.npz", train_x=x, test_x=x[1::2]))
    assert loaded.train_x.dtype == becomes
    np.testing.assert_array_equal(loaded.train_x, x.astype(float))


@pytest.mark.parametrize(
    ("train_y", "class_names", "expected", "names"),
    [
        (Y, None, Y, ("0", "1", "2")),
        (Y + 1, None, Y, ("1", "2", "3")),
        (-Y, None, 2 - Y, ("-2", "-1", "0")),
        ((Y * 50).astype(np.uint64), None, Y, ("0", "50", "100")),
        (np.array(["wren", "ani", "rook"])[Y], None, np.array([2, 0, 1])[Y], ("ani", "rook", "wren")),
        (np.array([b"wren", b"ani", b"rook"])[Y], None, np.array([2, 0, 1])[Y], ("ani", "rook", "wren")),
        (
            np.array(["wren", "ani", "rook"])[Y],
            ["wren", "rook", "ani"],
            np.array([0, 2, 1])[Y],
            ("wren", "rook", "ani"),
        ),
        (Y, ["a", "b", "c"], Y, ("a", "b", "c")),
        (Y, ["a", "b", "c", "unused"], Y, ("a", "b", "c", "unused")),
        (Y + 1, ["a", "b", "c"], Y, ("a", "b", "c")),
        (Y + 1, ["none", "a", "b", "c"], Y + 1, ("none", "a", "b", "c")),
    ],
)
def test_labels_of_any_kind_become_indices(tmp_path, train_y, class_names, expected, names):
    names_field = None if class_names is None else np.array(class_names)
    path = write(tmp_path / "f.npz", train_y=train_y, test_y=train_y[1::2], class_names=names_field)
    loaded = load_npz(path)
    np.testing.assert_array_equal(loaded.train_y, expected)
    np.testing.assert_array_equal(loaded.test_y, expected[1::2])
    assert loaded.train_y.dtype == np.int64
    assert loaded.class_names == names


def test_signed_and_unsigned_labels_meet(tmp_path):
    loaded = load_npz(write(tmp_path / "f.npz", train_y=Y.astype(np.int64), test_y=Y[1::2].astype(np.uint64)))
    assert loaded.class_names == ("0", "1", "2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train_y": None, "test_y": None},
            "has no train_y, test_y .it has test_x, train_x.; an .npz of features holds",
        ),
        ({"train_y": Y.astype(float)}, r"train_y must hold integers or texts, not float64; .*astype\(int\)"),
        ({"train_y": np.array(["a", "b", "c"])[Y]}, "train_y holds <U1 and test_y int64"),
        ({"class_names": np.array(["a", "b"])}, r"labels from 0 to 2 \(3 distinct\) do not fit 2 class_names"),
        ({"train_y": np.where(Y == 2, 1, Y)}, "2: test vectors but no training vectors"),
        ({"train_x": X.astype(complex)}, "train_x must hold real numbers, not complex128"),
        ({"train_x": X[:, :2]}, "training vectors have 2 values, test vectors 3"),
        ({"train_x": X * np.nan}, "train_x holds NaN"),
        ({"train_y": Y[:, None], "test_y": Y[1::2][:, None]}, "train_y must be a vector"),
        ({"train_y": np.full(6, 2**64 - 1, np.uint64)}, "more than 64 signed bits"),
        ({"train_y": np.full(6, b"\xff"), "test_y": np.full(3, b"\xff")}, "can't decode byte"),
        ({"class_names": np.zeros((2, 2))}, "class_names must be a vector of texts"),
        ({"train_names": np.array(["only one"])}, "train: 6 vectors but 1 names"),
    ],
)
def test_unusable_fields_are_named(tmp_path, changes, message):
    path = write(tmp_path / "f.npz", **changes)
    with pytest.raises(InputError, match=message) as caught:
        load_npz(path)
    assert str(path) in str(caught.value)


def test_pickled_objects_are_never_loaded(tmp_path):
    path = write(tmp_path / "f.npz", train_y=np.array(["a", "b", "c"], dtype=object)[Y])
    with pytest.raises(InputError, match=r"pickled Python objects, .* numpy.array\(labels, dtype=str\)"):
        load_features(path)


def test_format_is_told_by_content_not_by_name(tmp_path):
    write(tmp_path / "f.npz").rename(tmp_path / "really.safetensors")
    from_npz = load_features(tmp_path / "really.safetensors")
    from_npz.save(tmp_path / "ours.safetensors")
    (tmp_path / "ours.safetensors").rename(tmp_path / "really.npz")
    from_ours = load_features(tmp_path / "really.npz")
    np.testing.assert_array_equal(from_ours.train_x, X)
    assert from_npz.provenance.backbone == "unknown"
    assert "really.safetensors" in from_npz.provenance.note


def _npy() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, X)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b"label,x1,x2\n0,1,2\n", "is not a feature file: it is neither safetensors nor .npz"),
        (_npy(), "holds one array; save train_x, train_y, test_x, test_y with numpy.savez"),
        (b"\x93NUMPY", "holds one array"),
        (b"PK\x03\x04" + bytes(200), "truncated or damaged"),
        ((1000).to_bytes(8, "little") + b'{"x":', "truncated"),
    ],
)
def test_foreign_and_cut_files_are_refused(tmp_path, data, message):
    path = tmp_path / "features.bin"
    path.write_bytes(data)
    with pytest.raises(FiveshotError, match=message):
        load_features(path)


def test_folder_and_missing_file_are_refused(tmp_path):
    with pytest.raises(StorageError, match="is a folder without Parquet files; give a feature file"):
        load_features(tmp_path)
    with pytest.raises(StorageError, match="no such file"):
        load_npz(tmp_path / "none.npz")


@pytest.fixture(scope="module")
def whole_files(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole")
    write(folder / "f.npz")
    np.savez_compressed(folder / "c.npz", train_x=X, train_y=Y, test_x=X, test_y=Y)
    load_npz(folder / "f.npz").save(folder / "f.safetensors")
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@settings(max_examples=150, deadline=None)
@given(data=st.data(), name=st.sampled_from(["f.npz", "c.npz", "f.safetensors"]))
def test_damaged_bytes_never_cause_anything_but_our_errors(tmp_path_factory, whole_files, data, name):
    whole = whole_files[name]
    cut = data.draw(st.integers(0, len(whole)))
    start = data.draw(st.integers(0, len(whole) - 1))
    noise = data.draw(st.binary(max_size=8))
    path = tmp_path_factory.getbasetemp() / f"damaged-{name}"
    path.unlink(missing_ok=True)
    path.write_bytes((whole[:start] + noise + whole[start + len(noise) :])[: max(cut, len(whole) // 2)])
    try:
        message = repr(load_features(path).class_names)
    except FiveshotError as error:
        message = str(error)
    assert str(path) in message or message.startswith("(")


def test_what_was_read_is_written_the_same_each_time_and_says_where_it_comes_from(tmp_path):
    made = Provenance("birds", "vit", "ab12", {"crop": 224})
    path = write(tmp_path / "f.npz", train_names=np.array([f"{row}.jpg" for row in range(6)]))
    for name in ("1", "2"):
        replace(load_npz(path, made), test_names=("x.jpg", "y.jpg", "z.jpg")).save(tmp_path / name)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()
    first = load_features(tmp_path / "1")
    assert first.provenance == made
    assert first.train_names == tuple(f"{row}.jpg" for row in range(6))
    assert first.test_names == ("x.jpg", "y.jpg", "z.jpg")
    np.testing.assert_array_equal(first.train_x, X)


def test_samples_without_a_split_get_one(tmp_path):
    labels = np.repeat(["ani", "rook", "wren"], [2, 10, 25])
    x = np.arange(2 * len(labels), dtype=np.float32).reshape(-1, 2)  # each row is another one
    np.savez(tmp_path / "birds.npz", X=x, y=labels)
    loaded = load_npz(tmp_path / "birds.npz")
    assert np.bincount(loaded.test_y).tolist() == [1, 2, 5]
    assert np.bincount(loaded.train_y).tolist() == [1, 8, 20]
    rows = np.concatenate([loaded.train_x, loaded.test_x])[:, 0].astype(int) // 2
    assert sorted(rows) == list(range(len(labels)))
    names = np.array(loaded.class_names)[np.concatenate([loaded.train_y, loaded.test_y])]
    np.testing.assert_array_equal(names, labels[rows])
    assert loaded.provenance.note == f"read from birds.npz; {OWN_SPLIT}"
    np.testing.assert_array_equal(load_npz(tmp_path / "birds.npz").test_x, loaded.test_x)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": X, "y": Y[:5]}, r"X of shape \(6, 3\) does not fit y of shape \(5,\)"),
        ({"X": X, "y": np.array([0, 0, 1, 1, 1, 2])}, "one sample of 2, so none can be held out"),
        ({"X": X[:0], "y": Y[:0]}, "there are no samples"),
        ({"X": X[:, :0], "y": Y}, "vectors without numbers"),
        (
            {"X": np.where(np.arange(18).reshape(6, 3) == 14, np.nan, X), "y": Y},
            "X holds NaN or infinity, first in row 4",
        ),
        ({"X": X}, "has no train_x, .* or X and y alone"),
        ({"X": X, "y": Y, "train_x": X}, "has no train_y, test_x, test_y"),
    ],
)
def test_samples_that_cannot_be_split(tmp_path, arrays, message):
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(InputError, match=message):
        load_npz(tmp_path / "f.npz")
