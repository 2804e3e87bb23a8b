"""Somebody who follows a page: types its commands and runs its programs, from top to bottom, in one directory."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from answers import expects_failure, fits
from page_service import PageService
from pages import Block, Command, Page, commands_of
from scaling import is_benchmark, left_out, smaller
from shell import simple
from stand_ins import StandIns

SCRIPTS = Path(sys.executable).parent  # where the command line is installed
EXPORT = re.compile(r"export (\w+)=(.*)")
NAMED_PROGRAM = re.compile(r"# (\w+\.py)\b")
SECONDS = 300  # after which a command counts as hanging


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it said."""

    status: int
    output: str
    errors: str


class Reader:
    """Holds what carries on from command to command: directory, environment, and services that run."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._services: list[PageService] = []
        self.stand_ins = StandIns(folder)
        self._programs = 0
        self._measured: set[str] = set()

    def follow(self, page: Page) -> None:
        """Do everything that a page says."""
        with ExitStack() as ending:
            ending.callback(lambda: [service.kill() for service in self._services])
            ending.callback(self.stand_ins.close)
            for block in page.blocks:
                if block.language == "python":
                    self._run_program(block, f"{page.name}:{block.line}")
                for command in commands_of(block):
                    if left_out(command.text, page.name) is None:
                        self.type(command, f"{page.name}:{command.line}: {command.text}")
            for service in self._services:
                service.interrupt()

    def _run_program(self, block: Block, where: str) -> None:
        self._programs += 1
        named = NAMED_PROGRAM.match(block.text)
        path = self._folder / (named[1] if named else f"program_{self._programs}.py")
        path.write_text(self._ported(smaller(block.text)), encoding="utf-8")
        outcome = self._in_shell(f"python {path.name}")
        assert outcome.status == 0, f"{where} ended with {outcome.status}\n{outcome.errors}"

    def type(self, command: Command, where: str) -> None:
        """Run a command, made smaller, and compare its answer with what the page shows."""
        text = self._ported(smaller(command.text))
        if is_benchmark(text):
            if text in self._measured:  # made small, it is the same as one before
                return
            self._measured.add(text)
        if re.search(r"\bfiveshot serve\b", text):
            outcome = self._serve(text)
        elif exported := EXPORT.fullmatch(text):
            value = self._in_shell(f'{text} && printf %s "${exported[1]}"')
            self._environment[exported[1]] = value.output
            outcome = Outcome(value.status, "", value.errors)
        else:
            outcome = self._in_shell(text)
        failed = expects_failure(command.shown)
        assert bool(outcome.status) is failed, f"{where} ended with {outcome.status}\n{_said(outcome)}"
        if command.shown is not None:
            answer = _said(outcome) if failed else outcome.output
            assert fits(answer, command.shown), f"{where} answered\n{answer}"

    def _serve(self, text: str) -> Outcome:
        invocation = simple(text.removesuffix("&"))
        assert invocation is not None, f"a service is not started inside of a longer line: {text}"
        said = self._folder / f"service_{len(self._services)}.txt"
        environment = self._environment | dict(invocation.environment)
        service = PageService((str(SCRIPTS / "fiveshot"), *invocation.words[1:]), self._folder, environment, said)
        self._services.append(service)
        return Outcome(0, service.said, "")

    def _in_shell(self, text: str) -> Outcome:
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        return Outcome(ended.returncode, ended.stdout, ended.stderr)

    def _ported(self, text: str) -> str:
        """Return a text with the port that the last service really has, and the addresses of stand-ins."""
        text = self.stand_ins.replaced(text)
        for service in reversed(self._services):
            text = text.replace(f":{service.shown_port}", f":{service.port}")
        return text


def _said(outcome: Outcome) -> str:
    return outcome.output + outcome.errors
