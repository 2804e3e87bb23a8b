"""The jobs of a benchmark sweep as tasks of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from fiveshot.benchmark import Job, Outcome, RunRecord, run_job
from fiveshot.benchmark.cost import estimated_memory
from fiveshot.benchmark.sweep import finished_and_waiting
from fiveshot.extras import import_extra
from fiveshot.scale.cluster import connected, own_errors


def sweep_on_cluster(
    jobs: Sequence[Job], out: Path, *, address: str | None = None, fresh: bool = False
) -> Iterator[Outcome]:
    """Run the jobs that are not finished below ``out``, yielding every outcome as soon as it is there.

    A job gets one processor, the memory it is expected to need, and a GPU where its head asks for one. Feature
    files must be readable on every node; runs are written here.

    Parameters
    ----------
    jobs : sequence of Job
        The runs of the sweep.
    out : Path
        Folder of the runs.
    address : str, optional
        The cluster, ``host:port`` or ``auto``; one is started on this machine unless given.
    fresh : bool, default False
        Whether to run finished jobs again.

    Yields
    ------
    Outcome
        A job and its record.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.benchmark import Job, get_protocol
    >>> from fiveshot.scale import sweep_on_cluster
    >>> jobs = [Job(get_protocol("cub200/big"), method, "embedded:cub200") for method in ("ncm", "teen")]
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     outcomes = list(sweep_on_cluster(jobs, Path(folder)))
    >>> sorted((outcome.job.method, outcome.reused) for outcome in outcomes)  # doctest: +SKIP
    [('ncm', False), ('teen', False)]
    """
    kept, waiting = finished_and_waiting(jobs, out, fresh=fresh)
    yield from kept
    if not waiting:
        return
    with connected(address), own_errors():
        ray = import_extra("ray", extra="ray")
        largest = max(node["Resources"].get("memory", 0) for node in ray.nodes() if node["Alive"])
        running = {_started(ray, task.job, largest): task for task in waiting}
        while running:
            (done,), _ = ray.wait(list(running), num_returns=1)
            record = ray.get(done)
            task = running.pop(done)
            record.save(task.folder)
            yield Outcome(task.job, record, reused=False)


def run_here(job: Job) -> RunRecord:
    """Run a job on the node that it was given to."""
    with threadpool_limits(1):  # a job has one processor
        return run_job(job)


def _started(ray: Any, job: Job, largest: float) -> Any:
    on_gpu = str(job.parameters.get("device", "")).startswith("cuda")
    task = ray.remote(num_cpus=1, num_gpus=1 if on_gpu else 0, max_retries=-1)(run_here)
    # One that no node has room for would wait for ever; the largest node is its best chance.
    memory = int(min(estimated_memory(job), largest))
    return task.options(memory=memory, name=f"{job.method} seed {job.protocol.shot_seed}").remote(job)
