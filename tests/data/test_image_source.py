from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
from pathlib import Path

import numpy as np
import pytest

from fiveshot.data.decoding import decode
from fiveshot.data.sources import (
    MAX_PHOTO_BYTES,
    ArchiveSource,
    ArraySource,
    FileSource,
    ImageError,
    read_regular,
)


def test_the_same_content_is_read_wherever_it_lies(tmp_path, make_files, pack, jpeg):
    folder = make_files(["cat/1.jpg"])
    archives = [pack(name, ["x/1.jpg"]) for name in ("a.tar", "a.tar.gz", "a.zip")]
    sources = [FileSource(folder / "cat/1.jpg", "cat/1.jpg")]
    sources += [ArchiveSource(archive, "x/1.jpg", "x/1.jpg") for archive in archives]
    assert {source.read() for source in sources} == {jpeg}


def test_an_array_survives_encoding_and_decoding_exactly():
    array = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(decode(ArraySource(array, "a"))), array)
    turned = array.transpose(1, 0, 2)  # not contiguous
    np.testing.assert_array_equal(np.asarray(decode(ArraySource(turned, "a"))), turned)


def test_arrays_of_different_shape_with_the_same_bytes_differ():
    wide, tall = np.zeros((2, 3, 3), np.uint8), np.zeros((3, 2, 3), np.uint8)
    assert ArraySource(wide, "a").read() != ArraySource(tall, "a").read()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_processes_read_members_of_one_archive_at_the_same_time(pack, tmp_path, method):
    noise = np.random.default_rng(0).bytes(400_000)  # long enough for two readers to get in each other's way
    sources = []
    for kind in ("zip", "tar", "tar.gz"):
        names = [f"c/{i}.jpg" for i in range(12)]
        path = pack(f"many.{kind}", names, content=noise)
        sources += [ArchiveSource(path, name, name) for name in names]
    here = [source.read() for source in sources]  # opens the handles that a fork would inherit
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(ArchiveSource.read, sources, chunksize=1) == here


def test_a_missing_file_or_member_is_named(tmp_path, pack):
    with pytest.raises(ImageError, match=r"cat/1.jpg: cannot read .*No such file"):
        FileSource(tmp_path / "none.jpg", "cat/1.jpg").read()
    with pytest.raises(ImageError, match=r"cat/2.jpg: .*a.zip has no member 'cat/2.jpg'"):
        ArchiveSource(pack("a.zip", ["cat/1.jpg"]), "cat/2.jpg", "cat/2.jpg").read()
    with pytest.raises(ImageError, match="No such file"):
        ArchiveSource(tmp_path / "none.tar", "cat/2.jpg", "cat/2.jpg").read()


def special_files(folder: Path) -> dict[str, str]:
    """Make things that are not regular files, and say what each is."""
    os.mkfifo(folder / "pipe.jpg")
    (folder / "folder.jpg").mkdir()
    (folder / "to-pipe.jpg").symlink_to(folder / "pipe.jpg")
    (folder / "device.jpg").symlink_to("/dev/zero")
    (folder / "to-folder.jpg").symlink_to(folder / "folder.jpg")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket.jpg"))
    return {
        "pipe.jpg": "a pipe",
        "to-pipe.jpg": "a pipe",
        "device.jpg": "a device",
        "folder.jpg": "a folder",
        "to-folder.jpg": "a folder",
        "socket.jpg": "a socket",
    }


def test_only_regular_files_are_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    opened = []
    monkeypatch.setattr(os, "open", lambda *given, **_: opened.append(given))
    for file, kind in special_files(Path()).items():
        source = FileSource(Path(file), f"owl/{file}")
        for ask in (source.read, source.check):
            with pytest.raises(ImageError, match=f"owl/{file}: it is {kind}, not a file") as caught:
                ask()
            assert caught.value.code == "bad_image"
    assert opened == []


def test_a_file_that_becomes_a_pipe_while_it_is_opened_is_refused_without_waiting(tmp_path, monkeypatch):
    photo, pipe = tmp_path / "1.jpg", tmp_path / "pipe"
    photo.write_bytes(b"a photo")
    os.mkfifo(pipe)
    really = os.open

    def exchanged(path, flags):
        return really(pipe, flags)

    monkeypatch.setattr(os, "open", exchanged)
    with pytest.raises(ImageError, match="it is a pipe, not a file"):
        FileSource(photo, "1.jpg").read()


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    huge = tmp_path / "huge.jpg"
    huge.touch()
    os.truncate(huge, MAX_PHOTO_BYTES + 1)  # sparse: it takes no space
    source = FileSource(huge, "huge.jpg")
    for ask in (source.read, source.check):
        with pytest.raises(ImageError, match=r"too large: 268,435,457 bytes, the limit is 268,435,456") as caught:
            ask()
        assert caught.value.code == "image_too_large"


def test_a_file_that_hides_its_size_is_read_up_to_the_limit(tmp_path, monkeypatch):
    photo = tmp_path / "1.jpg"
    photo.write_bytes(bytes(100))
    assert read_regular(photo, limit=100) == bytes(100)
    monkeypatch.setattr("fiveshot.data.sources._check_status", lambda *_: None)
    with pytest.raises(ImageError, match="too large: 100 bytes, the limit is 99") as caught:
        read_regular(photo, limit=99)
    assert caught.value.code == "image_too_large"


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
def test_a_member_that_is_too_large_is_not_unpacked(pack, monkeypatch, kind):
    path = pack(f"a.{kind}", ["owl/1.jpg"], content=bytes(1000))
    monkeypatch.setattr("fiveshot.data.sources.MAX_PHOTO_BYTES", 999)
    with pytest.raises(ImageError, match=r"owl/1.jpg: too large: 1,000 bytes, the limit is 999") as caught:
        ArchiveSource(path, "owl/1.jpg", "owl/1.jpg").read()
    assert caught.value.code == "image_too_large"


def test_an_image_error_keeps_its_parts_on_the_way_between_processes():
    error = pickle.loads(pickle.dumps(ImageError("cat/1.jpg", "the file is empty")))
    assert (error.name, error.reason) == ("cat/1.jpg", "the file is empty")
    assert str(error) == "cannot use image cat/1.jpg: the file is empty"
