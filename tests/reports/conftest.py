from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

# Test modules are imported without their folder being importable; the browser and the toys are needed.
sys.path.insert(0, str(Path(__file__).parent))

from browser import Browser, browser
from chromium import PROGRAM
from toys import toy_features

from fiveshot.benchmark import Job, Protocol, RunRecord, run_job
from fiveshot.core import Calibration
from fiveshot.features import embedded_features

BIRDS = Protocol("birds", dataset="birds", n_classes=12, base_classes=6, increment=2)
METHODS = {
    "ncm": {},
    "c-fecam": {},
    "ranpac": {"n_projections": 64},
}


@pytest.fixture(scope="session")
def bird_records(tmp_path_factory: pytest.TempPathFactory) -> list[RunRecord]:
    """Real runs, two seeds each, on features of photographs of twelve kinds of birds."""
    file = tmp_path_factory.mktemp("features") / "birds.safetensors"
    embedded = embedded_features()
    embedded.restrict(embedded.class_names[:12]).save(file)
    return [
        run_job(Job(BIRDS.replace(shot_seed=seed), method, str(file), parameters=parameters))
        for method, parameters in METHODS.items()
        for seed in (0, 1)
    ]


@pytest.fixture(scope="session")
def paper_records(toy_folder: Path) -> list[RunRecord]:
    """Runs under a protocol of the paper, one of them in two variants."""
    from fiveshot.benchmark import get_protocol

    source = str(toy_folder / "cars.safetensors")
    beta = {"calibration": Calibration(beta=0.5)}
    jobs = [("ncm", {}), ("c-fecam", {}), ("c-fecam", beta)]
    return [run_job(Job(get_protocol("cars/small"), method, source, parameters=given)) for method, given in jobs]


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Feature files of the four datasets, with their numbers of classes and four dimensions."""
    folder = tmp_path_factory.mktemp("toys")
    for dataset, classes in (("cub200", 200), ("cars", 196), ("aircraft", 100), ("cifar100", 100)):
        toy_features(dataset, classes, rng=np.random.default_rng(classes)).save(folder / f"{dataset}.safetensors")
    return folder


@pytest.fixture(scope="session")
def bird_folder(bird_records: list[RunRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs as ``fiveshot bench`` leaves them."""
    folder = tmp_path_factory.mktemp("runs")
    for record in bird_records:
        record.save(folder / "birds" / record.method / f"seed{record.seed}")
    return folder


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory):
    if PROGRAM is None:
        pytest.skip("no chromium or chromium-browser on the path")
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def page(chromium: Browser) -> Browser:
    """The browser with nothing collected yet."""
    chromium.requests.clear()
    chromium.complaints.clear()
    return chromium
