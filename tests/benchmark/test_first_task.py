from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from toy_cifar import write_toy_cifar

from fiveshot.backbones import BackboneSpec, read_adapter
from fiveshot.benchmark import FirstTask, find_datasets, first_tasks, get_protocol
from fiveshot.data import restrict
from fiveshot.errors import InputError
from fiveshot.features import load_features
from fiveshot.tuning import TUNE_RECIPES, TuneProgress

QUICK = TUNE_RECIPES["paper"].replace(epochs=1)
CIFAR = get_protocol("cifar100/small")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a small CIFAR-100: six images to learn from and one to test with in each class."""
    return write_toy_cifar(tmp_path_factory.mktemp("root") / "cifar100-toy.npz").parent


@pytest.fixture
def spec(tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackboneSpec:
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    return BackboneSpec("test_vit.r160_in1k", weights=tiny_file, device="cpu", views=1)


def test_photos_become_features_with_and_without_adapter(root: Path, spec: BackboneSpec, tmp_path: Path) -> None:
    found = find_datasets(["cub200", "cifar100"], root)
    assert list(found) == ["cifar100"]
    plain, tuned = first_tasks([get_protocol("cub200/big"), CIFAR, CIFAR], found, spec, tmp_path / "out", QUICK)
    assert (plain.protocol, tuned.protocol) == (None, CIFAR)
    assert plain.seconds(rate=10.0) == 700 / 10  # all images, seen once
    assert tuned.seconds(rate=10.0) == (3 * 60 + 700) / 10  # and those of ten base classes in training
    shown: list[TuneProgress] = []
    assert [task.tune(shown.append) for task in (plain, tuned)] == [False, True]
    assert max(now.total for now in shown) == 60  # the photos of the ten base classes and no others
    assert [task.extract() for task in (plain, tuned)] == [700, 700]
    before, after = (load_features(task.features) for task in (plain, tuned))
    assert np.array_equal(before.train_y, np.repeat(np.arange(100), 6))
    assert not np.allclose(before.train_x, after.train_x)
    assert after.provenance.adapter == read_adapter(str(tuned.adapter)).hash
    assert tuned.adapter is not None
    names = sorted(file.relative_to(tmp_path / "out").as_posix() for file in (tmp_path / "out").rglob("*.*"))
    assert names == [
        f"adapters/{tuned.adapter.name}",
        "features/cifar100-small.safetensors",
        "no-adapter/features/cifar100.safetensors",
    ]
    again = FirstTask(found["cifar100"], spec, tmp_path / "out", CIFAR, QUICK)
    assert (again.seconds(rate=1.0), again.tune(), again.extract()) == (0.0, False, 0)
    other = FirstTask(found["cifar100"], spec, tmp_path / "out", CIFAR, QUICK.replace(seed=1))
    assert other.adapter != tuned.adapter
    assert other.seconds(rate=1.0) > 0


def test_a_part_of_a_dataset_is_refused(root: Path, spec: BackboneSpec, tmp_path: Path) -> None:
    part = restrict(find_datasets(["cifar100"], root)["cifar100"], range(60))
    with pytest.raises(
        InputError, match="cifar100/small has 100 classes, but 60 of cifar100 were found"
    ) as caught:
        first_tasks([CIFAR], {"cifar100": part}, spec, tmp_path / "out", QUICK)
    assert "fiveshot data fetch" in caught.value.hint
    assert not (tmp_path / "out").exists()


def test_a_folder_without_datasets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds none of cub200, aircraft"):
        find_datasets(["cub200", "aircraft"], tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        find_datasets(["cub200"], tmp_path / "none")
    (tmp_path / "cifar100.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"cifar100.npz is not an \.npz file"):
        find_datasets(["cub200", "cifar100"], tmp_path)
