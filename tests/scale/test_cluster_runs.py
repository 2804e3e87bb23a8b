"""Whole runs on a real cluster of this machine: the same result as a single machine's, whatever happens."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extracting import run_extraction
from pictures import CLASSES, Delayed, draw_folder, encoded, write_tar

from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.cli.app import main
from fiveshot.core import class_statistics
from fiveshot.core.scorers import make_scorer
from fiveshot.data import ImageDataset, ImageSplit, open_images
from fiveshot.errors import InputError
from fiveshot.features import FeatureSet
from fiveshot.scale import (
    Catalog,
    ClusterProgress,
    ClusterSettings,
    ClusterStatistics,
    Ridge,
    StatisticsPlan,
    dataset_catalog,
    extract_shards,
    join_catalogs,
    open_catalog,
    reduce_images,
    reduce_shards,
)
from fiveshot.scale._extraction import MANIFEST, read_manifest
from fiveshot.scale._pipeline import Decode, Forward, Rows, concatenate, good_rows, read_shard, vector_facts
from fiveshot.scale._statistics import choose_settings

pytestmark = pytest.mark.usefixtures("cluster")
BAD = "train/rook/002.jpg"
EMBEDDED = BackboneSpec(device="cpu", views=1)  # no worker has to import PyTorch


class StoppedError(Exception):
    """What an interrupt is to a run: it ends wherever it is."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = draw_folder(tmp_path_factory.mktemp("runs") / "birds", per_class=4, seed=0)
    (path / BAD).write_text("no photograph")
    return path


@pytest.fixture(scope="module")
def barrier(folder: Path) -> Path:
    """A file; while it exists, one photo cannot be read."""
    return folder.parent / "barrier"


@pytest.fixture(scope="module")
def everything(folder: Path, barrier: Path) -> Catalog:
    """The folder as a URL, a photo that may wait, a parquet file, and two tars of another class, one bad."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(4)
    place = folder.parent
    table = arrow.table({"image": [encoded(rng) for _ in range(6)], "label": [*CLASSES, *CLASSES]})
    parquet.write_table(table, place / "more.parquet")
    for number in range(2):
        members = {f"{i}.jpg": encoded(rng) for i in range(4)} | {f"{i}.cls": b"zebra" for i in range(4)}
        bad = {"9.jpg": b"", "9.cls": b"zebra"} if number else {}
        write_tar(
            place / f"zebras-{number}.tar", {name: {**members, **bad}[name] for name in sorted(members | bad)}
        )
    nothing = ImageSplit((), np.zeros(0, np.int64))
    waiting = ImageSplit((Delayed(encoded(rng), barrier),), np.zeros(1, np.int64))
    return join_catalogs(
        "birds",
        [
            open_catalog(f"file://{folder}", seed=0, shard_images=8),
            dataset_catalog(ImageDataset("waiting", CLASSES, nothing, waiting)),
            open_catalog(str(place / "more.parquet"), seed=0),
            open_catalog(str(place / "zebras-{0..1}.tar"), seed=0),
        ],
    )


@pytest.fixture(scope="module")
def training_rows(everything: Catalog) -> Rows:
    """All training vectors, computed here one after the other."""
    facts = vector_facts(EMBEDDED, "float32", dataset="birds")
    decode = Decode(facts.preprocessing)
    forward = Forward(EMBEDDED, fingerprint=facts.fingerprint, dtype="float32")
    batches = [forward(decode(batch)) for shard in everything.shards for batch in read_shard(shard)]
    return good_rows(concatenate(batches), splits=(0,))


@pytest.fixture
def fiveshot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Run the command line in this process; return its status and all it says."""

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["fiveshot", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out + captured.err

    return run


@pytest.fixture
def doomed(cluster: Any) -> Iterator[Callable[[], float]]:
    """A second node, the only one with room for a backbone; return what kills it and says how busy it was.

    The first node cannot be busier than all its processors, so the rest of what is busy is on the second one.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(cluster.head_node.node_id, soft=False)
    occupant = ray.remote(num_cpus=1.5)(threading.Event).options(scheduling_strategy=here).remote()
    ray.get(occupant.is_set.remote())
    own = ray.cluster_resources()["CPU"]
    node = cluster.add_node(num_cpus=2, object_store_memory=150 << 20, include_log_monitor=False)

    def kill() -> float:
        busy = ray.cluster_resources()["CPU"] - ray.available_resources().get("CPU", 0)
        ray.kill(occupant)
        cluster.remove_node(node, allow_graceful=False)
        return float(busy - own)

    yield kill
    ray.kill(occupant)
    if node in cluster.worker_nodes:
        cluster.remove_node(node)


def close(found: Any, expected: Any) -> bool:
    return float(abs(found - expected).max()) <= 1e-5 * float(abs(expected).max())


def test_statistics_survive_a_killed_node_and_an_interrupt(
    doomed: Callable[[], float], everything: Catalog, barrier: Path, training_rows: Rows, tmp_path: Path
) -> None:
    out = tmp_path / "birds.safetensors"
    plan = StatisticsPlan(head="unbiased-lda", sample=4, ridge=Ridge(24, random_state=3))
    options: dict[str, Any] = {"plan": plan, "spec": EMBEDDED}
    settings = ClusterSettings(dtype="float32", workers=1, batch_size=4)
    lost: list[float] = []  # processors that were busy on the node that was killed

    def watch(now: ClusterProgress) -> None:
        if not lost:
            lost.append(doomed())
            barrier.unlink()
        if now.tally.images >= 25 and now.waiting:  # the second part has begun
            raise StoppedError

    barrier.touch()  # the first part cannot end before the node is killed
    with pytest.raises(StoppedError):
        reduce_images(everything, out, save_every=4, progress=watch, settings=settings, **options)
    assert lost[0] > 0, "the node that was killed had work"
    assert [path.name for path in tmp_path.iterdir()] == [f".{out.name}.partial"]
    assert ClusterStatistics.load(tmp_path / f".{out.name}.partial").images == 25

    seen: list[ClusterProgress] = []
    found = reduce_images(
        everything, out, settings=replace(settings, skip_bad=True), progress=seen.append, **options
    )
    assert (found.images, seen[-1].done, seen[-1].tally.images) == (40, 40, 15), (
        "the first part is not computed again"
    )
    assert {image.name.rpartition("/zebras-1.tar/")[2] for image in found.bad} == {BAD, "9.jpg"}
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    again = ClusterStatistics.load(out)
    assert again.bad == found.bad
    assert len(again.sample or ()) == 16

    settings = choose_settings("unbiased-lda", training_rows)
    assert np.allclose(again.settings["center"], settings["center"], rtol=1e-5, atol=1e-5)
    vectors = make_scorer().learn(training_rows.vectors, training_rows.labels).embed(training_rows.vectors)
    expected = class_statistics(vectors, training_rows.labels)
    assert again.statistics.labels.tolist() == [*CLASSES, "zebra"]
    assert again.statistics.counts.tolist() == expected.counts.tolist() == [6, 5, 6, 8]
    for one, other in zip(again.statistics.summaries, expected.summaries, strict=True):
        assert close(one.mean, other.mean)
        assert close(one.factor.T @ one.factor, other.factor.T @ other.factor)
    assert again.ridge is not None
    assert plan.ridge is not None
    sums = plan.ridge.reduce(training_rows)
    assert close(np.tril(again.ridge.gram), np.tril(sums.gram))
    assert close(again.ridge.targets, sums.targets)


def test_shards_are_resumed_by_the_command_and_equal_a_single_machine(
    folder: Path, spec: BackboneSpec, tmp_path: Path, fiveshot: Callable[..., tuple[int, str]], monkeypatch: Any
) -> None:
    monkeypatch.setitem(open_catalog.__kwdefaults__, "shard_images", 3)
    catalog = open_catalog(str(folder), seed=0, shard_images=3)

    def stop(now: ClusterProgress) -> None:
        if now.shards >= 2:
            raise StoppedError

    out = tmp_path / "birds.safetensors"
    parts = tmp_path / "shards"
    with pytest.raises(StoppedError):
        extract_shards(
            catalog, parts, spec=spec, settings=ClusterSettings(dtype="float32", workers=1), progress=stop
        )
    finished = {path: path.stat().st_mtime_ns for path in parts.glob("shard-*")}
    assert 2 <= len(finished) < len(catalog.shards)
    assert not (parts / MANIFEST).exists()

    command = ["cluster", "extract", "--images", folder, "--backbone", spec.name, "--weights"]
    command += [spec.weights, "--runtime", "torch", "--dtype", "float32", "--workers", "1"]
    status, said = fiveshot(*command, "--shards", "--out", parts)
    assert status == 1
    assert f"error: 1 of 24 images cannot be used:\n  {BAD}: not a photo in a supported format" in said
    assert all(path.stat().st_mtime_ns == time for path, time in finished.items()), "finished shards stay"
    assert len(list(parts.glob("shard-*"))) == len(catalog.shards)

    status, said = fiveshot(*command, "--shards", "--out", parts, "--skip-bad")
    assert status == 0
    assert f"{parts}: 8 shards with vectors of 24 images" in said
    assert "all 24 images were extracted before; nothing to do" in said
    assert f"left out 1 bad image:\n  {BAD}: not a photo" in said
    assert read_manifest(parts)["bad"][0][0] == BAD
    reduced = reduce_shards(
        parts, tmp_path / "statistics.safetensors", plan=StatisticsPlan(head="unbiased-lda", sample=2)
    )
    (tmp_path / "statistics.safetensors").unlink()

    # The command keeps its shards in a hidden folder while it makes one file: finished ones are taken from there.
    parts.rename(tmp_path / f".{out.name}.{catalog.digest[:16]}.shards")
    status, said = fiveshot(*command, "--out", out, "--skip-bad")
    assert status == 0
    assert f"{out}: 11 training and 12 test vectors of 64 float32, 3 classes" in said
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    found = FeatureSet.load(out)
    alone = run_extraction(
        open_images(folder, seed=0), load_embedder(spec), dtype="float32", skip_bad=True
    ).features
    assert alone.provenance.differences(found.provenance) == ()
    assert (found.train_names, found.test_names) == (alone.train_names, alone.test_names)
    assert (found.train_y == alone.train_y).all()
    labels = np.array(alone.class_names)[alone.train_y]
    head = make_scorer().learn(np.array(alone.train_x), labels)
    assert np.allclose(reduced.settings["center"], head.settings()["center"], rtol=1e-5, atol=1e-6)
    assert reduced.statistics.counts.tolist() == head.memory.base.counts.tolist() == [4, 3, 4]
    for one, other in zip(reduced.statistics.summaries, head.memory.base.summaries, strict=True):
        assert close(one.mean, other.mean)
        assert close(one.factor.T @ one.factor, other.factor.T @ other.factor)
    assert (reduced.images, len(reduced.bad), len(reduced.sample or ())) == (24, 1, 6)
    assert close(found.train_x, alone.train_x)
    assert close(found.test_x, alone.test_x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--images": "nowhere"}, "no such folder or archive: nowhere"),
        ({"--workers": "0"}, "workers is 0; choose 1 or more"),
        ({"--device": "cuda"}, "the cluster has no GPU; leave --device out, or choose cpu"),
        ({"--out": "no/such/folder/x"}, "cannot write no/such/folder/x: the folder no/such/folder does not exist"),
        (
            {"--out": "x.npz"},
            "x.npz would be written as safetensors; write x.safetensors, then: fiveshot data convert",
        ),
        ({"--weights": "none.safetensors"}, "no such file: none.safetensors"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_wrong_options_are_one_sentence(
    change: dict[str, str], message: str, folder: Path, spec: BackboneSpec, tmp_path: Path, fiveshot: Any
) -> None:
    options = {"--images": folder, "--out": tmp_path / "x.safetensors"}
    options |= {"--backbone": spec.name, "--weights": spec.weights, "--runtime": "torch", **change}
    status, said = fiveshot("cluster", "extract", *(part for option in options.items() for part in option))
    assert status == 1
    assert f"error: {message}" in said
    assert "Traceback" not in said


def test_an_error_of_a_worker_arrives_as_it_was_raised(folder: Path, spec: BackboneSpec, tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"photo": [b""], "label": ["owl"]}), tmp_path / "a.parquet")
    catalog = open_catalog(str(tmp_path / "a.parquet"), seed=0)
    with pytest.raises(InputError, match="has no column 'image'; name one of photo, label with --image-column"):
        extract_shards(catalog, tmp_path / "out", spec=spec, settings=ClusterSettings(workers=1))
