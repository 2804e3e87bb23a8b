from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from fiveshot.data._fetching import RetryPolicy, fetch
from fiveshot.data._official import CUB200, read_cub200
from fiveshot.data.dataset import ImageDataset
from fiveshot.data.registry import DatasetSpec, Download, dataset_specs
from fiveshot.errors import InputError, StorageError

HURRIED = RetryPolicy(timeout=5, tries=2, pause=0.0)


@pytest.fixture
def official(jpeg) -> bytes:
    """A tiny CUB_200_2011.tgz."""
    files = {
        "images.txt": b"1 001.Owl/a.jpg\n2 001.Owl/b.jpg\n",
        "image_class_labels.txt": b"1 1\n2 1\n",
        "train_test_split.txt": b"1 1\n2 0\n",
        "classes.txt": b"1 001.Owl\n",
        "images/001.Owl/a.jpg": jpeg,
        "images/001.Owl/b.jpg": jpeg,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(f"CUB_200_2011/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def birds(local_server, official) -> DatasetSpec:
    local_server.content = official
    archive = Download(local_server.url, "birds.tgz", md5=hashlib.md5(official).hexdigest())
    return DatasetSpec("birds", "Birds", 1, 1, 2, read_cub200, "Expected birds.", (archive,))


def test_fetching_downloads_unpacks_counts_and_cleans_up(birds, tmp_path, local_server):
    root = tmp_path / "new" / "data"
    told = []
    fetched = fetch(birds, root, progress=lambda done, total: told.append(done))
    assert fetched.folder == root / "birds"
    assert fetched.dataset.train.names == ("images/001.Owl/a.jpg",)
    assert fetched.dataset.differences == ("1 test image, officially 2",)
    assert [path.name for path in root.iterdir()] == ["birds"]
    assert told[-1] == len(local_server.content)


def test_fetching_again_downloads_nothing(birds, tmp_path, local_server):
    fetch(birds, tmp_path)
    local_server.seen.clear()
    assert len(fetch(birds, tmp_path).dataset.test) == 1
    assert local_server.seen == []


def test_an_archive_that_the_user_put_there_is_used_and_kept(birds, tmp_path, local_server, official):
    (tmp_path / "birds.tgz").write_bytes(official)
    fetch(birds, tmp_path)
    assert local_server.seen == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["birds", "birds.tgz"]


def test_an_evil_archive_leaves_no_folder(birds, tmp_path, local_server, pack):
    content = pack("evil.tar.gz", ["../../evil.jpg"]).read_bytes()
    local_server.content = content
    evil = Download(local_server.url, "evil.tgz", md5=hashlib.md5(content).hexdigest())
    spec = DatasetSpec("evil", "Evil", 1, 1, 1, read_cub200, "Expected none.", (evil,))
    with pytest.raises(InputError, match=r"evil\.tgz.*leads out"):
        fetch(spec, tmp_path / "data")
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["evil.tgz"]


def test_a_dead_address_says_what_is_expected_instead(birds, tmp_path, local_server):
    local_server.statuses = [404]
    with pytest.raises(InputError, match=r"data\.bin is not available: HTTP 404 .*Expected birds\."):
        fetch(birds, tmp_path, retry=HURRIED)


def test_cars_cannot_be_fetched_and_say_where_they_are(tmp_path):
    with pytest.raises(InputError, match=r"Stanford Cars cannot be downloaded; .*is dead.*Kaggle.*withlabels"):
        fetch("cars", tmp_path / "data")
    assert not (tmp_path / "data").exists()
    with pytest.raises(InputError, match="no dataset 'car'"):
        fetch("car", tmp_path)


def test_a_place_that_cannot_be_written_is_said(birds, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="cannot create"):
        fetch(birds, tmp_path / "file" / "data")


def test_every_published_file_has_a_size_and_all_but_one_a_checksum():
    files = [item for spec in dataset_specs().values() for item in spec.downloads]
    assert all(item.url.startswith("https://") and item.size for item in files)
    assert [item.file for item in files if not item.md5] == ["fgvc-aircraft-2013b.tar.gz"]
    assert CUB200.downloads[0].md5 == "97eceeb196236b17998738112f37df78"


def test_an_archive_of_something_else_is_refused_after_unpacking(local_server, tmp_path, pack):
    local_server.content = pack("other.tar.gz", ["readme.txt"], content=b"hello").read_bytes()

    def reader(path) -> ImageDataset | None:
        return None

    spec = DatasetSpec("x", "X", 1, 1, 1, reader, "Expected X.", (Download(local_server.url, "x.tgz"),))
    with pytest.raises(InputError, match=r"no X in .*Expected X\."):
        fetch(spec, tmp_path / "data")
    assert [p.name for p in (tmp_path / "data/x").iterdir()] == ["readme.txt"]
