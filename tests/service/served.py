"""The service as its own process, started as a user does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from live import wait_until_ready


@contextmanager
def served(path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run ``fiveshot serve`` on a free port; killed in the end if it still runs."""
    command = [sys.executable, "-m", "fiveshot", "serve", str(path), "--port", "0", "--device", "cpu", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        # A shell that runs the tests in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + process.stdout.read()
        with httpx.Client(base_url=found[0], verify=False, trust_env=False) as client:
            wait_until_ready(client)
        yield process, found[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)
        process.stdout.close()
