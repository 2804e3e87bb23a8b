"""Downloads from a real local server that can misbehave in the ways real ones do."""

from __future__ import annotations

import hashlib
import http.server
import shutil
import socket
from pathlib import Path

import pytest

from fiveshot.data._fetching import DownloadError, RetryPolicy, download
from fiveshot.data.registry import Download
from fiveshot.errors import InputError, StorageError

CONTENT = bytes(range(256)) * 4096  # 1 MiB
HURRIED = RetryPolicy(timeout=5, tries=3, pause=0.0)


@pytest.fixture
def server(local_server):
    local_server.content = CONTENT
    return local_server


def item(server, content: bytes = CONTENT, **changes) -> Download:
    fields = {"md5": hashlib.md5(content).hexdigest(), "size": len(content), **changes}
    return Download(server.url, "data.bin", **fields)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def interrupted(server, folder: Path, after: int = 300_000, **changes) -> Path:
    """Leave a partial download behind, as a user does who stops the program."""

    def stop(done: int, total: int | None) -> None:
        if done >= after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(item(server, **changes), folder, retry=HURRIED, progress=stop)
    server.seen.clear()
    return folder / "data.bin.part"


def test_a_file_arrives_whole_and_progress_is_told(server, tmp_path):
    told = []
    path = download(item(server), tmp_path, progress=lambda done, total: told.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert names(tmp_path) == ["data.bin"]
    assert told[0] == (0, len(CONTENT))
    assert told[-1] == (len(CONTENT), len(CONTENT))
    assert told == sorted(told)


def test_a_file_that_is_there_is_not_downloaded_again_unless_it_is_wrong(server, tmp_path):
    (tmp_path / "data.bin").write_bytes(CONTENT)
    assert download(item(server), tmp_path) == tmp_path / "data.bin"
    assert server.seen == []
    (tmp_path / "data.bin").write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(DownloadError, match=r"data\.bin is not the published file .* remove it first"):
        download(item(server), tmp_path)
    assert (tmp_path / "data.bin").exists()


def test_an_interrupted_download_continues_where_it_stopped(server, tmp_path):
    part = interrupted(server, tmp_path)
    got = part.stat().st_size
    assert 300_000 <= got < len(CONTENT)
    assert not (tmp_path / "data.bin").exists()
    told = []
    path = download(item(server), tmp_path, progress=lambda done, total: told.append(done))
    assert path.read_bytes() == CONTENT
    assert [request["Range"] for request in server.seen] == [f"bytes={got}-"]
    assert server.seen[0]["If-Range"] == '"one"'
    assert told[0] == got
    assert names(tmp_path) == ["data.bin"]


def test_a_dropped_connection_is_resumed_within_one_call(server, tmp_path):
    server.break_after = [100_000, 0, 50_000, 0, 0, 200_000]  # never three times in a row without a byte
    path = download(item(server), tmp_path, retry=HURRIED)
    assert path.read_bytes() == CONTENT
    starts = [request.get("Range") for request in server.seen]
    reached = (100_000, 100_000, 150_000, 150_000, 150_000, 350_000)
    assert starts == [None, *(f"bytes={n}-" for n in reached)]


def test_a_file_that_changed_on_the_server_is_never_mixed_with_the_old_one(server, tmp_path):
    interrupted(server, tmp_path)
    server.content, server.etag = CONTENT[::-1], '"two"'
    path = download(item(server, server.content), tmp_path)
    assert path.read_bytes() == server.content
    assert len(server.seen) == 1


@pytest.mark.parametrize(("etag", "modified"), [(None, None), ('W/"weak"', None)])
def test_without_checksum_and_validator_nothing_is_resumed(server, tmp_path, etag, modified):
    server.etag = etag
    interrupted(server, tmp_path, md5=None)
    assert download(item(server, md5=None), tmp_path).read_bytes() == CONTENT
    assert "Range" not in server.seen[0]


def test_the_date_serves_where_there_is_no_strong_tag(server, tmp_path):
    server.etag, server.modified = 'W/"weak"', "Wed, 21 Oct 2015 07:28:00 GMT"
    interrupted(server, tmp_path, md5=None)
    assert download(item(server, md5=None), tmp_path).read_bytes() == CONTENT
    assert server.seen[0]["If-Range"] == server.modified


def test_a_server_without_ranges_sends_it_all_again(server, tmp_path):
    interrupted(server, tmp_path)
    server.ranges = False
    assert download(item(server), tmp_path).read_bytes() == CONTENT


def test_a_part_that_is_already_complete_is_only_checked(server, tmp_path):
    part = interrupted(server, tmp_path)
    part.write_bytes(CONTENT)
    assert download(item(server), tmp_path).read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    part = interrupted(server, tmp_path)
    part.write_bytes(CONTENT + b"more")
    assert download(item(server), tmp_path, retry=HURRIED).read_bytes() == CONTENT


def test_a_server_that_sends_other_bytes_than_asked_for_ends_in_an_error_or_the_right_file(server, tmp_path):
    interrupted(server, tmp_path)
    server.wrong_range = True
    assert download(item(server), tmp_path, retry=HURRIED).read_bytes() == CONTENT
    assert ["Range" in request for request in server.seen] == [True, False]


def test_a_wrong_checksum_starts_over_once_then_gives_up_and_keeps_nothing(server, tmp_path):
    wrong = item(server, md5="0" * 32)
    with pytest.raises(DownloadError, match=r"is not the published file .*twice\); nothing was kept"):
        download(wrong, tmp_path, retry=HURRIED)
    assert len(server.seen) == 2
    assert all("Range" not in request for request in server.seen)
    assert names(tmp_path) == []


def test_a_damaged_part_is_repaired_by_starting_over(server, tmp_path):
    part = interrupted(server, tmp_path)
    part.write_bytes(b"?" * part.stat().st_size)
    assert download(item(server), tmp_path).read_bytes() == CONTENT
    assert ["Range" in request for request in server.seen] == [True, False]


def test_sha256_and_size_are_checked_too(server, tmp_path):
    right = hashlib.sha256(CONTENT).hexdigest().upper()
    assert download(item(server, md5=None, sha256=right), tmp_path).is_file()
    (tmp_path / "data.bin").unlink()
    for change in ({"sha256": "0" * 64}, {"md5": None, "size": len(CONTENT) + 1}):
        with pytest.raises(DownloadError, match="published"):
            download(item(server, **change), tmp_path, retry=HURRIED)
    server.content = b""
    with pytest.raises(DownloadError, match="published"):
        download(item(server, md5=None, size=None), tmp_path, retry=HURRIED)


@pytest.mark.parametrize("status", [404, 410, 403])
def test_a_dead_address_fails_at_once_with_the_address(server, tmp_path, status):
    server.statuses = [status] * 9
    with pytest.raises(DownloadError, match=rf"http://127.*data\.bin is not available: HTTP {status}"):
        download(item(server), tmp_path, retry=HURRIED)
    assert len(server.seen) == 1
    assert names(tmp_path) == []


def test_a_busy_server_is_asked_again(server, tmp_path):
    server.statuses = [503, 429]
    assert download(item(server), tmp_path, retry=HURRIED).read_bytes() == CONTENT
    server.statuses = [503] * 9
    with pytest.raises(DownloadError, match=r"cannot download .*503.*repeat the command later"):
        download(Download(server.url, "other.bin"), tmp_path, retry=HURRIED)
    assert server.statuses == [503] * 6


def test_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as taken:
        port = taken.server_port
    nobody = Download(f"http://127.0.0.1:{port}/x", "x")
    with pytest.raises(InputError, match=r"cannot download .*refused"):
        download(nobody, tmp_path, retry=HURRIED)


def test_a_silent_server_runs_into_the_time_limit(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(DownloadError, match="timed out"):
            download(Download(url, "x"), tmp_path, retry=RetryPolicy(timeout=0.1, tries=2, pause=0))


def test_a_full_disk_is_said_and_the_part_can_be_continued(server, tmp_path, monkeypatch):
    part = interrupted(server, tmp_path)
    kept = part.stat().st_size
    real_open = Path.open

    def full(self, mode="r", *args, **kwargs):  # appends go to a device that is always full
        return real_open(Path("/dev/full") if mode == "ab" else self, mode, *args, **kwargs)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "open", full)
        with pytest.raises(StorageError, match=r"data\.bin\.part: No space left on device; free some space"):
            download(item(server), tmp_path, retry=HURRIED)
    assert part.stat().st_size == kept
    assert download(item(server), tmp_path).read_bytes() == CONTENT


def test_a_disk_that_is_too_small_is_noticed_before_anything_is_written(server, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(StorageError, match=r"has 1,000 bytes free, but 1,048,576 are needed"):
        download(item(server), tmp_path, retry=HURRIED)
    assert names(tmp_path) == []
