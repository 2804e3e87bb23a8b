"""What the documentation shows must run, and what it links to must exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
COMMAND = re.compile(r"(?:^ {4}|`)fiveshot ([a-z]+)(.*?)(?:`|$)", re.MULTILINE)


def blocks() -> list[tuple[str, str]]:
    return [(page.name, code) for page in PAGES for code in PYTHON.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "code"), blocks(), ids=lambda value: str(value)[:24])
def test_python_in_the_documentation_runs(page: str, code: str, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, f"{page}: {result.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    missing = [
        link for link in LINK.findall(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_in_the_documentation_exist(page: Path) -> None:
    from typer.main import get_command

    from fiveshot.cli.app import app

    known = get_command(app).commands  # type: ignore[attr-defined]
    for name, rest in COMMAND.findall(page.read_text(encoding="utf-8")):
        assert name in known, f"fiveshot {name}"
        command = known[name]
        words = rest.split("#")[0].split()
        if hasattr(command, "commands"):
            command = command.commands[words[0]]
        options = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        used = {word.split("=")[0] for word in words if word.startswith("--")}
        assert used <= options | {"--help"}, f"fiveshot {name}: {used - options}"
