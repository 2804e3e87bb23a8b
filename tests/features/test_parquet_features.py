from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fiveshot.backbones import load_embedder
from fiveshot.benchmark import open_features
from fiveshot.data import open_images
from fiveshot.errors import InputError, StorageError
from fiveshot.features import (
    OWN_SPLIT,
    FeatureSet,
    Provenance,
    extract,
    load_features,
    save_features,
)

arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

X = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float16)
Y = np.array([0, 0, 1, 1, 2, 2])
MADE = Provenance("birds", "vit", "ab12", {"size": 224})
BIRDS = FeatureSet(X, Y, X[:3] + 1, Y[:3], ("wren", "rook", "ani"), MADE, tuple("abcdef"), tuple("xyz"))


def write(path: Path, columns: dict, names: list[str] | None = None) -> Path:
    """Write a table as Hugging Face's ``datasets`` does."""
    table = arrow.table(columns)
    if names:
        features = {"label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, path)
    return path


@pytest.mark.parametrize("form", ["safetensors", "npz", "parquet"])
def test_what_is_written_is_read(tmp_path: Path, form: str) -> None:
    save_features(BIRDS, tmp_path / f"birds.{form}")
    again = load_features(tmp_path / f"birds.{form}")
    for name in ("train_x", "train_y", "test_x", "test_y"):
        np.testing.assert_array_equal(getattr(again, name), getattr(BIRDS, name))
    assert (again.class_names, again.train_x.dtype) == (BIRDS.class_names, X.dtype)
    assert (again.provenance == MADE) == (form != "npz")
    assert (again.train_names, again.test_names) == (BIRDS.train_names, BIRDS.test_names)


@pytest.mark.parametrize("form", ["npz", "Parquet"])
def test_safetensors_never_get_the_name_of_another_form(tmp_path: Path, form: str) -> None:
    with pytest.raises(InputError, match=rf"then: fiveshot data convert birds.safetensors birds.{form}$"):
        BIRDS.save(tmp_path / f"birds.{form}")
    assert not list(tmp_path.iterdir())


def test_another_program_reads_what_was_written(tmp_path: Path) -> None:
    save_features(BIRDS, tmp_path / "birds.parquet")
    table = parquet.read_table(tmp_path / "birds.parquet")
    assert table["split"].to_pylist() == ["train"] * 6 + ["test"] * 3
    assert table["name"].to_pylist() == list("abcdefxyz")
    np.testing.assert_array_equal(np.array(table["embedding"].to_pylist()[:6], dtype=np.float16), X)
    about = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    assert about["label"] == {"names": ["wren", "rook", "ani"], "_type": "ClassLabel"}
    save_features(BIRDS, tmp_path / "birds.npz")
    with np.load(tmp_path / "birds.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["test_x"], X[:3] + 1)


def test_embeddings_of_a_dataset_have_the_names_of_its_schema(tmp_path: Path) -> None:
    columns = {"id": ["a"] * 6, "emb": X.astype(np.float32).tolist(), "label": Y}
    found = load_features(write(tmp_path / "all.parquet", columns, ["wren", "rook", "ani"]))
    assert found.class_names == ("wren", "rook", "ani")
    assert OWN_SPLIT in found.provenance.note
    assert (len(found.train_x), len(found.test_x)) == (3, 3)
    (tmp_path / "hub").mkdir()
    write(tmp_path / "hub" / "train-00000-of-00001.parquet", columns, ["wren", "rook", "ani"])
    write(tmp_path / "hub" / "test-00000-of-00001.parquet", {**columns, "label": Y[::-1]}, ["wren", "rook", "ani"])
    both = load_features(tmp_path / "hub")
    np.testing.assert_array_equal(both.train_x, X)
    np.testing.assert_array_equal(both.test_y, Y[::-1])


def test_a_changed_file_of_a_folder_is_read_again(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write(tmp_path / f"{split}.parquet", {"embedding": X.tolist(), "label": Y})
    assert open_features(str(tmp_path)).n_features == 3
    write(tmp_path / "train.parquet", {"embedding": X[:, :2].tolist(), "label": Y})
    write(tmp_path / "test.parquet", {"embedding": X[:, :2].tolist(), "label": Y})
    assert open_features(str(tmp_path)).n_features == 2


@pytest.mark.parametrize("names", [["rook", "wren", "ani"], None])
def test_files_whose_labels_mean_different_classes_are_refused(tmp_path: Path, names: list[str] | None) -> None:
    columns = {"embedding": X.tolist(), "label": Y}
    write(tmp_path / "train.parquet", columns, ["wren", "rook", "ani"])
    write(tmp_path / "test.parquet", columns, names)
    with pytest.raises(InputError, match=r"train.parquet has other columns or class names than test.parquet$"):
        load_features(tmp_path)


def test_labels_may_be_texts(tmp_path: Path) -> None:
    labels = ["wren", "wren", "rook", "rook", "ani", "ani"]
    found = load_features(write(tmp_path / "all.parquet", {"embedding": X.tolist(), "label": labels}))
    assert found.class_names == ("ani", "rook", "wren")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"embedding": X.tolist()}, "there are no labels"),
        ({"embedding": X.tolist(), "label": [0, 0, 1, 1, 2, None]}, "row 5 has no label"),
        ({"text": ["a"] * 6, "label": Y}, r"needs one column of vectors; there is none \(columns: text, label\)"),
        ({"one": X.tolist(), "two": X.tolist(), "label": Y}, "these 2 are such: one, two; leave the others out"),
        (
            {"embedding": X.tolist(), "label": [["a"], ["a", "b"]] * 3},
            "'label' must hold texts or integers, not list",
        ),
        ({"embedding": X.tolist(), "label": [0, 0, 1, 1, 2, np.nan]}, "must hold texts or integers, not double"),
        ({"embedding": X.tolist(), "label": Y, "split": ["train", "dev"] * 3}, "the split of row 1 is 'dev'"),
        ({"embedding": X.tolist(), "label": Y, "split": ["train", None] * 3}, "the split of row 1 is None"),
        (
            {"embedding": arrow.array([[]] * 6, arrow.list_(arrow.float32())), "label": Y},
            "vectors without numbers",
        ),
        ({"embedding": arrow.array([], arrow.list_(arrow.float32())), "label": Y[:0]}, "there are no rows"),
        ({"embedding": [[1.0], [1.0, 2.0]], "label": [0, 0]}, "different lengths: 1 to 2"),
        ({"embedding": [[1.0], None], "label": [0, 0]}, "some rows have no vector"),
        (
            {"embedding": [[1.0], [2.0], [np.nan]], "label": [0, 0, 0]},
            "embedding holds NaN or infinity, first in row 2",
        ),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, columns: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_features(write(tmp_path / "bad.parquet", columns))


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(StorageError, match=r"cannot read .*cut.parquet as Parquet"):
        load_features(tmp_path / "cut.parquet")
    with pytest.raises(InputError, match="indices into its 2 names"):
        load_features(write(tmp_path / "f.parquet", {"embedding": X.tolist(), "label": Y}, ["wren", "rook"]))
    with pytest.raises(InputError, match=r"cannot write features to .*birds.csv"):
        save_features(BIRDS, tmp_path / "birds.csv")
    assert not (tmp_path / "birds.csv").exists()


def test_images_of_a_dataset_are_extracted(tmp_path: Path) -> None:
    encoded = []
    for grey in (10, 20, 30, 200, 210, 220):
        buffer = io.BytesIO()
        Image.new("RGB", (64, 64), (grey, grey, grey)).save(buffer, "PNG")
        encoded.append({"bytes": buffer.getvalue(), "path": f"{grey}.png"})
    columns = {"image": encoded, "label": [1, 1, 1, 0, 0, 0], "split": ["train", "train", "test"] * 2}
    opened = open_images(write(tmp_path / "skies.parquet", columns, ["day", "night"]), seed=0)
    assert (opened.class_names, len(opened.train), len(opened.test)) == (("day", "night"), 4, 2)
    done = extract(opened, load_embedder())
    assert done.features.train_y.tolist() == [1, 1, 0, 0]
    columns["image"][3] = None
    with pytest.raises(InputError, match="row 3 has no image bytes"):
        open_images(write(tmp_path / "hole.parquet", columns), seed=0)
    columns["image"] = [{"bytes": "text", "path": "1.png"}] * 6
    with pytest.raises(InputError, match="needs one column of images; there is none"):
        open_images(write(tmp_path / "none.parquet", columns), seed=0)


@pytest.mark.parametrize("kind", [arrow.binary(), arrow.large_binary(), arrow.binary_view()], ids=str)
def test_images_may_be_bytes_of_any_arrow_type(tmp_path: Path, kind: object) -> None:
    columns = {"image": arrow.array([b"a", b"b"] * 2, kind), "label": [0, 0, 1, 1], "split": ["test", "train"] * 2}
    opened = open_images(write(tmp_path / "skies.parquet", columns), seed=0)
    assert [image.data for image in (*opened.train.images, *opened.test.images)] == [b"b", b"b", b"a", b"a"]


def test_a_table_of_answers_among_class_folders_is_not_a_dataset(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(2):
            Image.new("RGB", (8, 8)).save(tmp_path / name / f"{number}.png")
    write(tmp_path / "answers.parquet", {"photo": ["cat/0.png"]})
    assert open_images(tmp_path, seed=0).class_names == ("cat", "dog")
