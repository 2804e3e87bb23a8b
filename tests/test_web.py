"""Fetching from servers of this machine that do not mean well."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from local_server import Quiet, listening

from fiveshot.errors import InputError
from fiveshot.web import Fetcher, FetchLimits

PHOTO = b"the bytes of a photo"
LIMITS = FetchLimits(size=1000, seconds=20, redirects=2)
Answer = Callable[[Any], None]


@contextmanager
def server(answer: Answer) -> Iterator[str]:
    """Serve what ``answer`` says; yield the address."""

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def do_POST(self) -> None:
            answer(self)

    with listening(Handler) as place:
        yield f"http://{place}"


def fetched(address: str, limits: FetchLimits = LIMITS, *, login: Any = None, **given: Any) -> bytes:
    async def fetch() -> bytes:
        async with Fetcher(limits, extra="watch", login=login) as fetcher:
            return await fetcher.fetch(address, **given)

    return asyncio.run(fetch())


def test_it_asks_for_what_lies_there_as_it_is() -> None:
    asked = []

    def answer(request: Any) -> None:
        asked.append(request.headers["Accept-Encoding"])
        request.say(PHOTO, Content_Encoding="identity")

    with server(answer) as address:
        assert fetched(f"{address}/photo.jpg") == PHOTO
    assert asked == ["identity"]


@pytest.mark.parametrize(
    "encoding", ["gzip", "gzip, gzip, gzip", "identity, gzip", "deflate", "br", "zstd", "x-gzip", "made up"]
)
def test_what_comes_packed_is_refused_unopened(encoding: str) -> None:
    bomb = gzip.compress(gzip.compress(gzip.compress(bytes(10**8))))
    with (
        server(lambda request: request.say(bomb, Content_Encoding=encoding)) as address,
        pytest.raises(InputError, match=r"it is packed \(.*\), which was not asked for"),
    ):
        fetched(address)


def test_a_packed_refusal_is_not_opened_either() -> None:
    def answer(request: Any) -> None:
        if "Authorization" in request.headers:
            request.say(PHOTO)
        else:
            headers = {"WWW_Authenticate": 'Basic realm="camera"', "Content_Encoding": "gzip"}
            request.say(b"not gzip", 401, **headers)

    with server(answer) as address:
        assert fetched(address, login=("ann", "secret")) == PHOTO


def endless(request: Any) -> None:
    request.send_response(200)
    request.end_headers()
    with contextlib.suppress(OSError):
        while True:
            request.wfile.write(bytes(500))


@pytest.mark.parametrize(
    "answer", [endless, lambda request: request.say(bytes(1001))], ids=["no length", "with a length"]
)
def test_no_more_is_read_than_allowed(answer: Answer) -> None:
    with server(answer) as address, pytest.raises(InputError, match="it is larger than 1,000 bytes"):
        fetched(address)


HEADERS, BODY = b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\n\r\n"


@pytest.mark.parametrize("begin", [HEADERS, BODY], ids=["headers", "body"])
def test_the_time_counts_for_everything_together(begin: bytes) -> None:
    def answer(request: Any) -> None:
        request.wfile.write(begin)
        with contextlib.suppress(OSError):
            while True:
                request.wfile.write(b"x")
                time.sleep(0.02)

    with server(answer) as address, pytest.raises(InputError, match=r"it took longer than 0\.4 s"):
        fetched(address, FetchLimits(size=10**9, seconds=0.4))


def test_redirects_are_followed_as_far_as_allowed() -> None:
    def answer(request: Any) -> None:
        left = int(request.path.rpartition("/")[2])
        if left:
            request.say(b"", 302, Location=f"../{left}/{left - 1}")
        else:
            request.say(PHOTO)

    with server(answer) as address:
        assert fetched(f"{address}/a/2") == PHOTO
        with pytest.raises(InputError, match="it redirects more than 2 times"):
            fetched(f"{address}/a/3")
        with pytest.raises(InputError, match=r"it points to 'http://.*/1/0'"):
            fetched(f"{address}/a/1", FetchLimits(size=1000, seconds=20))
        with pytest.raises(InputError, match="it points to"):
            fetched(f"{address}/a/1", post={})


def test_every_address_is_permitted_before_it_is_asked() -> None:
    asked = []

    async def permit(url: Any) -> dict[str, str]:
        if url.path == "/secret":
            raise InputError("not there")
        return {"X-From": url.path}

    def answer(request: Any) -> None:
        asked.append((request.path, request.headers["X-From"]))
        request.say(b"", 302, Location="/secret")

    with server(answer) as address, pytest.raises(InputError, match="not there"):
        fetched(f"{address}/a", permit=permit)
    assert asked == [("/a", "/a")]


LEADS = [
    "http://[",
    "file:///etc/passwd",
    "http:///x",
    "ftp://127.0.0.1/",
    "http://me:pw@127.0.0.1/",
    "http://x:y/",
]


@pytest.mark.parametrize("place", LEADS)
def test_a_redirect_to_nowhere_is_refused(place: str) -> None:
    with server(lambda request: request.say(b"", 302, Location=place)) as address, pytest.raises(InputError):
        fetched(address)


def test_a_redirect_without_a_place_is_refused() -> None:
    with server(lambda request: request.say(b"", 302)) as address, pytest.raises(InputError, match="answers 302"):
        fetched(address)


@pytest.mark.parametrize(
    "address",
    [*LEADS, "", "photo.jpg", "http://a\ud800/", "http://127.0.0.1/\ud800", "http://127.0.0.1:99999/",
     f"http://{'a' * 70}.invalid/", "http://a b/", "http://127.0.0.1/\n", "http://127.0.0.1:9/", "http://\u202e/",
     "http://127.0.0.1/" + "a" * 70_000],
)  # fmt: skip
def test_what_is_no_address_is_refused_in_a_sentence(address: str) -> None:
    with pytest.raises(InputError):
        fetched(address)


@pytest.mark.parametrize(
    "challenge",
    ["Digest", 'Digest realm="a", =', 'Basic realm="digest"', 'Digest realm="a"',
     'Digest realm="a", nonce="b", algorithm=made-up', 'Digest realm="a", nonce="b", qop="auth-int"'],
)  # fmt: skip
def test_a_login_that_is_not_understood_is_said(challenge: str) -> None:
    def answer(request: Any) -> None:
        request.say(b"", 401, WWW_Authenticate=challenge)

    with server(answer) as address, pytest.raises(InputError, match="an unsupported login"):
        fetched(address, login=("ann", "secret"))


@pytest.mark.parametrize("said", [b"", b"\x00\x01\x02\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"])
def test_what_is_not_http_is_refused_in_a_sentence(said: bytes) -> None:
    def answer(request: Any) -> None:
        request.wfile.write(said)
        request.close_connection = True

    with server(answer) as address, pytest.raises(InputError):
        fetched(address)


def test_an_answer_that_ends_too_early_is_refused() -> None:
    def answer(request: Any) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "100")
        request.end_headers()
        request.wfile.write(b"half")
        request.close_connection = True

    with server(answer) as address, pytest.raises(InputError):
        fetched(address)
