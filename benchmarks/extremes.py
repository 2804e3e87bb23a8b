"""Measure two extremes: a model with very many classes, and the time to reject a wrong token.

It prints tables in Markdown.

    python benchmarks/extremes.py                                   # 100,000 classes: minutes, 3 GB
    python benchmarks/extremes.py --parts classes --classes 1000
    python benchmarks/extremes.py --parts token --requests 2000
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

import httpx
import numpy as np

from fiveshot.recognizer import Recognizer
from fiveshot.recognizer._learning import feature_records, store_photos
from fiveshot.service import RequestLimits, Settings, create_app
from fiveshot.service.server import make_server
from fiveshot.service.settings import address, listen

TOKEN = "kept-secret-" + "0123456789abcdef" * 2
Result = TypeVar("Result")


def timed(what: str, action: Callable[[], Result]) -> Result:
    """Call something, and print its processor time and the peak memory of the process."""
    began = time.process_time()  # independent of other programs on the machine
    result = action()
    seconds = time.process_time() - began
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
    print(f"| {what} | {seconds:.2f} s | {peak:,.0f} MiB |", flush=True)
    return result


def many_classes(path: Path, count: int) -> None:
    """Make a model of many classes with two photos each, and use it in every way."""
    rng = np.random.default_rng(0)
    print(f"| {count:,} classes of two photos | processor time | most memory so far |\n|---|---|---|")
    with Recognizer.create(path) as model:
        width = model.snapshot.contents.width

        def store() -> None:  # in one change, and without the reports, which compare with all classes
            with model.live.change() as change:
                for number in range(count):
                    rows = rng.normal(size=(2, width)).astype(np.float32)
                    store_photos(change, f"class {number:06}", feature_records(rows, width))
                change.record("learn")

        timed("store all in one change", store)
    photo = rng.normal(size=(1, width))
    with timed("open", lambda: Recognizer.open(path)) as model:
        timed("first answer", lambda: model.predict_features(photo))
        timed("an answer", lambda: model.predict_features(photo))
        timed("list", model.show)
        timed("learn one more", lambda: model.learn_features("one more", rng.normal(size=(3, width))))
        timed("first answer after it", lambda: model.predict_features(photo))
        timed("rename", lambda: model.rename("one more", "another"))
        timed("undo", model.undo)
        timed("forget", lambda: model.forget("one more"))
        found = timed("check", model.check)
        assert len(model.snapshot.classes) == count
        assert not [one for one in found if one.severity == "error"]


def token_times(path: Path, requests: int) -> None:
    """Send tokens that are wrong from the first, the middle or the last character on, in turns."""
    Recognizer.create(path).close()
    settings = Settings(port=0, token=TOKEN, limits=RequestLimits(rate=1e6))
    wrong = {
        "first": "x" + TOKEN[1:],
        "middle": TOKEN[:20] + "x" + TOKEN[21:],
        "last": TOKEN[:-1] + "x",
        "length": TOKEN + "x",
    }
    seconds: dict[str, list[float]] = {where: [] for where in wrong}
    with listen(settings) as sock:
        server = make_server(create_app(lambda: Recognizer.open(path), settings), settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
        thread.start()
        with httpx.Client(base_url=address(sock), trust_env=False) as client:
            for number in range(requests + 50):
                for where, token in wrong.items():
                    began = time.perf_counter()
                    reply = client.get("/v1/classes", headers={"Authorization": f"Bearer {token}"})
                    assert reply.status_code == 401
                    if number >= 50:
                        seconds[where].append(time.perf_counter() - began)
        server.should_exit = True
        thread.join(30)
    print(f"| first wrong character, {requests} requests each | median | its standard error |\n|---|---|---|")
    rng = np.random.default_rng(0)
    for where, values in seconds.items():
        draws = [median(rng.choice(values, len(values))) for _ in range(200)]
        print(f"| {where} | {1e6 * median(values):.1f} us | {1e6 * np.std(draws):.1f} us |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=("classes", "token"), default=("classes", "token"))
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=2000, help="requests with each kind of token")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if "classes" in given.parts:
            many_classes(Path(folder) / "many", given.classes)
        if "token" in given.parts:
            token_times(Path(folder) / "model", given.requests)


if __name__ == "__main__":
    main()
