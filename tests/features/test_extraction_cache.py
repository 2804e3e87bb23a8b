from __future__ import annotations

import functools
import os
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from extracting import run_extraction

from fiveshot.backbones import Embedder, Preprocessing, load_embedder
from fiveshot.data import Decoders, open_images
from fiveshot.errors import StorageError
from fiveshot.features import Extraction, FeatureCache

_watched: list[Counter[str]] = []


def _on_event(event: str, arguments: tuple) -> None:
    if event == "open" and _watched and str(arguments[0]).endswith(".jpg"):
        _watched[-1][str(arguments[0])] += 1


@functools.cache
def _listen() -> None:
    """Have the interpreter report from now on: not before, since it calls for every event, and for good."""
    sys.addaudithook(_on_event)


@contextmanager
def images_opened() -> Iterator[Counter[str]]:
    """Count, as the interpreter itself reports it, how often each photograph is opened."""
    _listen()
    _watched.append(Counter())
    try:
        yield _watched[-1]
    finally:
        _watched.pop()


@pytest.fixture
def cache(tmp_path: Path) -> FeatureCache:
    return FeatureCache(tmp_path / "cache")


def run(folder: Path, embedder: Embedder, cache: FeatureCache, **options) -> Extraction:
    return run_extraction(open_images(folder, seed=0), embedder, cache=cache, batch_size=4, **options)


def test_a_first_extraction_opens_every_image_once(
    photographs: Path, tiny: Embedder, cache: FeatureCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Decoders(workers=0)  # decodes in this process, the one in which opened files are counted
    monkeypatch.setattr("fiveshot.features.seeing.decoders", lambda: here)
    with images_opened() as opened:
        report = run(photographs, tiny, cache)
    assert (len(opened), set(opened.values())) == (15, {1})
    assert report.computed == 15


def test_a_second_one_opens_none(photographs: Path, tiny: Embedder, cache: FeatureCache) -> None:
    first = run(photographs, tiny, cache)
    with images_opened() as opened:
        again = run(photographs, tiny, cache)
    assert not opened
    assert (again.computed, again.runtime, again.rate) == (0, None, None)
    assert again.path == first.path
    np.testing.assert_array_equal(again.features.train_x, first.features.train_x)


def test_touched_files_are_read_and_found(photographs: Path, tiny: Embedder, cache: FeatureCache) -> None:
    run(photographs, tiny, cache)
    os.utime(photographs / "train" / "ani" / "0.jpg")
    with images_opened() as opened:
        assert run(photographs, tiny, cache).computed == 0
    assert len(opened) == 15
    with images_opened() as opened:
        assert run(photographs, tiny, cache).computed == 0
    assert not opened, "their new times are remembered"


def test_a_copy_elsewhere_is_found(photographs: Path, tiny: Embedder, cache: FeatureCache, tmp_path: Path) -> None:
    run(photographs, tiny, cache)
    copied = shutil.copytree(photographs, tmp_path / "elsewhere" / "birds")
    assert run(copied, tiny, cache).computed == 0


def test_another_photograph_of_equal_size_and_time_is_noticed(
    photographs: Path, tiny: Embedder, cache: FeatureCache, redraw
) -> None:
    first = run(photographs, tiny, cache)
    path = photographs / "train" / "ani" / "0.jpg"
    before = path.stat()
    redraw(path)
    content = path.read_bytes()
    path.write_bytes(
        (content + bytes(before.st_size))[: before.st_size] if len(content) <= before.st_size else content
    )
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = run(photographs, tiny, cache)
    assert again.computed == 15
    changed = (again.features.train_x != first.features.train_x).any(axis=1)
    assert changed.tolist() == [True] + 8 * [False]


@pytest.mark.parametrize("change", ["added", "removed", "other class", "folder renamed"])
def test_another_dataset_is_another_entry(
    photographs: Path, tiny: Embedder, cache: FeatureCache, change: str, redraw
) -> None:
    run(photographs, tiny, cache)
    match change:
        case "added":
            redraw(photographs / "train" / "ani" / "9.jpg")
        case "removed":
            (photographs / "train" / "ani" / "1.jpg").unlink()
        case "other class":
            (photographs / "train" / "ani" / "1.jpg").rename(photographs / "train" / "wren" / "9.jpg")
        case "folder renamed":
            photographs = photographs.rename(photographs.with_name("fowl"))
    report = run(photographs, tiny, cache)
    assert report.computed == len(report.features.train_x) + len(report.features.test_x) > 0


def test_whatever_decides_the_vectors_is_another_entry(
    photographs: Path, tiny: Embedder, cache: FeatureCache
) -> None:
    run(photographs, tiny, cache)
    others = [
        run(photographs, load_embedder(tiny.spec.replace(tokens="mean")), cache),
        run(
            photographs,
            load_embedder(tiny.spec.replace(preprocessing=Preprocessing(160, 200))),
            cache,
        ),
        run(photographs, tiny, cache, dtype="float32"),
    ]
    assert [report.computed for report in others] == [15, 15, 15]
    assert len({report.path for report in others}) == 3
    assert run(photographs, load_embedder(tiny.spec), cache).computed == 0, "the same weights, loaded again"


def test_a_cleared_cache_and_a_lost_index_cost_time_only(
    photographs: Path, tiny: Embedder, cache: FeatureCache
) -> None:
    first = run(photographs, tiny, cache)
    assert cache.clear() == 1
    assert run(photographs, tiny, cache).computed == 15
    (index,) = (cache.folder / "index").iterdir()
    index.write_text('{"half')
    report = run(photographs, tiny, cache)
    assert (report.computed, report.path) == (15, first.path)


def test_nothing_but_the_result_stays_in_the_cache(photographs: Path, tiny: Embedder, cache: FeatureCache) -> None:
    report = run(photographs, tiny, cache)
    files = sorted(path.relative_to(cache.folder).parts[0] for path in cache.folder.rglob("*") if path.is_file())
    assert files == sorted([report.path.name, "index"])


def test_the_output_is_a_copy_of_the_cached_file(
    photographs: Path, tiny: Embedder, cache: FeatureCache, tmp_path: Path
) -> None:
    out = tmp_path / "birds.safetensors"
    report = run(photographs, tiny, cache, out=out)
    assert report.path == out
    cached = run(photographs, tiny, cache).path
    assert cached.read_bytes() == out.read_bytes()


def test_two_at_the_same_time_do_the_work_once(photographs: Path, tiny: Embedder, cache: FeatureCache) -> None:
    start = threading.Barrier(2)

    def one(_: int) -> Extraction:
        birds = open_images(photographs, seed=0)
        start.wait()
        return run_extraction(
            birds, tiny, cache=cache, batch_size=1, workers=1, progress=lambda *_: time.sleep(0.01)
        )

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(one, range(2)))
    assert sorted(report.computed for report in reports) == [0, 15]
    np.testing.assert_array_equal(reports[0].features.test_x, reports[1].features.test_x)


def test_a_cache_that_cannot_be_made_is_named(photographs: Path, tiny: Embedder, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot keep finished parts in .*file"):
        run(photographs, tiny, FeatureCache(tmp_path / "file"))
