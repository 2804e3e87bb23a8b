"""Idempotency keys: a request that is sent twice is done once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256

from fiveshot.service.engine import Learned
from fiveshot.service.errors import ApiError
from fiveshot.service.uploads import Upload

LONGEST = 200


@dataclass(frozen=True, eq=False)
class _Known:
    digest: str
    name: str
    answer: asyncio.Future[Learned]


class IdempotencyKeys:
    """Answers by key. What failed is not remembered, so that it can be tried again.

    Keys live in memory. After a restart the model itself tells a request that was done: the class ends with
    the very photos that the request brings.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def once(
        self, key: str, name: str, digest: str, work: Callable[[], Awaitable[Learned]]
    ) -> tuple[Learned, bool]:
        """Return the answer to a request, and whether it is that of an earlier one."""
        known = self._known.get(key)
        if known is not None:
            if known.digest != digest:
                raise ApiError(
                    422, "key_reused", "this idempotency key came with another request", "use a new key for each"
                )
            return await asyncio.shield(known.answer), True
        answer: asyncio.Future[Learned] = asyncio.get_running_loop().create_future()
        self._known[key] = _Known(digest, name, answer)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        try:
            learned = await work()
        except BaseException as error:
            self._known.pop(key, None)
            answer.set_exception(error if isinstance(error, Exception) else _interrupted())
            answer.exception()  # looked at: nobody else may be waiting
            raise
        answer.set_result(learned)
        return learned, learned.replayed

    def forget(self, name: str) -> None:
        """Forget the answers about a class."""
        for key in [key for key, known in self._known.items() if known.name == name]:
            del self._known[key]


def check_key(key: str | None) -> str | None:
    """Return the key of a request, refusing one that is too long."""
    if key is not None and not 1 <= len(key) <= LONGEST:
        raise ApiError(422, "bad_key", f"the idempotency key has {len(key)} characters", f"use 1 to {LONGEST}")
    return key


def request_digest(name: str, uploads: list[Upload]) -> str:
    """Return what tells two requests apart: the class and the photos, in order."""
    digest = sha256(name.encode("utf-8", "backslashreplace"))
    for upload in uploads:
        digest.update(sha256(upload.data).digest())
    return digest.hexdigest()


def _interrupted() -> ApiError:
    return ApiError(503, "busy", "the first request with this key was interrupted", "try again in a moment")
