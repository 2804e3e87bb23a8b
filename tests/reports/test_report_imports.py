from __future__ import annotations

import subprocess
import sys

HEAVY = ("matplotlib", "jinja2", "torch", "timm", "torchvision", "PIL", "onnxruntime")


def test_reports_are_imported_without_what_only_some_need() -> None:
    code = f"import sys, fiveshot.reports; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
