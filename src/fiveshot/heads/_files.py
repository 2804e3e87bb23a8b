"""Save and load a fitted head: one safetensors file, no pickle."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from fiveshot.core.scorers import (
    Scorer,
    load_scorer,
    own_parameters,
    plain_parameters,
    read_parameters,
    save_scorer,
)
from fiveshot.errors import InputError, StorageError
from fiveshot.heads._making import head_of
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.tuned import TunedHead

TUNED = ("auto", "shots", "episodes", "random_state", "device")  # parameters besides the inner head


def save_head(head: FewShotHead, path: str | os.PathLike[str]) -> None:
    """Write a fitted head to one file, atomically.

    Parameters
    ----------
    head : FewShotHead
        A fitted head whose scorer is in this package or registered.
    path : str or path
        The file.

    Raises
    ------
    InputError
        A head that has learned nothing, or whose scorer is not registered.
    StorageError
        A file that cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.heads import load_head, make_head, save_head
    >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_head(head, f"{folder}/birds.safetensors")
    ...     load_head(f"{folder}/birds.safetensors").classes_.tolist()
    ['owl', 'wren']
    """
    if not hasattr(head, "scorer_"):
        raise InputError(f"{type(head).__name__} has learned nothing yet; fit it before saving")
    save_scorer(head.scorer_, path, beside=described(head))


def described(head: FewShotHead) -> dict[str, Any]:
    """Return what a file must hold of a fitted head in addition to its scorer, as JSON values."""
    found: dict[str, Any] = {"feature_names": [str(name) for name in getattr(head, "feature_names_in_", ())]}
    if isinstance(head, TunedHead):
        own = head.get_params(deep=False)
        found["start"] = plain_parameters(own_parameters(head.head.unlearned_scorer()))
        found["tuned"] = plain_parameters({name: own[name] for name in TUNED})
        found["chosen"] = dict(head.chosen_)
    return found


def load_head(path: str | os.PathLike[str], *, device: Any = None) -> FewShotHead:
    """Read a head that ``save_head`` wrote.

    Parameters
    ----------
    path : str or path
        The file.
    device : str, optional
        Device to load it to, if it differs from the one it was saved from. On the CPU its arrays are NumPy arrays.

    Returns
    -------
    FewShotHead

    Raises
    ------
    InputError
        A device that this machine does not have.
    StorageError
        A file that is missing or damaged, or holds an unknown head.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.heads import load_head, make_head, save_head
    >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_head(head, f"{folder}/birds.safetensors")
    ...     same = load_head(f"{folder}/birds.safetensors", device="cpu")
    >>> same.predict([[0.9, 0.1]]).tolist()
    ['owl']
    """
    scorer, beside = load_scorer(path, device=device)
    try:
        return restored_head(scorer, beside)
    except (KeyError, TypeError, AttributeError) as error:
        raise StorageError(f"{path} does not hold a complete head ({error!r}); get a fresh copy of it") from error


def restored_head(scorer: Scorer, beside: dict[str, Any]) -> FewShotHead:
    """Return a fitted head around a learned scorer; ``beside`` comes from :func:`described`."""
    head = head_of(scorer)
    if "tuned" in beside:
        start = head_of(type(scorer)(**read_parameters(beside["start"])))
        head = TunedHead(start, **{**read_parameters(beside["tuned"]), "device": scorer.device})
        head.chosen_ = dict(beside["chosen"])
    head.scorer_, head.n_features_in_ = scorer, scorer.n_features
    if beside["feature_names"]:
        head.feature_names_in_ = np.array(beside["feature_names"], dtype=object)
    return head
