from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_vit import TINY

from fiveshot.backbones import BackboneSpec
from fiveshot.scale.cluster import QUIET

sys.path.insert(0, str(Path(__file__).parent))  # for the modules that several test files share
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # for the model of the cost
# Ray starts more processes than a test knows of; they are not to fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray's workers are nice to others by default: beside anything else that runs they would take minutes to start.
os.environ.setdefault("RAY_worker_niceness", "0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray's own warnings are not about this code."""
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.path).parents:
            for module in ("ray", "pyarrow", "pandas"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::DeprecationWarning:{module}"))
                item.add_marker(pytest.mark.filterwarnings(f"ignore::FutureWarning:{module}"))
                item.add_marker(pytest.mark.filterwarnings(f"ignore::UserWarning:{module}"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="package")  # of this folder: its processes are not to run beside all later tests
def cluster() -> Iterator[Any]:
    """One cluster on this machine for all tests, to which nodes can be added and from which they can be taken."""
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    import logging

    from ray.cluster_utils import Cluster

    os.environ.update(QUIET)
    started = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2,
            "object_store_memory": 120 << 20,
            "include_dashboard": False,
            "include_log_monitor": False,  # nobody reads what the workers print
            "no_monitor": True,  # nodes come and go by hand
            "_system_config": {
                "health_check_initial_delay_ms": 500,
                "health_check_period_ms": 500,
                "health_check_failure_threshold": 4,
            },
        },
    )
    ray.init(address=started.address, log_to_driver=False, logging_level=logging.ERROR)
    yield started
    ray.shutdown()
    started.shutdown()


@pytest.fixture(scope="session")
def spec(tiny_file: Path) -> BackboneSpec:
    return BackboneSpec(TINY, weights=str(tiny_file), device="cpu", runtime="torch")
