"""Run many jobs in parallel processes within a memory limit, keeping what is finished."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import NamedTuple

from threadpoolctl import threadpool_limits

from fiveshot import __version__
from fiveshot.benchmark.cost import available_memory, estimated_memory
from fiveshot.benchmark.job import Job
from fiveshot.benchmark.record import RunRecord, is_finished
from fiveshot.benchmark.run import run_job
from fiveshot.errors import FiveshotError, InputError
from fiveshot.work import safe_children

OnSession = Callable[[Job, int, int], None]


@dataclass(frozen=True, eq=False)
class Outcome:
    """A job with its run.

    Attributes
    ----------
    job : Job
        What was asked for.
    record : RunRecord
        What was found.
    reused : bool
        Whether it had been finished before.

    Examples
    --------
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
        """The release that made a reused run, where it is not this one; ``fresh`` runs it again."""
        release = self.record.versions.get("fiveshot", "unknown")
        return release if self.reused and release != __version__ else None


def sweep(
    jobs: Sequence[Job],
    out: Path,
    *,
    workers: int = 1,
    memory: int | None = None,
    fresh: bool = False,
    on_session: OnSession | None = None,
) -> Iterator[Outcome]:
    """Run the jobs that are not finished below ``out``, and yield each outcome as soon as it is there.

    A run is written when it is complete; an interrupted sweep goes on where it stopped.

    Parameters
    ----------
    jobs : sequence of Job
        What to run.
    out : Path
        Where runs are kept.
    workers : int
        Most processes at a time.
    memory : int, optional
        Bytes that all processes may need together by estimate; 80 % of what is available unless given.
    fresh : bool
        Run finished jobs again.
    on_session : callable, optional
        Called with a job, the sessions that it has learned, and all of its sessions; only where jobs run in this
        process.

    Yields
    ------
    Outcome
        Jobs finished before come first, then the others as they finish.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.benchmark import Job, get_protocol, sweep
    >>> jobs = [Job(get_protocol("cub200/big"), method, "embedded:cub200") for method in ("ncm", "teen")]
    >>> with TemporaryDirectory() as folder:
    ...     for outcome in sweep(jobs, Path(folder)):
    ...         print(f"{outcome.job.method} {outcome.record.metrics.a_last:.2f}")
    ncm 0.51
    teen 0.52
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    kept, waiting = finished_and_waiting(jobs, out, fresh=fresh)
    yield from kept
    if workers == 1 or len(waiting) == 1:
        for task in waiting:
            yield Outcome(task.job, run_and_save(task, on_session), reused=False)
    elif waiting:
        yield from _in_parallel(waiting, workers, available_memory() * 8 // 10 if memory is None else memory)


class Task(NamedTuple):
    """A job that waits, and where its run will be kept.

    The folder is named before the job runs: the files that the run is made from may change meanwhile.
    """

    job: Job
    folder: Path


def finished_and_waiting(
    jobs: Sequence[Job], out: Path, *, fresh: bool = False
) -> tuple[list[Outcome], list[Task]]:
    """Return the outcomes that are there already, and what remains to be run."""
    tasks = [Task(job, out / job.folder) for job in jobs]
    done = [not fresh and is_finished(task.folder) for task in tasks]
    kept = [Outcome(job, RunRecord.load(folder), reused=True) for job, folder in compress(tasks, done)]
    return kept, [task for task, finished in zip(tasks, done, strict=True) if not finished]


def run_and_save(task: Task, on_session: OnSession | None = None) -> RunRecord:
    """Run a job and write its folder."""
    record = run_job(task.job, progress=None if on_session is None else partial(on_session, task.job))
    record.save(task.folder)
    return record


def _in_parallel(tasks: Sequence[Task], workers: int, memory: int) -> Iterator[Outcome]:
    """Run tasks in processes, the largest first, as many at a time as fit."""
    threads = max(1, (os.cpu_count() or 1) // workers)
    # Spawned, not forked: a fork of a process that has started threads can hang.
    context = multiprocessing.get_context("spawn")
    need = {task: estimated_memory(task.job) for task in tasks}
    waiting = sorted(tasks, key=need.__getitem__, reverse=True)
    running: dict[Future[RunRecord], Task] = {}
    with safe_children():
        pool = ProcessPoolExecutor(workers, context, initializer=_prepare_worker, initargs=(threads,))
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                used = sum(need[task] for task in running.values())
                fitting = [task for task in waiting if used + need[task] <= memory]
                if not fitting and running:
                    break
                task = fitting[0] if fitting else waiting[-1]
                waiting.remove(task)
                with safe_children():  # this may start a process
                    running[pool.submit(run_and_save, task)] = task
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                job = running.pop(future).job
                yield Outcome(job, _result(future, job), reused=False)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker(threads: int) -> None:
    """Set a new process up: its share of the cores, and an end together with its parent."""
    # Processes whose threads outnumber the cores wait for each other most of the time.
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for libraries that are loaded later
    threadpool_limits(threads)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this process when the one that started it is gone."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _result(future: Future[RunRecord], job: Job) -> RunRecord:
    """Return the record of a finished process; a killed one is an error with the way out."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise FiveshotError(
            f"the process running {job.method} on {job.protocol.name} was killed, most likely for memory",
            hint="finished runs are kept: start again with fewer --workers",
        ) from error
