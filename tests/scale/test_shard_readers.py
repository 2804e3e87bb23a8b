from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pictures import CLASSES, draw_folder, encoded, write_tar

from fiveshot.data import open_images
from fiveshot.errors import InputError
from fiveshot.features.parts import TEST, TRAIN
from fiveshot.scale import Catalog, _files, join_catalogs, open_catalog
from fiveshot.scale._catalog import preview
from fiveshot.scale._files import expand_ranges, find_files
from fiveshot.scale._shards import RawImage


def images(catalog: Catalog) -> list[RawImage]:
    """Read all shards as other processes would: after a trip through pickle."""
    return [image for shard in pickle.loads(pickle.dumps(catalog)).shards for image in shard.reader.images()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return draw_folder(tmp_path / "birds", per_class=3, seed=0)


def zipped(folder: Path) -> str:
    """Return the URL of the same images inside a zip, which no path leads to."""
    archive = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as target:
        for file in sorted(folder.rglob("*.jpg")):
            target.write(file, file.relative_to(folder.parent).as_posix())
    return f"zip://birds::{archive}"


@pytest.mark.parametrize("url", [str, lambda folder: f"file://{folder}", zipped], ids=["path", "file", "zip"])
def test_folders_are_read_in_the_order_of_a_single_machine(folder: Path, url: Callable[[Path], str]) -> None:
    catalog = open_catalog(url(folder), seed=0, shard_images=5)
    expected = open_images(folder, seed=0)
    found = images(catalog)
    assert (catalog.name, catalog.class_names, catalog.n_images) == ("birds", CLASSES, 18)
    assert [len(list(shard.reader.images())) for shard in catalog.shards] == [5, 5, 5, 3]
    assert [image.name for image in found] == [*expected.train.names, *expected.test.names]
    assert [image.split for image in found] == [TRAIN] * 9 + [TEST] * 9
    assert found[4].label == "rook"
    assert found[4].data == (folder / found[4].name).read_bytes()


def test_without_a_test_split_images_are_drawn_or_not(tmp_path: Path) -> None:
    photos = draw_folder(tmp_path, per_class=5, seed=0, splits=("all",)) / "all"
    drawn = images(open_catalog(str(photos), seed=3))
    expected = open_images(photos, seed=3)
    assert [image.name for image in drawn if image.split == TEST] == list(expected.test.names)
    kept = images(open_catalog(str(photos), seed=3, holdout=None))
    assert {image.split for image in kept} == {TRAIN}
    assert [image.name for image in kept] == sorted(image.name for image in drawn)


def test_a_test_split_stays_one_without_holdout(folder: Path) -> None:
    assert sum(image.split == TEST for image in images(open_catalog(str(folder), seed=0, holdout=None))) == 9


def test_an_image_that_vanished_has_a_reason(folder: Path) -> None:
    catalog = open_catalog(f"file://{folder}", seed=0)
    (folder / "train" / "ani" / "001.jpg").unlink()
    gone = images(catalog)[1]
    assert gone.data == b""
    assert "cannot read" in gone.reason
    assert gone.label == "ani"


def test_shards_of_changed_images_have_other_keys(folder: Path) -> None:
    def keys() -> list[str]:
        return [shard.key for shard in open_catalog(str(folder), seed=0, shard_images=6).shards]

    before = keys()
    (folder / "train" / "rook" / "002.jpg").write_bytes(encoded(np.random.default_rng(9)))
    after = keys()
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, True, True]


def sample(key: str, rng: np.random.Generator, label: str, kind: str) -> dict[str, bytes]:
    about = {"cls": f"{label}\n".encode(), "json": json.dumps({"cls": label}).encode()}
    return {f"{key}.jpg": encoded(rng), f"{key}.{kind}": about[kind]}


def test_webdataset_shards(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    write_tar(tmp_path / "train-000.tar", {**sample("0", rng, "owl", "cls"), **sample("1", rng, "wren", "json")})
    plain = write_tar(tmp_path / "plain.tar", {"./a/wren/7.JPG": encoded(rng), "b/notes.txt": b"no image"})
    (tmp_path / "test-000.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    for where in (str(tmp_path), f"file://{tmp_path}/*.tar*"):
        found = images(open_catalog(where, seed=0))
        assert [(image.label, image.split, image.reason) for image in found] == [
            ("wren", TEST, ""),
            ("owl", TRAIN, ""),
            ("wren", TRAIN, ""),
        ]
        assert found[1].name == f"{tmp_path}/train-000.tar/0.jpg"
        assert found[1].data[:2] == b"\xff\xd8"


def test_damage_ends_a_tar_with_one_entry_that_says_where(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    members = {name: data for key in "012" for name, data in sample(key, rng, "owl", "cls").items()}
    whole = write_tar(tmp_path / "a-000.tar", members).read_bytes()
    (tmp_path / "a-000.tar").write_bytes(whole[: 3 * 1024])
    write_tar(tmp_path / "a-001.tar", {"nameless.jpg": encoded(rng)})
    *good, damaged, unlabeled = images(open_catalog(f"{tmp_path}/a-{{000..001}}.tar", seed=0))
    assert all(image.reason == "" for image in good)
    assert damaged.name.endswith("a-000.tar")
    assert damaged.reason.startswith("damaged or truncated after ")
    assert "no label" in unlabeled.reason


def test_what_is_larger_than_a_photo_is_bad_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra 'ray' is not installed")
    rng = np.random.default_rng(1)
    small = encoded(rng)
    large = small + bytes(len(small))
    monkeypatch.setattr(_files, "MAX_PHOTO_BYTES", len(small))
    members = {"0.jpg": large, "0.cls": b"owl", "1.jpg": small, "1.cls": b"owl", "1.npy": bytes(9999)}
    write_tar(tmp_path / "a-0.tar", members)
    table = arrow.table({"image": [large, small], "label": ["owl", "owl"]})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "b.parquet")
    for name, data in (("0.jpg", large), ("1.jpg", small)):
        (tmp_path / "c" / "train" / "owl").mkdir(parents=True, exist_ok=True)
        (tmp_path / "c" / "train" / "owl" / name).write_bytes(data)
    for where in ("a-*.tar", "b.parquet", "c"):
        bad, good = images(open_catalog(f"file://{tmp_path}/{where}", seed=0, holdout=None))
        assert bad.reason == f"too large: {len(large):,} bytes, the limit is {len(small):,}", where
        assert (bad.data, bad.label, good.data, good.reason) == (b"", "owl", small, ""), where


def test_parquet_files(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra 'ray' is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(1)
    pictures = [encoded(rng) for _ in range(4)]
    (tmp_path / "test").mkdir()
    plain = arrow.table({"image": pictures[:3], "label": [7, 7, None], "other": ["x", "y", "z"]})
    parquet.write_table(plain, tmp_path / "0.parquet")
    nested = arrow.table({"image": [{"bytes": pictures[3], "path": "a.jpg"}], "label": ["owl"]})
    parquet.write_table(nested, tmp_path / "test" / "1.parquet")
    found = images(open_catalog(str(tmp_path), seed=0))
    assert [(image.label, image.split) for image in found] == [
        ("7", TRAIN),
        ("7", TRAIN),
        ("", TRAIN),
        ("owl", TEST),
    ]
    assert [image.data for image in found] == [*pictures[:2], b"", pictures[3]]
    assert found[2].reason == "no label"
    assert found[1].name == f"{tmp_path}/0.parquet#1"

    with pytest.raises(
        InputError, match=r"no column 'photo'; name one of image, label, other with --image-column"
    ):
        images(open_catalog(f"{tmp_path}/0.parquet", seed=0, image_column="photo"))
    (tmp_path / "0.parquet").write_bytes((tmp_path / "0.parquet").read_bytes()[:-40])
    broken, *_ = images(open_catalog(f"{tmp_path}/0.parquet", seed=0))
    assert broken.reason.startswith("damaged or truncated after row 0")


def test_catalogs_are_joined(folder: Path, tmp_path: Path) -> None:
    tars = write_tar(tmp_path / "more-000.tar", sample("0", np.random.default_rng(0), "owl", "cls")).parent
    joined = join_catalogs(
        "both", [open_catalog(str(folder), seed=0, shard_images=10), open_catalog(f"{tars}/more-*.tar", seed=0)]
    )
    assert [shard.number for shard in joined.shards] == [0, 1, 2]
    assert (len(images(joined)), joined.n_images) == (19, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": "nowhere"}, "no such folder or archive: nowhere"),
        ({"images": "file:///no/such/place/"}, "no such folder, file or pattern"),
        ({"images": "nothing://x/y"}, "cannot open nothing://x/y"),
        ({"images": "x-*.parquet"}, "no such folder, file or pattern: x-*.parquet"),
        ({"images": ".", "layout": "tars"}, "no layout 'tars'"),
        ({"images": ".", "shard_images": 0}, "shard_images is 0; choose 1 or more"),
    ],
    ids=str,
)
def test_wrong_catalogs_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        open_catalog(**arguments, seed=0)  # type: ignore[arg-type]
    assert message in str(raised.value)


def test_a_layout_without_files_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"has no files ending in \.parquet; name files with these endings"):
        open_catalog(str(folder), seed=0, layout="parquet")


def test_number_ranges_and_hidden_files(tmp_path: Path) -> None:
    assert expand_ranges("a{0..1}-b{9..10}") == ["a0-b9", "a0-b10", "a1-b9", "a1-b10"]
    assert expand_ranges("plain") == ["plain"]
    for name in ("a.tar", ".b.tar", "sub/.c/d.tar"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert [Path(file.path).name for file in find_files(str(tmp_path))] == ["a.tar"]


def test_a_preview_has_images_from_all_over(folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(3):
        members = {name: data for key in "0123" for name, data in sample(key, rng, "owl", "cls").items()}
        write_tar(tmp_path / f"more-{number}.tar", members)
    listed = open_catalog(str(folder), seed=0, shard_images=4)
    both = join_catalogs("both", [listed, open_catalog(f"{tmp_path}/more-*.tar", seed=0)])
    few = [image for shard in preview(both, 6) for image in shard.reader.images()]
    names = [image.name for image in images(listed) if image.split == TRAIN]
    assert [image.name for image in few[:5]] == names[::2], "every second training image, and no test image"
    assert [image.name.rpartition("/more-")[2] for image in few[5:]] == [
        f"{number}.tar/{key}.jpg" for number in range(3) for key in "01"
    ]
    everything = [image for shard in preview(both, 10_000) for image in shard.reader.images()]
    assert [image.name for image in everything] == [image.name for image in images(both) if image.split == TRAIN]


def test_labels_that_cannot_be_names_are_bad_images(tmp_path: Path) -> None:
    photo = encoded(np.random.default_rng(0))
    nested = b"[" * 500_000
    labels = {"a": b"wren", "b": b"x" * 500_000, "c": b"wr\0en", "d": b"\xff\xfe"}
    members = {}
    for key, label in labels.items():
        members |= {f"owl/{key}.jpg": photo, f"owl/{key}.cls": label}
    members |= {"owl/e.jpg": photo, "owl/e.json": nested, "owl/f.jpg": photo, "owl/f.json": b'{"cls": ' + nested}
    write_tar(tmp_path / "hostile.tar", members)
    found = images(open_catalog(f"file://{tmp_path}/hostile.tar", seed=0))
    assert [image.label for image in found] == ["wren", "", "", "\ufffd\ufffd", "owl", "owl"]
    assert [bool(image.reason) for image in found] == [False, True, True, False, False, False]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")
def test_a_parquet_file_cannot_take_all_memory(tmp_path: Path) -> None:
    """Two kilobytes that hold one value of 60 MB 64 times: they took 6 GB."""
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    once = arrow.DictionaryArray.from_arrays(arrow.array([0] * 64, arrow.int32()), arrow.array([bytes(60 << 20)]))
    table = arrow.table({"image": once, "label": ["owl"] * 64})
    parquet.write_table(table, tmp_path / "bomb.parquet", compression="zstd", store_schema=False)
    program = f"""
from fiveshot.scale import open_catalog
from fiveshot.scale import _shards as shards
shards.PARQUET_MEMORY = 300 << 20
found = [image for shard in open_catalog({str(tmp_path)!r} + "/bomb.parquet", seed=0).shards
         for image in shard.reader.images()]
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(len(found), found[0].reason[:24], peak < 900_000 or peak)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "1 damaged or truncated aft True\n", done.stdout + done.stderr
