from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toys import toy_features

from fiveshot.benchmark import get_protocol
from fiveshot.errors import InputError, StorageError
from fiveshot.reports import find_feature_files
from fiveshot.reports.paper_plan import features_for, missing_features, named_dataset
from fiveshot.storage import write_tensors

EMBEDDED = {
    "cub200": "embedded:cub200-vit",
    "cub200/small": "embedded:cub200-vit-small",
    "cub200/big": "embedded:cub200-vit-big",
}


def save_npz(path: Path) -> None:
    y = np.array([0, 0, 1])
    np.savez(path, train_x=np.eye(3), train_y=y, test_x=np.eye(3), test_y=y)


def test_files_are_found_by_provenance_and_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    toy_features("aircraft", 3, rng=rng).save(tmp_path / "run-17.safetensors")
    toy_features("unnamed", 3, rng=rng).save(tmp_path / "Stanford_Cars.safetensors")
    save_npz(tmp_path / "cifar-100 vit.npz")
    save_npz(tmp_path / "flowers.npz")
    (tmp_path / "cars.txt").write_text("nothing to do with it")
    assert find_feature_files(tmp_path) == {
        "aircraft": str(tmp_path / "run-17.safetensors"),
        "cars": str(tmp_path / "Stanford_Cars.safetensors"),
        "cifar100": str(tmp_path / "cifar-100 vit.npz"),
        **EMBEDDED,
    }


def test_a_file_goes_before_the_embedded_pack_and_may_be_for_one_start(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    toy_features("cub200", 3, rng=rng).save(tmp_path / "cub200-big.safetensors")
    found = find_feature_files(tmp_path)
    assert features_for(get_protocol("cub200/big"), found) == str(tmp_path / "cub200-big.safetensors")
    assert features_for(get_protocol("cub200/small"), found) == EMBEDDED["cub200/small"]
    toy_features("cub200", 3, rng=rng).save(tmp_path / "cub200.safetensors")
    assert features_for(get_protocol("cub200/small"), find_feature_files(tmp_path)).endswith("cub200.safetensors")


def test_two_files_of_one_dataset_are_not_guessed_between(tmp_path: Path) -> None:
    save_npz(tmp_path / "cars-vit.npz")
    save_npz(tmp_path / "cars-cnn.npz")
    with pytest.raises(InputError, match=r"two files have features of cars: .*cars-cnn.npz and .*cars-vit.npz"):
        find_feature_files(tmp_path)


def test_other_files_are_passed_over_but_a_damaged_one_is_told(tmp_path: Path) -> None:
    write_tensors(tmp_path / "head.safetensors", {"w": np.zeros(1)}, kind="head", version=1, meta={})
    np.savez(tmp_path / "cifar100-images.npz", train_images=np.zeros(3))
    (tmp_path / "notes.npz").write_bytes(b"not a zip")
    assert find_feature_files(tmp_path) == EMBEDDED
    (tmp_path / "cars.npz").write_bytes(b"not a zip")
    with pytest.raises(StorageError, match=r"cannot read .*cars\.npz"):
        find_feature_files(tmp_path)
    (tmp_path / "cars.npz").unlink()
    (tmp_path / "cars.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    with pytest.raises(StorageError, match=r"cars\.safetensors"):
        find_feature_files(tmp_path)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such folder of features: .*nowhere"):
        find_feature_files(tmp_path / "nowhere")


def test_what_is_missing_comes_with_commands() -> None:
    wanted = [get_protocol(name) for name in ("cub200/big", "cars/small", "cars/big", "cifar100/small")]
    cars, cifar = missing_features(wanted, {"cub200": "embedded:cub200"}, "my features")
    assert cars.protocols == ("cars/small", "cars/big")
    assert cars.commands == ("fiveshot extract --dataset cars --root data --out 'my features/cars.safetensors'",)
    assert str(cifar).startswith("features of cifar100 (for cifar100/small); get them with: fiveshot data fetch")


@pytest.mark.parametrize(
    ("text", "dataset"),
    [
        ("cub200", "cub200"),
        ("CUB_200_2011", "cub200"),
        ("features.cars.vit", "cars"),
        ("fgvc-aircraft", "aircraft"),
        ("cifar10", None),
        ("cars-and-aircraft", None),
        ("racecars", None),
        ("", None),
    ],
)
def test_names(text: str, dataset: str | None) -> None:
    assert named_dataset(text) == dataset
