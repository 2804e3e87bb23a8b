from __future__ import annotations

import multiprocessing
import pickle

import numpy as np
import pytest

from fiveshot.data.decode import decode
from fiveshot.data.source import ArchiveSource, ArraySource, FileSource, ImageError, identity


def test_the_same_content_has_one_identity_wherever_it_lies(tmp_path, make_files, pack, jpeg):
    folder = make_files(["cat/1.jpg"])
    archives = [pack(name, ["x/1.jpg"]) for name in ("a.tar", "a.tar.gz", "a.zip")]
    sources = [FileSource(folder / "cat/1.jpg", "cat/1.jpg")]
    sources += [ArchiveSource(archive, "x/1.jpg", "x/1.jpg") for archive in archives]
    assert {source.read() for source in sources} == {jpeg}
    assert len({identity(source) for source in sources}) == 1
    (folder / "cat/1.jpg").write_bytes(jpeg + b"\0")
    assert identity(sources[0]) != identity(sources[1])


def test_an_array_survives_encoding_and_decoding_exactly():
    array = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    np.testing.assert_array_equal(np.asarray(decode(ArraySource(array, "a"))), array)
    turned = array.transpose(1, 0, 2)  # not contiguous
    np.testing.assert_array_equal(np.asarray(decode(ArraySource(turned, "a"))), turned)


def test_arrays_of_different_shape_with_the_same_bytes_differ():
    wide, tall = np.zeros((2, 3, 3), np.uint8), np.zeros((3, 2, 3), np.uint8)
    assert identity(ArraySource(wide, "a")) != identity(ArraySource(tall, "a"))


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


def test_an_image_error_keeps_its_parts_on_the_way_between_processes():
    error = pickle.loads(pickle.dumps(ImageError("cat/1.jpg", "the file is empty")))
    assert (error.name, error.reason) == ("cat/1.jpg", "the file is empty")
    assert str(error) == "cannot use image cat/1.jpg: the file is empty"
