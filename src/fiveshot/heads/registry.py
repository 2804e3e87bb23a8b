"""Heads by name: those of the package, found in its modules, and those that plugins register."""

from __future__ import annotations

import hashlib
import json
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Any, get_args

from fiveshot.errors import InputError, unknown_name
from fiveshot.heads.estimator import is_auto, parameter_names, values_to_try, with_parameters
from fiveshot.heads.head import FewShotHead, Flavor, Recipe
from fiveshot.plugins import defining_file, load_plugins, same_origin, unknown_or_unloaded

Make = Callable[[], FewShotHead]
DEFAULT_HEAD = "unbiased-lda"
"""The name of the head that ``make_head()`` makes."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_-]*")  # what can stand in a list of methods and in a path
_registered: dict[str, Recipe] = {}
_registered_classes: dict[str, type[FewShotHead]] = {}
_digests: dict[type[FewShotHead], str | None] = {}


class _Recipes(Mapping[str, Recipe]):
    """The recipes of the package in the order of their places, then those that were registered."""

    def __getitem__(self, name: str) -> Recipe:
        return _registered[name] if name in _registered else _recipes_of_package()[name]

    def __iter__(self) -> Iterator[str]:
        yield from _recipes_of_package()
        yield from _registered

    def __len__(self) -> int:
        return len(_recipes_of_package()) + len(_registered)


RECIPES: Mapping[str, Recipe] = _Recipes()
"""The heads by name. ``make_head`` makes one; a plugin adds to them with ``register_head``."""


@cache
def heads_of_package() -> dict[str, type[FewShotHead]]:
    """Return the classes of heads in this package by their names: each module is looked through once.

    >>> sorted(heads_of_package())[:3]
    ['FeCAM', 'KernelLDA', 'LoRanPAC']
    """
    package = import_module("fiveshot.heads")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = [import_module(f"fiveshot.heads.{name}") for name in names if not name.startswith("_")]
    return {
        name: thing
        for module in modules
        for name, thing in vars(module).items()
        if isinstance(thing, type) and issubclass(thing, FewShotHead) and thing.__module__ == module.__name__
        if thing is not FewShotHead
    }


@cache
def _recipes_of_package() -> dict[str, Recipe]:
    found = [
        recipe for kind in heads_of_package().values() if "recipes" in vars(kind) for recipe in kind.recipes()
    ]
    return {recipe.name: recipe for recipe in sorted(found, key=lambda recipe: (recipe.place, recipe.name))}


def head_class(name: str) -> type[FewShotHead] | None:
    """Return the class that a file names; plugins are loaded where it is not known so far."""
    known = {**heads_of_package(), **_registered_classes}
    if name not in known:
        load_plugins()
        known.update(_registered_classes)
    return known.get(name)


def recipe_name(name: str, *, kind: str = "head") -> str:
    """Return the name of a recipe that there is; plugins are loaded where it is not known so far.

    >>> recipe_name("ncm")
    'ncm'
    """
    if name not in RECIPES:
        load_plugins()
    if name not in RECIPES:
        raise unknown_or_unloaded(kind, name, RECIPES)
    return name


def make_head(name: str = DEFAULT_HEAD, flavor: Flavor = "paper", **parameters: Any) -> FewShotHead:
    """Return an unfitted head by the name of its recipe.

    Parameters
    ----------
    name : str
        One of ``RECIPES``; the default head unless given.
    flavor : {"paper", "published"}
        ``"paper"`` follows the text, with the score that makes it work; ``"published"`` does what the published
        code does where that differs.
    **parameters
        Replace single values. Fields of a calibration, a prior or a sampling are named directly: ``alpha``,
        ``tau``, ``shrinkage``. The value ``"auto"`` has a parameter chosen by episodes inside the base classes
        (:class:`~fiveshot.heads.TunedHead`).

    Returns
    -------
    FewShotHead

    Raises
    ------
    InputError
        An unknown name, flavor or parameter, or a value out of its range.

    Examples
    --------
    >>> from fiveshot.heads import make_head
    >>> make_head()
    UnbiasedLDA()
    >>> make_head("c-fecam", gamma=10.0).gamma, make_head("c-fecam", alpha=0.75).calibration.alpha
    (10.0, 0.75)
    >>> make_head("c-fecam", alpha="auto", bias="auto").auto
    ('alpha', 'bias')
    >>> make_head("ranpak")
    Traceback (most recent call last):
    fiveshot.errors.InputError: no head 'ranpak'; did you mean 'ranpac'? choose from c-fecam, c-fecam+, ...
    """
    name = recipe_name(name)
    if flavor not in get_args(Flavor):
        raise unknown_name("flavor", flavor, get_args(Flavor))
    head = RECIPES[name].make(flavor)
    allowed = parameter_names(head)
    for given in parameters:
        if given not in allowed:
            raise InputError(
                f"head {name!r} has no parameter {given!r}",
                hint=f"it has {', '.join(allowed)}",
                code="unknown_name",
            )
    auto = tuple(key for key, value in parameters.items() if is_auto(head, key, value))
    if not auto:
        return with_parameters(head, parameters)
    from fiveshot.heads.tuned import TunedHead

    shared = {key: parameters[key] for key in ("device", "random_state") if key in parameters}
    fixed = {key: value for key, value in parameters.items() if key not in (*auto, *shared)}
    configured = with_parameters(head, fixed)
    for given in auto:
        values_to_try(configured, given)  # refuses what cannot be chosen
    return TunedHead(configured, auto, **shared)


def register_head(name: str, make: Make | Mapping[Flavor, Make], description: str = "") -> None:
    """Make a head known by name to :func:`make_head`, ``fiveshot bench``, models and files.

    Registering a name again is an error, unless the same file does it.

    Parameters
    ----------
    name : str
        Letters, digits, ``-``, ``_`` and ``+``.
    make : callable or mapping
        Returns the unfitted head: the class itself where its defaults are right, or a function. A mapping gives
        one such for each flavor.
    description : str, optional
        A line for ``fiveshot bench --list``; the first of the class's docstring unless given.

    Raises
    ------
    InputError
        A name that is taken or cannot be one, or a head that lacks something.

    Examples
    --------
    >>> from fiveshot.heads import NCM, make_head
    >>> register_head("sharp-ncm", lambda: NCM("cosine", temperature=0.01), "NCM that is surer of itself")
    >>> make_head("sharp-ncm").temperature
    0.01
    >>> unregister_head("sharp-ncm")
    >>> register_head("ncm", NCM)
    Traceback (most recent call last):
    fiveshot.errors.InputError: the name 'ncm' is taken by a head of fiveshot; choose another
    """
    if not NAME.fullmatch(str(name)):
        raise InputError(
            f"{name!r} cannot name a head", hint="use letters, digits, '-', '_' and '+', such as 'my-head'"
        )
    flavors: tuple[Flavor, ...] = get_args(Flavor)
    makers = dict(make) if isinstance(make, Mapping) else dict.fromkeys(flavors, make)
    if set(makers) != set(flavors):
        raise InputError(f"head {name!r} has the flavors {sorted(makers)}", hint=f"give {' and '.join(flavors)}")
    made = [_checked(name, one) for one in makers.values()]
    if name in _recipes_of_package():
        raise InputError(f"the name {name!r} is taken by a head of fiveshot", hint="choose another")
    if name in _registered and not same_origin(_registered[name].paper, makers["paper"]):
        taken = _registered[name].paper.__module__
        raise InputError(f"the name {name!r} is taken by a head of {taken}", hint="choose another")
    for kind in {type(head) for head in made}:
        _refuse_namesake(kind)
        if not kind.__module__.startswith("fiveshot."):
            _registered_classes[kind.__name__] = kind
    line = description or (type(made[0]).__doc__ or type(made[0]).__name__).strip().splitlines()[0].rstrip(".")
    _registered[name] = Recipe(name, line, makers["paper"], makers["published"])


def unregister_head(name: str) -> None:
    """Take the name of a registered head away again; its class stays known, so that files of it can be read.

    Parameters
    ----------
    name : str
        A name that was registered.

    Raises
    ------
    InputError
        Any other name.

    Examples
    --------
    >>> from fiveshot.heads import FeCAM
    >>> register_head("wide-fecam", lambda: FeCAM(1000.0))
    >>> unregister_head("wide-fecam")
    """
    if name not in _registered:
        raise InputError(f"{name!r} is not a registered head", hint="those of the package stay")
    del _registered[name]


def require_head(head: Any) -> FewShotHead:
    """Return the head, or say what it lacks to be one.

    >>> require_head("ncm")
    Traceback (most recent call last):
    fiveshot.errors.InputError: str is not a head; make it a subclass of fiveshot.heads.FewShotHead
    """
    from fiveshot.heads.files import plain_parameters, revived_parameters

    kind = type(head).__name__
    if not isinstance(head, FewShotHead):
        raise InputError(f"{kind} is not a head", hint="make it a subclass of fiveshot.heads.FewShotHead")
    missing = [name for name in ("derive", "score_classes") if _is_abstract(head, name)]
    if missing:
        raise InputError(f"the head {kind} lacks {' and '.join(missing)}", hint="see fiveshot.heads.FewShotHead")
    parameters = head.get_params(deep=False)
    scales_itself = type(head).softmax_factor is not FewShotHead.softmax_factor
    needed = ("device",) if scales_itself else ("temperature", "device")
    missing = [name for name in needed if name not in parameters]
    if missing:
        raise InputError(
            f"the head {kind} lacks the parameters {' and '.join(missing)}", hint="add them to its __init__"
        )
    try:
        revived_parameters(json.loads(json.dumps(plain_parameters(head), allow_nan=False)))
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"the parameters of {kind} cannot be written to a file ({error})",
            hint="use numbers, strings, tuples, Calibration, Prior or Sampling",
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
    known = heads_of_package().get(kind.__name__) or _registered_classes.get(kind.__name__)
    if known is not None and not same_origin(known, kind):
        raise InputError(
            f"a class called {kind.__name__!r} is known already, from {known.__module__}",
            hint="rename yours, because files of heads name their class",
        )


def _is_abstract(head: FewShotHead, method: str) -> bool:
    return bool(getattr(getattr(type(head), method), "__isabstractmethod__", False))
