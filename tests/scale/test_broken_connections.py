"""A connection that breaks is not damage: it is made again, and a shard that cannot be read is not finished."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, write_tar

pytest.importorskip("fsspec", reason="the extra 'ray' is not installed")

from flaky_store import Store, serving

from fiveshot.backbones import BackboneSpec
from fiveshot.errors import StorageError
from fiveshot.features.parts import TRAIN, Part
from fiveshot.scale import _files as streams
from fiveshot.scale import open_catalog
from fiveshot.scale._extraction import ShardCollector, ShardFolder
from fiveshot.scale._files import find_files
from fiveshot.scale._pipeline import Decode, Forward, read_shard, vector_facts
from fiveshot.scale._shards import ListedReader, Shard

IMAGES = 12
FOREVER = 10**6


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Two tars, one of them packed as well, a parquet file, and a photograph by itself."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("files")
    members = [{f"{i:02}.jpg": encoded(rng), f"{i:02}.cls": b"owl"} for i in range(IMAGES)]
    for name, part in (("birds-0.tar", members), ("birds-1.tar", members[:3])):
        write_tar(folder / name, {key: data for member in part for key, data in member.items()})
    (folder / "packed.tgz").write_bytes(gzip.compress((folder / "birds-0.tar").read_bytes()))
    # More than pyarrow reads at a time, which begins at the end.
    table = arrow.table({"image": [encoded(rng) for _ in range(5 * IMAGES)], "label": [7] * 5 * IMAGES})
    parquet.write_table(table, folder / "birds.parquet", row_group_size=3)
    (folder / "owl.jpg").write_bytes(encoded(rng))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def store(files: dict[str, bytes]) -> Iterator[Store]:
    with serving(dict(files)) as running:
        yield running


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WAIT_SECONDS", 0.001)


def read(url: str) -> list[tuple[str, bytes, str]]:
    (shard,) = open_catalog(url, seed=0).shards
    return [(image.label, image.data, image.reason) for image in shard.reader.images()]


SHARDS = ["birds-0.tar", "packed.tgz", "birds.parquet"]


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("name", SHARDS)
def test_a_shard_is_read_on_where_the_connection_broke(store: Store, name: str) -> None:
    whole = read(f"{store.url}/{name}")
    assert len(whole) == (5 * IMAGES if name == "birds.parquet" else IMAGES)
    assert not any(reason for _, _, reason in whole)
    store.broken, store.broken_from = {name: streams.ATTEMPTS - 1}, len(store.files[name]) // 2
    assert read(f"{store.url}/{name}") == whole
    assert store.broken[name] == 0


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("name", SHARDS)
def test_a_connection_that_stays_broken_is_an_error_and_no_damage(store: Store, name: str) -> None:
    store.broken, store.broken_from = {name: FOREVER}, len(store.files[name]) // 2
    with pytest.raises(StorageError, match=rf"cannot read 127.*{name}, tried 4 times: IncompleteRead") as raised:
        read(f"{store.url}/{name}")
    assert raised.value.code == "connection"
    assert FOREVER - store.broken[name] == streams.ATTEMPTS


@pytest.mark.usefixtures("no_waiting")
def test_damage_is_reported_as_such_and_not_tried_again(store: Store) -> None:
    for name in SHARDS:
        content = store.files[name]
        store.files[name] = content[: len(content) // 2]
        *_, (_, _, reason) = read(f"{store.url}/{name}")
        assert reason.startswith("damaged or truncated after ")
    flipped = bytearray(gzip.compress(b"owls " * 9999))
    flipped[40] ^= 255
    store.files["packed.tgz"] = bytes(flipped)
    assert read(f"{store.url}/packed.tgz")[-1][2].startswith("damaged or truncated after the beginning")


@pytest.mark.usefixtures("no_waiting")
def test_single_images_are_asked_for_again_and_missing_ones_are_bad(store: Store) -> None:
    (file,) = find_files(f"{store.url}/owl.jpg")
    reader = ListedReader(((file, "owl", TRAIN),))
    store.broken = {"owl.jpg": streams.ATTEMPTS - 1}
    assert [image.data for image in reader.images()] == [store.files["owl.jpg"]]
    store.broken = {"owl.jpg": FOREVER}
    with pytest.raises(StorageError, match=r"cannot read .*owl.jpg, tried 4 times"):
        list(reader.images())
    del store.files["owl.jpg"]
    (gone,) = reader.images()
    assert gone.reason.startswith("cannot read ")


def test_waiting_grows_from_attempt_to_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(streams.time, "sleep", waited.append)

    def fails() -> None:
        raise TimeoutError

    with pytest.raises(StorageError, match="cannot read x, tried 4 times: TimeoutError"):
        streams.persistently(fails, "x")
    assert waited == [0.5, 1.0, 2.0]


def test_a_server_without_ranges_is_read_from_its_beginning_again() -> None:
    class Forward(io.BytesIO):
        def seek(self, *_: Any) -> int:
            raise ValueError("cannot seek")

        def read(self, size: int | None = -1) -> bytes:
            if opened == 1 and self.tell() >= 6:
                raise ConnectionResetError
            return super().read(size)

    opened = 0

    def opening() -> Forward:
        nonlocal opened
        opened += 1
        return Forward(b"owls and wrens")

    stream = streams.PersistentStream(opening, "x")
    assert [stream.read(6), stream.read(4), stream.read()] == [b"owls a", b"nd w", b"rens"]
    assert opened == 2


def test_a_shard_that_could_not_be_read_is_not_finished(
    store: Store, spec: BackboneSpec, tmp_path: Path, no_waiting: None
) -> None:
    """The stages of a run one after the other; a run on a cluster has the same ones."""
    first, second = catalog = open_catalog(f"{store.url}/birds-{{0..1}}.tar", seed=0).shards
    facts = vector_facts(spec, "float32", dataset="birds")
    decode, forward = Decode(facts.preprocessing), Forward(spec, fingerprint=facts.fingerprint, dtype="float32")
    folder = ShardFolder(tmp_path, facts)

    def compute(shard: Shard) -> None:
        collector = ShardCollector({shard.number: shard}, folder)
        for batch in read_shard(shard):
            collector.add(forward(decode(batch)))

    store.broken, store.broken_from = {"birds-0.tar": FOREVER}, len(store.files["birds-0.tar"]) // 2
    compute(second)
    with pytest.raises(StorageError, match=r"birds-0\.tar, tried 4 times"):
        compute(first)
    assert folder.missing(catalog) == [first]
    store.broken = {}
    compute(first)
    assert folder.missing(catalog) == []
    kept = [Part.load(folder.path(shard)) for shard in catalog]
    assert [(len(shard.vectors), shard.bad) for shard in kept] == [(IMAGES, ()), (3, ())]
