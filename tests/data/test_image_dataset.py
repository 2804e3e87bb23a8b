from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fiveshot.data.dataset import ImageDataset, ImageSplit, restrict
from fiveshot.data.sources import FileSource
from fiveshot.errors import InputError


def split(names: str, labels: list[int]) -> ImageSplit:
    return ImageSplit(tuple(FileSource(Path(name), name) for name in names), np.array(labels))


def test_select_keeps_images_and_labels_together_in_the_order_asked_for():
    chosen = split("abcd", [0, 1, 0, 2]).select([3, 0])
    assert chosen.names == ("d", "a")
    assert chosen.labels.tolist() == [2, 0]
    assert len(split("abcd", [0, 1, 0, 2]).select([])) == 0


def test_restrict_renumbers_both_splits():
    whole = ImageDataset("x", ("A", "B", "C"), split("abc", [0, 1, 2]), split("de", [2, 1]), ("a note",))
    part = restrict(whole, [2, 1])
    assert part.class_names == ("C", "B")
    assert (part.train.names, part.train.labels.tolist()) == (("b", "c"), [1, 0])
    assert (part.test.names, part.test.labels.tolist()) == (("d", "e"), [0, 1])
    assert part.differences == ("a note",)


@pytest.mark.parametrize(("classes", "says"), [([0, 0], "twice"), ([3], "between 0 and 2"), ([-1], "between")])
def test_restrict_refuses_classes_that_are_not_there(classes, says):
    whole = ImageDataset("x", ("A", "B", "C"), split("abc", [0, 1, 2]), split("", []))
    with pytest.raises(InputError, match=says):
        restrict(whole, classes)


def test_labels_must_fit_the_images_and_the_class_names():
    with pytest.raises(InputError, match="2 images"):
        split("ab", [0])
    with pytest.raises(InputError, match=r"from 0 to 2.*2 class names"):
        ImageDataset("x", ("A", "B"), split("ab", [0, 2]), split("", []))
    with pytest.raises(InputError, match="from -1 to 0"):
        ImageDataset("x", ("A", "B"), split("ab", [0, -1]), split("", []))
