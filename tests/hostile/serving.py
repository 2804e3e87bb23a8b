"""The service in a process of its own, in a folder of somebody's choosing."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx


@contextmanager
def serving(
    command: list[str], folder: Path, *, timeout: float = 30, **given: object
) -> Iterator[tuple[httpx.Client, int]]:
    """Run a command that serves; yield a client and the number of the process."""
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder, **given
    )
    assert server.stdout is not None
    try:
        found = re.search(r"http://[\w.]+:\d+", line := server.stdout.readline())
        assert found, line + server.stdout.read()
        with httpx.Client(base_url=found[0], timeout=timeout, verify=False, trust_env=False) as client:
            until = time.monotonic() + 120
            while client.get("/v1/ready").status_code != 200:
                assert time.monotonic() < until, "the service did not become ready"
                time.sleep(0.02)
            yield client, server.pid
    finally:
        server.terminate()
        server.wait(20)
        server.stdout.close()
    assert server.returncode in (0, -15)
