"""The stages without a cluster: read, decode and forward by hand give what a single machine gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from extracting import run_extraction
from pictures import draw_folder

from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.data import open_images
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.features import FeatureSet
from fiveshot.features.parts import Part, stored_vectors
from fiveshot.scale import Catalog, open_catalog
from fiveshot.scale._extraction import (
    ShardCollector,
    ShardFolder,
    ShardRun,
    read_manifest,
)
from fiveshot.scale._pipeline import (
    COUNT_ROW,
    Batch,
    Decode,
    Forward,
    VectorFacts,
    checked,
    concatenate,
    good_rows,
    read_shard,
    tally,
    vector_facts,
)
from fiveshot.scale.cluster import silent


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = draw_folder(tmp_path_factory.mktemp("stages") / "birds", per_class=4, seed=0)
    (path / "train" / "rook" / "002.jpg").write_text("no photograph")
    (path / "test" / "wren" / "000.jpg").write_bytes(b"")
    return path


@pytest.fixture(scope="module")
def facts(spec: BackboneSpec) -> VectorFacts:
    return vector_facts(spec, "float32", dataset="birds")


@pytest.fixture(scope="module")
def catalog(folder: Path) -> Catalog:
    return open_catalog(str(folder), seed=0, shard_images=7)


@pytest.fixture(scope="module")
def alone(folder: Path, spec: BackboneSpec) -> FeatureSet:
    return run_extraction(
        open_images(folder, seed=0), load_embedder(spec), dtype="float32", skip_bad=True
    ).features


@pytest.fixture(scope="module")
def batches(catalog: Catalog, spec: BackboneSpec, facts: VectorFacts) -> list[Batch]:
    decode, forward = Decode(facts.preprocessing), Forward(spec, fingerprint=facts.fingerprint, dtype="float32")
    return [forward(decode(batch)) for shard in catalog.shards for batch in read_shard(shard)]


def test_rows_tell_everything(batches: list[Batch], alone: FeatureSet) -> None:
    batch = concatenate(batches)
    done = tally(batch)
    assert done.images == 24
    assert [image.name for image in done.bad] == ["train/rook/002.jpg", "test/wren/000.jpg"]
    assert done.bad[1].reason == "the file is empty"
    assert set(done.rates()) == {"read", "decode", "forward"}
    rows = good_rows(batch, splits=(0,))
    assert rows.names == alone.train_names
    assert np.abs(rows.vectors - alone.train_x).max() <= 1e-5 * np.abs(alone.train_x).max()
    assert batch["row"][batch["split"] == COUNT_ROW].tolist() == [7, 7, 7, 3]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shards_of_rows_in_any_order_join_to_the_same_file(
    batches: list[Batch], catalog: Catalog, facts: VectorFacts, alone: FeatureSet, tmp_path: Path, seed: int
) -> None:
    store = ShardFolder(tmp_path, facts)
    assert store.missing(catalog.shards) == list(catalog.shards)
    collector = ShardCollector({shard.number: shard for shard in catalog.shards}, store)
    rng = np.random.default_rng(seed)
    everything = concatenate(batches)
    order = rng.permutation(len(everything["row"]))
    for part in np.array_split(order, 5):
        collector.add({name: column[part] for name, column in everything.items()})
    assert (collector.finished, collector.held_rows) == (4, 0)
    assert store.missing(catalog.shards) == []

    joined = store.join(catalog.shards, tmp_path / "all.safetensors", runtime="test")
    for name in ("train_y", "test_y"):
        assert (getattr(joined, name) == getattr(alone, name)).all()
    for name in ("class_names", "train_names", "test_names"):
        assert getattr(joined, name) == getattr(alone, name)
    assert alone.provenance.differences(joined.provenance) == ()
    for name in ("train_x", "test_x"):
        assert np.allclose(getattr(joined, name), getattr(alone, name), rtol=1e-5, atol=1e-5)


def test_a_shard_is_kept_only_when_complete(
    batches: list[Batch], catalog: Catalog, facts: VectorFacts, tmp_path: Path
) -> None:
    store = ShardFolder(tmp_path, facts)
    collector = ShardCollector({shard.number: shard for shard in catalog.shards}, store)
    first = batches[0]
    collector.add({name: column[:-2] for name, column in first.items()})  # neither the last row nor the marker
    collector.add({name: column[-1:] for name, column in first.items()})
    assert (collector.finished, list(tmp_path.iterdir())) == (0, [])
    collector.add({name: column[-2:-1] for name, column in first.items()})
    assert collector.finished == 1
    shard = Part.load(store.path(catalog.shards[0]))
    assert shard.images == 7
    assert [image.name for _, image in shard.bad] == ["train/rook/002.jpg"]


def test_shards_of_another_backbone_or_damaged_ones_are_missing(
    batches: list[Batch], catalog: Catalog, facts: VectorFacts, spec: BackboneSpec, tmp_path: Path
) -> None:
    store = ShardFolder(tmp_path, facts)
    for shard, batch in zip(catalog.shards, batches, strict=True):
        store.write(shard, batch)
    store.write_manifest(catalog.shards, images=24, bad=tally(concatenate(batches)).bad)
    manifest = read_manifest(tmp_path)
    assert (manifest["images"], len(manifest["shards"]), len(manifest["bad"])) == (24, 4, 2)
    half = ShardFolder(tmp_path, vector_facts(spec, "float16", dataset="birds"))
    assert len(half.missing(catalog.shards)) == 4
    path = store.path(catalog.shards[2])
    path.write_bytes(path.read_bytes()[:-100])
    assert store.missing(catalog.shards) == [catalog.shards[2]]
    with pytest.raises(StorageError) as raised:
        read_manifest(tmp_path.parent)
    assert raised.value.code == "not_finished"


def test_a_node_with_other_weights_is_refused(spec: BackboneSpec) -> None:
    with pytest.raises(InputError, match=r"the test_vit.* on this node differs"):
        Forward(spec, fingerprint="0" * 64, dtype="float32")


def test_vectors_that_do_not_fit_their_type_are_refused() -> None:
    values, names = np.array([[1.0], [1e5]], np.float32), np.array(["a.jpg", "b.jpg"])
    with pytest.raises(InputError, match=r"the vector of b\.jpg has values up to 100000, too large for float16"):
        stored_vectors(values, names, np.dtype(np.float16))
    assert stored_vectors(values, names, np.dtype(np.float32)).tolist() == values.tolist()


WRONG_BATCHES = {
    "narrow vectors": lambda batch: batch | {"vectors": batch["vectors"][:, :-1]},
    "other numbers": lambda batch: batch | {"vectors": batch["vectors"].astype(np.float64)},
    "ragged vectors": lambda batch: batch | {"vectors": np.array([*batch["vectors"][1:], 0], dtype=object)},
    "not a number": lambda batch: batch | {"vectors": np.full_like(batch["vectors"], np.nan)},
    "too few vectors": lambda batch: batch | {"vectors": batch["vectors"][1:]},
    "too few names": lambda batch: batch | {"name": batch["name"][1:]},
    "no rows": lambda batch: {name: column for name, column in batch.items() if name != "row"},
    "another shard": lambda batch: batch | {"shard": batch["shard"] + 99},
    "one row twice": lambda batch: batch | {"row": np.where(batch["row"] == 1, 0, batch["row"])},
    "rows from elsewhere": lambda batch: batch | {"row": np.where(batch["row"] == 1, -1, batch["row"])},
}


@pytest.mark.parametrize("wrong", WRONG_BATCHES.values(), ids=WRONG_BATCHES)
def test_what_a_broken_node_returns_is_refused(
    batches: list[Batch],
    catalog: Catalog,
    facts: VectorFacts,
    tmp_path: Path,
    wrong: Callable[[Batch], Batch],
) -> None:
    collector = ShardCollector({shard.number: shard for shard in catalog.shards}, ShardFolder(tmp_path, facts))
    with pytest.raises(FiveshotError) as caught:
        collector.add(checked(wrong(batches[0]), facts))
    assert caught.value.code == "bad_node"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kept", [slice(1, None), slice(None, -1), slice(0, 0)], ids=["first", "end", "all"])
def test_rows_that_never_come_are_an_error(
    batches: list[Batch], catalog: Catalog, facts: VectorFacts, tmp_path: Path, kept: slice
) -> None:
    """Of one shard; the others are kept for the next run."""
    short = [{name: column[kept] for name, column in batches[0].items()}, *batches[1:]]
    dataset = SimpleNamespace(iter_batches=lambda **_: iter(short))
    pipeline: Any = SimpleNamespace(vectors=lambda shards: dataset)
    store = ShardFolder(tmp_path, facts)
    with pytest.raises(FiveshotError) as caught:
        ShardRun(catalog, store, pipeline, silent).compute_missing()
    assert caught.value.code == "bad_node"
    assert store.missing(catalog.shards) == [catalog.shards[0]]
