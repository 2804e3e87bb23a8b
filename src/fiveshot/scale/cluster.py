"""A Ray cluster, running already or on this machine: how its processors are shared out, and how far it is."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from fiveshot.data import BadImage
from fiveshot.errors import FiveshotError, InputError
from fiveshot.extras import import_extra
from fiveshot.work import SAFE_PATH, safe_children

# Nothing is sent to anybody, and what Ray's own processes say goes to its logs.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
CONNECT_SECONDS = 5.0
ATTEMPTS = 3  # of a run, when the cluster failed and Ray could not repair it by itself

Result = TypeVar("Result")


@dataclass(frozen=True)
class ClusterSettings:
    """How to run on a cluster.

    Parameters
    ----------
    address : str, optional
        The cluster, ``host:port`` or ``auto``; one is started on this machine unless given.
    workers : int, optional
        Backbones at a time; as many as there are GPUs, or cores, unless given.
    batch_size : int, optional
        Images in a forward pass.
    dtype : {"float16", "float32"}
        Type of the vectors that are kept.
    skip_bad : bool, default False
        Whether to leave out images that cannot be used. Otherwise they are an error once all is done.

    Examples
    --------
    >>> from fiveshot.scale import ClusterSettings
    >>> ClusterSettings(address="auto", workers=8).dtype
    'float16'
    """

    address: str | None = None
    workers: int | None = None
    batch_size: int | None = None
    dtype: str = "float16"
    skip_bad: bool = False


@dataclass(frozen=True)
class Resources:
    """What a cluster has in all."""

    cpus: float
    gpus: float
    object_store: float  # bytes


@dataclass(frozen=True)
class Workers:
    """How many processes each stage has and which share of a processor each counts for.

    The shares are what Ray counts. They add up to less than there is, so that all stages fit side by side: one
    that took every processor would leave none to those that feed it, or empty what it fills.
    """

    forward: int
    forward_cpus: float
    forward_gpus: float
    decode: int
    decode_cpus: float
    readers: int
    read_cpus: float
    reducers: int  # tasks that reduce or merge
    reduce_cpus: float


def share_out(resources: Resources, *, gpus: bool, workers: int | None = None) -> Workers:
    """Share out a cluster's processors: the backbone gets the GPUs, or most of the CPUs where it runs on them.

    >>> share_out(Resources(2, 0, 1e9), gpus=False).forward
    2
    >>> shared = share_out(Resources(64, 8, 1e11), gpus=True)
    >>> shared.forward, shared.decode, shared.readers
    (8, 44, 64)
    """
    if workers is not None and workers < 1:
        raise InputError(f"workers is {workers}", hint="choose 1 or more")
    cpus = max(1, int(resources.cpus))
    if gpus:
        forward = min(workers or cpus, max(1, int(resources.gpus)))
        decode = max(1, int(0.7 * cpus))
        return Workers(forward, 0.0, 1.0, decode, round(0.7 * cpus / decode, 3), cpus, 0.1, max(1, cpus // 8), 0.1)
    forward = min(workers or cpus, cpus)
    return Workers(forward, 0.6, 0.0, max(1, cpus // 4), 0.2, max(1, cpus // 2), 0.1, max(1, cpus // 4), 0.1)


@contextmanager
def connected(address: str | None = None) -> Iterator[Resources]:
    """Connect to a cluster, or start one here, for the time of the block.

    A process that is connected already stays connected afterwards. A cluster that is started here asks everybody
    who connects to it for a token, unless ``RAY_AUTH_MODE`` says otherwise.

    Parameters
    ----------
    address : str, optional
        The cluster, ``host:port`` or ``auto``; one is started on this machine unless given.

    Yields
    ------
    Resources
        What the cluster has in all.

    Raises
    ------
    InputError
        If no cluster answers at the address.

    Examples
    --------
    >>> from fiveshot.scale import connected
    >>> with connected() as resources:  # doctest: +SKIP
    ...     resources.cpus >= 1
    True
    """
    if address is None and "ray" not in sys.modules:
        # Its ports listen on all interfaces. Ray reads this while it is imported; later would be too late. From
        # release 2.59 on it asks for a token on clusters that it starts in any case.
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    ray = import_extra("ray", extra="ray")
    if ray.is_initialized():
        yield resources()
        return
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    own = {} if address else {"include_dashboard": False}
    try:
        _check_address(address)
        with TemporaryDirectory() as empty, _without_stderr(), safe_children():
            ray.init(
                address=address or "local",
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env=_safe_workers(empty),
                **own,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"no Ray cluster answers at {address!r} ({error})",
            hint="start one with 'ray start --head', or leave --address out to use this machine alone",
            code="no_cluster",
        ) from error
    try:
        yield resources()
    finally:
        ray.shutdown()


def _safe_workers(empty: str) -> dict[str, Any]:
    """Return what Ray is told about its workers: they import nothing from the folder that this process runs in.

    Ray puts that folder first on the path of its workers, unless these have a folder of their own: an empty one.
    They trust the folder of the running script where Python does, and then work where this process does, if that
    folder is there: paths mean the same.
    """
    here, script = Path.cwd(), os.path.dirname(os.path.realpath(sys.argv[0]))  # noqa: PTH120  # as in sys.path
    trusted = [script] if script in sys.path else []

    def settle_in() -> None:
        sys.path.extend(trusted)
        with suppress(OSError):
            os.chdir(here)

    return {"working_dir": empty, "env_vars": SAFE_PATH, "worker_process_setup_hook": settle_in}


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Keep off the screen what native code writes there; what goes wrong is raised all the same."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check_address(address: str | None) -> None:
    """Raise where nothing listens at an address; Ray would end this process."""
    if address is None or address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdigit():
        raise ValueError("an address is host:port, such as 10.0.0.1:6379, or auto")
    socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def resources() -> Resources:
    """Return what the cluster that this process is connected to has in all."""
    total: dict[str, float] = import_extra("ray", extra="ray").cluster_resources()
    return Resources(total.get("CPU", 0.0), total.get("GPU", 0.0), total.get("object_store_memory", 0.0))


@contextmanager
def own_errors() -> Iterator[None]:
    """Let an error that was raised on purpose on a worker arrive here as if it had been raised here."""
    try:
        yield
    except FiveshotError:
        raise
    except Exception as error:
        for found in _causes(error):
            if isinstance(found, FiveshotError) and not hasattr(found, "cause"):  # Ray's copies of ours have one
                raise found from None
        raise


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it, as Python says or as Ray does."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__


def retried(action: Callable[[], Result]) -> Result:
    """Return what an action returns; do it again where the cluster failed and Ray could not repair it."""
    for _ in range(ATTEMPTS - 1):
        try:
            return action()
        except FiveshotError:
            raise
        except Exception as error:
            if not is_cluster_failure(error):
                raise
    return action()


def is_cluster_failure(error: Exception) -> bool:
    """Tell whether an error is about lost processes, nodes or objects, and not about the work itself."""
    exceptions: Any = import_extra("ray.exceptions", extra="ray")
    lost = (
        exceptions.RayActorError,
        exceptions.ObjectLostError,
        exceptions.WorkerCrashedError,
        exceptions.NodeDiedError,
        exceptions.OutOfMemoryError,
        exceptions.TaskUnschedulableError,
    )
    return any(isinstance(found, lost) for found in _causes(error))


@dataclass(frozen=True)
class Tally:
    """What has been done: images, the bad ones among them, and the seconds each stage was busy with them."""

    images: int = 0
    bad: tuple[BadImage, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    promised: int = 0  # images of the shards that have come to their end

    def __add__(self, other: Tally) -> Tally:
        names = dict.fromkeys((*self.seconds, *other.seconds))
        return Tally(
            self.images + other.images,
            self.bad + other.bad,
            {name: self.seconds.get(name, 0.0) + other.seconds.get(name, 0.0) for name in names},
            self.promised + other.promised,
        )

    def rates(self) -> dict[str, float]:
        """Return images per second of each stage, for one worker that never waits."""
        return {name: self.images / seconds for name, seconds in self.seconds.items() if seconds > 0}


@dataclass(frozen=True)
class ClusterProgress:
    """Images done, of how many where that is known, and the speed of each stage.

    Attributes
    ----------
    tally : Tally
        The images computed in this run.
    before : int
        Images that were finished in an earlier run.
    total : int or None
        All images, where their number is known.
    waiting : int
        Images whose vectors are computed but not yet reduced.
    shards, all_shards : int
        Shards that are finished, and their number in all.

    Examples
    --------
    >>> from fiveshot.scale import ClusterProgress
    >>> from fiveshot.scale.cluster import Tally
    >>> now = ClusterProgress(Tally(images=30, seconds={"forward": 2.0}), before=10, total=100, waiting=5)
    >>> f"{now.done} of {now.total} images, {now.stages()}"
    '45 of 100 images, forward 15/s'
    """

    tally: Tally = field(default_factory=Tally)
    before: int = 0
    total: int | None = None
    waiting: int = 0
    shards: int = 0
    all_shards: int = 0

    @property
    def done(self) -> int:
        """Images that have a vector, in this run and before."""
        done = self.before + self.tally.images + self.waiting
        return done if self.total is None else min(done, self.total)

    def stages(self) -> str:
        """Return one line with the images per second of a worker of each stage.

        >>> ClusterProgress(Tally(30, (), {"read": 0.1, "forward": 2.0})).stages()
        'read 300/s, forward 15/s'
        """
        return ", ".join(f"{name} {rate:,.0f}/s" for name, rate in self.tally.rates().items())


OnClusterProgress = Callable[[ClusterProgress], None]


def silent(now: ClusterProgress) -> None:
    """Show nothing."""
