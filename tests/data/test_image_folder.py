from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fiveshot.data.dataset import hold_out
from fiveshot.data.folders import open_images
from fiveshot.errors import InputError

SPLIT = ["train/b/2.jpg", "train/b/1.jpg", "train/a/1.JPG", "test/a/9.webp", "test/b/9.png"]


def summary(dataset):
    return (
        dataset.class_names,
        dict(zip(dataset.train.names, dataset.train.labels.tolist(), strict=True)),
        dict(zip(dataset.test.names, dataset.test.labels.tolist(), strict=True)),
    )


EXPECTED = (
    ("a", "b"),
    {"train/a/1.JPG": 0, "train/b/1.jpg": 1, "train/b/2.jpg": 1},
    {"test/a/9.webp": 0, "test/b/9.png": 1},
)


def test_train_and_test_folders(make_files):
    dataset = open_images(make_files(SPLIT, folder="pets"), seed=0)
    assert summary(dataset) == EXPECTED
    assert dataset.train.names == ("train/a/1.JPG", "train/b/1.jpg", "train/b/2.jpg")
    assert (dataset.name, dataset.differences) == ("pets", ())


@pytest.mark.parametrize("file", ["pets.tar", "pets.tar.gz", "pets.zip"])
@pytest.mark.parametrize("wrapper", ["", "my pets/", "./data/pets/"])
def test_the_same_in_one_archive_also_below_another_folder(pack, jpeg, file, wrapper):
    dataset = open_images(pack(file, [wrapper + name for name in SPLIT]), seed=0)
    assert summary(dataset) == EXPECTED
    assert dataset.name == "pets"
    assert dataset.train.images[0].read() == jpeg


@pytest.mark.parametrize("inside", ["train/", ""])
def test_train_and_test_archives_side_by_side(pack, tmp_path, jpeg, inside):
    pack("train.tar", [n.replace("train/", inside) for n in SPLIT if n.startswith("train")])
    pack("test.zip", [n for n in SPLIT if n.startswith("test")])
    dataset = open_images(tmp_path, seed=0)
    assert summary(dataset) == EXPECTED
    assert {image.read() for image in dataset.train.images + dataset.test.images} == {jpeg}


def test_hidden_files_and_those_of_other_systems_are_ignored(make_files):
    junk = [".hidden.jpg", "train/a/._1.jpg", "train/.cache/1.jpg", "__MACOSX/train/a/1.jpg", ".git/x/y.jpg"]
    dataset = open_images(make_files(SPLIT + junk), seed=0)
    assert summary(dataset) == EXPECTED
    assert dataset.differences == ()


def test_images_in_folders_below_a_class_belong_to_it(make_files):
    dataset = open_images(make_files(["train/a/deep/er/1.jpg", "train/b/1.jpg", "test/a/x/2.jpg"]), seed=0)
    assert dataset.train.names == ("train/a/deep/er/1.jpg", "train/b/1.jpg")
    assert dataset.train.labels.tolist() == [0, 1]


def test_what_is_left_out_is_said(make_files):
    extra = ["train/a/phone.MOV", "test/b/notes", "val/a/1.jpg", "cover.jpg", "train/stray.png", "README.md"]
    dataset = open_images(make_files(SPLIT + extra), seed=0)
    assert summary(dataset) == EXPECTED
    assert dataset.differences == (
        "ignored 3 images outside the class folders: cover.jpg, train/stray.png, val/a/1.jpg",
        "ignored 2 files in class folders that are not images by name: .mov (1), no suffix (1)",
    )


def test_a_class_without_test_images_is_noted_one_without_training_images_refused(make_files):
    dataset = open_images(make_files([*SPLIT, "train/c/1.jpg"]), seed=0)
    assert dataset.differences == ("1 class without test images: c",)
    assert dataset.class_names == ("a", "b", "c")
    with pytest.raises(InputError, match=r"1 test class of .* without training images: d; add images"):
        open_images(make_files(["test/d/1.jpg"]), seed=0)


def test_without_a_test_split_a_fraction_of_every_class_is_held_out(make_files):
    names = [f"{c}/{i:02d}.jpg" for c in ("cat", "dog") for i in range(10)]
    for folder, prefix in (("flat", ""), ("only-train", "train/")):
        path = make_files([prefix + name for name in names], folder=folder)
        dataset = open_images(path, seed=1, holdout=0.3)
        assert [dataset.train.labels.tolist().count(c) for c in (0, 1)] == [7, 7]
        assert [dataset.test.labels.tolist().count(c) for c in (0, 1)] == [3, 3]
        assert sorted(dataset.train.names + dataset.test.names) == [prefix + name for name in names]
        assert open_images(path, seed=1, holdout=0.3).test.names == dataset.test.names
        assert open_images(path, seed=2, holdout=0.3).test.names != dataset.test.names


def test_the_draw_of_a_class_does_not_depend_on_the_others():
    cats, dogs = list(range(50)), list(range(50))
    both = hold_out({"cat": cats, "dog": dogs}, holdout=0.2, seed=0)
    assert hold_out({"dog": dogs}, holdout=0.2, seed=0)[1]["dog"] == both[1]["dog"]
    assert both[1]["cat"] != both[1]["dog"]


@pytest.mark.parametrize(
    ("n", "holdout", "held"), [(1, 0.5, 0), (2, 0.1, 1), (2, 0.9, 1), (10, 0.2, 2), (3, 0.99, 2)]
)
def test_every_class_keeps_a_training_image_and_gives_a_test_image_where_it_can(n, holdout, held):
    train, test = hold_out({"c": list(range(n))}, holdout=holdout, seed=5)
    assert (len(train["c"]), len(test.get("c", []))) == (n - held, held)
    assert sorted(train["c"] + test.get("c", [])) == list(range(n))


@pytest.mark.parametrize(("holdout", "seed"), [(0.0, 0), (1.0, 0), (-0.2, 0), (float("nan"), 0), (0.2, -1)])
def test_impossible_holdouts_are_refused(make_files, holdout, seed):
    with pytest.raises(InputError, match=r"holdout=|seed="):
        open_images(make_files(["a/1.jpg", "a/2.jpg"]), seed=seed, holdout=holdout)


def test_a_class_may_be_called_train(make_files):
    dataset = open_images(make_files(["bus/1.jpg", "bus/2.jpg", "train/1.jpg", "train/2.jpg"]), seed=0)
    assert dataset.class_names == ("bus", "train")


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["train/1.jpg", "test/1.jpg"], "no images in class folders; expected train/<class>"),
        (["test/a/1.jpg"], "has a test split, but no train split"),
        (["1.jpg", "2.jpg"], "no images in class folders"),
        (["a/notes.txt"], "no images in class folders"),
    ],
)
def test_other_layouts_are_refused_with_the_expected_one(make_files, names, says):
    with pytest.raises(InputError, match=says):
        open_images(make_files(names), seed=0)


def test_places_that_are_not_there_or_no_folder(tmp_path):
    with pytest.raises(InputError, match=r"no such folder or archive: .*nowhere"):
        open_images(tmp_path / "nowhere", seed=0)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="neither a folder nor an archive"):
        open_images(tmp_path / "notes.txt", seed=0)


def test_links_are_followed_but_not_in_circles(make_files, tmp_path):
    folder = make_files(SPLIT)
    elsewhere = make_files(["1.jpg"], folder="elsewhere")
    (folder / "train/c").symlink_to(elsewhere)
    (folder / "train/c/back").symlink_to(folder)
    assert open_images(folder, seed=0).class_names == ("a", "b", "c")


def test_a_model_of_ours_is_not_a_class(make_files, tmp_path):
    folder = make_files(["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg", "birds/model.toml", "birds/classes.sqlite"])
    make_files(["birds/drawn/1.jpg"])
    assert open_images(folder, seed=0).class_names == ("a", "b")
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", folder)
    assert open_images(Path(packed), seed=0).class_names == ("a", "b")
