"""Whether a command answered what its page shows."""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = re.compile(r"\d+(\.\d+)?( kB| MB)?")


def fits(answer: str, shown: Sequence[str]) -> bool:
    """Tell whether an answer is what a page shows.

    A number stands for any other, ``...`` for any lines, and at the end of a line for the rest of it.
    """
    pattern = "".join(r"(.*\n)*?" if line.strip() == "..." else _pattern(line) + r" *\n" for line in shown)
    whole = answer if not answer or answer.endswith("\n") else f"{answer}\n"
    return re.fullmatch(pattern, NUMBER.sub("#", whole)) is not None


def _pattern(line: str) -> str:
    begun = line.removesuffix("...")
    return re.escape(NUMBER.sub("#", begun)) + (".*" if begun != line else "")


def expects_failure(shown: Sequence[str] | None) -> bool:
    """Tell whether the page shows how the command fails, or the service refuses."""
    return any(line.startswith(("error: ", '{"error":')) for line in shown or ())
