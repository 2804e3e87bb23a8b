"""Python programs as processes of their own, without waiting for their imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shell import Invocation

SECONDS = 300  # after which a program counts as hanging


@dataclass(frozen=True)
class Outcome:
    """How a program ended and what it said."""

    status: int
    output: str
    errors: str


class WarmPython:
    """Asks ``warm_python.py`` to run programs."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._output, self._errors = folder / "output", folder / "errors"
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm_python.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, invocation: Invocation, folder: Path, environment: dict[str, str]) -> Outcome:
        """Run a Python file with its arguments in a directory."""
        number = self.start(invocation, folder, environment, self._output, self._errors)
        status = self.wait_for(number)
        output = self._output.read_text()
        if invocation.output:
            (folder / invocation.output).write_text(output)
            output = ""
        return Outcome(status, output, self._errors.read_text())

    def start(
        self,
        invocation: Invocation,
        folder: Path,
        environment: dict[str, str],
        output: Path,
        errors: Path,
        seconds: int = SECONDS,
    ) -> int:
        """Start a Python file and return the number of its process."""
        for stream in (output, errors):
            stream.write_bytes(b"")
        request = {
            "words": [str(folder / invocation.words[0]), *invocation.words[1:]],
            "folder": str(folder),
            "environment": environment | dict(invocation.environment),
            "input": str(folder / invocation.input) if invocation.input else os.devnull,
            "output": str(output),
            "errors": str(errors),
            "seconds": seconds,
        }
        return self._ask(request)

    def wait_for(self, number: int) -> int:
        """Return the exit status of a program when it has ended."""
        return self._ask({"wait_for": number})

    def _ask(self, request: dict[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the interpreter that runs the programs has ended"
        return int(answer)

    def close(self) -> None:
        """End the interpreter, which has nothing to tidy up."""
        self._process.kill()
        self._process.communicate()
