from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from fiveshot.cli.app import main


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line as the console script does; return the status and both outputs."""
    monkeypatch.setenv("COLUMNS", "200")

    def fiveshot(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fiveshot", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return fiveshot
