from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fiveshot.benchmark import Job, Protocol, RunRecord, summarize_all, sweep
from fiveshot.benchmark.job import choose_features, choose_protocol, fitting_protocol, make_jobs
from fiveshot.benchmark.run import estimated_memory
from fiveshot.errors import InputError, StorageError
from fiveshot.features import FeatureSet

PROTOCOL = Protocol("small", "gaussian", n_classes=12, base_classes=6, increment=3, shots=3)


def jobs_for(file: Path, seeds: int = 2) -> list[Job]:
    return make_jobs(PROTOCOL, str(file), methods=["ncm", "fecam"], seeds=seeds)


def test_parallel_and_serial_sweeps_give_the_same_numbers(small_file: Path, tmp_path: Path) -> None:
    jobs = jobs_for(small_file)
    serial = {outcome.job: outcome.record for outcome in sweep(jobs, tmp_path / "serial")}
    parallel = {outcome.job: outcome.record for outcome in sweep(jobs, tmp_path / "parallel", workers=2)}
    assert set(serial) == set(parallel) == set(jobs)
    for job in jobs:
        np.testing.assert_array_equal(serial[job].predictions, parallel[job].predictions)


def test_finished_work_is_not_repeated(small_file: Path, tmp_path: Path) -> None:
    list(sweep(jobs_for(small_file, seeds=1), tmp_path))
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.json")}
    outcomes = list(sweep(jobs_for(small_file, seeds=2), tmp_path))
    assert [outcome.reused for outcome in outcomes].count(True) == 2
    assert len(outcomes) == 4
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert not any(outcome.reused for outcome in sweep(jobs_for(small_file, seeds=1), tmp_path, fresh=True))


def is_alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="reads processes from /proc")
def test_a_killed_sweep_goes_on_where_it_stopped(small_file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fiveshot", "bench", "--features", str(small_file), "--methods", "ncm"]
    command += ["--seeds", "400", "--shots", "3", "--workers", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(tmp_path.rglob("metrics.json"))) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while any(is_alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert workers
    assert not any(is_alive(worker) for worker in workers), "workers outlive the process that started them"
    finished = list(tmp_path.rglob("metrics.json"))
    assert 3 <= len(finished) < 400
    for path in finished:
        RunRecord.load(path.parent)
    protocol = fitting_protocol(str(small_file)).replace(shots=3)
    jobs = make_jobs(protocol, str(small_file), methods=["ncm"], seeds=len(finished) + 1)
    outcomes = list(sweep(jobs, tmp_path))
    assert sum(outcome.reused for outcome in outcomes) >= len(finished) - 1


def test_a_memory_limit_lets_one_job_run_at_a_time(small_file: Path, tmp_path: Path) -> None:
    outcomes = list(sweep(jobs_for(small_file, seeds=1), tmp_path, workers=2, memory=1))
    assert len(outcomes) == 2


def test_summaries_group_by_all_but_the_seed(small_file: Path, tmp_path: Path) -> None:
    records = [outcome.record for outcome in sweep(jobs_for(small_file, seeds=3), tmp_path)]
    summaries = summarize_all(records)
    assert [summary.method for summary in summaries] == ["ncm", "fecam"]
    assert summaries[0].seeds == (0, 1, 2)
    values = [record.metrics.a_last for record in records if record.method == "ncm"]
    assert summaries[0].a_last.mean == pytest.approx(np.mean(values))
    assert summaries[0].a_last.std == pytest.approx(np.std(values, ddof=1))


def test_runs_kept_from_before_and_fresh_ones_are_one_group(small_file: Path, tmp_path: Path) -> None:
    list(sweep(jobs_for(small_file, seeds=1), tmp_path))
    records = [outcome.record for outcome in sweep(jobs_for(small_file, seeds=2), tmp_path)]
    assert sorted((summary.method, len(summary.seeds)) for summary in summarize_all(records)) == [
        ("fecam", 2),
        ("ncm", 2),
    ]


def test_a_reused_run_of_another_release_says_so(small_file: Path, tmp_path: Path) -> None:
    (fresh,) = sweep(jobs_for(small_file, seeds=1)[:1], tmp_path)
    assert fresh.earlier_release is None
    (again,) = sweep([fresh.job], tmp_path)
    assert again.earlier_release is None
    replace(fresh.record, versions={**fresh.record.versions, "fiveshot": "0.0.9"}).save(
        tmp_path / fresh.job.folder
    )
    (old,) = sweep([fresh.job], tmp_path)
    assert (old.reused, old.earlier_release) == (True, "0.0.9")


def test_a_head_that_tunes_itself_needs_the_memory_of_the_one_inside(small_file: Path) -> None:
    job = jobs_for(small_file, seeds=1)[0]
    plain, tuned = (
        estimated_memory(replace(job, method="c-ranpac", parameters={"n_projections": 4000, **more}))
        for more in ({}, {"alpha": "auto"})
    )
    assert plain == tuned > estimated_memory(job)


def test_a_file_overwritten_between_sweeps_is_run_again(small_features: FeatureSet, tmp_path: Path) -> None:
    file = tmp_path / "features.safetensors"
    jobs = make_jobs(PROTOCOL, str(file), methods=["ncm"], seeds=1)
    found = []
    for features in (small_features, replace(small_features, train_x=-small_features.train_x)):
        features.save(file)
        found += sweep(jobs, tmp_path / "runs")
    assert [outcome.reused for outcome in found] == [False, False]
    assert found[0].record.metrics.a_last > found[1].record.metrics.a_last
    assert len(summarize_all([outcome.record for outcome in found])) == 2


def test_own_features_get_a_protocol_that_fits(small_file: Path) -> None:
    protocol = choose_protocol(None, str(small_file), {"shots": 4, "base_classes": None})
    assert (protocol.n_classes, protocol.base_classes, protocol.shots) == (12, 6, 4)
    assert sum(protocol.session_sizes) == 12
    assert choose_features(None, None) == "embedded:cub200-vit-big"
    assert choose_features(None, "cub200/small") == "embedded:cub200-vit-small"
    assert choose_features("cub200", None) == "embedded:cub200"
    assert choose_features("mine.npz", None) == "mine.npz"


def test_requests_that_cannot_be_met_say_why(small_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no method 'fecan'; did you mean 'fecam'"):
        make_jobs(PROTOCOL, str(small_file), methods=["fecan"], seeds=1)
    with pytest.raises(InputError, match="has 200 classes, the features have 12"):
        choose_protocol("cub200/big", str(small_file), {})
    with pytest.raises(InputError, match="no embedded features 'cub200-vit-bag'; did you mean 'cub200-vit-big'"):
        choose_features("cub200-vit-bag", None)
    with pytest.raises(InputError, match=r"no embedded features 'flowers'; .*, or give a feature file"):
        choose_features("flowers", None)
    with pytest.raises(InputError, match="fiveshot data fetch cars"):
        choose_features(None, "cars/big")
    with pytest.raises(InputError, match="seeds must be at least 1"):
        make_jobs(PROTOCOL, str(small_file), methods=[], seeds=0)
    with pytest.raises(InputError, match="workers must be at least 1"):
        list(sweep([], tmp_path, workers=0))
    with pytest.raises(StorageError, match="no such file"):
        fitting_protocol("nowhere.npz")
