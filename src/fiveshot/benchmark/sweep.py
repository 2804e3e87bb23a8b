"""Run many jobs in parallel processes within a memory limit, keeping what is finished."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits

from fiveshot import __version__
from fiveshot.benchmark.job import Job, open_features
from fiveshot.benchmark.record import RunRecord, is_finished
from fiveshot.benchmark.run import run_job
from fiveshot.errors import FiveshotError, InputError
from fiveshot.heads import FeCAM, RanPAC
from fiveshot.heads.ridge import ROWS_AT_ONCE
from fiveshot.heads.tuned_head import plain_head

PROCESS_BYTES = 900 * 2**20  # the interpreter with torch, and features


@dataclass(frozen=True, eq=False)
class Outcome:
    """A job with its run; ``reused`` when it had been finished before.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.benchmark import Job, get_protocol, sweep
    >>> jobs = [Job(get_protocol("cub200/big"), "ncm", "embedded:cub200")]
    >>> with TemporaryDirectory() as folder:
    ...     outcomes = [*sweep(jobs, Path(folder)), *sweep(jobs, Path(folder))]
    >>> [(outcome.job.method, outcome.reused) for outcome in outcomes]
    [('ncm', False), ('ncm', True)]
    """

    job: Job
    record: RunRecord
    reused: bool

    @property
    def earlier_release(self) -> str | None:
        """The release that made a reused run, if it is another than this one; ``fresh`` runs it again."""
        release = self.record.versions.get("fiveshot", "unknown")
        return release if self.reused and release != __version__ else None


def sweep(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int = 1,
    memory: int | None = None,
    fresh: bool = False,
) -> Iterator[Outcome]:
    """Run the jobs that are not finished below ``out``, yielding every outcome as soon as it is there.

    At most ``workers`` processes run at a time, and no more than fit ``memory`` bytes by estimate (80 % of
    what is available unless given). A run is written when it is complete; an interrupted sweep goes on where
    it stopped. ``fresh`` runs everything again.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.benchmark import Job, get_protocol, sweep
    >>> jobs = [Job(get_protocol("cub200/big"), method, "embedded:cub200") for method in ("ncm", "teen")]
    >>> with TemporaryDirectory() as folder:
    ...     for outcome in sweep(jobs, Path(folder)):
    ...         print(f"{outcome.job.method} {outcome.record.metrics.a_last:.2f}")
    ncm 0.49
    teen 0.50
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    memory = available_memory() * 8 // 10 if memory is None else memory
    waiting = []
    for job in jobs:
        folder = out / job.folder
        if is_finished(folder) and not fresh:
            yield Outcome(job, RunRecord.load(folder), reused=True)
        else:
            waiting.append(job)
    if workers == 1 or len(waiting) == 1:
        for job in waiting:
            yield Outcome(job, _run_and_save(job, out), reused=False)
    elif waiting:
        yield from _in_parallel(waiting, out, workers, memory)


def _in_parallel(jobs: Sequence[Job], out: Path, workers: int, memory: int) -> Iterator[Outcome]:
    threads = max(1, (os.cpu_count() or 1) // workers)
    # Spawned, not forked: a fork of a process in which torch has started threads can hang.
    context = multiprocessing.get_context("spawn")
    waiting = sorted(jobs, key=estimated_memory, reverse=True)
    running: dict[Future[RunRecord], Job] = {}
    pool = ProcessPoolExecutor(workers, context, initializer=_prepare_worker, initargs=(threads,))
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                used = sum(map(estimated_memory, running.values()))
                fitting = [job for job in waiting if used + estimated_memory(job) <= memory]
                if not fitting and running:
                    break
                job = fitting[0] if fitting else waiting[-1]
                waiting.remove(job)
                running[pool.submit(_run_and_save, job, out)] = job
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                job = running.pop(future)
                yield Outcome(job, _result(future, job), reused=False)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker(threads: int) -> None:
    # Processes whose threads outnumber the cores wait for each other most of the time.
    torch.set_num_threads(threads)
    threadpool_limits(threads)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this process when the one that started it is gone, however that was ended."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _result(future: Future[RunRecord], job: Job) -> RunRecord:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise FiveshotError(
            f"the process running {job.method} on {job.protocol.name} was killed, most likely for memory; "
            "finished runs are kept: start again with fewer --workers"
        ) from error


def _run_and_save(job: Job, out: Path) -> RunRecord:
    folder = out / job.folder  # before it runs: the files it is made from may change meanwhile
    record = run_job(job)
    record.save(folder)
    return record


def estimated_memory(job: Job) -> int:
    """Return the bytes a job is expected to need at its peak."""
    head = plain_head(job.head())
    features = open_features(job.features)
    d, n_classes = features.n_features, len(features.class_names)
    need = PROCESS_BYTES + 4 * (features.train_x.size + features.test_x.size)
    if isinstance(head, RanPAC):
        need += 6 * head.n_projections**2 + 4 * 2 * ROWS_AT_ONCE * head.n_projections  # sums and mapped rows
    elif isinstance(head, FeCAM):
        need += 4 * d * d * n_classes
    return need


def available_memory() -> int:
    """Return the bytes of memory that are free, or can be made free, on this machine."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
