"""Whole jobs on a cluster: those of a benchmark sweep as tasks, and tuning in processes that train together.

Processes of all kinds import this module, and only those that train need PyTorch: it is imported there.
"""

from __future__ import annotations

import itertools
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from fiveshot.backbones import BackboneSpec
from fiveshot.benchmark import Job, Outcome, RunRecord, estimated_memory, finished_and_waiting, run_job
from fiveshot.data import ImageDataset
from fiveshot.errors import FiveshotError, InputError
from fiveshot.extras import import_extra
from fiveshot.scale.cluster import connected, is_cluster_failure, own_errors, retried
from fiveshot.storage import FilePath, atomic_path, require_writable
from fiveshot.tuning import TUNE_RECIPES, OnProgress, TuneProgress, TuneRecipe, TuneResult

if TYPE_CHECKING:
    from fiveshot.tuning import Execution, HeldOut, Selection, SelectionKind

POLL_SECONDS = 0.5
LOSS_SECONDS = 10.0  # in which Ray tells that a process is lost whose loss another one has noticed


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
        The cluster, ``host:port`` or ``auto``; by default one is started on this machine.
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
    # A job too large for every node would wait for ever, so it requests at most the memory of the largest node.
    memory = int(min(estimated_memory(job), largest))
    return task.options(memory=memory, name=f"{job.method} seed {job.protocol.shot_seed}").remote(job)


@dataclass(frozen=True, eq=False)
class TuningTask:
    """The arguments of every training process, as in ``fiveshot.tuning.tune``.

    Paths must be readable on every node.

    Parameters
    ----------
    dataset : ImageDataset
        The base classes.
    spec : BackboneSpec
        The backbone that gets adapters; by default the embedded one.
    recipe : TuneRecipe
        How to train.
    held_out : float or "auto", default 0.1
        Share of the images for the reported accuracy; see ``fiveshot.tuning.tune``.
    selection : str or Selection, default "none"
        How the number of epochs is chosen.
    refit : bool, default True
        Whether to train again on all classes afterwards.
    execution : Execution, optional
        How to run the computation.
    resume : bool, default False
        Whether to use checkpoints of an earlier command.
    checkpoint_folder : path, optional
        Folder for checkpoints, on storage that all nodes share.
    skip_bad : bool, default False
        Whether to leave out images that cannot be read.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import TuningTask
    >>> from fiveshot.tuning import TUNE_RECIPES
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> dataset = ImageDataset("grays", ("dark", "light"), split, split.select([]))
    >>> task = TuningTask(dataset, recipe=TUNE_RECIPES["ours"].replace(epochs=5), held_out=0.5)
    >>> len(task.dataset.train), task.recipe.epochs, task.selection
    (4, 5, 'none')
    """

    dataset: ImageDataset
    spec: BackboneSpec = field(default_factory=BackboneSpec)
    recipe: TuneRecipe = TUNE_RECIPES["ours"]
    held_out: HeldOut = 0.1
    selection: Selection | SelectionKind = "none"
    refit: bool = True
    execution: Execution | None = None
    resume: bool = False
    checkpoint_folder: FilePath | None = None
    skip_bad: bool = False


def tune_on_cluster(
    task: TuningTask,
    out: FilePath,
    *,
    processes: int | None = None,
    address: str | None = None,
    progress: OnProgress | None = None,
) -> TuneResult:
    """Train adapters with several processes of a cluster.

    The adapter file is written on this machine. With a ``checkpoint_folder`` that all nodes share, a lost process
    costs one epoch.

    Parameters
    ----------
    task : TuningTask
        What to train.
    out : path
        The adapter file to write.
    processes : int, optional
        Training processes; by default one for each GPU.
    address : str, optional
        The cluster, ``host:port`` or ``auto``; by default one is started on this machine.
    progress : callable, optional
        Called with a ``TuneProgress`` from time to time.

    Returns
    -------
    TuneResult
        The history of the training.

    Raises
    ------
    InputError
        If the options contradict each other, or no cluster answers.
    StorageError
        If the file cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from fiveshot.data import ArraySource, ImageDataset, ImageSplit
    >>> from fiveshot.scale import TuningTask, tune_on_cluster
    >>> from fiveshot.tuning import TuneRecipe
    >>> grays = [ArraySource(np.full((32, 32, 3), 60 * n, np.uint8), str(n)) for n in range(4)]
    >>> split = ImageSplit(tuple(grays), np.array([0, 0, 1, 1]))
    >>> dataset = ImageDataset("grays", ("dark", "light"), split, split.select([]))
    >>> task = TuningTask(dataset, recipe=TuneRecipe(epochs=1, bottleneck=4), held_out=0)
    >>> with TemporaryDirectory() as folder:  # doctest: +SKIP
    ...     result = tune_on_cluster(task, f"{folder}/adapter.safetensors", processes=1)
    >>> result.out.name, [record.epoch for record in result.history]  # doctest: +SKIP
    ('adapter.safetensors', [1])
    """
    target = require_writable(out)
    if processes is not None and processes < 1:
        raise InputError(f"processes is {processes}", hint="choose 1 or more")
    if task.resume and task.checkpoint_folder is None:
        raise InputError(
            "on a cluster, --resume needs --checkpoints FOLDER on storage that all nodes share",
            code="no_checkpoints",
        )
    began = time.perf_counter()
    with connected(address) as resources, own_errors():
        on_gpus = resources.gpus > 0
        count = processes or max(1, int(resources.gpus))
        attempts = itertools.count()

        def train() -> tuple[TuneResult, bytes]:
            again = replace(task, resume=task.resume or next(attempts) > 0)
            return _trained_together(again, count, on_gpus=on_gpus, progress=progress)

        result, adapter = train() if task.checkpoint_folder is None else retried(train)
    with atomic_path(target) as path:
        path.write_bytes(adapter)
    return replace(result, out=target, seconds=time.perf_counter() - began)


class Trainee:
    """One of the processes that train together. It can answer calls while it trains."""

    def __init__(self) -> None:
        self._news: TuneProgress | None = None

    def address(self) -> tuple[str, int]:
        """Return the address of this process for the others: its node and a free port there."""
        with socket.socket() as free:
            free.bind(("", 0))
            return str(import_extra("ray.util", extra="ray").get_node_ip_address()), int(free.getsockname()[1])

    def news(self) -> TuneProgress | None:
        """Return the latest progress of the training, if any."""
        return self._news

    def train(
        self, task: TuningTask, *, rank: int, count: int, meeting: tuple[str, int], on_gpus: bool
    ) -> tuple[TuneResult, bytes] | None:
        """Train as one of ``count`` processes; the first one returns the adapters."""
        from fiveshot.backbones import load_backbone
        from fiveshot.tuning import make_accelerator, tune

        if count > 1:  # Ray gives each process its own GPU, which is device 0 there
            numbers = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": 0, "MASTER_PORT": meeting[1]}
            os.environ |= {"MASTER_ADDR": meeting[0], **{name: str(value) for name, value in numbers.items()}}
        if not on_gpus:
            os.environ["ACCELERATE_USE_CPU"] = "true"
        accelerator = make_accelerator(cpu=not on_gpus)
        training = dict(vars(task))  # all other fields have the names of tune's arguments
        dataset, spec = training.pop("dataset"), training.pop("spec")
        backbone = load_backbone(spec.replace(device=str(accelerator.device)))
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "adapter.safetensors"
            result = tune(backbone, dataset, out=out, progress=self._note, accelerator=accelerator, **training)
            return None if rank else (result, out.read_bytes())

    def _note(self, news: TuneProgress) -> None:
        self._news = news


def _trained_together(
    task: TuningTask, count: int, *, on_gpus: bool, progress: OnProgress | None
) -> tuple[TuneResult, bytes]:
    """Train with ``count`` processes, which start and end together."""
    ray = import_extra("ray", extra="ray")
    groups = import_extra("ray.util.placement_group", extra="ray")
    strategies = import_extra("ray.util.scheduling_strategies", extra="ray")
    room = {"CPU": 1, "GPU": 1} if on_gpus else {"CPU": 1}
    group = groups.placement_group([room] * count)  # all or none: half of the processes would wait for ever
    trainee = ray.remote(num_cpus=1, num_gpus=int(on_gpus), max_concurrency=2)(Trainee)
    try:
        ray.get(group.ready())
        there = strategies.PlacementGroupSchedulingStrategy(group)
        trainees = [trainee.options(scheduling_strategy=there).remote() for _ in range(count)]
        meeting, sent = ray.get(trainees[0].address.remote()), ray.put(task)
        with _reporting(ray, trainees[0], progress):
            running = [
                one.train.remote(sent, rank=rank, count=count, meeting=meeting, on_gpus=on_gpus)
                for rank, one in enumerate(trainees)
            ]
            return first_result(ray, running)
    finally:
        groups.remove_placement_group(group)  # with the processes in it


def first_result(ray: Any, waiting: list[Any]) -> tuple[TuneResult, bytes]:
    """Return the result of the first process; if a process fails, raise the most likely cause."""
    rest, errors = list(waiting), list[Exception]()
    while rest and not errors:
        done, rest = ray.wait(rest)
        errors += _errors(ray, done)
    if errors:  # the other processes of a lost one fail too, and may report first
        done, _ = ray.wait(rest, num_returns=len(rest), timeout=LOSS_SECONDS) if rest else ([], [])
        errors += _errors(ray, done)
        raise min(errors, key=lambda error: (not isinstance(error, FiveshotError), not is_cluster_failure(error)))
    result: tuple[TuneResult, bytes] = ray.get(waiting[0])
    return result


def _errors(ray: Any, done: list[Any]) -> list[Exception]:
    found = []
    for one in done:
        try:
            ray.get(one)
        except Exception as error:
            found.append(error)
    return found


@contextmanager
def _reporting(ray: Any, trainee: Any, progress: OnProgress | None) -> Iterator[None]:
    """Forward the progress of the first process while the block runs."""
    ended = threading.Event()

    def follow() -> None:
        while progress is not None and not ended.wait(POLL_SECONDS):
            try:
                news = ray.get(trainee.news.remote())
            except Exception:  # the process is lost; this is reported elsewhere
                return
            if news is not None:
                progress(news)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
