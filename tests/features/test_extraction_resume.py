from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from extracting import run_extraction
from file_limits import no_file_may_grow_beyond

from fiveshot.backbones import BackboneSpec, Embedder, Preprocessing, load_embedder
from fiveshot.data import open_images
from fiveshot.errors import StorageError
from fiveshot.features import FeatureCache, FeatureSet

# What the subprocesses run: slowly, one image after the other, and every image kept as a part.
PROGRAM = """
import sys, time
from pathlib import Path
from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.data import open_images
from fiveshot.features import ExtractionSettings, FeatureCache, extract

images, cache, out, pause = sys.argv[1:]
extract(
    open_images(Path(images), seed=0),
    load_embedder(BackboneSpec(device="cpu", views=1)),
    ExtractionSettings(batch_size=1, workers=1, part_seconds=0),
    cache=FeatureCache(cache),
    out=out,
    progress=lambda done, total: time.sleep(float(pause)),
)
"""


def start(images: Path, cache: Path, out: Path, pause: float) -> subprocess.Popen:
    arguments = [str(images), str(cache), str(out), str(pause)]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stderr=subprocess.PIPE, text=True)


def kill_after(process: subprocess.Popen, folder: Path, parts: int) -> int:
    """Kill the process as soon as so many parts are there, with a signal that it cannot even notice."""
    until = time.monotonic() + 60
    while len(list(folder.rglob("part-*.safetensors"))) < parts:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    return len(list(folder.rglob("part-*.safetensors")))


def test_a_killed_extraction_goes_on_where_it_stopped(few_photographs: Path, tmp_path: Path) -> None:
    embedder = load_embedder(BackboneSpec(device="cpu", views=1))  # a process need not import PyTorch for this one
    out = tmp_path / "birds.safetensors"
    cache = FeatureCache(tmp_path / "cache")
    finished = kill_after(start(few_photographs, cache.folder, out, 0.1), cache.folder, parts=4)
    assert 4 <= finished < 9
    assert not out.exists(), "no half file"

    birds = open_images(few_photographs, seed=0)
    seen: list[tuple[int, int]] = []
    report = run_extraction(
        birds, embedder, cache=cache, out=out, batch_size=1, progress=lambda *now: seen.append(now)
    )
    assert report.computed == 9 - finished
    assert seen[0] == (finished, 9)
    whole = run_extraction(birds, embedder, out=tmp_path / "whole.safetensors", batch_size=1)
    assert out.read_bytes() == whole.path.read_bytes(), "as if it had never been stopped"
    assert not list((cache.folder / "partial").iterdir())


def test_without_a_cache_the_parts_wait_beside_the_output(
    photographs: Path, tiny: Embedder, tmp_path: Path
) -> None:
    out = tmp_path / "out" / "birds.safetensors"
    out.parent.mkdir()
    interrupted(photographs, tiny, after=6, out=out)
    (folder,) = out.parent.iterdir()
    assert folder.name.startswith(".birds.safetensors.")
    assert run_extraction(open_images(photographs, seed=0), tiny, out=out, batch_size=1).computed == 15 - 6
    assert list(out.parent.iterdir()) == [out]


def interrupted(folder: Path, embedder: Embedder, *, after: int, **kept) -> None:
    """Stop as Ctrl-C does."""

    def progress(done: int, total: int) -> None:
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_extraction(
            open_images(folder, seed=0), embedder, **kept, batch_size=1, part_seconds=0, progress=progress
        )


def test_an_interruption_keeps_everything_finished(photographs: Path, tiny: Embedder, tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "cache")

    def progress(done: int, total: int) -> None:
        if done == 7:
            raise KeyboardInterrupt

    birds = open_images(photographs, seed=0)
    with pytest.raises(KeyboardInterrupt):
        run_extraction(birds, tiny, cache=cache, batch_size=1, progress=progress)  # no part is due yet
    assert run_extraction(birds, tiny, cache=cache, batch_size=1).computed == 15 - 7


def test_an_image_changed_in_between_is_computed_again(
    photographs: Path, tiny: Embedder, tmp_path: Path, redraw
) -> None:
    cache = FeatureCache(tmp_path / "cache")
    interrupted(photographs, tiny, after=6, cache=cache)
    redraw(photographs / "train" / "ani" / "1.jpg")
    os.utime(photographs / "train" / "ani" / "2.jpg")  # its part holds, but only its content tells
    birds = open_images(photographs, seed=0)
    report = run_extraction(birds, tiny, cache=cache, batch_size=1)
    assert report.computed == 15 - 6 + 1
    np.testing.assert_array_equal(
        report.features.train_x, run_extraction(birds, tiny, batch_size=1).features.train_x
    )


@pytest.mark.parametrize("damage", ["truncated", "empty", "of another program", "of other positions"])
def test_a_damaged_part_is_computed_again(photographs: Path, tiny: Embedder, tmp_path: Path, damage: str) -> None:
    cache = FeatureCache(tmp_path / "cache")
    interrupted(photographs, tiny, after=6, cache=cache)
    (part,) = cache.folder.rglob("part-3-4.safetensors")
    match damage:
        case "truncated":
            part.write_bytes(part.read_bytes()[:-7])
        case "empty":
            part.write_bytes(b"")
        case "of another program":
            part.write_text("not a tensor in sight")
        case "of other positions":
            part.rename(part.with_name("part-3-5.safetensors"))
    birds = open_images(photographs, seed=0)
    report = run_extraction(birds, tiny, cache=cache, batch_size=1)
    assert report.computed == 15 - 6 + 1
    np.testing.assert_array_equal(
        report.features.train_x, run_extraction(birds, tiny, batch_size=1).features.train_x
    )


def test_parts_of_other_options_are_not_taken(
    photographs: Path, tiny: Embedder, tiny_file: Path, tmp_path: Path
) -> None:
    cache = FeatureCache(tmp_path / "cache")
    interrupted(photographs, tiny, after=6, cache=cache)
    other = load_embedder(tiny.spec.replace(preprocessing=Preprocessing(160, 180)))
    assert run_extraction(open_images(photographs, seed=0), other, cache=cache).computed == 15


def test_another_batch_size_goes_on_too(photographs: Path, tiny: Embedder, tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "cache")
    interrupted(photographs, tiny, after=6, cache=cache)
    birds = open_images(photographs, seed=0)
    report = run_extraction(birds, tiny, cache=cache, batch_size=4, dtype="float16")
    assert report.computed == 9
    whole = run_extraction(birds, tiny, batch_size=5).features
    np.testing.assert_allclose(report.features.test_x, whole.test_x, atol=2e-3)


@pytest.mark.parametrize(("limit", "finished"), [(2600, 15), (100, 0)], ids=["for the result", "for a part"])
def test_a_full_disk_leaves_no_half_file(
    photographs: Path, tiny: Embedder, tmp_path: Path, limit: int, finished: int
) -> None:
    out = tmp_path / "out" / "birds.safetensors"
    out.parent.mkdir()
    birds = open_images(photographs, seed=0)
    options = {"out": out, "batch_size": 1, "dtype": "float32"}
    with (
        no_file_may_grow_beyond(limit),
        pytest.raises(StorageError, match=r"cannot write .*; nothing was left behind"),
    ):
        run_extraction(birds, tiny, **options, part_seconds=0)
    assert not out.exists()
    left = [path.name for path in out.parent.rglob("*") if path.is_file() and path.name != "lock"]
    assert len(left) == finished
    assert all(name.startswith("part-") for name in left)
    assert run_extraction(birds, tiny, **options).computed == 15 - finished
    assert [path.name for path in out.parent.iterdir()] == ["birds.safetensors"]


MEMORY = """
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
import numpy as np
from fiveshot.backbones import BackboneSpec, Embedder, Preprocessing
from fiveshot.data import FileSource, ImageDataset, ImageSplit
from fiveshot.features import ExtractionSettings, extract

@dataclass
class Pixels:  # 49,152 values for an image: 192 kB
    name: str = "pixels"
    device: str = "cpu"
    precision: str = "float32"
    weights_hash: str = "none"
    adapter_hash: None = None
    width: int = 3 * 128 * 128
    def ready(self):
        return "none"
    def forward(self, images):
        return images.reshape(len(images), -1).astype(np.float32)

def held():  # MiB that are in memory and nowhere else
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssAnon"].split()[0]) // 1024

def watch(most, end):
    while not end.wait(0.002):
        most[0] = max(most[0], held())

folder, out, *counts = sys.argv[1:]
photograph = next(Path(folder).rglob("*.jpg"))
for count in map(int, counts):
    images = tuple(FileSource(photograph, f"{number}.jpg") for number in range(count))
    split = ImageSplit(images, np.zeros(count, np.int64))
    empty = ImageSplit((), np.zeros(0, np.int64))
    most, end = [0], Event()
    watcher = Thread(target=watch, args=(most, end), daemon=True)
    watcher.start()
    done = extract(
        ImageDataset("one", ("one",), split, empty),
        Embedder(BackboneSpec(), Preprocessing(size=128, resize=128), Pixels()),
        ExtractionSettings(dtype="float32", workers=2, part_seconds=0.02),
        out=out,
    )
    end.set()
    watcher.join()
    assert done.features.train_x.shape == (count, 49152)
    print(most[0])
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory from Linux's /proc")
def test_memory_does_not_grow_with_the_number_of_images(photographs: Path, tmp_path: Path) -> None:
    out = tmp_path / "pixels.safetensors"
    arguments = [str(photographs), str(out), "100", "800"]
    done = subprocess.run([sys.executable, "-c", MEMORY, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    few, many = map(int, done.stdout.split())
    assert out.stat().st_size > 131 << 20
    assert many - few < 65, "the 700 further vectors alone are 131 MiB"


def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    photographs: Path, tiny: Embedder, tmp_path: Path
) -> None:
    birds = open_images(photographs, seed=0)
    (tmp_path / "notes.txt").write_text("precious")
    for out, reason in [
        (tmp_path / "nowhere" / "a.safetensors", "does not exist; create it first"),
        (tmp_path, "it is a folder"),
        (tmp_path / "notes.txt", "exists and is not a feature file"),
    ]:
        with pytest.raises(StorageError, match=reason):
            run_extraction(birds, tiny, out=out)
    assert (tmp_path / "notes.txt").read_text() == "precious"


def test_an_older_feature_file_is_replaced(photographs: Path, tiny: Embedder, tmp_path: Path) -> None:
    birds, out = open_images(photographs, seed=0), tmp_path / "a.safetensors"
    run_extraction(birds, tiny, out=out, dtype="float32")
    run_extraction(birds, tiny, out=out, dtype="float16")
    assert FeatureSet.load(out).train_x.dtype == np.float16
