from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tiny_vit import TINY

from fiveshot.backbones import BackboneSpec
from fiveshot.scale.cluster import QUIET

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for the modules that several test files share
sys.path.append(str(HERE.parents[1] / "benchmarks"))  # for the model of the cost
# Ray starts more processes than a test knows of; they are not to fight over the cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Ray's workers are nice to others by default: beside anything else that runs they would take minutes to start.
os.environ.setdefault("RAY_worker_niceness", "0")

RUNNING = ExitStack()  # ends the cluster


def on_cluster(item: pytest.Item | None) -> bool:
    return "cluster" in getattr(item, "fixturenames", ())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ray's own warnings are not about this code; tests on the cluster come first: one process has them all."""
    for item in items:
        if HERE in Path(item.path).parents:
            for module in ("ray", "pyarrow", "pandas"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::DeprecationWarning:{module}"))
                item.add_marker(pytest.mark.filterwarnings(f"ignore::FutureWarning:{module}"))
                item.add_marker(pytest.mark.filterwarnings(f"ignore::UserWarning:{module}"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
    items.sort(key=on_cluster, reverse=True)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the cluster after the last test on it: its processes must not run during other tests."""
    if not on_cluster(nextitem):
        RUNNING.close()


def pytest_sessionfinish() -> None:
    RUNNING.close()


@pytest.fixture(scope="session")
def light_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for Python's path that hides libraries of a developer's tools from the processes of a cluster.

    None of them needs these: Ray's jsonschema would import them in each process.
    """
    folder = tmp_path_factory.mktemp("light")
    for name in (
        "rfc3987_syntax",
        "rfc3986_validator",
        "isoduration",
        "webcolors",
        "uri_template",
        "fqdn",
    ):
        (folder / f"{name}.py").write_text("raise ImportError")
    return folder


@pytest.fixture
def cluster(light_path: Path) -> Any:
    """One cluster on this machine for all tests, to which nodes can be added and from which they can be taken."""
    pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    return started_cluster(light_path)


@cache
def started_cluster(light_path: Path) -> Any:
    import logging

    import ray
    from ray.cluster_utils import Cluster

    RUNNING.callback(started_cluster.cache_clear)
    environment = RUNNING.enter_context(pytest.MonkeyPatch.context())
    environment.setenv("PYTHONPATH", os.pathsep.join(map(str, (light_path, HERE))), prepend=os.pathsep)
    for name, value in QUIET.items():
        environment.setenv(name, value)
    cluster = Cluster(
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
                "num_workers_soft_limit": 8,  # else idle ones end, and new ones import everything again
            },
        },
    )
    RUNNING.callback(cluster.shutdown)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    RUNNING.callback(ray.shutdown)
    return cluster


@pytest.fixture(scope="session")
def spec(tiny_file: Path) -> BackboneSpec:
    return BackboneSpec(TINY, weights=str(tiny_file), device="cpu", runtime="torch")
