"""The contract of all heads, for the author of another one to check in a line: one suite, over NumPy and torch."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Literal

from fiveshot.errors import unknown_name
from fiveshot.heads.registry import Make
from fiveshot.heads.testing import material, promises

PROMISES: dict[str, Callable[[Make], None]] = {
    "parameters": promises.parameters_are_stored,
    "scores": promises.scores_are_numbers,
    "inputs": promises.inputs_stay,
    "class order": promises.class_order_is_irrelevant,
    "sample order": promises.sample_order_is_irrelevant,
    "label values": promises.label_values_are_irrelevant,
    "few samples": promises.few_samples_suffice,
    "sessions": promises.sessions_equal_one,
    "more samples": promises.more_samples_equal_all_at_once,
    "answers": promises.answers_agree,
    "old classes": promises.old_classes_stay,
    "starting over": promises.starting_over_is_starting,
    "forgetting": promises.forgotten_was_never_there,
    "forgetting base": promises.forgotten_base_was_never_there,
    "files": promises.files_keep_everything,
    "loaded heads": promises.loaded_heads_go_on,
    "copies": promises.copies_are_apart,
    "tokens": promises.tokens_are_honest,
    "statistics": promises.statistics_suffice,
}


def check_head(
    make: Make, *, without: Collection[str] = (), library: Literal["numpy", "torch"] = "numpy"
) -> tuple[str, ...]:
    """Check that a head keeps the contract of all heads.

    Parameters
    ----------
    make : callable
        Returns the unfitted head: its class, or a function.
    without : collection of str
        Promises that the head does not make: one that draws samples for a class by its label does not make
        ``"label values"``, one that chooses a parameter on some of the samples does not make ``"sample order"``.
    library : {"numpy", "torch"}
        What the features come from.

    Returns
    -------
    tuple of str
        The promises that it keeps.

    Raises
    ------
    AssertionError
        The first promise that is broken, and how.

    Examples
    --------
    >>> from fiveshot.heads import NCM
    >>> check_head(NCM)[:3]
    ('parameters', 'scores', 'inputs')
    """
    for name in without:
        if name not in PROMISES:
            raise unknown_name("promise", name, PROMISES)
    kept = tuple(name for name in PROMISES if name not in without)
    for name in kept:
        try:
            with material.library(library):
                PROMISES[name](make)
        except Exception as error:
            error.add_note(f"This was the promise {name!r}: {PROMISES[name].__doc__}")
            raise
    return kept
