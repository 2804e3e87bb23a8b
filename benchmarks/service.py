"""Measure the service under load on one machine: many clients predict while others learn.

Starts ``fiveshot serve`` on a free loopback port. Clients send photos as fast as they are answered. The photos per
second are compared with those of the backbone alone on prepared batches, measured before and after.

    python benchmarks/service.py                  # a minute, the embedded network, printed as a table in Markdown
    python benchmarks/service.py --seconds 20 --clients 8 --photos 4
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np
import ratios
from PIL import Image
from ratios import Ratio, add_check

from fiveshot.backbones import BackboneSpec, Embedder, load_embedder
from fiveshot.features import bare_rate
from fiveshot.recognizer import Recognizer

SHOTS = 5


@dataclass
class Tally:
    """Counts and times of the clients."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {"predict": [], "learn": []})
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    learned: list[str] = field(default_factory=list)
    photos: int = 0


def photograph(rng: np.random.Generator, size: tuple[int, int] = (320, 240)) -> bytes:
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), np.uint8))
    buffer = io.BytesIO()
    coarse.resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def parts(photos: list[bytes]) -> list[tuple[str, tuple[str, bytes, str]]]:
    return [("photos", (f"{number}.jpg", data, "image/jpeg")) for number, data in enumerate(photos)]


async def predict(client: httpx.AsyncClient, tally: Tally, photos: list[bytes], until: float) -> None:
    while (began := time.perf_counter()) < until:
        reply = await client.post("/v1/predict", files=parts(photos))
        tally.statuses["predict", reply.status_code] += 1
        tally.seconds["predict"].append(time.perf_counter() - began)
        tally.photos += len(photos) if reply.status_code == 200 else 0


async def learn(
    client: httpx.AsyncClient, tally: Tally, rng: np.random.Generator, pause: float, until: float
) -> None:
    number = 0
    while time.perf_counter() < until:
        name = f"under load {number}"
        photos = [photograph(rng) for _ in range(SHOTS)]
        began = time.perf_counter()
        reply = await client.post(f"/v1/classes/{name}/photos", files=parts(photos))
        tally.statuses["learn", reply.status_code] += 1
        tally.seconds["learn"].append(time.perf_counter() - began)
        if reply.status_code == 200:
            tally.learned.append(name)
            tally.photos += SHOTS
        number += 1
        await asyncio.sleep(pause)


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process, which does not depend on other programs."""
    used = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


async def load(url: str, process: int, given: argparse.Namespace) -> tuple[Tally, float, float]:
    tally, rng = Tally(), np.random.default_rng(0)
    limits = httpx.Limits(max_connections=given.clients + 2)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as client:
        while (await client.get("/v1/ready")).status_code != 200:
            await asyncio.sleep(0.1)
        for number in range(given.classes):
            await client.post(
                f"/v1/classes/known {number}/photos", files=parts([photograph(rng) for _ in range(SHOTS)])
            )
        photos = [[photograph(rng) for _ in range(given.photos)] for _ in range(given.clients)]
        began = time.perf_counter()
        until = began + given.seconds
        used = cpu_seconds(process)
        await asyncio.gather(
            *(predict(client, tally, own, until) for own in photos),
            learn(client, tally, rng, given.pause, until),
        )
        return tally, time.perf_counter() - began, (cpu_seconds(process) - used) / tally.photos


def serve(model: Path, *, rate: int | None = 100_000, runtime: str = "auto") -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "fiveshot", "serve", str(model), "--port", "0", "--runtime", runtime]
    command += [] if rate is None else ["--rate", str(rate)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found, "the service did not start"
    return process, found[0]


def bare_once(runner: Embedder, given: argparse.Namespace) -> tuple[float, float]:
    """Return photos a second, and seconds of processor time for each, of the backbone alone."""
    used, began = time.process_time(), time.perf_counter()
    rate = bare_rate(runner, batch_size=given.bare_batch, seconds=given.bare_seconds)
    return rate, (time.process_time() - used) / (rate * (time.perf_counter() - began))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--photos", type=int, default=4, help="of one predict request")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two learns")
    parser.add_argument("--classes", type=int, default=20, help="classes known before the load begins")
    parser.add_argument(
        "--bare-seconds", type=float, default=5, help="seconds of each measurement of the bare backbone"
    )
    parser.add_argument("--bare-batch", type=int, help="photos of its passes")
    parser.add_argument("--runtime", default="auto", help="of both sides: auto, onnx or torch")
    add_check(parser)
    given = parser.parse_args()
    runner = load_embedder(BackboneSpec(runtime=given.runtime))
    bare = [bare_once(runner, given)]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        Recognizer.create(model).close()
        process, url = serve(model, runtime=given.runtime)
        try:
            tally, seconds, cpu = asyncio.run(load(url, process.pid, given))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        bare.append(bare_once(runner, given))
        with Recognizer.open(model) as opened:
            lost = set(tally.learned) - set(opened.snapshot.classes)
            sound = opened.check() == []
    sys.exit(ratios.report(report(tally, seconds, cpu, bare, lost, sound), check=given.check))


def report(
    tally: Tally, seconds: float, cpu: float, bare: list[tuple[float, float]], lost: set[str], sound: bool
) -> list[Ratio]:
    rate = tally.photos / seconds
    reference, own = (sum(values) / len(values) for values in zip(*bare, strict=True))
    errors = sum(count for (_, status), count in tally.statuses.items() if status != 200)
    print("| measured | |\n|---|---|")
    print(f"| bare backbone, before and after | {bare[0][0]:.1f}, {bare[1][0]:.1f} photos/s |")
    print(
        f"| service, {seconds:.0f} s | {rate:.1f} photos/s, {100 * rate / reference:.0f} % of the bare backbone |"
    )
    share = f"{100 * own / cpu:.0f} % of it the backbone"
    print(f"| processor time for a photo: bare, service | {1000 * own:.1f} ms, {1000 * cpu:.1f} ms, {share} |")
    for kind, values in tally.seconds.items():
        p50, p99 = np.percentile(values, (50, 99)) * 1000
        print(f"| {kind}: requests, p50, p99 | {len(values)}, {p50:.0f} ms, {p99:.0f} ms |")
    print(
        f"| errors, acknowledged classes lost, model sound | {errors}, {len(lost)}, {'yes' if sound else 'no'} |"
    )
    p50, p99 = np.percentile(tally.seconds["predict"], (50, 99))
    return [
        Ratio("the service under load, of the bare backbone", 100 * rate / reference, 95, "%"),
        Ratio("p99 of a predict request, of its p50", p99 / p50, 2, at_most=True),
    ]


if __name__ == "__main__":
    main()
