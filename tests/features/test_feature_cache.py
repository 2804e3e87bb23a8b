from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fiveshot.data import FileSource
from fiveshot.errors import InputError, StorageError
from fiveshot.features import (
    CacheKey,
    FeatureCache,
    FeatureSet,
    Provenance,
    default_cache_folder,
)
from fiveshot.features.job import content_marks, listing_digest, quick_marks

VIT = Provenance("birds", "vit", "ab12", {"crop": 224}, None, "cls")


def vectors(made: Provenance) -> FeatureSet:
    x, y = np.eye(4, dtype=np.float16), np.array([0, 0, 1, 1])
    return FeatureSet(x, y, x, y, ("ani", "rook"), made)


@pytest.fixture
def cache(tmp_path) -> FeatureCache:
    return FeatureCache(tmp_path / "made" / "on" / "demand")


def test_what_is_put_comes_back(cache):
    key = CacheKey("images", VIT)
    assert cache.get(key) is None
    cache.put(key, vectors(replace(VIT, note="extracted on a laptop")))
    found = cache.get(key)
    np.testing.assert_array_equal(found.train_x, np.eye(4))
    assert found.provenance.note == "extracted on a laptop"
    assert [file.name for file in cache.folder.iterdir()] == [f"{key.digest}.safetensors"]


def test_everything_that_decides_the_values_is_in_the_key():
    base = CacheKey("images", VIT)
    others = [
        CacheKey("other images", VIT),
        *(
            CacheKey("images", replace(VIT, **change))
            for change in (
                {"dataset": "fish"},
                {"backbone": "cnn"},
                {"weights_hash": "cd34"},
                {"preprocessing": {"crop": 256}},
                {"adapter": "ef56"},
                {"readout": "mean"},
                {"precision": "bf16"},
            )
        ),
    ]
    assert len({key.digest for key in [base, *others]}) == 9
    assert base.digest == CacheKey("images", replace(VIT, note="x")).digest
    assert base.digest == CacheKey("images", replace(VIT, preprocessing=dict(VIT.preprocessing))).digest


def test_an_unknown_precision_is_taken_for_any(cache):
    key = CacheKey("images", replace(VIT, precision="float32"))
    cache.put(key, vectors(VIT))
    assert cache.get(key).provenance.precision == "unknown"
    cache.put(key, vectors(replace(VIT, precision="float32")))
    assert cache.get(key).provenance.precision == "float32"
    with pytest.raises(InputError, match="precision is 'bf16', not 'float32'"):
        cache.put(key, vectors(replace(VIT, precision="bf16")))


def test_file_of_another_backbone_is_refused_naming_both(cache):
    cnn = replace(VIT, backbone="cnn", weights_hash="9999")
    wanted, other = CacheKey("images", VIT), CacheKey("images", cnn)
    cache.put(other, vectors(cnn))
    cache.path(other).rename(cache.path(wanted))
    with pytest.raises(
        StorageError, match="backbone is 'cnn', not 'vit'; weights_hash is '9999', not 'ab12'"
    ) as caught:
        cache.get(wanted)
    assert f"{cache.path(wanted)}" in str(caught.value)
    assert caught.value.hint == "delete it to extract them again"


def test_features_are_not_put_under_a_key_of_another_backbone(cache):
    with pytest.raises(InputError, match="backbone is 'cnn', not 'vit'"):
        cache.put(CacheKey("images", VIT), vectors(replace(VIT, backbone="cnn")))
    assert not cache.folder.exists()


def test_cut_file_is_refused_with_the_way_out(cache):
    key = CacheKey("images", VIT)
    cache.put(key, vectors(VIT))
    data = cache.path(key).read_bytes()
    cache.path(key).unlink()
    cache.path(key).write_bytes(data[:-10])
    with pytest.raises(StorageError, match=f"truncated; delete {cache.path(key)} to extract them again$"):
        cache.get(key)


def test_replacing_a_file_leaves_those_mapped_earlier_alone(cache):
    key = CacheKey("images", VIT)
    first = cache.put(key, vectors(VIT))
    cache.put(key, replace(vectors(VIT), train_x=np.zeros((4, 4), np.float16)))
    np.testing.assert_array_equal(first.train_x, np.eye(4))
    assert not cache.get(key).train_x.any()


def test_clear_deletes_cached_features_and_nothing_else(cache):
    for images in ("one", "two"):
        cache.put(CacheKey(images, VIT), vectors(VIT))
    (cache.folder / "weights.safetensors").write_text("of somebody else")
    assert cache.clear() == 2
    assert [file.name for file in cache.folder.iterdir()] == ["weights.safetensors"]
    assert FeatureCache(cache.folder / "absent").clear() == 0


def test_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot make the cache folder .* FIVESHOT_CACHE"):
        FeatureCache(tmp_path / "file" / "cache").put(CacheKey("images", VIT), vectors(VIT))


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"FIVESHOT_CACHE": "/a/b", "XDG_CACHE_HOME": "/c"}, "/a/b/features"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/fiveshot/features"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/fiveshot/features"),
        ({"HOME": "/h"}, "/h/.cache/fiveshot/features"),
    ],
)
def test_default_folder_follows_the_environment(monkeypatch, variables, expected):
    for name in ("FIVESHOT_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_cache_folder() == Path(expected)
    assert FeatureCache().folder == Path(expected)


def test_the_digest_of_a_list_depends_on_every_text_and_keeps_them_apart():
    one = ("a", "train", "ani", "1")
    prints = {
        listing_digest([one]),
        listing_digest([("b", "train", "ani", "1")]),
        listing_digest([("a", "test", "ani", "1")]),
        listing_digest([("a", "train", "rook", "1")]),
        listing_digest([("a", "train", "ani", "2")]),
        listing_digest([("at", "rain", "ani", "1")]),
        listing_digest([one, one]),
        listing_digest([]),
    }
    assert len(prints) == 8


def test_marks_by_content_see_changes_and_not_copies_and_quick_ones_see_any_change(tmp_path):
    photo = FileSource(tmp_path / "a.jpg", "a.jpg")
    photo.path.write_bytes(b"one")
    content, quick = content_marks([photo]), quick_marks([photo])
    os.utime(photo.path, (1, 1))
    assert (content_marks([photo]) == content).all()
    assert (quick_marks([photo]) != quick).any()
    photo.path.write_bytes(b"won")
    assert (content_marks([photo]) != content).any()
    photo.path.unlink()
    assert not content_marks([photo]).any(), "unreadable"
