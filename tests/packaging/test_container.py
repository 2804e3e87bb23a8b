"""The container: its files say what the page promises, and their steps work, without a container engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fiveshot.service import Settings

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ROOT = Path(__file__).parents[2]
CANNOT = 77


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    return found


def test_what_we_run_cannot_change_anything_but_its_volume(compose: dict[str, Any]) -> None:
    for name in ("service", "watcher"):
        service = compose["services"][name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert (service["volumes"], service["tmpfs"]) == (["models:/models"], ["/tmp"])
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    users = [line.partition(" ")[2] for line in lines if line.startswith("USER ")]
    assert users == ["fiveshot"]


def test_they_have_the_time_to_end_and_leave_no_process_behind(compose: dict[str, Any]) -> None:
    for name in ("service", "watcher"):
        service = compose["services"][name]
        assert service["init"] is True
        assert int(service["stop_grace_period"].removesuffix("s")) > Settings().drain


def test_only_the_service_starts_unless_more_is_asked_for(compose: dict[str, Any]) -> None:
    profiles = {name: one.get("profiles", []) for name, one in compose["services"].items()}
    assert profiles == {"service": [], "watcher": ["watcher"], "broker": ["broker"]}
    published = [port for one in compose["services"].values() for port in one.get("ports", [])]
    assert published == ["127.0.0.1:8765:8765"]


@pytest.mark.pages
def test_the_steps_of_the_files_give_a_service_that_works() -> None:
    words = [sys.executable, ROOT / "tools" / "container.py"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    if done.returncode == CANNOT:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "holds: the service does not run as root" in done.stdout
    assert "holds: the root file system is read-only, even for root" in done.stdout
    assert "holds: after a restart it knows what it has learned" in done.stdout
