from __future__ import annotations

import functools
import io
import os
import stat
import tarfile
import tempfile
import zipfile
from pathlib import Path

import pytest

from fiveshot.data._fetching import extract_safely
from fiveshot.data.archives import ArchiveLimits, open_archive
from fiveshot.errors import InputError, StorageError

KINDS = ["a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2", "a.zip"]


def read_everything(path: Path, limits: ArchiveLimits) -> None:
    archive = open_archive(path, limits)
    for name in archive.members:
        archive.read(name)


def extract_everything(path: Path, limits: ArchiveLimits) -> None:
    folder = path.parent / "unpacked"
    try:
        extract_safely([path], folder, limits)
    finally:
        hidden = [file for file in path.parent.iterdir() if file.name.startswith(".")]
        assert hidden == []  # nothing half-written stays behind


WAYS = [pytest.param(read_everything, id="read"), pytest.param(extract_everything, id="extract")]


@pytest.mark.parametrize("kind", KINDS)
def test_members_are_read_in_place_and_unpacked_alike(pack, tmp_path, jpeg, kind):
    path = pack(kind, ["./train/cat/1.jpg", "train/dog/é 2.jpg"])
    archive = open_archive(path)
    assert list(archive.members) == ["train/cat/1.jpg", "train/dog/é 2.jpg"]
    assert archive.read("train/dog/é 2.jpg") == jpeg
    extract_safely([path], tmp_path / "unpacked")
    assert (tmp_path / "unpacked/train/cat/1.jpg").read_bytes() == jpeg
    assert sorted(p.name for p in tmp_path.iterdir()) == [kind, "unpacked"]


def test_the_name_does_not_have_to_tell_the_kind(pack, jpeg):
    compressed = pack("a.tar.gz", ["x/1.jpg"])
    assert open_archive(compressed.rename(compressed.with_name("b.tar"))).read("x/1.jpg") == jpeg


def test_a_changed_archive_is_indexed_again(pack):
    assert list(open_archive(pack("a.zip", ["one.jpg"])).members) == ["one.jpg"]
    path = pack("a.zip", ["one.jpg", "two.jpg"], content=b"new")
    assert open_archive(path).read("two.jpg") == b"new"
    assert open_archive(path).read("one.jpg") == b"new"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["a.tar", "a.tar.gz", "a.zip"])
@pytest.mark.parametrize(
    "name", ["../evil.jpg", "a/../../evil.jpg", "/etc/evil.jpg", "C:/evil.jpg", "..\\evil.jpg"]
)
def test_a_way_out_of_the_folder_is_refused_by_name(pack, kind, name, way):
    path = pack(kind, ["fine.jpg", name])
    with pytest.raises(InputError, match=r"refused to read .*evil\.jpg.* leads out"):
        way(path, ArchiveLimits())
    assert not list(path.parent.glob("**/evil.jpg"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_links_and_devices_in_a_tar_are_refused_by_name(tmp_path, kind, way):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("train/cat/sneaky.jpg")
        info.type, info.linkname = kind, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(InputError, match=r"'train/cat/sneaky\.jpg' is a link or a special file"):
        way(path, ArchiveLimits())


@pytest.mark.parametrize("way", WAYS)
def test_a_link_or_an_encrypted_member_in_a_zip_is_refused_by_name(tmp_path, way):
    path = tmp_path / "a.zip"
    info = zipfile.ZipInfo("cat/sneaky.jpg")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match=r"sneaky\.jpg' is a link"):
        way(path, ArchiveLimits())
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("cat/secret.jpg", b"x")
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1  # the flag in the central directory
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"secret\.jpg' is encrypted"):
        way(path, ArchiveLimits())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["a.tar.gz", "a.tar.xz", "a.zip"])
def test_a_decompression_bomb_is_refused(pack, kind, way):
    path = pack(kind, [f"{i}.bmp" for i in range(4)], content=b"\0" * (1 << 20))
    with pytest.raises(InputError, match="more than allowed"):
        way(path, ArchiveLimits(ratio=50, ratio_from=1 << 20))
    with pytest.raises(InputError, match="more than allowed"):
        way(path, ArchiveLimits(total_bytes=3 << 20))
    way(path, ArchiveLimits(ratio=50, ratio_from=1 << 30))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["a.tar", "a.tar.gz", "a.zip"])
def test_too_many_and_too_large_members_are_refused_by_name(pack, kind, way):
    path = pack(kind, ["1.jpg", "2.jpg", "3.jpg"], content=b"12345678")
    with pytest.raises(InputError, match=r"more than 2 members, at '3\.jpg'"):
        way(path, ArchiveLimits(members=2))
    with pytest.raises(InputError, match=r"member '1\.jpg' unpacks to 8 bytes"):
        way(path, ArchiveLimits(member_bytes=7))


@pytest.mark.parametrize("way", WAYS)
def test_a_zip_member_that_lies_about_its_size_is_refused(tmp_path, way):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("1.bmp", b"\0" * (4 << 20))
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")  # declared uncompressed size
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"1\.bmp.* is damaged"):
        way(path, ArchiveLimits())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_archive_is_refused_by_name(pack, kind, way):
    path = pack(kind, [f"{i}.jpg" for i in range(30)])
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3 + 7])
    with pytest.raises(InputError, match=r"a\.(tar|zip)"):
        way(path, ArchiveLimits())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cut", [0, 7, 512, 600])
def test_a_plain_tar_that_ends_between_two_members_is_refused(pack, way, cut):
    path = pack("a.tar", ["1.jpg", "2.jpg", "3.jpg"], content=b"x" * 512)
    path.write_bytes(path.read_bytes()[: 2 * 1024 + cut])  # each member: a header and a block of 512 bytes
    with pytest.raises(InputError, match=r"unexpected end of data"):
        way(path, ArchiveLimits())


@pytest.mark.parametrize("way", WAYS)
def test_a_damaged_header_does_not_end_a_tar_early(pack, way):
    path = pack("a.tar", ["1.jpg", "2.jpg", "3.jpg"], content=b"x" * 512)
    data = bytearray(path.read_bytes())
    data[1024 + 150] ^= 0xFF  # in the checksum of the second header
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"a\.tar.* is damaged"):
        way(path, ArchiveLimits())


def test_damage_in_the_last_bytes_of_a_compressed_tar_is_noticed(pack, tmp_path):
    path = pack("a.tar.gz", ["1.jpg"])
    data = bytearray(path.read_bytes())
    data[-8] ^= 0xFF  # the checksum
    path.write_bytes(data)
    for way in (read_everything, extract_everything):
        with pytest.raises(InputError, match=r"a\.tar\.gz"):
            way(path, ArchiveLimits())


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_archive_is_refused_by_name(tmp_path, way):
    path = tmp_path / "a.tar"
    path.write_bytes(b"this is a text, not an archive" * 100)
    with pytest.raises(InputError, match=r"a\.tar is damaged, truncated or not a tar or zip"):
        way(path, ArchiveLimits())


def test_reading_a_compressed_tar_leaves_no_file_behind(pack, tmp_path, monkeypatch, jpeg):
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    archive = open_archive(pack("fine.tar.gz", ["1.jpg"]))
    assert archive.read("1.jpg") == jpeg
    bomb = pack("bomb.tar.gz", ["1.bmp"], content=b"\0" * (1 << 20))
    with pytest.raises(InputError, match="more than allowed"):
        open_archive(bomb, ArchiveLimits(total_bytes=1 << 18))
    assert list(elsewhere.iterdir()) == []  # not even while the archive is open


def test_a_full_temporary_folder_is_said(pack, monkeypatch):
    path = pack("a.tar.gz", ["1.jpg"])
    full = functools.partial(Path("/dev/full").open, "r+b")
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(StorageError, match=r"cannot unpack .*a\.tar\.gz into .*No space left on device"):
        open_archive(path)


def test_unpacking_never_touches_an_existing_folder(pack, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious.txt").write_text("keep")
    with pytest.raises(StorageError, match="exists already"):
        extract_safely([pack("a.tar", ["1.jpg"])], tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["precious.txt"]


def test_a_full_disk_while_unpacking_leaves_nothing_behind(pack, tmp_path, monkeypatch):
    path = pack("a.tar", ["1.jpg", "2.jpg"])
    real_open = Path.open

    def full(self, mode="r", *args, **kwargs):  # the second file goes to a device that is always full
        return real_open(Path("/dev/full") if self.name == "2.jpg" else self, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StorageError, match=r"No space left on device; nothing was left behind"):
        extract_safely([path], tmp_path / "unpacked")
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]


def test_several_archives_unpack_into_one_folder(pack, tmp_path):
    extract_safely([pack("a.tar", ["a/1.jpg"]), pack("b.zip", ["b/2.jpg"])], tmp_path / "both")
    assert sorted(p.name for p in (tmp_path / "both").rglob("*.jpg")) == ["1.jpg", "2.jpg"]


def test_permissions_in_the_archive_are_ignored(tmp_path):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        info = tarfile.TarInfo("run.jpg")
        info.mode, info.size = 0o4777, 1
        tar.addfile(info, io.BytesIO(b"x"))
    extract_safely([path], tmp_path / "unpacked")
    assert not (tmp_path / "unpacked/run.jpg").stat().st_mode & 0o4111


def test_an_unpacked_folder_has_ordinary_rights_and_the_umask_is_not_touched(pack, tmp_path, monkeypatch):
    def touched(mask: int) -> int:
        raise AssertionError(f"umask({mask})")

    (tmp_path / "ordinary").mkdir()
    monkeypatch.setattr(os, "umask", touched)
    extract_safely([pack("a.zip", ["1.jpg"])], tmp_path / "unpacked")
    assert (tmp_path / "unpacked").stat().st_mode == (tmp_path / "ordinary").stat().st_mode
