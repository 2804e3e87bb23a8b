from __future__ import annotations

import numpy as np
import pytest

from fiveshot.data.dataset import ImageDataset, ImageSplit, check_dataset, check_images
from fiveshot.data.folders import open_images
from fiveshot.data.sources import FileSource
from fiveshot.errors import InputError


@pytest.fixture
def folder(make_files, jpeg):
    names = [f"{split}/{c}/{i}.jpg" for split in ("train", "test") for c in ("cat", "dog") for i in range(3)]
    folder = make_files(names)
    (folder / "train/cat/1.jpg").write_bytes(jpeg[: len(jpeg) // 2])
    (folder / "test/dog/2.jpg").write_bytes(b"")
    return folder


def test_all_bad_images_are_reported_at_once_with_the_way_out(folder):
    dataset = open_images(folder, seed=0)
    with pytest.raises(InputError) as caught:
        check_dataset(dataset, skip_bad=False)
    message = str(caught.value)
    assert message.startswith("2 of 12 images cannot be used:")
    assert "train/cat/1.jpg: " in message
    assert "test/dog/2.jpg: the file is empty" in message
    assert message.endswith("--skip-bad")


def test_skipping_leaves_out_the_bad_images_with_their_labels(folder):
    dataset, bad = check_dataset(open_images(folder, seed=0), skip_bad=True)
    assert [image.name for image in bad] == ["train/cat/1.jpg", "test/dog/2.jpg"]
    assert dataset.train.names == tuple(f"train/{n}.jpg" for n in ("cat/0", "cat/2", "dog/0", "dog/1", "dog/2"))
    assert dataset.train.labels.tolist() == [0, 0, 1, 1, 1]
    assert dataset.test.labels.tolist() == [0, 0, 0, 1, 1]
    assert dataset.differences == ("left out 2 bad images of 12",)


def test_a_good_dataset_comes_back_as_it_is(make_files):
    dataset = open_images(make_files(["train/a/1.jpg", "test/a/2.jpg"]), seed=0)
    assert check_dataset(dataset, skip_bad=False) == (dataset, ())


def test_a_class_without_any_usable_training_image_cannot_be_skipped(folder):
    for i in range(3):
        (folder / f"train/cat/{i}.jpg").write_bytes(b"")
    with pytest.raises(InputError, match="1 class without a usable training image: cat"):
        check_dataset(open_images(folder, seed=0), skip_bad=True)


def test_a_long_list_is_cut_but_counted(tmp_path):
    missing = [FileSource(tmp_path / f"{i}.jpg", f"{i}.jpg") for i in range(40)]
    with pytest.raises(InputError, match=r"40 of 40 images(.|\n)*4\.jpg(.|\n)*and 35 more") as caught:
        check_images(missing, skip_bad=False)
    assert "5.jpg" not in str(caught.value).replace("35 more", "")
    empty = ImageSplit((), np.array([], dtype=np.int64))
    split = ImageSplit(tuple(missing[:1]), np.array([0]))
    with pytest.raises(InputError, match="No such file"):
        check_dataset(ImageDataset("x", ("a",), split, empty), skip_bad=False)
