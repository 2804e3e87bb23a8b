from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from local_server import Quiet, listening
from PIL import Image

# Test modules are imported without their folder being importable; what they share lies beside them.
sys.path.insert(0, str(Path(__file__).parent))
REAL = Path(__file__).resolve().parents[3] / "shared" / "data"


def jpeg_bytes(colour: object = (200, 30, 30), size: tuple[int, int] = (8, 6)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture(scope="session")
def jpeg() -> bytes:
    return jpeg_bytes()


@pytest.fixture
def make_files(tmp_path: Path, jpeg: bytes) -> Callable[..., Path]:
    """Write files below a folder; names that are not given content become small photographs."""

    def make(names: Iterable[str], folder: str = "images", content: bytes | None = None) -> Path:
        for name in names:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(jpeg if content is None else content)
        return tmp_path / folder

    return make


@pytest.fixture
def pack(tmp_path: Path, jpeg: bytes) -> Callable[..., Path]:
    """Pack small photographs, or the given content, into an archive of the kind that its name says."""

    def make(file: str, names: Iterable[str], content: bytes | None = None) -> Path:
        path = tmp_path / file
        data = jpeg if content is None else content
        if file.endswith(".zip"):
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
                for name in names:
                    packed.writestr(name, data)
            return path
        modes = {"gz": "w:gz", "xz": "w:xz", "bz2": "w:bz2", "tar": "w"}
        with tarfile.open(path, modes[file.rsplit(".", 1)[1]]) as tar:
            for name in names:
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return path

    return make


@pytest.fixture
def real() -> Path:
    if not REAL.is_dir():
        pytest.skip("the real material lies beside the checkout on developers' machines only")
    return REAL


@dataclass
class Behaviour:
    """What the local server does, and what it was asked."""

    content: bytes = b""
    etag: str | None = '"one"'
    modified: str | None = None
    ranges: bool = True
    break_after: list[int] = field(default_factory=list)  # bytes to send before hanging up, per request
    statuses: list[int] = field(default_factory=list)  # errors to answer first
    wrong_range: bool = False
    seen: list[dict[str, str]] = field(default_factory=list)
    url: str = ""


class Handler(Quiet, BaseHTTPRequestHandler):
    behaviour: Behaviour

    def do_GET(self):
        do = self.behaviour
        do.seen.append(dict(self.headers))
        if do.statuses:
            self.send_error(do.statuses.pop(0))
            return
        start = self.wanted_start()
        if start is not None and start >= len(do.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(do.content)}")
            self.end_headers()
            return
        body = do.content[start or 0 :]
        self.send_response(200 if start is None else 206)
        if start is not None:
            claimed = start + 1 if do.wrong_range else start
            self.send_header("Content-Range", f"bytes {claimed}-{len(do.content) - 1}/{len(do.content)}")
        self.send_header("Content-Length", str(len(body)))
        if do.etag:
            self.send_header("ETag", do.etag)
        if do.modified:
            self.send_header("Last-Modified", do.modified)
        self.end_headers()
        self.wfile.write(body[: do.break_after.pop(0)] if do.break_after else body)

    def wanted_start(self) -> int | None:
        do, wanted = self.behaviour, self.headers.get("Range")
        same = self.headers.get("If-Range") in (None, do.etag, do.modified)
        return int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and do.ranges and same else None


@pytest.fixture
def local_server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    behaviour = Behaviour()
    handler = type("Handler", (Handler,), {"behaviour": behaviour})
    with listening(handler) as address:
        behaviour.url = f"http://{address}/data.bin"
        yield behaviour
