"""The service answers before its model is loaded, and says what it waits for."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from live import Live, running, wait_until_ready
from tiny import parts

from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer


@contextmanager
def loading(path: Path, **given: object) -> Iterator[tuple[Live, Callable[[], None]]]:
    """Serve a model that is opened when the second value is called."""
    go_on = threading.Event()

    def opened() -> Recognizer:
        assert go_on.wait(60)
        return Recognizer.open(path, device="cpu", runtime="torch")

    with running(opened, ready=False, **given) as service:
        try:
            yield service, go_on.set
        finally:
            go_on.set()


def test_the_page_is_there_at_once(fresh_path: Path) -> None:
    with loading(fresh_path) as (service, go_on):
        for path in ("/", "/page.js", "/v1/health", "/v1/openapi.json", "/metrics"):
            assert service.client.get(path).status_code == 200, path
        photos = {"files": parts("red", 1)}
        for method, path, body in (
            ("GET", "/v1/ready", {}),
            ("GET", "/v1/classes", {}),
            ("GET", "/v1/classes/red/photos/0", {}),
            ("POST", "/v1/predict", photos),
            ("POST", "/v1/classes/red/photos", photos),
            ("PATCH", "/v1/classes/red", {"json": {"name": "rouge"}}),
            ("DELETE", "/v1/classes/red", {}),
            ("POST", "/v1/undo", {}),
        ):
            reply = service.client.request(method, path, **body)
            assert (reply.status_code, reply.json()["code"]) == (503, "loading"), path
            assert reply.json()["message"] == "the model is being loaded"
            assert reply.headers["retry-after"] == "1"
        go_on()
        wait_until_ready(service.client)
        assert service.client.post("/v1/classes/red/photos", **photos).status_code == 200
        assert service.client.post("/v1/predict", **photos).status_code == 200


def test_a_service_that_ends_while_it_loads(fresh_path: Path) -> None:
    with loading(fresh_path) as (service, go_on):
        service.server.should_exit = True
        go_on()
    with Recognizer.open(fresh_path) as model:  # closed, so that it can be changed elsewhere
        assert model.check() == []


def test_a_model_that_cannot_be_loaded_is_said_once(fresh_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tries: list[int] = []

    def opened() -> Recognizer:
        tries.append(1)
        if len(tries) < 4:
            raise StorageError(f"{fresh_path} is damaged", hint="restore it")
        return Recognizer.open(fresh_path, device="cpu", runtime="torch")

    with running(opened, ready=False, refresh=0.3) as service:
        said = set()
        while (reply := service.client.get("/v1/ready")).status_code != 200:
            said.add(reply.json()["message"])
        assert "the model cannot be loaded" in said
        assert said <= {"the model is being loaded", "the model cannot be loaded"}  # no path of this machine
        assert service.learn("red").status_code == 200
    assert len(tries) == 4
    assert caplog.text.count("is damaged; restore it") == 1


HIDDEN = """
import sys
from importlib.abc import MetaPathFinder

class Hidden(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ImportError(name)
        return None

sys.meta_path.insert(0, Hidden())
sys.argv = ["fiveshot", *{arguments!r}]
"""


def command(*arguments: str, hidden: tuple[str, ...] = ()) -> tuple[int, str, set[str]]:
    """Run a command in a process of its own; return its status, what it said, and what it has imported."""
    script = HIDDEN.format(hidden=hidden, arguments=arguments) + (
        "import atexit\n"
        "atexit.register(lambda: print('\\n', *sorted({n.partition('.')[0] for n in sys.modules})))\n"
        "from fiveshot.cli.app import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr, set(done.stdout.splitlines()[-1].split())


HEAVY = {"torch", "timm", "torchvision", "sklearn", "scipy", "onnxruntime", "fastapi", "uvicorn"}


@pytest.mark.parametrize(
    ("model", "said"), [("nowhere", "no such model"), ("file", "is a file"), ("folder", "model.toml")]
)
def test_a_wrong_model_is_said_before_anything_heavy_is_imported(tmp_path: Path, model: str, said: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    status, told, imported = command("serve", str(tmp_path / model))
    assert status != 0
    assert said in told
    assert not imported & HEAVY


def test_a_missing_extra_is_said_before_anything_heavy_is_imported(fresh_path: Path) -> None:
    status, told, imported = command("serve", str(fresh_path), hidden=("uvicorn",))
    assert status != 0
    assert "pip install 'fiveshot[serve]'" in told
    assert not imported & HEAVY


def test_a_model_that_needs_torch_says_so_at_once(fresh_path: Path) -> None:
    status, told, imported = command("serve", str(fresh_path), hidden=("torch", "timm", "torchvision"))
    assert status != 0
    assert "pip install 'fiveshot[torch]'" in told
    assert not imported & HEAVY


def test_the_port_is_open_before_the_model_is_loaded(embedded_path: Path) -> None:
    """A browser that is started together with the service waits a moment, and is not refused."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "fiveshot", "serve", str(embedded_path), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = process.stdout.readline().split()[-1]
        assert process.stdout.readline() == "open this address in a browser; stop with Ctrl-C\n"
        with httpx.Client(base_url=url, timeout=60, verify=False, trust_env=False) as client:
            assert client.get("/").status_code == 200
            assert client.get("/v1/ready").status_code in (200, 503)
            wait_until_ready(client)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
