"""Run hostile clients, honest clients and learners against a service for ten minutes, on one machine.

Starts ``fiveshot serve`` with its default limits. Honest clients (127.0.0.1) predict, learn, rename and forget,
and sometimes a command in another process learns, too. Hostile clients (127.0.0.2 and 127.0.0.3) hold connections
in every state, send bodies one byte at a time, never read, flood, send nonsense, and upload every hostile file of
``tests/hostile``. At the end the service is killed, and the model must hold everything that was acknowledged. The
script prints a table and fails unless

- honest requests never fail for more than 5 seconds at a time,
- nothing acknowledged is lost, and the model is sound,
- the memory of the service at the end is within 10 % of that at the start. Both are measured at rest, after a
  tenth of the time and at the end, because open requests may hold 256 MiB.

    python benchmarks/soak.py                     # ten minutes
    python benchmarks/soak.py --minutes 0.2       # a quick run; times and memory are printed, but not checked
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

import httpx
import numpy as np

from fiveshot.recognizer import Recognizer

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests" / "hostile")]

from corpus import FILES  # noqa: E402
from service import parts, photograph, serve  # noqa: E402

LONGEST_FAILURE = 5.0  # seconds
GROWTH = 0.10  # growth relative to the memory at the start
REST = 45.0  # seconds; the service frees memory every half minute
CHECKED_FROM = 5.0  # times and memory are checked after this many minutes; before that caches fill
SHOTS = 5
KEPT = 12  # classes of each learner; it forgets the oldest, so the model does not grow
PATIENCE = 30.0  # an honest client waits this many seconds for an answer


@dataclass
class Ledger:
    """Counts and times of the clients, and what was acknowledged to them."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    promised: dict[str, int] = field(default_factory=dict)  # photos of each class
    doubtful: set[str] = field(default_factory=set)  # classes whose last request had no answer
    answers: dict[str, Counter[str]] = field(default_factory=dict)  # of each kind of client
    seconds: list[float] = field(default_factory=list)  # of honest predictions
    longest: float = 0.0  # durations in which an honest client had no good answer
    memory: list[int] = field(default_factory=list)  # of the service, every second under load
    at_rest: list[tuple[int, int]] = field(default_factory=list)  # of the service and its decoders

    def count(self, who: str, what: object) -> None:
        with self.lock:
            self.answers.setdefault(who, Counter())[str(what)] += 1


class Honest:
    """A client that measures how long it gets no good answer."""

    def __init__(self, url: str, ledger: Ledger, who: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=PATIENCE, trust_env=False)
        self.ledger, self.who = ledger, who
        self._failing_since: float | None = None

    def ask(self, method: str, path: str, **given: object) -> httpx.Response | None:
        """Return the answer, or None if there was none. A failure lasts until the next good answer."""
        began = time.monotonic()
        try:
            reply = self.client.request(method, path, **given)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            reply, what = None, type(error).__name__
        else:
            what = str(reply.status_code)
        good = reply is not None and reply.status_code < 400
        self.ledger.count(self.who, what)
        if good and self._failing_since is None:
            return reply
        now = time.monotonic()
        self._failing_since = began if self._failing_since is None else self._failing_since
        with self.ledger.lock:
            self.ledger.longest = max(self.ledger.longest, now - self._failing_since)
        if good:
            self._failing_since = None
        else:
            time.sleep(0.2)  # as Retry-After asks for, at most
        return reply


def predictor(honest: Honest, photos: list[bytes], ended: threading.Event) -> None:
    """Predict one photo after another."""
    while not ended.wait(0.3):
        began = time.monotonic()
        reply = honest.ask("POST", "/v1/predict", files=parts([random.choice(photos)]))
        if reply is not None and reply.status_code == 200:
            honest.ledger.seconds.append(time.monotonic() - began)


def learner(honest: Honest, number: str, ended: threading.Event) -> None:
    """Learn classes, rename every third, and forget the oldest; record what is acknowledged."""
    ledger, rng, own = honest.ledger, np.random.default_rng(list(number.encode())), []
    step = 0
    while not ended.wait(1.0):
        step += 1
        name = f"learner {number} class {step}"
        learned = honest.ask(
            "POST",
            f"/v1/classes/{name}/photos",
            files=parts([photograph(rng) for _ in range(SHOTS)]),
            headers={"Idempotency-Key": name},
        )
        if not _noted(ledger, learned, name, SHOTS):
            continue
        own.append(name)
        if step % 3 == 0:
            renamed = honest.ask("PATCH", f"/v1/classes/{name}", json={"name": f"{name} renamed"})
            if renamed is None:
                ledger.doubtful |= {name, f"{name} renamed"}
            elif renamed.status_code == 200:
                _noted(ledger, renamed, name, 0)
                own[-1] = f"{name} renamed"
                _noted(ledger, renamed, own[-1], SHOTS)
        if len(own) > KEPT:
            oldest = own.pop(0)
            gone = honest.ask("DELETE", f"/v1/classes/{oldest}", params={"for_good": "true"})
            _noted(ledger, gone, oldest, 0)


def _noted(ledger: Ledger, reply: httpx.Response | None, name: str, photos: int) -> bool:
    """Record what a class holds after an answer; without an answer it is unknown."""
    done = reply is not None and reply.status_code < 300
    with ledger.lock:
        if done:
            ledger.promised[name] = photos
        elif reply is None or reply.status_code >= 500:
            ledger.doubtful.add(name)
    return done


def other_process(model: Path, ledger: Ledger, ended: threading.Event) -> None:
    """Learn with the command line while the model is served; the second time, add photos to the class."""
    rng, step = np.random.default_rng(99), 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(2):
            (Path(folder) / f"{number}.jpg").write_bytes(photograph(rng))
        while not ended.wait(15.0 if step else 2.0):
            step += 1
            name = f"command {step % 4}"
            (Path(folder) / "new.jpg").write_bytes(photograph(rng))
            command = [sys.executable, "-m", "fiveshot", "learn", str(model), name, folder, "--add"]
            done = subprocess.run(command, capture_output=True, text=True)
            ledger.count("learn by command", "done" if done.returncode == 0 else done.stderr[-80:])
            if done.returncode == 0:
                ledger.promised[name] = -1  # photos that it already has are left out: at least one
            elif name not in ledger.promised:
                ledger.doubtful.add(name)


# What a hostile client sends before it stops, sends slowly or continues forever.
REQUEST = "{} HTTP/1.1\r\nHost: localhost\r\n{}\r\n"
FORM = "Content-Type: multipart/form-data; boundary=part\r\n"
BEGINNINGS = (
    b"",
    b"GET",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
    REQUEST.format("GET /", "Content-Length: 60000\r\n").encode(),
    REQUEST.format("GET /v1/none", "Transfer-Encoding: chunked\r\n").encode(),
    REQUEST.format("POST /v1/predict", f"{FORM}Content-Length: 60000000\r\n").encode(),
    REQUEST.format("POST /v1/predict", f"{FORM}Transfer-Encoding: chunked\r\n").encode(),
    REQUEST.format("POST /v1/classes/evil/photos", f"{FORM}Content-Length: 9000\r\n").encode() + b"--part\r\n",
    REQUEST.format("POST /v1/undo", "Content-Length: 5\r\n").encode(),
)
NONSENSE = (
    ("GET", "/v1/classes/" + "%F0%9F%92%A9" * 300),
    ("GET", "/v1/classes/..%2F..%2Fetc%2Fpasswd/photos"),
    ("GET", "/v1/classes?limit=-1&offset=99999999999999999999"),
    ("DELETE", "/v1/classes/none"),
    ("PATCH", "/v1/classes/none"),
    ("TRACE", "/"),
    ("POST", "/v1/undo?state=0"),
    ("PUT", "/v1/predict"),
    ("GET", "/v1/../../model.toml"),
    ("OPTIONS", "*"),
)


def holder(address: tuple[str, int], source: str, ledger: Ledger, ended: threading.Event) -> None:
    """Open a connection, begin a request, and keep it open byte by byte for as long as the service allows."""
    while not ended.wait(0.05):
        began = time.monotonic()
        try:
            with socket.create_connection(address, timeout=1, source_address=(source, 0)) as connection:
                connection.sendall(random.choice(BEGINNINGS))
                while not ended.wait(1.0):
                    connection.sendall(b"1")
                    connection.setblocking(False)
                    with suppress(BlockingIOError):
                        if not connection.recv(65536):
                            break
                    connection.settimeout(1)
        except OSError:
            pass
        ledger.count("connections held", f"{10 * round((time.monotonic() - began) / 10)} s")


def never_reads(address: tuple[str, int], source: str, ledger: Ledger, ended: threading.Event) -> None:
    """Request the page repeatedly, and read nothing."""
    asked = b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50
    while not ended.wait(0.1):
        with suppress(OSError), socket.create_connection(address, timeout=1, source_address=(source, 0)) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            while not ended.is_set():
                one.sendall(asked)
        ledger.count("clients that never read", "hung up on")


@cache
def hostile_file(name: str) -> bytes:
    """Make one of the hostile files, once."""
    return FILES[name]()


def uploader(url: str, source: str, ledger: Ledger, ended: threading.Event) -> None:
    """Upload hostile files, some alone, some in groups of fifty, to predict or learn."""
    with _hostile(url, source) as client:
        while not ended.is_set():
            names = random.choices(list(FILES), k=random.choice((1, 1, 5, 50)))
            chosen = [hostile_file(name) for name in names]
            path = random.choice(("/v1/predict", "/v1/predict", "/v1/classes/evil/photos"))
            _asked(client, ledger, "hostile uploads", "POST", path, files=parts(chosen))


def flooder(url: str, source: str, ledger: Ledger, ended: threading.Event) -> None:
    """Send nonsense as fast as it is answered."""
    with _hostile(url, source) as client:
        while not ended.wait(0.002):
            method, path = random.choice(NONSENSE)
            host = random.choice(({}, {"Host": "evil.example"}, {"Origin": "http://evil.example"}))
            _asked(client, ledger, "floods", method, path, headers=host, content=b"\xff{" * random.randint(0, 9))


def _hostile(url: str, source: str) -> httpx.Client:
    return httpx.Client(
        base_url=url, timeout=PATIENCE, transport=httpx.HTTPTransport(local_address=source), trust_env=False
    )


def _asked(client: httpx.Client, ledger: Ledger, who: str, method: str, path: str, **given: object) -> None:
    try:
        ledger.count(who, client.request(method, path, **given).status_code)  # type: ignore[arg-type]
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        ledger.count(who, type(error).__name__)


def memory_of(process: int) -> tuple[int, int]:
    """Return the resident bytes of a process, and of all its descendants."""
    below: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, StopIteration):
            lines = (entry / "status").read_text().splitlines()
            values = {name: value for name, _, value in (line.partition(":") for line in lines)}
            below.setdefault(int(values["PPid"]), []).append(int(entry.name))
            sizes[int(entry.name)] = 1024 * int(values.get("VmRSS", "0 kB").split()[0])
    found, waiting = 0, list(below.get(process, ()))
    while waiting:
        one = waiting.pop()
        found += sizes.get(one, 0)
        waiting += below.get(one, ())
    return sizes.get(process, 0), found


def soak(model: Path, minutes: float) -> Ledger:
    """Run all clients against a service, twice, then kill it."""
    ledger, rng = Ledger(), np.random.default_rng(0)
    process, url = serve(model, rate=None)
    try:
        first = Honest(url, ledger, "learn")
        while first.client.get("/v1/ready").status_code != 200:
            time.sleep(0.1)
        photos = [photograph(rng) for _ in range(8)]
        for number in range(3):
            name = f"known {number}"
            learned = first.ask("POST", f"/v1/classes/{name}/photos", files=parts(photos[:SHOTS]))
            _noted(ledger, learned, name, SHOTS)
        for phase, share in enumerate((0.1, 0.9)):
            attack(model, process, url, ledger, photos, seconds=60 * minutes * share, phase=phase)
            time.sleep(min(REST, 60 * minutes / 10))
            ledger.at_rest.append(memory_of(process.pid))
        if process.poll() is not None:
            raise SystemExit(f"the service has ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()
    return ledger


def attack(
    model: Path,
    process: subprocess.Popen[str],
    url: str,
    ledger: Ledger,
    photos: list[bytes],
    *,
    seconds: float,
    phase: int,
) -> None:
    """Run all clients for some time."""
    ended, address = threading.Event(), ("127.0.0.1", int(url.rpartition(":")[2]))
    honest: list[tuple[Callable[..., None], tuple[object, ...]]] = [
        *((predictor, (Honest(url, ledger, "predict"), photos, ended)) for _ in range(3)),
        *((learner, (Honest(url, ledger, "learn"), f"{phase}.{number}", ended)) for number in range(2)),
        (other_process, (model, ledger, ended)),
    ]
    hostile: list[tuple[Callable[..., None], tuple[object, ...]]] = [
        *((holder, (address, "127.0.0.2", ledger, ended)) for _ in range(140)),
        *((never_reads, (address, "127.0.0.3", ledger, ended)) for _ in range(4)),
        *((uploader, (url, source, ledger, ended)) for source in ("127.0.0.2", "127.0.0.3") * 2),
        (flooder, (url, "127.0.0.3", ledger, ended)),
    ]
    threads = [threading.Thread(target=job, args=given, daemon=True) for job, given in honest + hostile]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    while time.monotonic() - began < seconds and process.poll() is None:
        ledger.memory.append(memory_of(process.pid)[0])
        time.sleep(1)
    ended.set()
    for thread in threads[: len(honest)]:  # hostile clients
        thread.join(PATIENCE + 5)


def lost(model: Path, ledger: Ledger) -> tuple[list[str], list[str]]:
    """Return what was acknowledged but is missing, and what ``check`` finds."""
    wrong = []
    with Recognizer.open(model) as opened:
        found = {one.name: one.photos for one in opened.show().classes}
        for name, photos in ledger.promised.items():
            have = found.get(name, 0)
            right = have > 0 if photos < 0 else have == photos
            if not right and name not in ledger.doubtful:
                wrong.append(f"{name}: {have} photos instead of {photos}")
        return wrong, [one.text for one in opened.check() if one.severity == "error"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        Recognizer.create(model).close()
        began = os.getloadavg()[0]
        ledger = soak(model, given.minutes)
        wrong, unsound = lost(model, ledger)
    report(ledger, given.minutes, wrong, unsound, began)


def report(ledger: Ledger, minutes: float, wrong: list[str], unsound: list[str], load: float) -> None:
    """Print the results, and fail if a promise was broken."""
    tenth = max(1, len(ledger.memory) // 10)
    tenths = [ledger.memory[first : first + tenth] for first in range(0, len(ledger.memory), tenth)]
    course = ", ".join(f"{median(rows) / 2**20:.0f}" for rows in tenths)
    start, end = ([size / 2**20 for size in sizes] for sizes in ledger.at_rest)
    print("| measured | |\n|---|---|")
    print(f"| time, cores, load of the machine before and after | {minutes:g} min, {os.cpu_count()}, ", end="")
    print(f"{load:.1f}, {os.getloadavg()[0]:.1f} |")
    for who, answers in sorted(ledger.answers.items()):
        print(f"| {who}: answers | {', '.join(f'{n} x {what}' for what, n in answers.most_common(9))} |")
    p50, p99 = np.percentile(ledger.seconds or [0], (50, 99))
    slowest = max(ledger.seconds, default=0)
    print(f"| honest predictions: p50, p99, slowest | {p50:.2f} s, {p99:.2f} s, {slowest:.2f} s |")
    print(f"| longest time in which an honest client failed | {ledger.longest:.2f} s |")
    print(f"| classes promised, in doubt, lost | {len(ledger.promised)}, {len(ledger.doubtful)}, {len(wrong)} |")
    print(f"| memory of the service at rest, start and end | {start[0]:.0f} MiB, {end[0]:.0f} MiB |")
    print(f"| the same under load, tenth by tenth | {course} MiB |")
    print(f"| memory of its decoders at rest, start and end | {start[1]:.0f} MiB, {end[1]:.0f} MiB |")
    failed = [*wrong, *unsound]
    if minutes >= CHECKED_FROM and ledger.longest > LONGEST_FAILURE:
        failed.append(f"honest requests failed for {ledger.longest:.1f} s")
    if minutes >= CHECKED_FROM and abs(end[0] / start[0] - 1) > GROWTH:
        failed.append(f"memory went from {start[0]:.0f} to {end[0]:.0f} MiB")
    if "200" not in ledger.answers.get("predict", ()) or not ledger.promised:
        failed.append("no honest client was ever answered")
    print(f"| all promises kept | {'no: ' + '; '.join(failed[:5]) if failed else 'yes'} |")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
