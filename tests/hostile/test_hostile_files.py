"""Every kind of hostile file through the command line, the service and extraction.

Each is answered or refused with a sentence; the process that asks grows by at most 300 MB, and nothing hangs.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from corpus import ARCHIVES, FILES, NAMES, photo, write_files, write_places
from PIL import Image
from serving import serving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited, and told, on Linux")
DRIVER = [sys.executable, str(Path(__file__).with_name("drive.py")), "--no-network"]
GROWTH = 300 << 20  # bytes
HANG = 600  # seconds; nothing takes as long unless it hangs
BATCH = 60  # photos of one command
# What each of these did before photos were decoded apart: a test without the limits would see it again.
BEFORE = {
    "1x20000.png": "took the service from 1.4 to 6.8 GB",
    "1x60000.png": "took 11 GB",
    "1x12000000.png": "was a 500",
    "12000000x1.png": "was a 500",
    "tile-23168.tif": "took 1.6 GB in each thread that decoded",
    "canvas-13000.webp": "took 16 bytes a pixel",
    "scans-3000.jpg": "took minutes",
    "sparse-250-mb.jpg": "took minutes",
    "fifo.jpg": "hung extract",
    "device.jpg": "ended extract with a MemoryError",
    "sparse-3-gb.jpg": "was read whole",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all hostile files, archives, and honest photos."""
    folder = tmp_path_factory.mktemp("hostile") / "inside"  # beside it lies only what gets out
    for number, name in enumerate(("red", "blue")):
        (folder / "honest" / name).mkdir(parents=True)
        for shade in range(3):
            picture = np.full((60, 80, 3), 40 * shade, np.uint8)
            picture[..., 2 * number] = 250
            Image.fromarray(picture).save(folder / "honest" / name / f"{shade}.png")
    for name in ("files", "places", "archives"):
        (folder / name).mkdir()
    write_files(folder / "files")
    write_files(folder / "archives", ARCHIVES)
    write_places(folder / "places")
    for kind in ("pictures-honest", "pictures"):
        for name in ("a", "b"):
            (folder / kind / name).mkdir(parents=True)
            for number in range(3):
                (folder / kind / name / f"honest-{number}.jpg").write_bytes(photo("JPEG"))
    for path in [*sorted((folder / "files").iterdir()), *sorted((folder / "places").iterdir())]:
        if path.name != "folder.jpg":
            (folder / "pictures" / "a" / path.name).symlink_to(path)
    return folder


@dataclass(frozen=True)
class Told:
    """What commands said of hostile files, all in one process, and what memory it had before the first of them."""

    level: int  # bytes, after the same commands with honest photos
    files: list[tuple[list[Path], dict[str, Any]]]  # some at a time
    places: list[tuple[Path, dict[str, Any]]]
    archives: list[tuple[Path, dict[str, Any]]]
    extraction: dict[str, Any]


@pytest.fixture(scope="module")
def told(place: Path) -> Told:
    def predict(paths: list[Path]) -> list[str]:
        return ["predict", "model", *map(str, paths)]

    def extract(pictures: str) -> list[str]:
        words = ["extract", "--images", pictures, "--out", f"{pictures}.safetensors"]
        return [*words, "--skip-bad", "--no-cache", "--quick"]

    files, places, archives = (sorted((place / name).iterdir()) for name in ("files", "places", "archives"))
    batches = [files[start : start + BATCH] for start in range(0, len(files), BATCH)]
    honest = [
        ["new", "model", "--quick"],
        ["learn", "model", "honest"],
        predict(sorted((place / "honest" / "red").iterdir())),
        extract("pictures-honest"),
    ]
    hostile = [*map(predict, batches), *(predict([path]) for path in [*places, *archives]), extract("pictures")]
    ended = iter(run_commands([*honest, *hostile], place))
    before = list(islice(ended, len(honest)))
    assert [one["status"] for one in before] == [0] * len(honest), before
    return Told(
        before[-1]["peak"],
        list(zip(batches, islice(ended, len(batches)), strict=True)),
        list(zip(places, islice(ended, len(places)), strict=True)),
        list(zip(archives, islice(ended, len(archives)), strict=True)),
        next(ended),
    )


def run_commands(commands: list[list[str]], folder: Path) -> list[dict[str, Any]]:
    """Run commands in one process; all must end in time, and none with a traceback."""
    done = subprocess.run(
        DRIVER,
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=HANG,
        env={**os.environ, "COLUMNS": "10000", "NO_COLOR": "1"},
        check=True,
    )
    ended = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ended) == len(commands), done.stderr
    for command, one in zip(commands, ended, strict=True):
        assert one["status"] in (0, 1, 3), (command, one["said"])
        assert "Traceback" not in one["said"], (command, one["said"])
        assert one["said"].strip(), command
    return ended


def printable(name: str) -> str:
    """Return the part of a name that every way to print it keeps."""
    return max(re.findall(r"[ -~]+", name), key=len)


def test_there_are_enough_kinds() -> None:
    assert len(FILES) >= 60
    assert {name for name in BEFORE if name not in FILES} == {
        "fifo.jpg",
        "device.jpg",
        "sparse-3-gb.jpg",
        "sparse-250-mb.jpg",
    }


def test_the_command_line_answers_or_refuses(told: Told) -> None:
    """``BEFORE`` says what some of these did."""
    for batch, one in told.files:
        assert one["status"] in (1, 3), one["said"]  # in each batch some are no photos
        for path in batch:  # answered, or refused by name
            assert one["status"] == 1 or printable(path.name) in one["said"], one["said"]
        assert one["peak"] - told.level < GROWTH


def test_the_command_line_opens_only_files(told: Told) -> None:
    """``BEFORE`` says what some of these did."""
    good = {path.name for path, one in told.places if one["status"] == 0}
    assert good == {name for name in NAMES if name in {path.name for path, _ in told.places}}
    for path, one in told.places:
        assert printable(path.name) in one["said"], one["said"]
        assert not re.search(r"[\a\x1b\u202e]", one["said"]), path
        assert one["peak"] - told.level < GROWTH


def test_archives_are_answered_or_refused(told: Told, place: Path) -> None:
    for path, one in told.archives:
        assert one["status"] == 1, path
        assert path.name in one["said"], one["said"]
        assert one["peak"] - told.level < GROWTH
    assert not any(found.name == "1.jpg" for found in place.parent.rglob("cat/*"))  # nothing was unpacked


def test_extraction_answers_or_refuses(told: Told) -> None:
    """``BEFORE`` says what some of these did."""
    assert told.extraction["status"] == 0, told.extraction["said"]
    assert told.extraction["peak"] - told.level < GROWTH


@pytest.fixture(scope="module")
def service(place: Path, told: Told) -> Iterator[tuple[httpx.Client, int]]:
    """Serve the model that commands have made, in a process of its own; yield a client and the process."""
    command = [*DRIVER, "serve", "model", "--port", "0", "--rate", "10000"]
    with serving(command, place, timeout=HANG) as service:
        yield service


def peak_of(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def test_the_service_answers_or_refuses(service: tuple[httpx.Client, int], place: Path) -> None:
    """``BEFORE`` says what some of these did."""
    client, process = service
    honest = {"photos": ("honest.jpg", photo("JPEG"), "image/jpeg")}
    for _ in range(3):
        assert client.post("/v1/predict", files=honest).status_code == 200
    level = peak_of(process)
    for path in sorted((place / "files").iterdir()):
        reply = client.post("/v1/predict", files={"photos": (path.name, path.read_bytes(), "image/jpeg")})
        assert reply.status_code in (200, 413, 422), (path.name, reply.text)
        if reply.status_code != 200:
            assert path.name in reply.json()["message"] or path.name in str(reply.json()), reply.text
        assert peak_of(process) - level < GROWTH, path.name
    assert client.post("/v1/predict", files=honest).status_code == 200
