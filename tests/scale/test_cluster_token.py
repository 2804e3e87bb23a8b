"""A cluster that a command starts listens on all interfaces, and lets in nobody without its token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

OWNER = """
import json, os, subprocess, sys
from fiveshot.scale import connected

outsider = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1]).get_all_node_info()"
cases = {
    "with it": {},
    "without": {"RAY_AUTH_MODE": "disabled"},
    "with another": {"RAY_AUTH_TOKEN": "f" * 64},
}
with connected():
    import ray

    where = ray.get_runtime_context().gcs_address
    said = {}
    for name, environment in cases.items():
        command = [sys.executable, "-c", outsider, where]
        done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, timeout=60)
        said[name] = "let in" if done.returncode == 0 else done.stderr
print(json.dumps(said))
"""


def test_whoever_has_no_token_is_not_let_in(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    done = subprocess.run(
        [sys.executable, "-c", OWNER],
        env=inherited | {"HOME": str(tmp_path)},  # where Ray keeps the token
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["with it"] == "let in"
    assert "token is missing or incorrect" in said["without"]
    assert "token is missing or incorrect" in said["with another"]
