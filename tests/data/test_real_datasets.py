"""The real photographs, text files and session lists, where they lie beside the checkout."""

from __future__ import annotations

import numpy as np
import pytest

from fiveshot.data import decode
from fiveshot.data.folders import open_images
from fiveshot.data.registry import open_dataset
from fiveshot.data.sessions import match_names, read_session_lists

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def table():
    def read(path):
        return dict(line.split() for line in path.read_text().splitlines())

    return read


def test_cub200_is_complete_and_labelled_as_its_own_tables_say(real, table):
    dataset = open_dataset("cub200", real, seed=0)
    assert dataset.differences == ()
    files, labels = (table(real / f"cub200/meta/{name}.txt") for name in ("images", "image_class_labels"))
    in_train = table(real / "cub200/meta/train_test_split.txt")
    for split, flag in ((dataset.train, "1"), (dataset.test, "0")):
        expected = {files[i].removesuffix(".jpg"): int(labels[i]) - 1 for i in files if in_train[i] == flag}
        found = dict(zip(split.names, split.labels.tolist(), strict=True))
        assert {n.split("/", 1)[1].removesuffix(".webp"): c for n, c in found.items()} == expected


def test_cub200_lists_the_first_images_of_a_class_by_ids_as_strings(real, table):
    dataset = open_dataset("cub200", real, seed=0)
    files, in_train = (table(real / f"cub200/meta/{name}.txt") for name in ("images", "train_test_split"))
    ids = [i for i in files if files[i].startswith("017.") and in_train[i] == "1"]
    expected = [files[i].removesuffix(".jpg") for i in sorted(ids)[:5]]
    of_class = [n for n in dataset.train.names if "/017." in n]
    assert [n.removeprefix("train/").removesuffix(".webp") for n in of_class[:5]] == expected


def test_cub200_as_plain_archives_holds_the_same_images(real):
    plain = open_images(real / "cub200", seed=0)
    named = open_dataset("cub200", real, seed=0)
    assert plain.class_names == named.class_names
    for one, other in ((plain.train, named.train), (plain.test, named.test)):
        pairs = (dict(zip(s.names, s.labels.tolist(), strict=True)) for s in (one, other))
        assert next(pairs) == next(pairs)


def test_cub200_photographs_decode(real):
    dataset = open_dataset("cub200", real, seed=0)
    decoded = [decode(image) for image in dataset.train.images[::30]]
    assert len(decoded) == 200


def test_cub200_session_lists_match_the_photographs(real):
    dataset = open_dataset("cub200", real, seed=0)
    lists = read_session_lists(real / "cub200/sessions")
    train = match_names(lists.train, dataset.train.names)
    test = match_names(lists.test, dataset.test.names)
    assert [len(found) for found in train] == [3000] + [50] * 10
    for session, found in enumerate(train):
        first, after = (0, 100) if session == 0 else (90 + 10 * session, 100 + 10 * session)
        assert set(dataset.train.labels[found]) == set(range(first, after))
        assert set(dataset.test.labels[test[session]]) == set(range(first, after))
        if session:
            assert np.bincount(dataset.train.labels[found])[first:].tolist() == [5] * 10
    assert np.unique(np.concatenate(test)).tolist() == list(range(5794))


def test_the_part_of_cifar100_is_recognised_as_a_part(real):
    dataset = open_dataset("cifar100", real, seed=0)
    assert dataset.differences == ("7,700 training images, officially 50,000",)
    counts = np.bincount(dataset.train.labels)
    base = np.random.RandomState(1993).permutation(100)[:10]
    assert np.flatnonzero(counts == 500).tolist() == sorted(base.tolist())
    assert set(counts.tolist()) == {30, 500}
    assert np.bincount(dataset.test.labels).tolist() == [100] * 100
