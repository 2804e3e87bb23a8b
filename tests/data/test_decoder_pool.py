"""Photos are decoded in processes with limits: what takes too much is refused, and the next one is decoded."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from reductions import (
    PHOTO,
    crash,
    crash_if_wide,
    much_memory,
    never_end,
    pixels,
    process,
    some_memory,
    work_then_wait,
    write_a_file,
)

from fiveshot.data import (
    ArraySource,
    Box,
    BytesSource,
    Decoders,
    FileSource,
    ImageError,
    _decoder_pool,
    _decoder_process,
    decode,
    decoders,
)
from fiveshot.data.decoding import decode_bytes
from fiveshot.errors import FiveshotError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot limit processes")


@pytest.fixture
def pool():
    with Decoders(2) as made:
        yield made


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(processes, seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while any(map(alive, processes)):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def test_only_what_a_photo_is_reduced_to_comes_back(pool):
    found = pool.attempt(PHOTO, pixels)
    assert found.parts == {"pixels": decode(PHOTO).tobytes(), "empty": b""}
    assert found.error is None
    assert int.from_bytes(bytes.fromhex(found.sha256)) != 0


def test_a_file_is_read_where_it_is_decoded(pool, tmp_path, monkeypatch):
    (tmp_path / "a.bmp").write_bytes(PHOTO.read())
    monkeypatch.chdir(tmp_path)
    found = pool.attempt(FileSource(Path("a.bmp"), "a.bmp"), pixels)
    assert found.parts["pixels"] == decode(PHOTO).tobytes()
    assert found.sha256 == pool.attempt(PHOTO, pixels).sha256


def test_a_decoder_that_was_started_before_answers_like_any_other(pool, tmp_path):
    (tmp_path / "a.png").write_bytes(encoded(40, 30))
    pool.start()
    pool.start(pixels)
    pool.start(pixels)  # one is enough
    source = FileSource(tmp_path / "a.png", "a.png")
    assert pool.reduce(source, pixels).parts["pixels"] == decode(source).tobytes()
    assert len(pool._idle) == 1


@pytest.mark.parametrize(
    ("reduction", "reason", "code"),
    [
        (crash, "crashed", "bad_image"),
        (never_end, "took more than 1 seconds", "image_too_slow"),
        (much_memory, "more memory than allowed", "image_too_large"),
    ],
)
def test_a_decoder_that_takes_too_much_is_a_refused_photo(pool, monkeypatch, reduction, reason, code):
    """The main process does not crash, hang, or use the memory that a file asks for."""
    with monkeypatch.context() as hurried:
        if reduction is never_end:
            hurried.setattr(pool, "_seconds", 1)
        found = pool.attempt(PHOTO, reduction, max_pixels=1000)  # too small for a second try with more memory
        assert isinstance(found.error, ImageError)
        assert reason in found.error.reason
        assert (found.error.name, found.error.code) == ("small.bmp", code)
        with pytest.raises(ImageError):
            pool.reduce(PHOTO, reduction, max_pixels=1000)
    assert pool.attempt(PHOTO, pixels).error is None  # another decoder has taken its place


def test_what_fits_the_limit_is_decoded(pool):
    assert pool.attempt(PHOTO, some_memory, max_pixels=1000).parts == {"byte": b"\0"}


def test_a_large_photo_gets_more_memory(pool):
    assert pool.attempt(PHOTO, much_memory).parts == {"byte": b"\0"}


def test_a_large_photo_is_refused_by_the_limit_that_was_asked_for():
    buffer = io.BytesIO()
    Image.new("1", (8000, 8000)).save(buffer, "PNG")
    source = BytesSource(buffer.getvalue(), "a.png")
    with Decoders(1) as pool:  # with all the time that a photo may take
        assert pool.attempt(source, process, max_pixels=64_000_000).error is None
        error = pool.attempt(source, process, max_pixels=63_000_000).error
    assert error is not None
    assert "8000 x 8000, the limit is 63,000,000 pixels" in error.reason
    assert error.code == "image_too_large"


def test_a_decoder_writes_no_files(pool, tmp_path, monkeypatch):
    monkeypatch.setenv("FIVESHOT_TEST_TARGET", str(tmp_path / "file"))
    assert pool.attempt(PHOTO, write_a_file).error is not None
    assert not (tmp_path / "file").exists() or not (tmp_path / "file").read_bytes()


def test_a_decoder_that_somebody_ended_is_replaced(pool):
    first = int(pool.reduce(PHOTO, process).parts["process"])
    assert int(pool.reduce(PHOTO, process).parts["process"]) == first
    os.kill(first, signal.SIGKILL)
    assert gone([first])
    assert int(pool.reduce(PHOTO, process).parts["process"]) != first


def test_the_process_they_are_forked_from_is_replaced(pool):
    pool.reduce(PHOTO, process)
    pool._forker._process.kill()
    pool._forker._process.wait()
    assert pool.attempt(PHOTO, crash).error is not None
    assert pool.attempt(PHOTO, process).error is None


def test_threads_share_a_pool_and_results_keep_their_order():
    asked = [(ArraySource(np.full((1, 1, 3), n, np.uint8), f"{n}"), pixels) for n in range(60)]
    with Decoders(3) as pool, ThreadPoolExecutor(2) as threads:
        for results in threads.map(lambda _: list(pool.stream(asked)), range(2)):
            assert [found.parts["pixels"][0] for found in results] == list(range(60))
        assert len(pool._idle) <= 3


def test_a_source_that_cannot_be_read_is_refused_with_its_name(pool, tmp_path):
    error = pool.attempt(FileSource(tmp_path / "none.jpg", "none.jpg"), pixels).error
    assert error is not None
    assert error.name == "none.jpg"


def test_what_a_decoder_says_is_not_believed(pool, monkeypatch):
    """A decoder that a photo has taken over may send anything."""
    from fiveshot.data._decoder_pool import _Decoder

    pool.reduce(PHOTO, process)
    for lie in (b"\xff" * 16, bytes(16), b"\0" * 7 + b"\2" + b"\0" * 8 + b"[]"):
        monkeypatch.setattr(_Decoder, "send", lambda *_: None)
        monkeypatch.setattr(_Decoder, "_receive", lambda self, size, turns, lie=lie: bytearray(lie[:size]))
        error = pool.attempt(PHOTO, process).error
        assert error is not None
        assert "crashed" in error.reason
        monkeypatch.undo()
    assert pool.attempt(PHOTO, process).error is None


def test_in_this_process_where_processes_cannot_be_limited(monkeypatch):
    monkeypatch.delattr(os, "fork")
    with Decoders(2) as pool:
        assert not pool.limited
        assert int(pool.reduce(PHOTO, process).parts["process"]) == os.getpid()
        assert pool.attempt(BytesSource(b"", "empty"), process).error is not None


def test_usual_photos_do_not_wait_for_slow_ones(monkeypatch, tmp_path):
    """Slow photos are decoded separately after a moment, one at a time."""
    monkeypatch.setattr(_decoder_pool, "_TURN", 0.1)
    monkeypatch.setattr(_decoder_pool, "QUICK", 0.2)  # work_then_wait takes more, however busy the machine is
    monkeypatch.setenv("FIVESHOT_TEST_TARGET", str(tmp_path / "go on"))
    with Decoders(1, seconds=3000) as pool, ThreadPoolExecutor(3) as threads:  # 3,000 turns
        slow = [threads.submit(pool.attempt, PHOTO, work_then_wait) for _ in range(3)]
        try:
            while not pool._aside.locked() and not any(one.done() for one in slow):
                time.sleep(0.05)
            assert pool.reduce(PHOTO, process).parts
            assert not any(one.done() for one in slow)
        finally:
            (tmp_path / "go on").touch()
        assert [one.result().parts for one in slow] == [{"text": b"done"}] * 3


def test_a_python_that_does_not_start_is_said(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Decoders(1) as pool, pytest.raises(FiveshotError) as caught:
        pool.attempt(PHOTO, process)
    assert caught.value.code == "no_decoder"


CHILD = """
import os, sys, time
import numpy as np
from fiveshot.data import ArraySource, decoders
from reductions import PHOTO, never_end, process
from threading import Thread
print(decoders().reduce(PHOTO, process).parts["process"].decode(), decoders()._forker._process.pid, flush=True)
{then}
"""


def run_child(then: str, folder: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([*filter(None, sys.path), str(Path(__file__).parent)])
    return subprocess.Popen(
        [sys.executable, "-c", CHILD.format(then=then)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, None], ids=["killed", "stopped", "done"])
def test_decoders_end_with_the_process_that_has_them(tmp_path, how):
    """Also in the middle of a photo that never ends."""
    then = "" if how is None else "decoders().reduce(PHOTO, never_end)"
    child = run_child(then, tmp_path)
    assert child.stdout is not None
    processes = [int(one) for one in child.stdout.readline().split()]
    assert len(processes) == 2
    if how is not None:
        assert all(map(alive, processes))
        time.sleep(0.3)
        child.send_signal(how)
    child.wait(timeout=60)
    child.stdout.close()
    assert gone(processes)


def test_a_forked_process_has_decoders_of_its_own(tmp_path):
    """The start method "fork" of multiprocessing forks."""
    then = """
import multiprocessing

def forked(said):
    said.put(decoders().reduce(PHOTO, process).parts["process"])
    decoders().close()

own = decoders().reduce(PHOTO, process).parts["process"]
forking = multiprocessing.get_context("fork")
said = forking.SimpleQueue()
child = forking.Process(target=forked, args=(said,))
child.start()
other = said.get()
child.join()
assert other != own
assert decoders().reduce(PHOTO, process).parts["process"] == own
"""
    child = run_child(then, tmp_path)
    assert child.stdout is not None
    child.stdout.read()
    child.stdout.close()
    assert child.wait(timeout=60) == 0


def test_decoders_import_nothing_from_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "socket.py").write_text("open('imported', 'w')")
    (tmp_path / "PIL.py").write_text("open('imported', 'w')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Decoders(1) as pool:
        assert pool.attempt(PHOTO, pixels).error is None
    assert not (tmp_path / "imported").exists()


def test_one_pool_for_the_process():
    assert decoders() is decoders()


def encoded(width: int, height: int, seed: int = 0, kind: str = "PNG") -> bytes:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, kind)
    return buffer.getvalue()


BOXES = [Box(number % 30, number % 20, 5 + number % 7, 4 + number % 5) for number in range(2, 202)]


def crops(source, boxes=BOXES):
    picture = decode(source)
    return [picture.crop(box.pixels(picture.size)).tobytes() for box in boxes]


def replaced_unnoticed(path: Path, data: bytes) -> None:
    """Write other data of the same length to a file, and set its times back: who holds the old picture uses it."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def test_boxes_of_a_photo_are_cut_out_of_one_decoding(pool, tmp_path):
    source = FileSource(tmp_path / "a.bmp", "a.bmp")
    source.path.write_bytes(encoded(40, 30, kind="BMP"))
    right, digest = crops(source), hashlib.sha256(source.read()).hexdigest()
    found = pool.cut(source, BOXES[:8], pixels)
    replaced_unnoticed(source.path, encoded(40, 30, seed=1, kind="BMP"))
    found += pool.cut(source, BOXES[8:], pixels)  # in several turns
    assert [one.parts for one in found] == [{"pixels": crop, "empty": b""} for crop in right]
    assert {one.sha256 for one in found} == {digest}
    assert pool.cut(source, [], pixels) == []


def test_boxes_of_a_photo_in_memory_are_cut_out_of_it(pool):
    source = BytesSource(encoded(40, 30), "a.png")
    found = pool.cut(source, BOXES, pixels)
    assert [one.parts["pixels"] for one in found] == crops(source)
    assert {one.sha256 for one in found} == {hashlib.sha256(source.read()).hexdigest()}


def test_parts_are_never_of_another_picture(pool, tmp_path):
    path = tmp_path / "a.png"
    for number in range(3):
        path.write_bytes(encoded(40, 30 + number, number))
        for source in (FileSource(path, "a.png"), BytesSource(encoded(40, 30, 10 + number), "a.png")):
            assert [one.parts["pixels"] for one in pool.cut(source, BOXES[:5], pixels)] == crops(source, BOXES[:5])
            assert pool.attempt(PHOTO, pixels).parts["pixels"] == PHOTO.array.tobytes()


def test_a_bad_part_is_refused_and_the_others_are_not(pool):
    source = BytesSource(encoded(40, 30), "a.png")
    good, outside, last = pool.cut(source, [Box(0, 0, 5, 5), Box(100, 0, 5, 5), Box(1, 1, 5, 5)], pixels)
    assert (good.error, last.error) == (None, None)
    assert (outside.error.name, outside.error.code, outside.parts) == ("a.png", "bad_box", {})


def test_parts_of_what_is_not_a_photo_are_all_refused(pool):
    found = pool.cut(BytesSource(b"no photo", "a.png"), BOXES, pixels)
    assert len(found) == len(BOXES)
    assert {one.error.name for one in found} == {"a.png"}


def test_a_part_that_ends_its_decoder_is_refused_with_those_of_its_turn(pool):
    source = BytesSource(encoded(40, 30), "a.png")
    found = pool.cut(source, [Box(0, 0, 5, 5), Box(0, 0, 20, 5), Box(0, 0, 5, 5)], crash_if_wide)
    assert all("crashed" in one.error.reason for one in found)
    assert pool.cut(source, [Box(0, 0, 5, 5)], crash_if_wide)[0].parts == {"text": b"done"}


def test_boxes_of_a_large_photo_are_cut_out_of_one_decoding(tmp_path):
    source = FileSource(tmp_path / "a.bmp", "a.bmp")
    Image.new("RGB", (6000, 4200), "red").save(source.path)
    with Decoders(2) as pool:
        found = pool.cut(source, [Box(0, 0, 50, 40)], pixels)
        blue = io.BytesIO()
        Image.new("RGB", (6000, 4200), "blue").save(blue, "BMP")
        replaced_unnoticed(source.path, blue.getvalue())
        found += pool.cut(source, [Box(number, number, 50, 40) for number in range(100)], pixels)
        assert {one.parts["pixels"] for one in found} == {b"\xff\0\0" * 2000}
        assert pool.attempt(PHOTO, pixels).error is None


def test_without_processes_boxes_are_cut_out_of_one_decoding(monkeypatch):
    source = BytesSource(encoded(40, 30), "a.png")
    right, decoded = crops(source), []

    def noted(data, name, **limits):
        decoded.append(name)
        return decode_bytes(data, name, **limits)

    monkeypatch.setattr(_decoder_process, "decode_bytes", noted)
    with Decoders(0) as none:
        found = none.cut(source, BOXES, pixels)
    assert [one.parts["pixels"] for one in found] == right
    assert decoded == ["a.png"]


def test_threads_that_decode_without_processes_leave_warnings_as_they_were(tmp_path):
    path = tmp_path / "odd.jpg"
    Image.new("RGB", (20, 18), "green").save(path, exif=b"Exif\0\0II*\0\x08\0\0\0\x09\0\x12\x01\x03\0")
    with pytest.warns(UserWarning, match="Corrupt EXIF"):
        Image.open(path).close()
    before = list(warnings.filters)
    with Decoders(0) as none, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: none.attempt(FileSource(path, "odd.jpg"), pixels), range(50)))
    assert all(one.error is None for one in found)
    assert list(warnings.filters) == before
