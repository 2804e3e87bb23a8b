"""What ``make release`` checks, on releases that are not as they should be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import release

ROOT = Path(__file__).parents[2]

ROWS = [
    release.Shipped("birds/*.onnx", "a network", "Apache-2.0", "ours"),
    release.Shipped("*.js", "a script", "MIT", "a"),
]


def test_the_changelog_begins_with_the_version() -> None:
    release.check_changelog("# Changelog\n\n## 1.2.0 (2026-01-31)\n\n## 1.1.0 (2025-01-31)\n", "1.2.0")
    for text in (
        "## 1.1.0 (2026-01-31)\n## 1.2.0 (2026-01-31)",
        "## 1.2.0 (unreleased)",
        "## 1x2.0 (2026-01-31)",
        "",
    ):
        with pytest.raises(release.Failed):
            release.check_changelog(text, "1.2.0")


def test_this_checkout_is_ready_to_be_released() -> None:
    release.check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), release.version())


def test_every_shipped_file_has_a_license() -> None:
    found = release.check_licenses(["birds/a.py", "birds/a.onnx", "b.js", "birds-1.dist-info/RECORD"], ROWS)
    assert {name: row.license for name, row in found.items()} == {"birds/a.onnx": "Apache-2.0", "b.js": "MIT"}
    for names in (["birds/a.onnx", "b.js", "font.woff"], ["birds/a.onnx"]):
        with pytest.raises(release.Failed):
            release.check_licenses(names, ROWS)


def test_the_notice_covers_what_is_here() -> None:
    listed = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout: what is shipped is not known")
    rows = release.shipped((ROOT / "NOTICE.md").read_text(encoding="utf-8"))
    release.check_licenses([name.removeprefix("src/") for name in listed.stdout.splitlines()], rows)


def test_builds_that_differ_are_noticed(tmp_path: Path) -> None:
    for place, content in (("one", b"a"), ("two", b"a"), ("three", b"b")):
        (tmp_path / place).mkdir()
        (tmp_path / place / "birds.whl").write_bytes(content)
    one, two, three = ([tmp_path / place / "birds.whl"] for place in ("one", "two", "three"))
    release.check_same(one, two)
    with pytest.raises(release.Failed):
        release.check_same(one, three)
    with pytest.raises(release.Failed):
        release.check_same(one, [])
