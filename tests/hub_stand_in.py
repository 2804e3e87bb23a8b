"""A stand-in for the Hugging Face hub: it speaks as much of its HTTP API as the hub's own client uses here."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import pytest
from local_server import Quiet, listening

TOKEN = "hf_of_the_owner"


class Hub(Quiet, BaseHTTPRequestHandler):
    """Repositories in memory: made, filled by commits with and without LFS, and read again."""

    protocol_version = "HTTP/1.1"
    repositories: ClassVar[dict[str, dict[str, bytes]]]
    objects: ClassVar[dict[str, bytes]]
    commits: ClassVar[dict[str, dict[str, bytes]]]  # by repository and commit
    asked: ClassVar[list[str]]

    def do_POST(self) -> None:
        path, body = self._begin()
        if path == "/api/validate-yaml":
            text = json.loads(body)["content"]
            import_module("yaml").safe_load(text.split("---")[1])
            return self._say({"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._say({"error": "Invalid credentials"}, 401)
        if path == "/api/repos/create":
            said = json.loads(body)
            name = f"{said.get('organization') or 'me'}/{said['name']}"
            if name in self.repositories:
                return self._say({"error": "You already created it", "url": f"{self._address}/{name}"}, 409)
            self.repositories[name] = {
                ".private": b"yes" if said.get("private") or said.get("visibility") == "private" else b"no"
            }
            return self._say({"url": f"{self._address}/{name}"})
        if path.endswith("/preupload/main"):
            modes = [
                {"path": one["path"], "uploadMode": "regular" if one["path"].endswith(".md") else "lfs",
                 "shouldIgnore": False, "oid": None}
                for one in json.loads(body)["files"]
            ]  # fmt: skip
            return self._say({"files": modes})
        if path.endswith(".git/info/lfs/objects/batch"):
            wanted = json.loads(body)["objects"]
            actions = [
                {
                    **one,
                    "authenticated": True,
                    "actions": {"upload": {"href": f"{self._address}/lfs/{one['oid']}"}},
                }
                for one in wanted
            ]
            return self._say({"transfer": "basic", "objects": actions})
        name = path.removeprefix("/api/models/").removesuffix("/commit/main")
        for line in body.decode().splitlines():
            said = json.loads(line)
            if said["key"] == "file":
                content = base64.b64decode(said["value"]["content"])
                self.repositories[name][said["value"]["path"]] = content
            elif said["key"] == "lfsFile":
                self.repositories[name][said["value"]["path"]] = self.objects[said["value"]["oid"]]
        return self._say(
            {"commitOid": self.commit_of(name), "commitUrl": f"{self._address}/{name}/commit/x", "success": True}
        )

    def do_PUT(self) -> None:
        path, body = self._begin()
        number = path.removeprefix("/lfs/")
        assert sha256(body).hexdigest() == number
        self.objects[number] = body
        self._say({})

    def do_HEAD(self) -> None:
        self._file()

    def do_GET(self) -> None:
        self._file()

    def _file(self) -> None:
        path, _ = self._begin()
        listed = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path)
        found = listed or re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        if found is None or found[1] not in self.repositories:
            return self._lacking("RepoNotFound", 401)
        name, revision = found[1], found[2] or "main"
        commit = self.commit_of(name) if revision == "main" else revision
        files = self.commits.get(f"{name} {commit}")
        if files is None:
            return self._lacking("RevisionNotFound", 404)
        if listed:
            siblings = [{"rfilename": file, "size": len(content)} for file, content in sorted(files.items())]
            tags = ["onnx", "license:apache-2.0"]
            return self._say({"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": tags})
        if found[3] not in files:
            return self._lacking("EntryNotFound", 404)
        content = files[found[3]]
        return self._say(content, 200, {"ETag": f'"{sha256(content).hexdigest()}"', "X-Repo-Commit": commit})

    def _lacking(self, code: str, status: int) -> None:
        self._say({"error": code}, status, {"X-Error-Code": code})

    @classmethod
    def commit_of(cls, name: str) -> str:
        """Return the commit of the files that are there now, and remember them under it."""
        files = dict(cls.repositories[name])
        digest = sha256(b"".join(file.encode() + sha256(data).digest() for file, data in sorted(files.items())))
        commit = digest.hexdigest()[:40]
        cls.commits[f"{name} {commit}"] = files
        return commit

    @property
    def _address(self) -> str:
        return f"http://{self.headers['Host']}"

    def _begin(self) -> tuple[str, bytes]:
        path = self.path.partition("?")[0]
        self.asked.append(f"{self.command} {path}")
        return path, self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _say(self, said: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = said if isinstance(said, bytes) else json.dumps(said).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def serving_hub(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[Any]:
    """Let the hub's client in this process use a stand-in, with a cache of its own."""
    constants = import_module("huggingface_hub.constants")
    handler = type("Hub", (Hub,), {"repositories": {}, "objects": {}, "commits": {}, "asked": []})
    with listening(handler) as address:
        handler.url = f"http://{address}"
        monkeypatch.setattr(constants, "ENDPOINT", handler.url)
        template = handler.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # plain HTTP
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("FIVESHOT_CACHE", str(folder / "cache"))
        yield handler
