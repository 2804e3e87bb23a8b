"""The service and its page where neither PyTorch nor scikit-learn can be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from live import wait_until_ready

from fiveshot.data import draw_samples

BLOCKED = ("torch", "timm", "torchvision", "sklearn")
WITHOUT = f"""
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {BLOCKED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None

sys.meta_path.insert(0, Blocked())
from fiveshot.cli.app import main
main()
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", WITHOUT, *arguments]


@contextmanager
def served(model: Path) -> Iterator[httpx.Client]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command("serve", str(model), "--port", "0"), stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        url = process.stdout.readline().split()[-1]
        with httpx.Client(base_url=url, timeout=60, verify=False, trust_env=False) as client:
            wait_until_ready(client)
            yield client
        process.terminate()
        assert process.wait(60) in (0, -15, 143)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(60)
        process.stdout.close()


def photos(folder: Path) -> list[tuple[str, tuple[str, bytes]]]:
    return [("photos", (file.name, file.read_bytes())) for file in sorted(folder.glob("*.jpg"))[:3]]


def test_learn_and_recognize_without_torch(tmp_path: Path) -> None:
    model, samples = tmp_path / "model", tmp_path / "samples"
    draw_samples(samples, seed=0)
    names = sorted(folder.name for folder in (samples / "learn").iterdir())[:2]
    subprocess.run(command("new", str(model), "--quick"), check=True, capture_output=True, timeout=120)
    with served(model) as client:
        for path in ("/", "/page.js", "/page.css", "/gallery.js", "/api.js", "/teach.js", "/v1/openapi.json"):
            assert client.get(path).status_code == 200, path
        for name in names:
            reply = client.post(f"/v1/classes/{name}/photos", files=photos(samples / "learn" / name))
            assert reply.status_code == 200, reply.text
        assert client.get(f"/v1/classes/{names[0]}/photos/0").headers["content-type"] == "image/jpeg"
        for name in names:
            found = client.post("/v1/predict", files=photos(samples / "test" / name)).json()["predictions"]
            assert {one["candidates"][0]["label"] for one in found} == {name}
        assert client.delete(f"/v1/classes/{names[0]}").status_code == 200
        assert client.post("/v1/undo").json()["classes"] == [names[0]]
        assert 'status="500"' not in client.get("/metrics").text
    with served(model) as client:  # everything is there after a restart
        assert client.get("/v1/classes").json()["total"] == len(names)
