"""The first few of many names, for messages."""

from __future__ import annotations

from collections.abc import Sequence


def some_of(names: Sequence[str], shown: int = 5) -> str:
    """Return the first names in one line, and how many more there are.

    >>> some_of(["owl", "wren", "kite"], 2), some_of(["owl", "wren"])
    ('owl, wren and 1 more', 'owl, wren')
    """
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest:,} more" if rest > 0 else "")
