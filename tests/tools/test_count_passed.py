from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "tools" / "count_passed.py"
REPORT = """<testsuites><testsuite>
<testcase classname="test_a" name="test_one"/>
<testcase classname="test_a" name="test_two"><skipped message="no extra"/></testcase>
<testcase classname="test_a" name="test_three"><failure message="wrong"/></testcase>
</testsuite></testsuites>"""


def test_only_what_passed_counts(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    command = [sys.executable, str(SCRIPT), str(report), "--at-least"]
    enough = subprocess.run([*command, "1"], capture_output=True, text=True)
    assert (enough.returncode, enough.stdout) == (0, "1 tests passed\n")
    few = subprocess.run([*command, "2"], capture_output=True, text=True)
    assert few.returncode == 1
    assert few.stderr.startswith("only 1 tests passed in ")
