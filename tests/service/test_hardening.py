"""What hostile and careless clients do: refused in words, and the service lives on."""

from __future__ import annotations

import io
import json
import re
import select
import socket
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache

import httpx
import pytest
from live import Live, wait_until_ready
from PIL import Image
from tiny import encoded, parts, photo

from fiveshot.data import decoders
from fiveshot.service import RequestLimits, _errors
from fiveshot.service._gate import takes_photos

TOKEN = "a-token-of-some-length"


def code(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.json()["code"]


def raw(service: Live, data: bytes, *, wait: float = 10, then: bytes = b"") -> bytes:
    """Send bytes, perhaps more, and read until the service hangs up."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=wait) as connection:
        connection.sendall(data)
        if then:
            connection.sendall(then)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


@cache
def large_photo() -> bytes:
    """Return a photo that is large enough to be decoded aside."""
    return encoded(Image.new("L", (6000, 5000), 128), quality=30)


def alive(service: Live) -> bool:
    return service.client.get("/v1/ready").status_code == 200


def assert_guarded(headers: httpx.Headers) -> None:
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cache-control"]
    assert "server" not in headers
    assert not [name for name in headers if name.startswith("access-control")]


def test_every_answer_has_the_headers(start: Callable[..., Live]) -> None:
    service = start()
    service.learn("red")
    for path in ("/", "/page.js", "/v1/classes", "/v1/classes/red/photos/0", "/nothing", "/v1/classes?limit=0"):
        assert_guarded(service.client.get(path).headers)
    preflight = service.client.options(
        "/v1/undo", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert preflight.status_code == 405
    assert "access-control-allow-origin" not in preflight.headers


def test_answers_before_there_is_a_request_have_the_headers_too(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(header_seconds=0.3, connections=3, rate=10_000))
    with ExitStack() as held:
        waiting = [
            held.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=10)) for _ in range(4)
        ]
        answers = [connection.recv(9000) for connection in waiting]  # too many, then too slow
    answers.append(raw(service, b"nonsense\r\n\r\n"))
    for answer in answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert_guarded(httpx.Headers([tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:]]))
        assert json.loads(body)["code"]
    assert {int(answer.split()[1]) for answer in answers} == {503, 408, 400}


def test_nonsense_behind_a_request_is_answered_with_the_headers_too(start: Callable[..., Live]) -> None:
    """Also where the request before it was refused with the same status."""
    service = start()
    for before, status in ((b"/v1/health", 200), (b"/%FF", 400)):
        received = raw(service, b"GET " + before + b" HTTP/1.1\r\nHost: localhost\r\n\r\nnonsense\r\n\r\n")
        first, _, last = received.rpartition(b"HTTP/1.1 ")
        assert first.split()[1] == str(status).encode()
        head, _, body = last.partition(b"\r\n\r\n")
        assert (head.split()[0], json.loads(body)["code"]) == (b"400", "malformed")
        assert_guarded(httpx.Headers([tuple(line.split(b": ", 1)) for line in head.split(b"\r\n")[1:]]))


def test_a_token_is_asked_for(start: Callable[..., Live]) -> None:
    service = start(host="0.0.0.0", token=TOKEN)
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", verify=False, trust_env=False) as client:
        for path in ("/v1/classes", "/metrics", "/v1/model", "/v1/classes/red/photos/0", "/v1/none"):
            assert code(client.get(path)) == (401, "no_token")
        for wrong in (f"Bearer {TOKEN}x", "Bearer x", f"Basic {TOKEN}", "Bearer \xfc".encode("latin-1")):
            reply = client.get("/v1/classes", headers={"Authorization": wrong})
            assert code(reply) == (401, "wrong_token")
            assert reply.headers["www-authenticate"] == "Bearer"
        assert code(client.post("/v1/predict", files=parts("red", 1))) == (401, "no_token")
        for path in ("/", "/page.css", "/v1/health", "/v1/ready"):
            assert client.get(path).status_code == 200
        good = client.get("/v1/classes", headers={"Authorization": f"bearer {TOKEN}"})
        assert good.status_code == 200


def test_other_sites_cannot_ask_for_changes(start: Callable[..., Live]) -> None:
    service = start()
    own = f"http://127.0.0.1:{service.port}"
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": f"{own}0"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": own, "Sec-Fetch-Site": "cross-site"},
    ):
        assert code(service.learn("red", **headers)) == (403, "foreign_page"), headers
        assert code(service.client.post("/v1/undo", headers=headers)) == (403, "foreign_page")
    assert service.learn("red", **{"Origin": own, "Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_name_that_points_here_is_not_ours(start: Callable[..., Live]) -> None:
    service = start()
    for host in ("evil.example", "127.0.0.1.evil.example:80", "", "[::1", "evil.example:127"):
        assert code(service.client.get("/v1/classes", headers={"Host": host})) == (421, "wrong_host"), host
    for host in ("localhost", f"localhost:{service.port}", "[::1]:80", "127.0.0.1"):
        assert service.client.get("/v1/classes", headers={"Host": host}).status_code == 200, host


def test_bodies_are_limited(start: Callable[..., Live], monkeypatch: pytest.MonkeyPatch) -> None:
    service = start(limits=RequestLimits(body_bytes=100_000, rate=10_000))
    large = {"photos": ("a.jpg", b"x" * 3_000_000, "image/jpeg")}
    assert code(service.client.post("/v1/predict", files=large)) == (413, "too_large")

    def pieces() -> object:
        yield b"--x\r\nContent-Disposition: form-data; name=photos; filename=a\r\n\r\n"
        for _ in range(40):
            yield b"x" * 10_000

    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    assert code(service.client.post("/v1/predict", content=pieces(), headers=kind)) == (413, "too_large")
    name = json.dumps({"name": "x" * 70_000}).encode()
    kind = {"Content-Type": "application/json"}
    assert code(service.client.patch("/v1/classes/a", content=name, headers=kind)) == (413, "too_large")
    chunked = (name[i : i + 9000] for i in range(0, len(name), 9000))
    assert code(service.client.patch("/v1/classes/a", content=chunked, headers=kind)) == (413, "too_large")
    head = "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n"
    assert b"400" in raw(service, head.format("1e3").encode())[:20]
    monkeypatch.setattr(_errors, "DRAIN_SECONDS", 0.5)  # for the rest of the body, which never comes
    assert b"413" in raw(service, head.format(10**12).encode() + b"x", then=b"y" * 100)[:20]
    both = head.format("5\r\nTransfer-Encoding: chunked")
    assert b"a length and is chunked" in raw(service, both.encode() + b"0\r\n\r\n")
    assert alive(service)


def test_decompression_bombs_are_refused_unopened(start: Callable[..., Live]) -> None:
    service = start()

    def png(width: int, height: int) -> bytes:
        chunk = lambda kind, data: (  # noqa: E731
            len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
        )
        head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([1, 0, 0, 0, 0])
        rows = zlib.compress(bytes((width // 8 + 1) * min(height, 20_000)), 9)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")

    for width, height in ((8000, 7000), (60_000, 60_000), (2**31 - 1, 2**31 - 1)):
        bomb = (
            png(width, height)
            if width < 10_000
            else png(8, 8).replace(
                (8).to_bytes(4, "big") * 2, width.to_bytes(4, "big") + height.to_bytes(4, "big"), 1
            )
        )
        assert len(bomb) < 100_000
        reply = service.client.post("/v1/predict", files={"photos": ("b.png", bomb, "image/png")})
        assert reply.status_code in (409, 413, 422)
    service.learn("red")
    reply = service.client.post("/v1/predict", files={"photos": ("b.png", png(8000, 7000), "image/png")})
    assert code(reply) == (413, "too_large")
    assert "50,000,000 pixels" in reply.json()["message"]


def test_large_photos_are_decoded_one_at_a_time(start: Callable[..., Live]) -> None:
    service = start()
    service.learn("red")
    large = large_photo()
    with ThreadPoolExecutor(4) as pool:
        send = lambda _: service.client.post("/v1/predict", files={"photos": ("a", large)})  # noqa: E731
        assert {reply.status_code for reply in pool.map(send, range(4))} == {200}


def test_a_large_photo_waits_for_the_one_before_and_small_ones_do_not(start: Callable[..., Live]) -> None:
    service = start()
    service.learn("red")
    large = large_photo()
    with ThreadPoolExecutor(1) as pool:
        with decoders()._aside:  # as if one were being decoded
            waiting = pool.submit(service.client.post, "/v1/predict", files={"photos": ("a", large)})
            assert service.predict("red").status_code == 200
            time.sleep(0.5)
            assert not waiting.done()
        assert waiting.result(30).status_code == 200


def test_the_codec_of_text_is_not_the_clients_choice(start: Callable[..., Live]) -> None:
    """Some need quadratic time, in the thread that answers all clients."""
    service = start()
    slow = b"a" * 6000 + b"-" + b"ba" * 6000
    for charset in ("punycode", '"idna"', "utf-8; charset=punycode", "x" * 99):
        kind = {"Content-Type": f"multipart/form-data; boundary=XX; charset={charset}"}
        for head, text in ((b'name="photos-"', slow), (b'name="photos"; filename="a-ba"', photo("red"))):
            body = b"--XX\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + text + b"\r\n--XX--\r\n"
            for path in ("/v1/predict", "/v1/classes/red/photos"):
                reply = service.client.post(path, content=body, headers=kind)
                assert code(reply) == (400, "malformed"), charset
                assert "its charset is" in reply.json()["message"]
    assert service.names() == []
    request = httpx.Request("POST", service.url + "/v1/classes/red/photos", files=parts("red", 1))
    for charset in ("utf-8", '"UTF-8"', "utf8"):
        kind = {"Content-Type": f"{request.headers['content-type']}; charset={charset}"}
        reply = service.client.post("/v1/classes/red/photos", content=request.read(), headers=kind)
        assert reply.status_code == 200


@pytest.mark.parametrize(
    ("head", "status", "name"),
    [
        (b'name="photos"', 422, "not_a_file"),
        (b'name="other"; filename="a.jpg"', 422, "unknown_part"),
        (b'filename="a.jpg"', 400, "malformed"),
        (b'name="photos"; filename="' + b"x" * 10_000 + b'"', 400, "malformed"),
        (b'name="boxes"\r\n\r\n[[[' + b"1," * 200_000, 413, "too_large"),
    ],
)
def test_what_is_not_wanted_is_not_collected(
    start: Callable[..., Live], head: bytes, status: int, name: str
) -> None:
    """The answer comes before the body has ended."""
    body = b"--x\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + bytes(300_000)
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    assert code(start().client.post("/v1/predict", content=body, headers=kind)) == (status, name)


def test_an_upload_that_is_cut_off_is_refused_as_a_whole(start: Callable[..., Live]) -> None:
    service = start()
    request = httpx.Request("POST", service.url, files=parts("red", 3))
    whole = request.read()
    kind = {"Content-Type": request.headers["content-type"]}
    boundary = b"--" + kind["Content-Type"].partition("boundary=")[2].encode()
    starts = [found.start() for found in re.finditer(re.escape(boundary), whole)]
    cuts = [start + more for start in starts for more in (-3, 0, 5, len(boundary), len(boundary) + 1)][1:]
    assert len(starts) == 4
    for path in ("/v1/classes/red/photos", "/v1/correct?name=red", "/v1/negatives", "/v1/predict"):
        for end in (*cuts, starts[2] + 500):
            reply = service.client.post(path, content=whole[:end], headers=kind)
            assert code(reply) == (400, "malformed"), (path, end)
            assert "it ends before its last boundary" in reply.json()["message"]
    assert service.names() == []
    assert service.client.get("/v1/model").json()["negatives"] == 0
    for end in (len(whole), len(whole) - 2):  # some leave the last line without an end
        assert service.client.post("/v1/predict", content=whole[:end], headers=kind).json()["code"] == "no_classes"


def test_icons_are_refused(start: Callable[..., Live]) -> None:
    """They would be decoded while they are opened, before their size is known."""
    service = start()
    icon = encoded(Image.new("RGB", (256, 256), "red"), "ICO")
    reply = service.client.post("/v1/classes/red/photos", files={"photos": ("x.ico", icon)})
    assert code(reply) == (422, "bad_photo")
    assert "JPEG, PNG, WebP" in reply.json()["message"]


def test_rates_are_limited(start: Callable[..., Live]) -> None:
    service = start(
        limits=RequestLimits(rate=0.001)
    )  # the next one in 1,000 seconds, however slow this machine is
    first, *others = [service.client.get("/v1/classes") for _ in range(4)]
    assert first.status_code == 200
    assert [code(reply) for reply in others] == [(429, "too_often")] * 3
    assert 900 < int(others[0].headers["retry-after"]) <= 1000
    assert service.client.get("/v1/health").status_code == 200


def test_work_is_limited(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(pending=2, rate=10_000))
    service.learn("red")
    with ThreadPoolExecutor(12) as pool:
        replies = list(pool.map(lambda _: service.predict("red"), range(60)))
    statuses = {reply.status_code for reply in replies}
    assert statuses == {200, 503}
    refused = next(reply for reply in replies if reply.status_code == 503)
    assert refused.json()["code"] == "busy"
    assert refused.headers["retry-after"]
    assert service.predict("red").status_code == 200


def test_every_route_that_takes_photos_has_room_for_them(start: Callable[..., Live]) -> None:
    document = start().client.get("/v1/openapi.json").json()
    taking = [
        path
        for path, methods in document["paths"].items()
        if "multipart/form-data" in methods.get("post", {}).get("requestBody", {}).get("content", {})
    ]
    assert "/v1/predict" in taking
    assert [path for path in taking if not takes_photos({"method": "POST", "path": path})] == []


def test_photos_of_one_client_leave_room_for_others(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(pending=4, rate=10_000))
    service.learn("red")
    large = {"photos": ("a", large_photo())}
    transport = httpx.HTTPTransport(verify=False, local_address="127.0.0.2")
    with httpx.Client(base_url=service.url, transport=transport) as greedy, ThreadPoolExecutor(2) as pool:
        with decoders()._aside:  # as if a large photo were being decoded
            waiting = [pool.submit(greedy.post, "/v1/predict", files=large, timeout=30) for _ in range(2)]
            until = time.monotonic() + 60
            while "fiveshot_pending_photos 2.0" not in service.client.get("/metrics").text:
                assert time.monotonic() < until
            assert code(greedy.post("/v1/predict", files=large)) == (503, "busy")
            assert service.predict("red").status_code == 200
        assert [one.result(30).status_code for one in waiting] == [200, 200]


def test_memory_for_bodies_is_limited(start: Callable[..., Live]) -> None:
    """Requests that announce much and send nothing take all the room of a client, and none of another's."""
    service = start(limits=RequestLimits(body_bytes=1_000_000, held_bytes=4_500_000, pause_seconds=5, rate=10_000))
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    held = [socket.create_connection(("127.0.0.1", service.port), timeout=60) for _ in range(2)]
    for connection in held:
        connection.sendall(head + b"Content-Length: 1000000\r\n\r\n--x")
    while len(service.server.server_state.tasks) < len(held):  # until both have arrived
        time.sleep(0.01)
    large = {"photos": ("a.jpg", b"x" * 900_000, "image/jpeg")}
    assert code(service.client.post("/v1/predict", files=large)) == (503, "busy")
    with httpx.Client(transport=httpx.HTTPTransport(verify=False, local_address="127.0.0.2")) as other:
        assert other.post(f"{service.url}/v1/predict", files=large).status_code in (409, 422)
    for connection in held:
        assert b"408" in connection.recv(100)
        connection.close()
    assert service.client.post("/v1/predict", files=large).status_code in (409, 422)


def test_connections_are_limited(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(connections=5, rate=10_000))
    held = [socket.create_connection(("127.0.0.1", service.port), timeout=10) for _ in range(8)]
    until = time.monotonic() + 60
    while len(answered := select.select(held, [], [], 0.05)[0]) < 3:
        assert time.monotonic() < until
    answers = [connection.recv(1000) for connection in answered]
    refused = [answer for answer in answers if b"503" in answer and b"too many connections" in answer]
    assert len(refused) >= 3
    assert b"\r\nRetry-After: 1\r\n" in refused[0]
    for connection in held:
        connection.close()
    wait_until_ready(service.client)


def test_slow_clients_are_hung_up_on(start: Callable[..., Live]) -> None:
    service = start(limits=RequestLimits(header_seconds=0.4, pause_seconds=0.4, body_seconds=1, rate=10_000))
    assert b"408" in raw(service, b"GET /v1/health HTTP/1.1\r\nHost: loc")
    assert b"408" in raw(service, b"")
    kind = b"Content-Type: multipart/form-data; boundary=x\r\n"
    head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n" + kind + b"Content-Length: 5000\r\n\r\n"
    answer = raw(service, head + b"--x\r\n")
    assert b"408" in answer
    assert b"too_slow" in answer
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        # One byte at a time keeps every pause short, so the whole takes too long; also for a second request.
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b'"ok"}' not in received:
            received += connection.recv(4000)
        received = b""
        connection.settimeout(0.1)
        for byte in b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\nX: ":
            try:
                connection.sendall(bytes([byte]))
                received += connection.recv(1000)
            except TimeoutError:
                continue
            except OSError:
                break
            if received:
                break
        assert b"408" in received
    assert alive(service)


def test_cut_connections_and_nonsense_do_no_harm(start: Callable[..., Live]) -> None:
    service = start()
    request = httpx.Request("POST", service.url + "/v1/classes/cut/photos", files=parts("cut", 3))
    body = request.read()
    lines = "".join(f"{key}: {value}\r\n" for key, value in request.headers.items())
    head = f"POST /v1/classes/cut/photos HTTP/1.1\r\n{lines}\r\n".encode()
    for share in (0.0, 0.3, 0.9, 0.999):
        with socket.create_connection(("127.0.0.1", service.port), timeout=5) as connection:
            connection.sendall(head + body[: int(share * len(body))])
    for nonsense in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50),
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"POST /v1/undo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"b" * 70_000,
    ):
        try:
            answer = raw(service, nonsense)
        except ConnectionResetError:
            continue
        assert answer.split()[1].startswith(b"4"), nonsense[:40]
    assert alive(service)
    assert "cut" not in service.names()
    assert 'status="500"' not in service.client.get("/metrics").text


def test_what_a_client_sends_is_never_a_path(start: Callable[..., Live], tmp_path: object) -> None:
    service = start()
    secret = "../../../../etc/passwd"
    file = {"photos": (secret, photo("red"), "image/jpeg")}
    reply = service.client.post("/v1/classes/..%2F..%2Fetc%2Fpasswd/photos", files=file)
    assert code(reply) == (422, "bad_name")
    reply = service.client.post("/v1/classes/%2Fetc%2Fpasswd/photos", files=file)
    assert reply.json()["name"] == "/etc/passwd"
    assert service.names() == ["/etc/passwd"]
    found = service.client.post("/v1/predict", files=file).json()["predictions"][0]["photo"]
    assert found == "passwd"
    for name in ("%2E", "%2E%2E"):
        reply = service.client.send(
            httpx.Request("DELETE", httpx.URL(service.url, raw_path=f"/v1/classes/{name}".encode()))
        )
        assert code(reply) == (422, "bad_name")


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "BMP", "TIFF"])
def test_usual_formats_are_taken(start: Callable[..., Live], kind: str) -> None:
    service = start()
    data = encoded(Image.new("RGB", (40, 30), (200, 30, 30)), kind)
    assert Image.open(io.BytesIO(data)).format == kind
    reply = service.client.post("/v1/classes/red/photos", files={"photos": ("x", data)})
    assert reply.status_code == 200


def test_an_unexpected_failure_has_the_headers_too(
    start: Callable[..., Live], caplog: pytest.LogCaptureFixture
) -> None:
    service = start()

    @service.app.get("/v1/broken")
    def broken() -> None:
        raise RuntimeError("/a/path/of/this/machine")

    reply = service.client.get("/v1/broken")
    assert code(reply) == (500, "failed")
    assert "path" not in reply.text
    assert_guarded(reply.headers)
    assert reply.headers["connection"] == "close"
    number = reply.json()["hint"].split()[1]
    assert f"request {number} failed: GET /v1/broken" in caplog.text
    assert 'route="/v1/broken",status="500"' in service.client.get("/metrics").text
    assert alive(service)
