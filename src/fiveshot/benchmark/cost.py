"""What jobs cost by estimate, in time and memory, and what of them fits into a minute.

The estimate counts the operations that a head needs for the sizes at hand, at the speed of an ordinary machine.
So the same data give the same choice everywhere; only the time that is left is measured.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fiveshot.benchmark.job import Job, open_features
from fiveshot.heads import RECIPES
from fiveshot.heads.head import Workload
from fiveshot.heads.tuned import plain_head

MINUTE = 60.0
SPEED = {"cpu": 6e10, "cuda": 3e12}  # operations a second: one or two cores, a graphics card
START = 0.02  # seconds for a session, however small
WIDTHS = (5000, 2000, 1000)  # random features to fall back on where the head's own are too many for a minute
PROCESS_BYTES = 400 * 2**20  # the interpreter with its libraries, and features


@dataclass(frozen=True)
class QuickPlan:
    """What is run in place of everything: some of the jobs, perhaps with fewer random features.

    ``width`` is the number of random features where it was reduced; ``left_out`` has the methods that would take
    too long, each with its seconds.
    """

    jobs: tuple[Job, ...]
    width: int | None = None
    left_out: tuple[tuple[str, float], ...] = ()


def quick_plan(jobs: Sequence[Job], *, keep: Collection[str] = (), seconds: float = MINUTE) -> QuickPlan:
    """Return what of the jobs finishes within a minute for each draw of the shots.

    Heads with random features get fewer of them, all the same number. Where that is not enough, methods are left
    out unless they are in ``keep``: those that take too long alone, then the longest of those that charts give no
    look of their own (references and variants), then the longest of the others.
    """
    chosen, width = list(jobs), None
    for width in (None, *WIDTHS):
        chosen = [_narrowed(job, width) for job in jobs]
        if _per_draw(chosen) <= seconds:
            break
    times = _by_method(chosen)
    left_out = []
    while sum(times.values()) > seconds:
        spare = [method for method in times if method not in keep]
        if not spare or len(times) == 1:
            break
        longest = max(spare, key=lambda method: (times[method] > seconds, not _has_look(method), times[method]))
        left_out.append((longest, times.pop(longest)))
    kept = tuple(job for job in chosen if job.method in times)
    reduced = any(job != old for job, old in zip(chosen, jobs, strict=True) if job.method in times)
    return QuickPlan(kept, width if reduced else None, tuple(left_out))


def estimated_seconds(job: Job) -> float:
    """Return how long a job takes on an ordinary machine."""
    device = str(job.parameters.get("device") or "cpu").partition(":")[0]
    work = workload(job)
    return START * work.sessions + job.head().operations(work) / SPEED.get(device, SPEED["cpu"])


def estimated_memory(job: Job) -> int:
    """Return the bytes a job is expected to need at its peak."""
    head, work = plain_head(job.head()), workload(job)
    need = PROCESS_BYTES + 4 * work.n_features * (work.rows + work.test_rows)
    return need + head.memory_needed(work)


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
    """Return the sizes of a job; with official session lists, those of a protocol like them."""
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


def _narrowed(job: Job, width: int | None) -> Job:
    """Return the job with at most so many random features, unless their number was given."""
    own = getattr(plain_head(job.head()), "n_projections", None)
    if width is None or own is None or own <= width or "n_projections" in job.parameters:
        return job
    return replace(job, parameters={**job.parameters, "n_projections": width})


def _has_look(method: str) -> bool:
    return method in RECIPES and RECIPES[method].style is not None


def _by_method(jobs: Sequence[Job]) -> dict[str, float]:
    """Return the seconds that each method takes for one draw."""
    return {job.method: estimated_seconds(job) for job in reversed(jobs)}


def _per_draw(jobs: Sequence[Job]) -> float:
    return sum(_by_method(jobs).values())
