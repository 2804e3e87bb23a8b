"""A service that only recognizes: the same answers, and no way to change the model."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from live import Live, live, running
from served import served
from tiny import parts
from typer.testing import CliRunner

from fiveshot.cli.app import app
from fiveshot.recognizer import Recognizer

NOBODY = 65534


@pytest.fixture
def colors(fresh_path: Path) -> Path:
    """A model of two colors."""
    with live(fresh_path) as service:
        for name in ("red", "green"):
            assert service.learn(name, 5).status_code == 200
    return fresh_path


def looking(path: Path) -> Recognizer:
    return Recognizer.open(path, device="cpu", runtime="torch", readonly=True)


@pytest.fixture
def service(colors: Path) -> Iterator[Live]:
    with running(lambda: looking(colors), read_only=True) as service:
        yield service


def test_the_answers_are_the_same(service: Live, colors: Path) -> None:
    assert service.client.get("/v1/model").json()["read_only"] is True
    told = service.predict("red", why=2).json()
    with live(colors) as writable:
        assert writable.client.get("/v1/model").json()["read_only"] is False
        assert writable.predict("red", why=2).json() == told
    begun = service.client.post("/v1/sort").json()["id"]
    assert service.client.post(f"/v1/sort/{begun}/photos", files=parts("red", 2)).status_code == 200
    assert service.client.get(f"/v1/sort/{begun}").status_code == 200
    assert service.client.delete(f"/v1/sort/{begun}").status_code == 204


def test_every_route_that_changes_the_model_is_refused(service: Live, colors: Path) -> None:
    before = service.client.get("/v1/model").json()["state"]
    looks = {"/v1/predict", "/v1/sort", "/v1/sort/{id}", "/v1/sort/{id}/photos"}
    tried = 0
    for path, methods in service.client.get("/v1/openapi.json").json()["paths"].items():
        for method in {one.upper() for one in methods} - {"GET"}:
            if path in looks:
                continue
            address = path.replace("{name}", "red").replace("{id}", "p1")
            reply = service.client.request(method, address, files=parts("red", 1))
            assert (reply.status_code, reply.json()["code"]) == (403, "read_only"), (method, path)
            assert "served read-only" in reply.json()["message"]
            tried += 1
    assert tried >= 14
    assert service.client.get("/v1/model").json()["state"] == before
    with looking(colors) as model:
        assert model.snapshot.classes == ("green", "red")


@contextmanager
def another_user() -> Iterator[None]:
    """Be a user whom permissions bind, also where root runs the tests."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_folder_without_write_permission(colors: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # the folders of pytest are closed to other users
        Path(folder).chmod(0o755)
        copied = Path(shutil.copytree(colors, Path(folder) / "model"))
        for path in (copied, *copied.iterdir()):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with another_user():
            model = looking(copied)
        model.embedder  # noqa: B018  # its weights are root's
        with another_user(), running(lambda: model, read_only=True) as service:
            assert service.predict("red").json()["predictions"][0]["candidates"][0]["label"] == "red"
            assert service.learn("blue").status_code == 403
        copied.chmod(0o755)


def test_the_command(embedded_path: Path) -> None:
    with served(embedded_path, "--read-only") as (_, url), httpx.Client(base_url=url, trust_env=False) as client:
        assert client.get("/v1/model").json()["read_only"] is True
        assert client.post("/v1/classes/red/photos", files=parts("red", 1)).status_code == 403
        assert b'<html class="read-only"' in client.get("/").content


def test_a_folder_that_cannot_be_written_needs_it(embedded_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)
    ended = CliRunner().invoke(app, ["serve", str(embedded_path), "--port", "0"])
    assert ended.exit_code != 0
    assert "the folder is not writable; add --read-only, or copy it" in f"{ended.output} {ended.exception}"
