"""Fetch an address: all photos over HTTP are fetched here.

No server is trusted. The bytes of an answer are counted and never decompressed. The time limit covers everything
from the first sent byte to the last received byte, including redirects and logins. Every address is checked before
a request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias
from urllib.parse import urljoin

from fiveshot.errors import InputError
from fiveshot.extras import import_extra

SCHEMES = ("http", "https")
_SHOWN = 200  # characters of an address in a message
Permit: TypeAlias = "Callable[[Any], Awaitable[Mapping[str, str]]]"
"""Called with each address before a request: returns headers to send, or raises an ``InputError``."""


@dataclass(frozen=True)
class FetchLimits:
    """Limits of one fetch.

    Parameters
    ----------
    size : int
        Bytes of the answer.
    seconds : float
        Time for everything together.
    redirects : int
        Maximum number of redirects.
    """

    size: int
    seconds: float
    redirects: int = 0


class Fetcher:
    """Fetches addresses within limits. Error messages are sentences about "it".

    Parameters
    ----------
    limits : FetchLimits
        Limits of one fetch.
    extra : str
        The extra of fiveshot that installs httpx.
    verify : ssl.SSLContext, optional
        Trusted certificates; by default the usual ones.
    login : tuple of str, optional
        User and password, for servers that require them. They are sent to every fetched address.
    proxies : bool
        Whether to use the proxies in the environment.
    """

    def __init__(
        self,
        limits: FetchLimits,
        *,
        extra: str,
        verify: ssl.SSLContext | None = None,
        login: tuple[str, str] | None = None,
        proxies: bool = False,
    ) -> None:
        self._httpx = import_extra("httpx", extra=extra)
        self._limits, self._login = limits, login
        self._client = self._httpx.AsyncClient(
            verify=True if verify is None else verify,
            timeout=limits.seconds,
            follow_redirects=False,
            trust_env=proxies,
            headers={"Accept-Encoding": "identity"},
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.__aexit__(*error)

    def url(self, address: str) -> Any:
        """Return a parsed address; refuse text that is not an address."""
        try:
            url = self._httpx.URL(address)
        except (self._httpx.InvalidURL, ValueError) as error:
            raise _no_address(address) from error
        if url.scheme not in SCHEMES or not url.host or (url.port is not None and not 0 < url.port < 1 << 16):
            raise _no_address(address)
        if url.userinfo:
            raise InputError("the address contains a user or a password", hint="leave them out")
        return url

    async def fetch(
        self, address: str, *, permit: Permit | None = None, post: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the content at an address.

        Parameters
        ----------
        address : str
            The address.
        permit : callable, optional
            Called with this address and with each redirect.
        post : mapping, optional
            JSON to send with POST. The answer may not be a redirect.

        Returns
        -------
        bytes
            The body of the answer.

        Raises
        ------
        InputError
            With the reason of the failure.
        """
        try:
            async with asyncio.timeout(self._limits.seconds):
                return await self._follow(address, permit, post)
        except InputError:
            raise
        except (TimeoutError, self._httpx.TimeoutException) as error:
            message = f"it took longer than {self._limits.seconds:g} s"
            raise InputError(message, hint="a stream is not a photo", code="too_slow") from error
        # Some invalid addresses are refused only here, such as one with an invalid host name.
        except (self._httpx.HTTPError, self._httpx.InvalidURL, OSError, ValueError) as error:
            raise InputError(str(error) or type(error).__name__, code="no_answer") from error
        finally:
            self._client.cookies.clear()

    async def _follow(self, address: str, permit: Permit | None, post: Mapping[str, Any] | None) -> bytes:
        redirects = self._limits.redirects if post is None else 0
        for left in range(redirects, -1, -1):
            url = self.url(address)
            headers = {} if permit is None else await permit(url)
            async with self._answer(url, headers, post) as reply:
                if not reply.has_redirect_location:
                    return await self._body(reply)
                address = _joined(str(url), reply.headers["location"])
            if not left:
                break
        if redirects:
            raise InputError(f"it redirects more than {redirects} times", hint="check the address in a browser")
        raise InputError(f"it points to {address[:_SHOWN]!r}", hint="give that address")

    @asynccontextmanager
    async def _answer(
        self, url: Any, headers: Mapping[str, str], post: Mapping[str, Any] | None
    ) -> AsyncIterator[Any]:
        """Send the request, and send it again with the login if required; no body is read yet."""
        method = "GET" if post is None else "POST"
        request = self._client.build_request(method, url, headers=headers, json=post)
        reply = await self._client.send(request, stream=True)
        try:
            asked = " ".join(reply.headers.get_list("www-authenticate")).lower()
            if reply.status_code == 401 and asked and self._login is not None:
                again = self._with_login(self._login, request, reply, digest="digest" in asked)
                await reply.aclose()
                reply = await self._client.send(again, stream=True)
            yield reply
        finally:
            await reply.aclose()

    def _with_login(self, login: tuple[str, str], request: Any, reply: Any, *, digest: bool) -> Any:
        """Return the request with the login in the required form. With Digest the password is never sent."""
        kind = self._httpx.DigestAuth if digest else self._httpx.BasicAuth
        flow = kind(*login).auth_flow(request)
        first = next(flow)
        if not digest:
            return first
        try:
            return flow.send(reply)
        except (StopIteration, LookupError, NotImplementedError, ValueError, self._httpx.ProtocolError) as error:
            raise InputError("it asks for an unsupported login", hint="allow Basic or Digest") from error

    async def _body(self, reply: Any) -> bytes:
        """Return the body of an answer; refuse one that is compressed or too large."""
        if reply.status_code != 200:
            raise InputError(f"it answers {reply.status_code} {reply.reason_phrase}".strip())
        given = reply.headers.get_list("content-encoding", split_commas=True)
        packed = [one for one in given if one.strip().lower() not in ("", "identity")]
        if packed:
            message = f"it is packed ({', '.join(packed)[:50]}), which was not asked for"
            raise InputError(message, hint="turn compression off on the server", code="packed")
        length = reply.headers.get("content-length", "0")
        if length.isascii() and length.isdigit() and int(length) > self._limits.size:
            raise self._too_large()
        data = bytearray()
        async for part in reply.aiter_raw():
            data += part
            if len(data) > self._limits.size:
                raise self._too_large()
        return bytes(data)

    def _too_large(self) -> InputError:
        message = f"it is larger than {self._limits.size:,} bytes"
        return InputError(message, hint="a stream is not a photo", code="too_large")


def _joined(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError as error:
        raise _no_address(address) from error


def _no_address(address: str) -> InputError:
    return InputError(f"{address[:_SHOWN]!r} is not an address", hint="write it as http://HOST/photo.jpg")
