from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from extracting import extracted, run_extraction
from PIL import Image

from fiveshot.backbones import Embedder
from fiveshot.data import FileSource, ImageDataset, ImageSplit, open_images
from fiveshot.errors import InputError
from fiveshot.features import FeatureCache


@pytest.fixture
def damaged(photographs: Path) -> Path:
    """One image is cut short, one is empty, one is text."""
    cut = photographs / "train" / "ani" / "1.jpg"
    cut.write_bytes(cut.read_bytes()[:900])
    (photographs / "train" / "wren" / "0.jpg").write_bytes(b"")
    (photographs / "test" / "rook" / "1.jpg").write_text("a rook")
    return photographs


def test_all_bad_images_are_listed_in_one_error(damaged: Path, tiny: Embedder) -> None:
    with pytest.raises(InputError) as caught:
        extracted(open_images(damaged, seed=0), tiny, batch_size=2, workers=2)
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 of 15 images cannot be used:"
    assert [line.split(":")[0].strip() for line in lines[1:4]] == [
        "train/ani/1.jpg",
        "train/wren/0.jpg",
        "test/rook/1.jpg",
    ]
    assert lines[-1].endswith("leave them out with --skip-bad")


def test_bad_images_are_left_out_when_asked(damaged: Path, tiny: Embedder) -> None:
    report = run_extraction(open_images(damaged, seed=0), tiny, skip_bad=True, batch_size=4)
    assert [image.name for image in report.bad] == ["train/ani/1.jpg", "train/wren/0.jpg", "test/rook/1.jpg"]
    assert len(report.features.train_x) == 7
    assert len(report.features.test_x) == 5
    assert not {image.name for image in report.bad} & {*report.features.train_names, *report.features.test_names}
    good = open_images(damaged, seed=0)
    labels = dict(zip(good.train.names, good.train.labels, strict=True))
    assert [labels[name] for name in report.features.train_names] == report.features.train_y.tolist()


def test_what_is_not_a_regular_file_is_bad_and_never_waited_for(photographs: Path, tiny: Embedder) -> None:
    strange = [photographs / "train" / "ani" / name for name in ("device.jpg", "huge.jpg", "pipe.jpg")]
    device, huge, pipe = strange
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    huge.touch()
    os.truncate(huge, 3 * 2**30)  # sparse: it takes no space
    report = run_extraction(open_images(photographs, seed=0), tiny, skip_bad=True, batch_size=4)
    assert [image.name for image in report.bad] == [f"train/ani/{path.name}" for path in strange]
    reasons = [image.reason for image in report.bad]
    assert reasons[0] == "it is a device, not a file"
    assert reasons[1].startswith("too large: 3,221,225,472 bytes")
    assert reasons[2] == "it is a pipe, not a file"


def test_the_others_keep_their_vectors(photographs: Path, tiny: Embedder) -> None:
    before = extracted(open_images(photographs, seed=0), tiny, batch_size=1)
    (photographs / "train" / "ani" / "1.jpg").write_bytes(b"no longer")
    after = extracted(open_images(photographs, seed=0), tiny, batch_size=1, skip_bad=True)
    assert (before.train_x[[0, *range(2, 9)]] == after.train_x).all()


def test_what_was_computed_before_the_error_is_not_lost(damaged: Path, tiny: Embedder, tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "cache")
    birds = open_images(damaged, seed=0)
    with pytest.raises(InputError, match="3 of 15 images"):
        run_extraction(birds, tiny, cache=cache, batch_size=1, workers=1)
    report = run_extraction(birds, tiny, cache=cache, batch_size=1, workers=1, skip_bad=True)
    assert 0 < report.computed < 15, "the images before the first bad one were finished"
    assert len(report.bad) == 3


def test_cached_features_without_the_bad_images_are_used_only_when_asked(
    damaged: Path, tiny: Embedder, tmp_path: Path
) -> None:
    cache = FeatureCache(tmp_path / "cache")
    birds = open_images(damaged, seed=0)
    first = run_extraction(birds, tiny, cache=cache, skip_bad=True)
    again = run_extraction(birds, tiny, cache=cache, skip_bad=True)
    assert again.computed == 0
    assert again.bad == first.bad
    with pytest.raises(InputError, match="3 of 15 images cannot be used"):
        run_extraction(birds, tiny, cache=cache)


def test_a_repaired_image_is_computed(damaged: Path, tiny: Embedder, tmp_path: Path, redraw) -> None:
    cache = FeatureCache(tmp_path / "cache")
    run_extraction(open_images(damaged, seed=0), tiny, cache=cache, skip_bad=True)
    for name in ("train/ani/1.jpg", "train/wren/0.jpg", "test/rook/1.jpg"):
        redraw(damaged / name)
    report = run_extraction(open_images(damaged, seed=0), tiny, cache=cache)
    assert (report.bad, len(report.features.train_x), len(report.features.test_x)) == ((), 9, 6)


def test_a_class_that_loses_all_training_images_is_an_error(photographs: Path, tiny: Embedder) -> None:
    for number in range(3):
        (photographs / "train" / "rook" / f"{number}.jpg").write_bytes(b"gone")
    with pytest.raises(InputError, match="1 class without a usable training image: rook"):
        extracted(open_images(photographs, seed=0), tiny, skip_bad=True)


def test_an_image_that_vanishes_is_bad(photographs: Path, tiny: Embedder) -> None:
    birds = open_images(photographs, seed=0)
    (photographs / "test" / "wren" / "0.jpg").unlink()
    with pytest.raises(InputError, match=r"1 of 15 images cannot be used:\n  test/wren/0\.jpg: cannot read"):
        extracted(birds, tiny)


def test_images_that_a_decoder_warns_about_are_good_and_later_warnings_are_heard(
    tiny: Embedder, tmp_path: Path
) -> None:
    path = tmp_path / "odd.jpg"
    Image.new("RGB", (200, 180), "green").save(path, exif=b"Exif\0\0II*\0\x08\0\0\0\x09\0\x12\x01\x03\0")
    with pytest.warns(UserWarning, match="Corrupt EXIF"):
        Image.open(path).close()
    images = tuple(FileSource(path, str(number)) for number in range(120))
    split, empty = ImageSplit(images, np.zeros(120, np.int64)), ImageSplit((), np.zeros(0, np.int64))
    before = list(warnings.filters)
    found = extracted(ImageDataset("odd", ("odd",), split, empty), tiny, batch_size=1, workers=8)
    assert len(found.train_x) == 120
    assert list(warnings.filters) == before
