"""``fiveshot serve`` as a process: refuses what is unsafe, ends well, and survives being killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest
from served import served
from tiny import parts
from typer.testing import CliRunner

from fiveshot.cli.app import app
from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.service import Settings
from fiveshot.service.settings import listen


def learn_until_killed(url: str, who: int, acknowledged: list[str]) -> None:
    with httpx.Client(base_url=url, timeout=30, verify=False, trust_env=False) as client:
        for number in range(10_000):
            name = f"client {who} class {number}"
            try:
                reply = client.post(f"/v1/classes/{name}/photos", files=parts(name, 1))
            except httpx.TransportError:
                return
            if reply.status_code == 200:
                acknowledged.append(name)


def predict_until_killed(url: str) -> None:
    with httpx.Client(base_url=url, timeout=30, verify=False, trust_env=False) as client:
        while True:
            try:
                client.post("/v1/predict", files=parts("red", 1))
            except httpx.TransportError:
                return


def test_a_kill_under_load_loses_nothing_acknowledged(embedded_path: Path) -> None:
    acknowledged: list[str] = []
    with served(embedded_path, "--rate", "10000") as (process, url):
        clients = [threading.Thread(target=learn_until_killed, args=(url, who, acknowledged)) for who in range(3)]
        clients.append(threading.Thread(target=predict_until_killed, args=(url,)))
        for client in clients:
            client.start()
        until = time.monotonic() + 120
        while len(acknowledged) < 3 and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
        for client in clients:
            client.join(30)
    assert len(acknowledged) >= 3
    with Recognizer.open(embedded_path) as model:
        known = set(model.snapshot.classes)
        assert set(acknowledged) <= known
        assert len(known) <= len(acknowledged) + 3  # at most one more of each client, not yet told
        assert model.check() == []


def test_an_end_is_clean(embedded_path: Path) -> None:
    with served(embedded_path) as (process, url):
        assert httpx.post(f"{url}/v1/classes/red/photos", files=parts("red"), trust_env=False).status_code == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert "Traceback" not in process.stdout.read()
    assert not (embedded_path / "classes.sqlite-wal").exists()  # the database was closed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "0.0.0.0"], "a token is needed"),
        (["--token", "short"], "16 or more characters"),
        (["--host", "192.0.2.1", "--token", "x" * 20], "choose an address of this machine with --host"),
        (["--host", "nope.invalid", "--token", "x" * 20], "choose an address of this machine with --host"),
        (["--host", "a..b", "--token", "x" * 20], "choose an address of this machine with --host"),
        (["--rate", "0"], "rate is 0.0 (--rate 0); choose a number above 0"),
        (["--max-photos", "0"], "photos is 0 (--max-photos 0); choose a whole number of at least 1"),
        (["--max-megabytes", "-3"], "body_bytes is -3,145,728 (--max-megabytes -3); choose"),
        (["--max-megapixels", "0"], "pixels is 0 (--max-megapixels 0); choose"),
    ],
)
def test_what_cannot_be_served_is_said(fresh_path: Path, options: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["serve", str(fresh_path), *options])
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_a_model_that_cannot_be_written_is_not_served(fresh_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would load forever, and the page would refer its user to the log."""
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK or Path(path) != fresh_path)
    result = CliRunner().invoke(app, ["serve", str(fresh_path), "--port", "0"])
    assert f"cannot serve {fresh_path}: the folder is not writable" in str(result.exception)
    assert "serve the copy" in str(result.exception)


def test_a_port_that_is_taken_is_said(fresh_path: Path) -> None:
    with listen(Settings(port=0)) as sock:
        port = str(sock.getsockname()[1])
        result = CliRunner().invoke(app, ["serve", str(fresh_path), "--port", port])
    assert f"cannot listen on 127.0.0.1:{port}" in str(result.exception)
    assert "choose another with --port" in str(result.exception)
