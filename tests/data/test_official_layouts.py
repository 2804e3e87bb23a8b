"""Tiny copies of the official layouts, built as their authors' documentation describes them."""

from __future__ import annotations

import hashlib
import io
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fiveshot.data import _official as official
from fiveshot.data.decoding import decode
from fiveshot.data.registry import open_dataset
from fiveshot.data.sessions import match_names
from fiveshot.errors import InputError

CUB_IMAGES = {  # id: (class id, file, in the training split)
    1: (1, "001.Owl/Owl_1.jpg", 0),
    2: (1, "001.Owl/Owl_2.jpg", 1),
    3: (2, "002.Jay/Jay_3.jpg", 0),
    9: (2, "002.Jay/Jay_9.jpg", 1),
    10: (1, "001.Owl/Owl_10.jpg", 1),
    11: (2, "002.Jay/Jay_11.jpg", 1),
}


def write_cub_tables(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = CUB_IMAGES.items()
    (folder / "images.txt").write_text("".join(f"{i} {file}\n" for i, (_, file, _) in rows))
    (folder / "image_class_labels.txt").write_text("".join(f"{i} {c}\n" for i, (c, _, _) in rows))
    (folder / "train_test_split.txt").write_text("".join(f"{i} {t}\n" for i, (_, _, t) in rows))
    (folder / "classes.txt").write_text("1 001.Owl\n2 002.Jay\n")


@pytest.fixture
def cub(tmp_path, make_files):
    files = [file for _, file, _ in CUB_IMAGES.values()]
    make_files(files, folder="birds/CUB_200_2011/images")
    make_files([f.replace(".jpg", ".png") for f in files], folder="birds/CUB_200_2011/segmentations")
    write_cub_tables(tmp_path / "birds/CUB_200_2011")
    (tmp_path / "birds/attributes.txt").write_text("1 has_bill\n")
    return tmp_path / "birds"


# In the order of the ids as strings: 10, 11, 2, 9 for training, 1, 3 for testing.
CUB_TRAIN = ("001.Owl/Owl_10", "002.Jay/Jay_11", "001.Owl/Owl_2", "002.Jay/Jay_9")
CUB_TEST = ("001.Owl/Owl_1", "002.Jay/Jay_3")
CUB_DIFFERENCES = (
    "2 classes, officially 200",
    "4 training images, officially 5,994",
    "2 test images, officially 5,794",
)


def test_cub200_official_folder(cub):
    for root in (cub, cub / "CUB_200_2011"):
        dataset = open_dataset("cub200", root, seed=0)
        assert dataset.train.names == tuple(f"images/{name}.jpg" for name in CUB_TRAIN)
        assert dataset.test.names == tuple(f"images/{name}.jpg" for name in CUB_TEST)
        assert dataset.train.labels.tolist() == [0, 1, 0, 1]
        assert dataset.test.labels.tolist() == [0, 1]
        assert dataset.class_names == ("001.Owl", "002.Jay")
        assert dataset.differences == CUB_DIFFERENCES
        assert decode(dataset.train.images[0]).size == (8, 6)


def test_cub200_inside_the_official_archive(cub, tmp_path, jpeg):
    with tarfile.open(tmp_path / "CUB_200_2011.tgz", "w:gz") as tar:
        tar.add(cub, ".")
    dataset = open_dataset("cub200", tmp_path / "CUB_200_2011.tgz", seed=0)
    assert dataset.train.names == tuple(f"images/{name}.jpg" for name in CUB_TRAIN)
    assert dataset.train.images[0].read() == jpeg


def test_cub200_tables_beside_re_encoded_images_in_archives(tmp_path, pack):
    write_cub_tables(tmp_path / "meta")
    for split, flag in (("train", 1), ("test", 0)):
        files = [file for _, file, t in CUB_IMAGES.values() if t == flag]
        pack(f"{split}.tar", [f"{split}/{file.replace('.jpg', '.webp')}" for file in files])
    dataset = open_dataset("cub200", tmp_path, seed=0)
    assert dataset.train.names == tuple(f"train/{name}.webp" for name in CUB_TRAIN)
    assert dataset.differences == CUB_DIFFERENCES


def test_cub200_plain_folders(tmp_path, make_files):
    root = make_files(["train/001.Owl/1.jpg", "test/001.Owl/2.jpg"])
    dataset = open_dataset("cub200", root, seed=0)
    assert (dataset.name, dataset.train.names) == ("cub200", ("train/001.Owl/1.jpg",))
    assert "1 class, officially 200" in dataset.differences


def test_missing_images_are_reported(cub):
    (cub / "CUB_200_2011/images/001.Owl/Owl_2.jpg").unlink()
    dataset = open_dataset("cub200", cub, seed=0)
    assert dataset.differences[-1] == "1 of 6 listed images are missing, the first is images/001.Owl/Owl_2.jpg"


@pytest.mark.parametrize(
    ("table", "content", "says"),
    [
        ("images.txt", "1 001.Owl/Owl_1.jpg\n", "do not list the same images"),
        ("images.txt", "1\n", "two columns"),
        ("classes.txt", "1 001.Owl\n", "classes that classes.txt does not"),
        ("image_class_labels.txt", "\udcff\n", "not a text file"),
    ],
)
def test_inconsistent_cub200_tables_are_refused(cub, table, content, says):
    (cub / "CUB_200_2011" / table).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=says):
        open_dataset("cub200", cub, seed=0)


CARS = ("AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012")


def records(fields: tuple[str, ...], rows: list[tuple]) -> np.ndarray:
    """MATLAB's struct array, (1, n)."""
    array = np.empty((1, len(rows)), dtype=[(field, object) for field in fields])
    for i, row in enumerate(rows):
        array[0, i] = tuple(row)
    return array


def cells(names: tuple[str, ...]) -> np.ndarray:
    array = np.empty((1, len(names)), dtype=object)
    array[0, :] = names
    return array


@pytest.fixture
def cars(tmp_path, make_files):
    """The development kit as torchvision and the mirrors lay it out."""
    root = tmp_path / "stanford_cars"
    make_files(["00001.jpg", "00002.jpg", "00003.jpg"], folder="stanford_cars/cars_train")
    make_files(["00001.jpg"], folder="stanford_cars/cars_test")
    (root / "devkit").mkdir()
    box = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
    train = [(1, 1, 8, 6, 2, "00001.jpg"), (1, 1, 8, 6, 1, "00002.jpg"), (1, 1, 8, 6, 2, "00003.jpg")]
    savemat(root / "devkit/cars_meta.mat", {"class_names": cells(CARS)})
    savemat(root / "devkit/cars_train_annos.mat", {"annotations": records((*box, "class", "fname"), train)})
    savemat(
        root / "devkit/cars_test_annos.mat", {"annotations": records((*box, "fname"), [(1, 1, 8, 6, "00001.jpg")])}
    )
    savemat(
        root / "cars_test_annos_withlabels.mat",
        {"annotations": records((*box, "class", "fname"), [(1, 1, 8, 6, 1, "00001.jpg")])},
    )
    return root


def check_cars(dataset) -> None:
    assert dataset.class_names == CARS
    assert dataset.train.names == ("cars_train/00001.jpg", "cars_train/00002.jpg", "cars_train/00003.jpg")
    assert dataset.train.labels.tolist() == [1, 0, 1]
    assert (dataset.test.names, dataset.test.labels.tolist()) == (("cars_test/00001.jpg",), [0])
    assert dataset.differences == (
        "2 classes, officially 196",
        "3 training images, officially 8,144",
        "1 test image, officially 8,041",
    )


def test_cars_development_kit(cars):
    check_cars(open_dataset("cars", cars, seed=0))
    check_cars(open_dataset("cars", cars.parent, seed=0))
    (cars / "cars_test_annos_withlabels.mat").rename(cars / "devkit/cars_test_annos_withlabels.mat")
    check_cars(open_dataset("cars", cars, seed=0))


def test_cars_as_a_mirror_nests_them(cars, jpeg):
    for split in ("cars_train", "cars_test"):
        (cars / split).rename(cars / "moving")
        (cars / split).mkdir()
        (cars / "moving").rename(cars / split / split)
    (cars / "car_devkit").mkdir()
    (cars / "devkit").rename(cars / "car_devkit/devkit")
    savemat(cars / "cars_annos.mat", {"annotations": records(("x",), [(1,)]), "class_names": cells(CARS)})
    dataset = open_dataset("cars", cars, seed=0)
    check_cars(dataset)
    assert {image.read() for image in dataset.train.images + dataset.test.images} == {jpeg}


def test_cars_in_one_annotation_file(tmp_path, make_files):
    root = make_files(["car_ims/000001.jpg", "car_ims/000002.jpg", "car_ims/000003.jpg"])
    fields = ("relative_im_path", "bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "test")
    rows = [
        (f"car_ims/00000{i}.jpg", 1, 1, 8, 6, label, test) for i, label, test in ((1, 1, 0), (2, 2, 1), (3, 2, 0))
    ]
    savemat(root / "cars_annos.mat", {"annotations": records(fields, rows), "class_names": cells(CARS)})
    dataset = open_dataset("cars", root, seed=0)
    assert dataset.class_names == CARS
    assert dataset.train.names == ("car_ims/000001.jpg", "car_ims/000003.jpg")
    assert dataset.train.labels.tolist() == [0, 1]
    assert (dataset.test.names, dataset.test.labels.tolist()) == (("car_ims/000002.jpg",), [1])


def test_cars_without_the_labels_of_the_test_images_say_what_is_missing(cars):
    (cars / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(InputError, match=r"no cars_test_annos_withlabels\.mat, .*without the classes.*Kaggle"):
        open_dataset("cars", cars, seed=0)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda root: (root / "devkit/cars_meta.mat").unlink(), "has no cars_meta.mat"),
        (
            lambda root: (root / "devkit/cars_meta.mat").write_bytes(b"junk" * 99),
            "not a MATLAB file with 'class_names'",
        ),
        (
            lambda root: savemat(root / "devkit/cars_meta.mat", {"class_names": cells(CARS[:1])}),
            r"classes without a name: \[2\]",
        ),
        (
            lambda root: savemat(
                root / "cars_test_annos_withlabels.mat", {"annotations": records(("fname",), [("1.jpg",)])}
            ),
            "no fname, class in its annotations",
        ),
    ],
)
def test_damaged_cars_annotations_are_refused(cars, spoil, says):
    spoil(cars)
    with pytest.raises(InputError, match=says):
        open_dataset("cars", cars, seed=0)


@pytest.fixture
def aircraft(make_files):
    data = make_files([f"images/{i}.jpg" for i in range(1, 6)], folder="planes/fgvc-aircraft-2013b/data")
    (data / "variants.txt").write_text("707-320\nF/A-18\n")
    (data / "images_variant_trainval.txt").write_text("3 F/A-18\n1 707-320\n2 F/A-18\n")
    (data / "images_variant_test.txt").write_text("5 707-320\n4 F/A-18\n")
    return data.parents[1]


def test_aircraft_official_folder(aircraft):
    for root in (aircraft, aircraft / "fgvc-aircraft-2013b"):
        dataset = open_dataset("aircraft", root, seed=0)
        assert dataset.class_names == ("707-320", "F/A-18")
        assert dataset.train.names == ("images/3.jpg", "images/1.jpg", "images/2.jpg")
        assert dataset.train.labels.tolist() == [1, 0, 1]
        assert dataset.test.labels.tolist() == [0, 1]
        assert dataset.differences == (
            "2 classes, officially 100",
            "3 training images, officially 6,667",
            "2 test images, officially 3,333",
        )
        assert decode(dataset.test.images[0]).mode == "RGB"


def test_damaged_aircraft_lists_are_refused(aircraft):
    (aircraft / "fgvc-aircraft-2013b/data/images_variant_test.txt").write_text("5 Zeppelin\n")
    with pytest.raises(InputError, match=r"does not have: Zeppelin; Expected the official folder"):
        open_dataset("aircraft", aircraft, seed=0)
    (aircraft / "fgvc-aircraft-2013b/data/images_variant_test.txt").unlink()
    with pytest.raises(InputError, match=r"has no data/images_variant_test.txt; Expected the official folder"):
        open_dataset("aircraft", aircraft, seed=0)


@pytest.fixture
def cifar(tmp_path, monkeypatch):
    """The pickled batches, with their own checksums."""
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    rng = np.random.default_rng(0)
    pixels = {
        name: rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8) for name, n in (("train", 3), ("test", 2))
    }
    for name, labels in (("train", [1, 0, 1]), ("test", [0, 1])):
        batch = {"data": pixels[name].reshape(len(labels), -1), "fine_labels": labels, "coarse_labels": labels}
        (folder / name).write_bytes(pickle.dumps(batch))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": ["apple", "worm"]}))
    sums = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in ("train", "test", "meta")}
    monkeypatch.setattr(official, "CIFAR100_CHECKSUMS", sums)
    return tmp_path, pixels


def test_the_published_checksums_of_cifar100_are_those_that_torchvision_has():
    theirs = pytest.importorskip("torchvision.datasets").CIFAR100
    listed = dict([*theirs.train_list, *theirs.test_list, [theirs.meta["filename"], theirs.meta["md5"]]])
    assert listed == official.CIFAR100_CHECKSUMS


def test_official_layouts_are_read_without_torch(aircraft):
    code = """
import sys
from pathlib import Path
sys.modules["torch"] = sys.modules["torchvision"] = None
from fiveshot.data import open_dataset
print(len(open_dataset("aircraft", Path(sys.argv[1]), seed=0).train))
"""
    done = subprocess.run([sys.executable, "-c", code, str(aircraft)], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


def test_cifar100_official_folder(cifar):
    root, pixels = cifar
    for place in (root, root / "cifar-100-python"):
        dataset = open_dataset("cifar100", place, seed=0)
        assert dataset.class_names == ("apple", "worm")
        assert dataset.train.names == ("train/00000", "train/00001", "train/00002")
        assert dataset.train.labels.tolist() == [1, 0, 1]
        shown = np.asarray(decode(dataset.test.images[1]))
        np.testing.assert_array_equal(shown, pixels["test"][1].transpose(1, 2, 0))


def test_cifar100_files_with_wrong_checksums_are_never_unpickled(tmp_path):
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()

    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    for name in ("train", "test", "meta"):
        (folder / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match=r"incomplete or damaged.*fiveshot data fetch cifar100"):
        open_dataset("cifar100", tmp_path, seed=0)
    assert not (tmp_path / "exploded").exists()


def cifar_arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "train_images": rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8),
        "train_labels": np.array([1, 0, 1]),
        "test_images": rng.integers(0, 256, (1, 32, 32, 3), dtype=np.uint8),
        "test_labels": np.array([1], dtype=np.uint8),
        "class_names": np.array(["apple", "worm"]),
    }


def test_cifar100_arrays(tmp_path):
    arrays = cifar_arrays()
    np.savez(tmp_path / "cifar100-part.npz", **arrays)
    for place in (tmp_path, tmp_path / "cifar100-part.npz"):
        dataset = open_dataset("cifar100", place, seed=0)
        assert dataset.train.names == ("train/worm-00000", "train/apple-00000", "train/worm-00001")
        assert dataset.train.labels.tolist() == [1, 0, 1]
        np.testing.assert_array_equal(np.asarray(decode(dataset.train.images[2])), arrays["train_images"][2])
        assert "3 training images, officially 50,000" in dataset.differences


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"train_images": np.zeros((3, 3, 32, 32), np.uint8)}, "train_images .* uint8 of shape"),
        ({"train_images": np.zeros((3, 32, 32, 3), np.float32)}, "train_images .* uint8 of shape"),
        ({"test_labels": np.array([1, 0])}, "test_labels .* must be 1 integers"),
        ({"test_labels": np.array([2])}, "between 0 and 1"),
        ({"class_names": np.array([{"a": 1}], dtype=object)}, "not an .npz file with train_images"),
    ],
)
def test_wrong_cifar100_arrays_are_refused(tmp_path, change, says):
    np.savez(tmp_path / "cifar100.npz", **{**cifar_arrays(), **change})
    with pytest.raises(InputError, match=says):
        open_dataset("cifar100", tmp_path, seed=0)


def test_an_incomplete_or_ambiguous_cifar100_npz_is_refused(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, train_images=np.zeros(1))
    (tmp_path / "cifar100.npz").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match=r"not an .npz file with .*train_labels"):
        open_dataset("cifar100", tmp_path, seed=0)
    (tmp_path / "cifar100.npz").write_bytes(buffer.getvalue()[:50])
    with pytest.raises(InputError, match=r"not an .npz file"):
        open_dataset("cifar100", tmp_path, seed=0)
    (tmp_path / "cifar100-b.npz").write_bytes(b"")
    with pytest.raises(InputError, match=r"name one of them"):
        open_dataset("cifar100", tmp_path, seed=0)


def test_plain_folders_serve_every_named_dataset(make_files):
    root = make_files(["train/x/1.png", "test/x/1.png"])
    Image.new("RGB", (32, 32)).save(root / "train/x/1.png")
    for name in ("cars", "aircraft", "cifar100", "cub200"):
        assert open_dataset(name, root, seed=0).class_names == ("x",)


def test_miniimagenet_as_cec_has_it(tmp_path, make_files):
    make_files([f"n0{c}{i:08d}.jpg" for c in (2, 1) for i in (1, 2, 3)], folder="mini/images")
    split = tmp_path / "mini/split"
    split.mkdir()
    (split / "train.csv").write_text(
        "filename,label\nn0200000002.jpg,n02\nn0100000001.jpg,n01\nn0100000002.jpg,n01\n"
    )
    (split / "test.csv").write_text("filename,label\nn0200000003.jpg,n02\n")
    dataset = open_dataset("miniimagenet", tmp_path / "mini", seed=0)
    assert dataset.class_names == ("n01", "n02")
    assert dataset.train.names == ("n02/n0200000002.jpg", "n01/n0100000001.jpg", "n01/n0100000002.jpg")
    assert (dataset.train.labels.tolist(), dataset.test.labels.tolist()) == ([1, 0, 0], [1])
    assert decode(dataset.test.images[0]).size == (8, 6)
    # The names are found by entries of the official lists.
    (rows,) = match_names([["MINI-ImageNet/train/n01/n0100000002.jpg"]], dataset.train.names)
    assert rows.tolist() == [2]


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("filename,label\n", "filename,label\na.jpg,x\n"),
        ("file,label\na.jpg,x\n", ""),
        ("filename,label\na.jpg,x\n", "filename,label\nb.jpg,y\n"),
    ],
)
def test_miniimagenet_tables_that_make_no_sense(tmp_path, train, test):
    (tmp_path / "split").mkdir()
    (tmp_path / "split/train.csv").write_text(train)
    (tmp_path / "split/test.csv").write_text(test)
    with pytest.raises(InputError):
        open_dataset("miniimagenet", tmp_path, seed=0)


def test_imagenet_r_unsplit_holds_out_a_fifth_and_split_stays_as_it_is(tmp_path, make_files):
    make_files(
        [f"{name}/{i}.jpg" for name in ("n01", "n02") for i in range(10)], folder="data/imagenet-r/imagenet-r"
    )
    found = open_dataset("imagenet-r", tmp_path / "data", seed=0)
    assert (found.name, len(found.train), len(found.test)) == ("imagenet-r", 16, 4)
    make_files([f"{part}/n01/{part}.jpg" for part in ("train", "test")], folder="split")
    found = open_dataset("imagenet-r", tmp_path / "split", seed=0)
    assert (len(found.train), len(found.test)) == (1, 1)
