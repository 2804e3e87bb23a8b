from __future__ import annotations

import hashlib
import socket
from http.server import BaseHTTPRequestHandler

import pytest
import torch
from huggingface_hub import constants
from local_server import Quiet, listening
from tiny_vit import TINY

from fiveshot.backbones import BackboneSpec, describe_backbone, load_backbone
from fiveshot.backbones import _networks as hub
from fiveshot.errors import StorageError


@pytest.fixture
def hub_at(monkeypatch, tmp_path):
    """Point the hub's client at an address, with an empty cache."""

    def point(address: str) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))

    return point


class _Hub(Quiet, BaseHTTPRequestHandler):
    """The part of the hub's protocol that a download of one public file needs."""

    content = b""
    requests: list[str]

    def do_HEAD(self):
        self._answer(body=False)

    def do_GET(self):
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.requests.append(f"{self.command} {self.path}")
        found = self.path == f"/timm/{TINY}/resolve/main/model.safetensors"
        self.send_response(200 if found or self.path == "/" else 404)
        if found:
            self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
            self.send_header("X-Repo-Commit", "a" * 40)
        elif self.path != "/":
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", str(len(self.content) if found else 0))
        self.end_headers()
        if body and found:
            self.wfile.write(self.content)


@pytest.fixture
def local_hub(hub_at, tiny_file):
    handler = type("Handler", (_Hub,), {"content": tiny_file.read_bytes(), "requests": []})
    with listening(handler) as address:
        hub_at(f"http://{address}")
        yield handler


def test_a_hub_that_refuses_connections_gives_the_hint_at_once(hub_at):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hub_at(f"http://127.0.0.1:{port}")
    with pytest.raises(
        StorageError, match=r"cannot be fetched \(no connection to the hub\).*pass weights=FILE"
    ) as caught:
        load_backbone(BackboneSpec(TINY))
    assert f"model.safetensors of timm/{TINY}" in str(caught.value)
    assert len(str(caught.value)) < 350


def test_a_hub_that_never_answers_is_given_up_soon(hub_at, monkeypatch):
    monkeypatch.setattr(hub, "PROBE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hub_at(f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StorageError, match="no answer from the hub"):
            load_backbone(BackboneSpec(TINY))


def test_offline_mode_asks_nobody(local_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(StorageError, match="HF_HUB_OFFLINE is set"):
        load_backbone(BackboneSpec(TINY))
    assert not local_hub.requests


def test_weights_are_fetched_once_and_then_need_no_hub(local_hub, tiny, images):
    assert not describe_backbone(TINY).local
    fetched = load_backbone(BackboneSpec(TINY))
    assert fetched.weights_hash == tiny.weights_hash
    asked = len(local_hub.requests)
    assert asked > 0
    assert describe_backbone(TINY).local
    cached = load_backbone(BackboneSpec(TINY))
    assert len(local_hub.requests) == asked
    assert torch.equal(cached.features(images), fetched.features(images))


def test_weights_the_hub_does_not_have_give_the_same_hint(local_hub):
    with pytest.raises(StorageError, match=r"test_vit2\.r160_in1k .*pass weights=FILE"):
        load_backbone(BackboneSpec("test_vit2.r160_in1k"))
    assert local_hub.requests
