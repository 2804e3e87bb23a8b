from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.append(str(Path(__file__).parent))  # for what tests of several folders share

# jsonschema would compile the grammar of a format that no schema here has, for seconds, in every process.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

gc.disable()  # until all tests are collected: until then nothing becomes garbage, and looking for it takes seconds

# A shell that starts tests in the background has them ignore interrupts, and so would every process they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same run everywhere is worth more than fresh examples.
settings.register_profile("fiveshot", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("fiveshot")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput") or not config.getoption("tx", None):  # who only hands tests out needs none
        import timm  # noqa: F401
        import torch
        from shared_networks import draw_no_weights_to_load_others, share_networks

        torch.set_num_threads(1)  # small matrices are slower on several threads
        share_networks()
        draw_no_weights_to_load_others()
        config.pluginmanager.import_plugin("examples")


@pytest.fixture(scope="session", autouse=True)
def state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the state of the user who runs the tests out of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def tiny_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of timm's tiny test ViT."""
    from tiny_vit import write_weights

    return write_weights(tmp_path_factory.mktemp("weights") / "tiny.safetensors")


def pytest_collection_finish() -> None:
    gc.freeze()  # modules and tests stay; nobody has to look through them again
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()
