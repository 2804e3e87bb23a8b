"""Hostile shards, and nodes that return what nobody asked for, on a real cluster of this machine."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import draw_folder, encoded, write_tar

from fiveshot.backbones import BackboneSpec
from fiveshot.errors import FiveshotError
from fiveshot.scale import ClusterSettings, extract_shards, join_catalogs, open_catalog, reduce_images
from fiveshot.scale._pipeline import IDENTITY, VectorPipeline, concatenate, read_shard
from fiveshot.scale._shards import Shard

pytestmark = pytest.mark.usefixtures("cluster")
SPEC = BackboneSpec(device="cpu", views=1)  # the embedded one: no worker has to import PyTorch
SETTINGS = ClusterSettings(workers=1, dtype="float32", skip_bad=True)


def test_hostile_shards_are_bad_images_and_the_others_are_computed(tmp_path: Path) -> None:
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    photo = encoded(np.random.default_rng(0))
    damaged = bytearray(write_tar(tmp_path / "cut.tar", {"owl/1.jpg": photo, "owl/2.jpg": photo}).read_bytes())
    (tmp_path / "cut.tar").write_bytes(damaged[: len(photo) + 2000])
    strip = b"P6 1 60000 255\n" + bytes(180_000)
    members = {"owl/1.jpg": photo, "owl/2.jpg": b"\xff\xd8", "owl/3.png": strip, "owl/4.jpg": photo}
    write_tar(tmp_path / "mixed.tar", members | {"owl/4.cls": b"x" * 70_000, "owl/5.jpg": photo})
    table = arrow.table({"image": [photo, None, b"", photo], "label": ["wren", "wren", "wren", "w\0"]})
    parquet.write_table(table, tmp_path / "rows.parquet")
    (tmp_path / "nonsense.parquet").write_bytes(b"PAR1" + bytes(range(256)) * 20 + b"PAR1")
    names = ("cut.tar", "mixed.tar", "rows.parquet", "nonsense.parquet")
    catalog = join_catalogs("hostile", [open_catalog(f"file://{tmp_path}/{name}", seed=0) for name in names])
    done = extract_shards(catalog, tmp_path / "shards", spec=SPEC, settings=SETTINGS)
    assert done.images - len(done.bad) == 4  # one in the first tar, two in the second, one in the rows
    assert all(image.reason for image in done.bad)
    features = done.folder.join(done.shards, tmp_path / "all.safetensors", runtime="test")
    assert sorted(features.class_names) == ["owl", "wren"]


def test_a_node_that_returns_wrong_sizes_is_an_error_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    catalog = open_catalog(str(draw_folder(tmp_path / "birds", per_class=2, seed=0)), seed=0, shard_images=50)

    def one_number_short(batch: Any, width: int) -> Any:
        (shard,) = map(pickle.loads, batch["shard"])
        rows = concatenate(read_shard(shard))
        vectors = np.zeros((len(rows["row"]), width - 1), np.float32)
        return {name: rows[name] for name in IDENTITY} | {"vectors": vectors}

    def vectors(pipeline: VectorPipeline, shards: Sequence[Shard]) -> Any:
        """Return what nodes would that lie; none of them has to load a backbone for that."""
        items = [{"shard": pickle.dumps(shard)} for shard in shards]
        given = {"fn_kwargs": {"width": pipeline.facts.width}, "batch_size": 1, "num_cpus": 0.1}
        return ray.data.from_items(items).map_batches(one_number_short, **given)

    monkeypatch.setattr(VectorPipeline, "vectors", vectors)
    with pytest.raises(FiveshotError) as caught:
        reduce_images(catalog, tmp_path / "out", spec=SPEC, settings=SETTINGS)
    assert caught.value.code == "bad_node"
