"""How long work tells how far it is: one kind of callback for everything that takes time."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with the number of steps done and the number in all, each time a step is done.

    Examples
    --------
    >>> def printed(done: int, total: int) -> None:
    ...     print(f"{done} of {total}")
    >>> tell: Progress = printed
    >>> tell(3, 5)
    3 of 5
    """

    def __call__(self, done: int, total: int, /) -> None:
        """Take note of it."""
