"""The error of whoever comes too late: somebody else has changed the model meanwhile."""

from __future__ import annotations

from fiveshot.errors import InputError


class ConflictError(InputError):
    """What was asked for does not fit the model any more, because it has changed since; nothing was done."""
