"""Heads of the user's own: a name for the command line and models, a class for files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

from fiveshot.errors import InputError
from fiveshot.heads.files import HEADS, plain_parameters, revived_parameters
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.recipes import DEFAULT_HEAD, DESCRIPTIONS, RECIPES, Flavour
from fiveshot.plugins import defining_file, same_origin

Make = Callable[[], FewShotHead]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_-]*")  # what can stand in a list of methods and in a path
_digests: dict[type[FewShotHead], str | None] = {}


def register_head(name: str, make: Make | Mapping[Flavour, Make], description: str = "") -> None:
    """Make a head known by name to :func:`make_head`, ``fiveshot bench``, models and files.

    ``make`` returns the unfitted head: the class itself where its defaults are right, or a function. A mapping
    gives one such for each flavour. Registering a name again is an error, unless it is done by the same file.
    ``description`` is a line for ``fiveshot bench --list``; the first of the class's docstring unless given.

    >>> from fiveshot.heads import NCM, make_head
    >>> register_head("sharp-ncm", lambda: NCM("cosine", temperature=0.01), "NCM that is surer of itself")
    >>> make_head("sharp-ncm").temperature
    0.01
    >>> unregister_head("sharp-ncm")
    >>> register_head("ncm", NCM)
    Traceback (most recent call last):
    fiveshot.errors.InputError: the name 'ncm' is taken by a head of fiveshot.heads.recipes; choose another
    """
    if not NAME.fullmatch(str(name)) or name == "default":
        raise InputError(f"{name!r} cannot name a head; use letters, digits, '-', '_' and '+', such as 'my-head'")
    flavours: tuple[Flavour, ...] = get_args(Flavour)
    recipe = dict(make) if isinstance(make, Mapping) else dict.fromkeys(flavours, make)
    if set(recipe) != set(flavours):
        raise InputError(f"head {name!r} has the flavours {sorted(recipe)}; give {' and '.join(flavours)}")
    made = [_checked(name, one) for one in recipe.values()]
    kinds = {type(head) for head in made}
    taken = RECIPES[name]["paper"] if name in RECIPES else None
    if taken is not None and (_is_ours(taken) or not same_origin(taken, recipe["paper"])):
        raise InputError(f"the name {name!r} is taken by a head of {taken.__module__}; choose another")
    for kind in kinds:
        _refuse_namesake(kind)
    HEADS.update({kind.__name__: kind for kind in kinds})
    DESCRIPTIONS[name] = description or _first_line(type(made[0]))
    RECIPES[name] = recipe


def unregister_head(name: str) -> None:
    """Take the name of a registered head away again; its class stays known, so that files of it can be read.

    >>> from fiveshot.heads import FeCAM
    >>> register_head("wide-fecam", lambda: FeCAM(1000.0))
    >>> unregister_head("wide-fecam")
    """
    taken = RECIPES.get(name, {}).get("paper")
    if taken is None or _is_ours(taken):
        raise InputError(f"{name!r} is not a registered head; those of the package stay")
    del RECIPES[name], DESCRIPTIONS[name]


def require_head(head: Any) -> FewShotHead:
    """Return the head, or say what it lacks to be one.

    >>> require_head("ncm")
    Traceback (most recent call last):
    fiveshot.errors.InputError: str is no head; make it a subclass of fiveshot.heads.FewShotHead
    """
    kind = type(head).__name__
    if not isinstance(head, FewShotHead):
        raise InputError(f"{kind} is no head; make it a subclass of fiveshot.heads.FewShotHead")
    missing = [name for name in ("_derive", "_class_scores") if _is_abstract(head, name)]
    if missing:
        raise InputError(f"the head {kind} lacks {' and '.join(missing)}; see fiveshot.heads.FewShotHead")
    parameters = head.get_params(deep=False)
    scales_itself = type(head)._softmax_factor is not FewShotHead._softmax_factor
    needed = ("device",) if scales_itself else ("temperature", "device")
    missing = [name for name in needed if name not in parameters]
    if missing:
        raise InputError(f"the head {kind} lacks the parameters {' and '.join(missing)}; add them to its __init__")
    try:
        revived_parameters(json.loads(json.dumps(plain_parameters(head), allow_nan=False)))
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"the parameters of {kind} cannot be written to a file ({error}); use numbers, strings, tuples, "
            "Calibration, Prior or Sampling"
        ) from error
    return head


def source_digest(kind: type[FewShotHead]) -> str | None:
    """Return a digest of the files that a class from outside this package is defined in; None for one of ours.

    A changed file is another method, whose runs must not be taken for those of the one before. The file is read
    once, when the class is registered, because a later state of it is not the code that runs.

    >>> from fiveshot.heads import NCM
    >>> source_digest(NCM) is None
    True
    """
    if kind not in _digests:
        bases = [base for base in kind.__mro__ if issubclass(base, FewShotHead)]
        outside = [base for base in bases if not base.__module__.startswith("fiveshot.")]
        files = dict.fromkeys(file for base in outside if (file := defining_file(base)) is not None)
        parts = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
        _digests[kind] = hashlib.sha256(parts).hexdigest() if files else None
    return _digests[kind]


def _checked(name: str, make: Make) -> FewShotHead:
    if not callable(make):
        raise InputError(f"head {name!r} needs a class or a function that returns an unfitted head, not {make!r}")
    head = require_head(make())
    source_digest(type(head))
    return head


def _refuse_namesake(kind: type[FewShotHead]) -> None:
    known = HEADS.get(kind.__name__)
    if known is not None and not same_origin(known, kind):
        raise InputError(
            f"a class called {kind.__name__!r} is known already, from {known.__module__}; rename yours, "
            "because files of heads name their class"
        )


def _is_ours(make: Make) -> bool:
    return same_origin(make, RECIPES[DEFAULT_HEAD]["paper"])


def _is_abstract(head: FewShotHead, method: str) -> bool:
    return bool(getattr(getattr(type(head), method), "__isabstractmethod__", False))


def _first_line(kind: type[FewShotHead]) -> str:
    lines = (kind.__doc__ or kind.__name__).strip().splitlines()
    return lines[0].rstrip(".")
