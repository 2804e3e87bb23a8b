"""Run one head through the sessions of a protocol, or many jobs in parallel processes within a memory limit.

The cost of a job is estimated from the number of operations and the speed of a usual machine. So the same data
give the same choice on every machine.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fiveshot import __version__
from fiveshot.benchmark._cost import TRIALS, Workload, memory_needed, operations
from fiveshot.benchmark.job import Job, fingerprint, open_features, protocol_head, run_config
from fiveshot.benchmark.protocol import Protocol, Session, listed_sessions, sessions
from fiveshot.benchmark.record import UNSEEN, RunRecord, is_finished
from fiveshot.core.arrays import as_numpy
from fiveshot.core.scorers import Scorer, ScoreTable, UnbiasedLDAScorer
from fiveshot.data import match_names, read_session_lists
from fiveshot.errors import FiveshotError, InputError
from fiveshot.features import FeatureSet
from fiveshot.heads import FewShotHead, TunedHead, plain_head
from fiveshot.metrics import expected_calibration_error, trade_off
from fiveshot.work import Progress, one_thread, safe_children

OnSession = Callable[[Job, int, int], None]
MINUTE = 60.0
SPEED = {"cpu": 6e10, "cuda": 3e12}  # operations a second: one or two cores, a graphics card
START = 0.02  # seconds that every session takes at least
WIDTHS = (5000, 2000, 1000)  # fewer random features, if the head's own number takes over a minute
WIDE = 1000  # random features from which on several threads are faster than one
PROCESS_BYTES = 400 * 2**20  # the interpreter with its libraries and features


def run(
    protocol: Protocol, features: FeatureSet, head: FewShotHead | str, *, progress: Progress | None = None
) -> RunRecord:
    """Learn the sessions of a protocol in order, and predict all test samples of seen classes after each.

    Parameters
    ----------
    protocol : Protocol
        Which classes come when.
    features : FeatureSet
        Training and test vectors.
    head : FewShotHead or str
        A name gives the same head and the same numbers as a job. A head object is used unchanged.
    progress : Progress, optional
        Called after each session.

    Returns
    -------
    RunRecord
        Predictions and measures.

    Examples
    --------
    >>> from fiveshot.benchmark import Protocol, run
    >>> from fiveshot.features import embedded_features
    >>> birds = embedded_features("cub200").restrict(["001.Black_footed_Albatross", "002.Laysan_Albatross"])
    >>> protocol = Protocol("two birds", "cub200", n_classes=2, base_classes=1, increment=1)
    >>> run(protocol, birds, "ncm").metrics.sessions[0].accuracy
    1.0
    """
    name = head if isinstance(head, str) else type(head).__name__
    head = protocol_head(head, protocol) if isinstance(head, str) else head
    config = run_config(protocol, name, head, features=fingerprint(features))
    return _record(config, features, head, _sessions(protocol, features), progress)


def run_job(job: Job, *, progress: Progress | None = None) -> RunRecord:
    """Run a job: open its features, make its head, and learn its sessions in order.

    Parameters
    ----------
    job : Job
        What to run.
    progress : Progress, optional
        Called after each session.

    Returns
    -------
    RunRecord
        Predictions and measures.

    Examples
    --------
    >>> from fiveshot.benchmark import Job, get_protocol, run_job
    >>> record = run_job(Job(get_protocol("cub200/big"), "ncm", "embedded:cub200"))
    >>> len(record.metrics.sessions), round(record.metrics.a_last, 2)
    (11, 0.72)
    """
    features = open_features(job.features)
    steps = _sessions(job.protocol, features, job.sessions)
    return _record(job.config(), features, job.head(), steps, progress)


def _sessions(protocol: Protocol, features: FeatureSet, lists: str | None = None) -> tuple[Session, ...]:
    """Return the sessions of a protocol, or of a folder of lists, matched to the features by image name."""
    if lists is None:
        return sessions(protocol, features.train_y, features.test_y, features.class_names, features.train_names)
    if features.train_names is None:
        raise InputError(
            "these features have no image names, so session lists cannot be matched",
            hint="extract them again from the images",
        )
    rows = match_names(read_session_lists(Path(lists)).train, features.train_names)
    return listed_sessions(rows, features.train_y, features.test_y, features.class_names)


def _record(
    config: Mapping[str, Any],
    features: FeatureSet,
    head: FewShotHead,
    steps: Sequence[Session],
    progress: Progress | None,
) -> RunRecord:
    """Train the head session by session, and record its predictions after each."""
    predictions = np.full((len(steps), len(features.test_y)), UNSEEN, dtype=np.int64)
    table: ScoreTable | None = None
    calibration: list[float] = []
    seconds = 0.0
    with nullcontext() if _is_wide(head) else one_thread():
        for step in steps:
            start = time.perf_counter()
            rows = step.train_indices
            head.partial_fit(features.train_x[rows], features.train_y[rows])
            scorer, table, asked = _asked(head, features, step, table)
            predictions[step.number, step.test_indices] = table.classify(scorer)[asked]
            seconds += time.perf_counter() - start
            truth = np.searchsorted(head.classes_, features.test_y[step.test_indices])
            calibration.append(expected_calibration_error(table.probabilities(scorer)[asked], truth))
            if progress is not None:
                progress(step.number + 1, len(steps))
    balance = None
    if table is not None and len(steps) > 1:
        new = ~np.isin(head.classes_, steps[0].classes)
        balance = trade_off(as_numpy(table.scores(scorer))[asked], truth, new)
    return RunRecord(
        config=config,
        class_names=features.class_names,
        session_classes=tuple(step.classes for step in steps),
        y_true=features.test_y,
        predictions=predictions,
        train_counts=tuple(len(step.train_indices) for step in steps),
        seconds=seconds,
        provenance=features.provenance.as_dict(),
        calibration=tuple(calibration),
        trade_off=balance,
        chosen=head.chosen_ if isinstance(head, TunedHead) else {},
    )


def _is_wide(head: FewShotHead) -> bool:
    """Tell whether a head works on matrices that are large enough for several threads."""
    sizes = (value for name, value in head.get_params().items() if name.endswith("n_projections"))
    return any(isinstance(size, int) and size >= WIDE for size in sizes)


def _asked(
    head: FewShotHead, features: FeatureSet, step: Session, table: ScoreTable | None
) -> tuple[Scorer, ScoreTable, NDArray[np.intp]]:
    """Return the scorer after a session, a table of test samples, and which of them to predict.

    A head that uses several samples together gets no sample of a later class.
    """
    scorer = head.scorer_
    if isinstance(scorer, UnbiasedLDAScorer) and scorer.together:
        X = features.test_x[step.test_indices]
        return scorer.moved_by(X), ScoreTable(X), np.arange(len(X))
    return scorer, table or ScoreTable(features.test_x), step.test_indices


@dataclass(frozen=True, eq=False)
class Outcome:
    """A job with its run.

    Attributes
    ----------
    job : Job
        The job.
    record : RunRecord
        Its run.
    reused : bool
        Whether the run was already finished.

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
        """The release that made a reused run, if it is not this one; ``fresh`` runs it again."""
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
    """Run the jobs that are not finished below ``out``, and yield each outcome as soon as it is available.

    A run is written when it is complete. An interrupted sweep continues where it stopped.

    Parameters
    ----------
    jobs : sequence of Job
        What to run.
    out : Path
        Folder for the runs.
    workers : int
        The most processes at a time.
    memory : int, optional
        Limit on the estimated bytes of all processes together; by default 80 % of the available memory.
    fresh : bool
        Run finished jobs again.
    on_session : callable, optional
        Called with a job, the number of learned sessions, and the number of all sessions; only if jobs run in this
        process.

    Yields
    ------
    Outcome
        Jobs that were already finished come first, then the others as they finish.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fiveshot.benchmark import Job, get_protocol, sweep
    >>> jobs = [Job(get_protocol("cub200/big"), method, "embedded:cub200") for method in ("ncm", "teen")]
    >>> with TemporaryDirectory() as folder:
    ...     for outcome in sweep(jobs, Path(folder)):
    ...         print(f"{outcome.job.method} {outcome.record.metrics.a_last:.2f}")
    ncm 0.72
    teen 0.73
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
    """A waiting job, and the folder for its run.

    The folder is named before the job runs, because its input files may change meanwhile.
    """

    job: Job
    folder: Path


def finished_and_waiting(
    jobs: Sequence[Job], out: Path, *, fresh: bool = False
) -> tuple[list[Outcome], list[Task]]:
    """Return the finished outcomes, and the tasks that remain."""
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
    """Run tasks in processes, the largest first, as many at a time as fit into memory."""
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
    """Set up a new process: limit its threads, and end it when its parent ends."""
    # If the threads of all processes outnumber the cores, they wait for each other most of the time.
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for libraries that are loaded later
    threadpool_limits(threads)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    """End this process when its parent ends; a worker of a pool would otherwise wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        signal.raise_signal(signal.SIGTERM)


def _result(future: Future[RunRecord], job: Job) -> RunRecord:
    """Return the record of a finished process; if the process was killed, raise an error with a hint."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise FiveshotError(
            f"the process running {job.method} on {job.protocol.name} was killed, most likely for memory",
            hint="finished runs are kept: start again with fewer --workers",
        ) from error


def estimated_seconds(job: Job) -> float:
    """Estimate the seconds of a job on a usual machine."""
    device = str(job.parameters.get("device") or "cpu").partition(":")[0]
    head, work = job.head(), workload(job)
    runs = TRIALS if isinstance(head, TunedHead) else 1
    needed = runs * operations(plain_head(head).unlearned_scorer(), work)
    return START * work.sessions + needed / SPEED.get(device, SPEED["cpu"])


def estimated_memory(job: Job) -> int:
    """Estimate the peak memory of a job in bytes."""
    head, work = plain_head(job.head()), workload(job)
    need = PROCESS_BYTES + 4 * work.n_features * (work.rows + work.test_rows)
    return need + memory_needed(head.unlearned_scorer(), work)


def available_memory() -> int:
    """Return the bytes of memory that are free, or can be made free, on this machine."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def workload(job: Job) -> Workload:
    """Return the sizes of a job; with session lists, those of a similar protocol."""
    features, protocol = open_features(job.features), job.protocol
    base = protocol.session_classes[0]
    return Workload(
        base_rows=int(np.isin(features.train_y, base).sum()),
        base_classes=len(base),
        new_classes=protocol.n_classes - len(base),
        shots=protocol.shots,
        sessions=len(protocol.session_sizes),
        n_features=features.n_features,
        test_rows=len(features.test_y),
    )
