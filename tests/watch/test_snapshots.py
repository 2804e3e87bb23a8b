"""Pictures from an address of this machine: every few seconds, within limits, from cameras of all tempers."""

from __future__ import annotations

import base64
import gzip
import hashlib
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from watching import CURVE, free_port, jpeg, until, watching

from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.watch import sources
from fiveshot.watch.sources import SnapshotSource
from fiveshot.watch.watching import Watching

QUICK = {"every": 0.1, "timeout": 20.0}
Answer = Callable[[BaseHTTPRequestHandler], None]


def send(request: BaseHTTPRequestHandler, data: bytes, status: int = 200, **headers: str) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name.replace("_", "-"), value)
    request.send_header("Content-Length", str(len(data)))
    request.end_headers()
    request.wfile.write(data)


@contextmanager
def camera(answer: Answer, port: int = 0, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve what ``answer`` sends, on a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        host = "localhost" if context is not None else "127.0.0.1"
        yield f"{'https' if context else 'http'}://{host}:{server.server_port}/snapshot.jpg"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_snapshots_vote(recognizer: Recognizer) -> None:
    shown = ["red"]
    with (
        camera(lambda request: send(request, jpeg(shown[0]))) as url,
        watching(recognizer, SnapshotSource(url, **QUICK), Watching(frames=3)) as watched,
    ):
        until(lambda: watched.seen and watched.seen[-1].vote.label == "red")
        shown[0] = "blue"
        until(lambda: watched.seen[-1].vote.label == "blue")
    changes = [one.vote.label for one in watched.seen if one.changed]
    assert changes == ["red", "blue"]
    assert {one.photo.name for one in watched.seen} == {url}


def test_nobody_is_told_what_follows_the_address(recognizer: Recognizer) -> None:
    asked: list[str] = []

    def answer(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        send(request, jpeg("red") if len(asked) == 1 else b"no", 200 if len(asked) == 1 else 500)

    with (
        camera(answer) as url,
        watching(recognizer, SnapshotSource(f"{url}?user=ann&pwd=secret", **QUICK), Watching()) as watched,
    ):
        until(lambda: watched.notices)
    assert asked[0].endswith("/snapshot.jpg?user=ann&pwd=secret")
    assert (watched.seen[0].source, watched.seen[0].photo.name) == (url, url)
    assert url in watched.notices[0][2]
    assert "secret" not in watched.notices[0][2]


def test_a_camera_that_goes_and_comes_back(recognizer: Recognizer) -> None:
    port = free_port()
    source = SnapshotSource(f"http://127.0.0.1:{port}/a.jpg", **QUICK)
    with watching(recognizer, source) as watched:
        until(lambda: watched.notices)
        time.sleep(0.5)
        with camera(lambda request: send(request, jpeg("red")), port):
            until(lambda: watched.seen)
        until(lambda: len(watched.notices) == 3)
        with camera(lambda request: send(request, jpeg("blue")), port):
            until(lambda: watched.labels[-1] == "blue")
            until(lambda: len(watched.notices) == 4)
            # Before this camera goes, too.
            assert watched.events("source") == ["trouble", "recovered"] * 2


def redirect(request: BaseHTTPRequestHandler) -> None:
    send(request, b"", 302, Location="http://127.0.0.1:9/secret")


def endless(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.send_header("Content-Type", "multipart/x-mixed-replace; boundary=x")
    request.end_headers()
    try:
        while True:
            request.wfile.write(jpeg("red"))
            time.sleep(0.05)
    except OSError:
        pass


def trickling(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    try:
        for one in jpeg("red"):
            request.wfile.write(bytes([one]))
            time.sleep(0.1)
    except OSError:
        pass


def packed(request: BaseHTTPRequestHandler) -> None:
    data = jpeg("red")
    for _ in range(3):
        data = gzip.compress(data)
    send(request, data, Content_Encoding="gzip, gzip, gzip")


def silent(request: BaseHTTPRequestHandler) -> None:
    time.sleep(3)
    request.close_connection = True


@pytest.mark.parametrize(
    "answer",
    [
        redirect,
        endless,
        trickling,
        silent,
        packed,
        lambda request: send(request, b"gone", 404),
        lambda request: send(request, b"not a photo"),
        lambda request: send(request, b""),
        lambda request: send(request, bytes(300_000)),
    ],
    ids=["redirect", "endless", "trickling", "silent", "packed", "404", "text", "empty", "large"],
)
def test_what_is_not_a_snapshot_is_said_once(
    recognizer: Recognizer, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_SNAPSHOT", 200_000)
    asked = []

    def counted(request: BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        answer(request)

    with (
        camera(counted) as url,
        watching(recognizer, SnapshotSource(url, every=0.05, timeout=0.4)) as watched,
    ):
        until(lambda: len(asked) >= 3)
    assert watched.seen == []
    assert watched.events("source") == ["trouble"]
    assert url in watched.notices[0][2]


def test_a_camera_that_asks_for_a_password(recognizer: Recognizer) -> None:
    sent: list[str] = []

    def basic(request: BaseHTTPRequestHandler) -> None:
        given = request.headers.get("Authorization", "")
        sent.append(given)
        if given == "Basic " + base64.b64encode(b"ann:secret").decode():
            send(request, jpeg("red"))
        else:
            send(request, b"", 401, WWW_Authenticate='Basic realm="camera"')

    with camera(basic) as url:
        with watching(recognizer, SnapshotSource(url, **QUICK, login=("ann", "secret"))) as watched:
            until(lambda: watched.seen)
        assert watched.notices == []
        assert sent[0] == ""  # nothing is sent before it is asked for
        with watching(recognizer, SnapshotSource(url, **QUICK, login=("ann", "wrong"))) as watched:
            until(lambda: watched.notices)
        assert "401" in watched.notices[0][2]
        assert "wrong" not in watched.notices[0][2]


def test_a_camera_that_asks_for_a_digest_never_gets_the_password(recognizer: Recognizer) -> None:
    sent: list[str] = []

    def digest(request: BaseHTTPRequestHandler) -> None:
        given = request.headers.get("Authorization", "")
        sent.append(given)
        fields = dict(part.strip().split("=", 1) for part in given.partition(" ")[2].split(",") if "=" in part)
        fields = {key: value.strip('"') for key, value in fields.items()}
        ha1 = hashlib.md5(b"ann:camera:secret").hexdigest()
        ha2 = hashlib.md5(b"GET:/snapshot.jpg").hexdigest()
        text = f"{ha1}:{fields.get('nonce')}:{fields.get('nc')}:{fields.get('cnonce')}:auth:{ha2}"
        if fields.get("response") == hashlib.md5(text.encode()).hexdigest():
            send(request, jpeg("blue"))
        else:
            challenge = 'Digest realm="camera", nonce="n", qop="auth", algorithm=MD5'
            send(request, b"", 401, WWW_Authenticate=challenge)

    with (
        camera(digest) as url,
        watching(recognizer, SnapshotSource(url, **QUICK, login=("ann", "secret"))) as watched,
    ):
        until(lambda: watched.seen)
    assert watched.labels[0] == "blue"
    assert not any("basic" in one.lower() or "secret" in one for one in sent)


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl is not installed, which makes the certificate"
)
def test_a_camera_with_a_certificate_of_its_own(recognizer: Recognizer, tmp_path: Path) -> None:
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", tmp_path / "key.pem", "-out", tmp_path / "cert.pem"]
    subprocess.run(
        ["openssl", "req", "-x509", *CURVE, "-nodes", "-days", "2", *subject, *files],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with camera(lambda request: send(request, jpeg("red")), context=context) as url:
        with watching(recognizer, SnapshotSource(url, **QUICK, ca=str(tmp_path / "cert.pem"))) as watched:
            until(lambda: watched.seen)
        with watching(recognizer, SnapshotSource(url, **QUICK)) as watched:
            until(lambda: watched.notices)
        assert watched.seen == []
    with pytest.raises(InputError):
        SnapshotSource(url, ca=str(tmp_path / "key.pem"))
