from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for what tests of several folders share

# A shell that starts tests in the background has them ignore interrupts, and so would every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

if importlib.util.find_spec("hypothesis"):
    from hypothesis import settings

    # The same run everywhere is worth more than fresh examples.
    settings.register_profile("fiveshot", deadline=None, derandomize=True, max_examples=40)
    settings.load_profile("fiveshot")


# Every test of these folders needs what only an extra brings.
NEEDS = {
    "backbones": "timm",
    "docs": "fastapi",
    "hostile": "fastapi",
    "packaging": "hatchling",
    "scale": "ray",
    "service": "fastapi",
    "tuning": "timm",
    "watch": "watchfiles",
}
collect_ignore = [folder for folder, module in NEEDS.items() if importlib.util.find_spec(module) is None]


def pytest_report_header() -> str:
    return f"left out without their extras: {', '.join(collect_ignore) or 'nothing'}"


@pytest.fixture(scope="session", autouse=True)
def state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Do not use the state of the user who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of timm's tiny test ViT."""
    pytest.importorskip("timm", reason="the extra 'torch' is not installed")
    from tiny_vit import write_weights

    return write_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")
