"""The error of whoever comes too late: somebody else has changed the model meanwhile."""

from __future__ import annotations

from fiveshot.errors import InputError


class ConflictError(InputError):
    """What was asked for does not fit the model any more, because it has changed since; nothing was done.

    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.recognizer import ConflictError, Recognizer
    >>> owls = np.random.default_rng(0).normal(size=(5, 384))
    >>> with Recognizer.create(tempfile.mkdtemp()) as birds:
    ...     _ = birds.learn_features("owl", owls)
    ...     seen = birds.snapshot.state
    ...     _ = birds.learn_features("wren", -owls)  # by somebody else, say
    ...     try:
    ...         birds.undo(state=seen)
    ...     except ConflictError as error:
    ...         print(error)
    the model was changed since state 2, it is in state 3 now; nothing was taken back: look at it again first
    """
