"""No connection can be held open at will: every state has its deadline, and nobody can take all connections."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import pytest
from live import Live, live
from starlette.responses import Response
from tiny import parts

from fiveshot.service import RequestLimits, _errors, server

SHORT = RequestLimits(
    header_seconds=1.5,
    pause_seconds=1.5,
    body_seconds=3,
    read_seconds=1.5,
    linger_seconds=1.5,
    idle_seconds=1.5,
    rate=100_000,
)
SLACK = 60.0  # seconds for a busy machine
GET = "GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def service(model_path: Path) -> Iterator[Live]:
    """A service that is quick to hang up."""
    with live(model_path, limits=SHORT) as running:
        yield running


@contextmanager
def connected(service: Live, source: str = "127.0.0.1") -> Iterator[socket.socket]:
    address = ("127.0.0.1", service.port)
    with socket.create_connection(address, timeout=SLACK + 5, source_address=(source, 0)) as connection:
        yield connection


def open_connections(service: Live) -> int:
    """Return how many connections the service holds, its test client's own not counted."""
    own = sum(not one.is_closed() for one in service.client._transport._pool.connections)
    return len(service.server.server_state.connections) - own


def wait_for_hang_up(service: Live, seconds: float) -> None:
    until = time.monotonic() + seconds
    while open_connections(service) > 0:
        assert time.monotonic() < until, "the connection is still open"
        time.sleep(0.02)


def read_answer(connection: socket.socket) -> bytes:
    """Read one answer with a body of known length."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(65536)
        assert piece, received
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    (length,) = [
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"
    ]
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def send_until_closed(connection: socket.socket, data: bytes, pause: float, seconds: float) -> bool:
    """Send a byte now and then; tell whether the other side has hung up in time."""
    until = time.monotonic() + seconds
    connection.settimeout(0.01)
    for byte in data:
        if time.monotonic() > until:
            return False
        try:
            connection.sendall(bytes([byte]))
            if connection.recv(1000) == b"":
                return True
        except TimeoutError:
            pass
        except OSError:
            return True
        time.sleep(pause)
    return False


PROMISES = ("Content-Length: 60000", "Transfer-Encoding: chunked")
REQUESTS = {
    "GET /": 200,
    "GET /v1/health": 200,
    "GET /v1/none": 404,
    "PUT /": 405,
    "GET /v1/classes?limit=0": 422,
    "POST /v1/undo": 422,
}


def test_bodies_that_are_promised_and_never_come(service: Live) -> None:
    """Each answer is complete, and one byte of the body comes now and then; all at once, since all wait."""

    def hung_up_on(request_line: str, promise: str) -> tuple[int, bool]:
        with connected(service) as connection:
            connection.sendall(f"{request_line} HTTP/1.1\r\nHost: localhost\r\n{promise}\r\n\r\n".encode())
            status = int(read_answer(connection).split()[1])
            pieces = b"1\r\nx\r\n" * 10_000 if "chunked" in promise else b"x" * 50_000
            return status, send_until_closed(connection, pieces, 0.05, SHORT.linger_seconds + SLACK)

    cases = list(product(REQUESTS, PROMISES))
    with ThreadPoolExecutor(len(cases)) as pool:
        ended = dict(zip(cases, pool.map(hung_up_on, *zip(*cases, strict=True)), strict=True))
    assert ended == {case: (REQUESTS[case[0]], True) for case in cases}
    wait_for_hang_up(service, SLACK)


def test_nothing_at_all_comes_after_an_answer(service: Live) -> None:
    with connected(service) as waiting, connected(service) as late:
        waiting.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        late.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        read_answer(waiting)
        read_answer(late)
        late.sendall(b"123456789")  # the body is complete after the answer: the next request may come
        late.sendall(GET.format("/v1/health").encode())
        assert b'"ok"' in read_answer(late)
        wait_for_hang_up(service, max(SHORT.linger_seconds, SHORT.idle_seconds) + SLACK)


def test_an_idle_connection_after_a_late_body(service: Live) -> None:
    with connected(service) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        read_answer(connection)
        connection.sendall(b"123456789")
        wait_for_hang_up(service, SHORT.idle_seconds + SLACK)


def send_until_blocked(connection: socket.socket, data: bytes) -> None:
    """Send the same bytes again and again until nothing more is taken, or the service has hung up."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(0.3)
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            connection.sendall(data)
        except OSError:
            return
    raise AssertionError("the service takes everything")


def test_a_client_that_pipelines_and_never_reads(service: Live) -> None:
    with connected(service) as connection:
        send_until_blocked(connection, GET.format("/page.js").encode() * 50)
        wait_for_hang_up(service, SHORT.read_seconds + SHORT.linger_seconds + SLACK)
    assert service.client.get("/v1/health").status_code == 200


def test_a_client_that_reads_a_byte_now_and_then(service: Live) -> None:
    ended = threading.Event()

    def read_slowly(connection: socket.socket) -> None:
        while not ended.is_set():
            try:
                connection.recv(1)
            except OSError:
                return
            time.sleep(0.02)

    with connected(service) as connection:
        reader = threading.Thread(target=read_slowly, args=(connection,))
        reader.start()
        send_until_blocked(connection, GET.format("/page.js").encode() * 50)
        wait_for_hang_up(service, SHORT.read_seconds + SHORT.linger_seconds + SLACK)
        ended.set()
        reader.join(10)


def test_a_last_answer_that_is_never_read(start: Callable[..., Live]) -> None:
    """The connection is closed on this side, with unread bytes."""
    service = start(limits=RequestLimits(linger_seconds=0.4, rate=100_000))

    @service.app.get("/v1/large")
    def large() -> Response:
        return Response(bytes(20_000_000))

    with connected(service) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /v1/large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 200"
        wait_for_hang_up(service, 0.4 + SLACK)


def test_an_answer_has_its_time(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(answer_seconds=2, rate=100_000))
    go_on = threading.Event()
    service.app.state.service.engine._writer.submit(go_on.wait)  # as a disk that hangs would
    try:
        with connected(service) as connection:
            connection.sendall(b"POST /v1/undo HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = read_answer(connection)
            assert answer.split()[1] == b"504"
            assert b'"no_answer"' in answer
            assert connection.recv(10) == b""
    finally:
        go_on.set()
    assert service.client.get("/v1/classes").status_code == 200


def test_a_reply_does_not_wait_for_an_acknowledgment(service: Live) -> None:
    """Before, every reply but the first of a connection took 40 ms."""
    assert service.client.get("/v1/health").status_code == 200
    held = [one.transport.get_extra_info("socket") for one in service.server.server_state.connections]
    assert held
    assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in held)


def test_an_old_connection_is_told_to_end(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(connection_seconds=0.3, rate=100_000))
    with connected(service) as connection:
        answer = b""
        while b"connection: close" not in answer.lower():
            connection.sendall(GET.format("/v1/health").encode())
            answer = read_answer(connection)
            time.sleep(0.05)
        assert connection.recv(10) == b""


def test_one_address_cannot_take_all_connections(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(connections=12, address_connections=4, rate=100_000))
    with ExitStack() as held:
        greedy = [held.enter_context(connected(service, "127.0.0.2")) for _ in range(7)]
        refused = [one.recv(1000).split()[1] for one in greedy[4:]]
        assert refused == [b"503"] * 3
        greedy[0].sendall(GET.format("/v1/health").encode())
        assert b'"ok"' in read_answer(greedy[0])
        other = held.enter_context(connected(service, "127.0.0.3"))
        other.sendall(GET.format("/v1/health").encode())
        assert b'"ok"' in read_answer(other)
    wait_for_hang_up(service, SLACK)
    with connected(service, "127.0.0.2") as again:
        again.sendall(GET.format("/v1/health").encode())
        assert b'"ok"' in read_answer(again)


def test_two_addresses_leave_room_for_a_third(start: Callable[..., Live]) -> None:
    service = start(
        limits=RequestLimits(connections=12, address_connections=12, loopback_connections=1, rate=100_000)
    )
    service.client.close()
    with ExitStack() as held:
        for source in ("127.0.0.2", "127.0.0.3"):
            for _ in range(12):
                held.enter_context(connected(service, source))
        other = held.enter_context(connected(service, "127.0.0.4"))
        other.sendall(GET.format("/v1/health").encode())
        assert b'"ok"' in read_answer(other)


def test_uploads_that_never_end_leave_room_for_others(
    start: Callable[..., Live], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four of one address are not taken on together; they would have kept everybody else waiting for minutes."""
    monkeypatch.setattr(_errors, "DRAIN_SECONDS", 0.5)  # for the body of the one that is refused
    service = start(limits=RequestLimits(waiting=4, rate=100_000))
    service.learn("red")
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    with ExitStack() as held:
        for _ in range(4):
            slow = held.enter_context(connected(service, "127.0.0.2"))
            slow.sendall(head + b"Content-Length: 1000\r\n\r\n--x")
        assert slow.recv(100).split()[1] == b"503"  # the last of them, so that all have been seen
        assert service.predict("red").status_code == 200


def test_room_is_kept_for_this_machine(start: Callable[..., Live], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "is_loopback", lambda host: host == "127.0.0.1")  # the others play far machines
    limits = RequestLimits(connections=8, address_connections=3, loopback_connections=2, rate=100_000)
    service = start(limits=limits)
    service.client.close()
    with ExitStack() as held:
        far = [held.enter_context(connected(service, f"127.0.0.{2 + n}")) for n in range(6)]
        far[-1].sendall(GET.format("/v1/health").encode())
        assert b'"ok"' in read_answer(far[-1])
        late = held.enter_context(connected(service, "127.0.0.9"))
        assert late.recv(1000).split()[1] == b"503"
        for _ in range(2):
            near = held.enter_context(connected(service))
            near.sendall(GET.format("/v1/health").encode())
            assert b'"ok"' in read_answer(near)


def test_honest_clients_come_through_while_others_hold_connections(service: Live) -> None:
    service.learn("red")
    ended = threading.Event()

    def hold() -> None:
        while not ended.is_set():
            with connected(service, "127.0.0.2") as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx")
                connection.settimeout(0.2)
                try:
                    while connection.recv(65536):
                        pass
                except OSError:
                    pass

    holders = [threading.Thread(target=hold) for _ in range(8)]
    for holder in holders:
        holder.start()
    try:
        for number in range(10):
            assert service.client.post("/v1/predict", files=parts("red", 1, number)).status_code == 200
    finally:
        ended.set()
        for holder in holders:
            holder.join(10)
