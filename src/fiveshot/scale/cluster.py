"""A Ray cluster, already running or started on this machine: its connection, its workers and its progress."""

from __future__ import annotations

import logging
import os
import shlex
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

# Ray sends no usage data, and output of its own processes goes to its logs.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}
CONNECT_SECONDS = 5.0
ATTEMPTS = 3  # how often a run is tried if the cluster fails and Ray cannot repair it

Result = TypeVar("Result")


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of a run on a cluster.

    Parameters
    ----------
    address : str, optional
        The cluster, ``host:port`` or ``auto``; by default one is started on this machine.
    workers : int, optional
        Backbones that run in parallel; by default one for each GPU or core.
    batch_size : int, optional
        Images in a forward pass.
    dtype : {"float16", "float32"}
        Type of the vectors that are kept.
    skip_bad : bool, default False
        Whether to leave out images that cannot be used. Otherwise they are an error at the end.

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
    """The total resources of a cluster."""

    cpus: float
    gpus: float
    object_store: float  # bytes


@dataclass(frozen=True)
class Workers:
    """The number of processes of each stage, and the share of a processor that each is given.

    Ray counts these shares. They add up to less than the total, so that all stages fit. A stage that took every
    processor would block the stages before and after it.
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
    """Divide a cluster's processors among the stages: the backbone gets the GPUs, or most of the CPUs.

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
    """Connect to a cluster, or start one on this machine, for the duration of the block.

    A process that is already connected stays connected afterwards. A cluster that is started here requires a token
    from every client, unless ``RAY_AUTH_MODE`` says otherwise.

    Parameters
    ----------
    address : str, optional
        The cluster, ``host:port`` or ``auto``; by default one is started on this machine.

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
        # Ray's ports listen on all interfaces. Ray reads this variable on import, so it must be set before. From
        # release 2.59 on, Ray always requires a token on clusters that it starts.
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
                runtime_env=_safe_workers(empty) | ({} if address else _quoted_python()),
                **own,
            )
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"no Ray cluster answers at {address!r} ({error})",
            hint="start one with 'ray start --head', or leave out --address to use only this machine",
            code="no_cluster",
        ) from error
    try:
        yield resources()
    finally:
        ray.shutdown()


def _safe_workers(empty: str) -> dict[str, Any]:
    """Return Ray's settings for workers, so that they import nothing from the current folder.

    Ray puts that folder first on the path of its workers, unless they have their own working folder; here that is
    an empty one. Like Python, they trust the folder of the running script. Then they change to this process's
    folder, if it exists on their node, so that relative paths mean the same.
    """
    here, script = Path.cwd(), os.path.dirname(os.path.realpath(sys.argv[0]))  # noqa: PTH120  # as in sys.path
    trusted = [script] if script in sys.path else []

    def settle_in() -> None:
        sys.path.extend(trusted)
        with suppress(OSError):
            os.chdir(here)

    return {"working_dir": empty, "env_vars": SAFE_PATH, "worker_process_setup_hook": settle_in}


def _quoted_python() -> dict[str, str]:
    """Return Ray's setting for this Python: Ray starts workers by a shell and quotes no spaces in its path."""
    return {"py_executable": shlex.quote(sys.executable)} if " " in sys.executable else {}


@contextmanager
def _without_stderr() -> Iterator[None]:
    """Hide what native code writes to standard error; errors are still raised."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check_address(address: str | None) -> None:
    """Raise if nothing listens at an address; Ray itself would end this process."""
    if address is None or address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if "://" in address or not colon or not port.isdigit():
        raise ValueError("an address is host:port, such as 10.0.0.1:6379, or auto")
    socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def resources() -> Resources:
    """Return the total resources of the connected cluster."""
    total: dict[str, float] = import_extra("ray", extra="ray").cluster_resources()
    return Resources(total.get("CPU", 0.0), total.get("GPU", 0.0), total.get("object_store_memory", 0.0))


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise fiveshot's own errors from workers here, without Ray's wrapper."""
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
    """Yield an error and its causes, from Python or from Ray."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__


def retried(action: Callable[[], Result]) -> Result:
    """Run an action and return its result; repeat it if the cluster failed and Ray could not repair it."""
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
    """Work done so far: images, bad images, and the busy seconds of each stage."""

    images: int = 0
    bad: tuple[BadImage, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    promised: int = 0  # images of the completely read shards

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
    """Finished images, their total number if known, and the speed of each stage.

    Attributes
    ----------
    tally : Tally
        The images computed in this run.
    before : int
        Images that were finished in an earlier run.
    total : int or None
        Number of all images, if known.
    waiting : int
        Images whose vectors are computed but not yet reduced.
    shards, all_shards : int
        Number of finished shards, and of all shards.

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
