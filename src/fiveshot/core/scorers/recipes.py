"""Scorers by name: those of the package and those that plugins register. Users call a scorer a head."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fiveshot.core.calibration import Calibration
from fiveshot.core.draws import Sampling
from fiveshot.core.scorers.fecam import FeCAMScorer
from fiveshot.core.scorers.kernel_lda import KernelLDAScorer
from fiveshot.core.scorers.loranpac import LoRanPACScorer
from fiveshot.core.scorers.nearest_mean import NCMScorer
from fiveshot.core.scorers.parameters import (
    own_parameters,
    parameter_names,
    plain_parameters,
    read_parameters,
    with_parameters,
)
from fiveshot.core.scorers.ranpac import LAMBDAS, RanPACScorer
from fiveshot.core.scorers.refitted import RefittedScorer
from fiveshot.core.scorers.scorer import Scorer
from fiveshot.core.scorers.streaming_lda import StreamingLDAScorer
from fiveshot.core.scorers.unbiased_lda import UnbiasedLDAScorer
from fiveshot.errors import InputError, unknown_name
from fiveshot.plugins import defining_file, load_plugins, same_origin, unknown_or_unloaded

Flavor = Literal["paper", "published"]
Make = Callable[[], Scorer]
DEFAULT_HEAD = "unbiased-lda"
"""The name of the default head."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_-]*")  # can be used in lists of methods and in paths


@dataclass(frozen=True)
class Recipe:
    """A scorer by name.

    Parameters
    ----------
    name : str
        The name for :func:`make_scorer`, :func:`~fiveshot.heads.make_head`, the command line and models.
    description : str
        One line.
    paper : callable
        Returns the unlearned scorer as described in the paper.
    published : callable, optional
        Returns the unlearned scorer of the published code, if it differs.
    label : str, optional
        The name in tables; ``name`` unless given.

    Examples
    --------
    >>> from fiveshot.core.scorers import RECIPES
    >>> RECIPES["teen"].label, RECIPES["teen"].make().metric, RECIPES["teen"].make("published").metric
    ('TEEN', 'euclidean', 'cosine')
    """

    name: str
    description: str
    paper: Make
    published: Make | None = None
    label: str = ""

    def make(self, flavor: Flavor = "paper") -> Scorer:
        """Return the unlearned scorer."""
        return self.published() if flavor == "published" and self.published is not None else self.paper()


# All RanPAC recipes score by cosine: with 800 samples of a new class against some thirty features of a base class
# the linear score of the text loses the old classes.
TEXT = Calibration(alpha=0.9, beta=1.0)
UNIT = Calibration(alpha=0.9, beta=1.0, prototypes="unit")
HALF_TEXT = Calibration(alpha=0.9, beta=0.5)
HALF_DOT = Calibration(alpha=0.9, beta=0.5, similarity="dot")
SAMPLED = Sampling()
FROM_TEN = LAMBDAS[2:]  # the published code's candidates
# Half of the expected inflation: all of it raises A_HM further and costs accuracy
# (docs/explanation/default-head.md).
HALF = 0.5
RIDGE: dict[str, Any] = {"classifier": "ridge", "temperature": 1 / 16}

PACKAGE = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "ncm",
            "nearest class mean",
            paper=lambda: NCMScorer("euclidean"),
            published=lambda: NCMScorer("cosine"),
            label="NCM",
        ),
        Recipe(
            "teen",
            "nearest class mean, new means calibrated by similar base classes",
            paper=lambda: NCMScorer("euclidean", calibration=TEXT),
            published=lambda: NCMScorer("cosine", calibration=UNIT),
            label="TEEN",
        ),
        Recipe(
            "fecam",
            "Mahalanobis distance, one covariance per class",
            paper=lambda: FeCAMScorer(),
            published=lambda: FeCAMScorer(normalization="rows"),
            label="FeCAM",
        ),
        Recipe(
            "c-fecam",
            "FeCAM, means and covariances of new classes calibrated",
            paper=lambda: FeCAMScorer(calibration=TEXT),
            published=lambda: FeCAMScorer(normalization="rows", calibration=UNIT),
            label="C-FeCAM",
        ),
        Recipe(
            "ranpac",
            "ridge regression on random features",
            paper=lambda: RanPACScorer(),
            published=lambda: RanPACScorer(lambdas=FROM_TEN),
            label="RanPAC",
        ),
        Recipe(
            "ranpac*",
            "RanPAC on Gaussian samples of the new classes, not calibrated",
            paper=lambda: RanPACScorer(sampling=SAMPLED),
            published=lambda: RanPACScorer(sampling=SAMPLED, lambdas=FROM_TEN),
            label="RanPAC*",
        ),
        Recipe(
            "c-ranpac",
            "RanPAC on Gaussian samples of the calibrated new classes",
            paper=lambda: RanPACScorer(sampling=SAMPLED, calibration=HALF_TEXT),
            published=lambda: RanPACScorer(sampling=SAMPLED, calibration=HALF_DOT, lambdas=FROM_TEN),
            label="C-RanPAC",
        ),
        Recipe(
            "ncm+",
            "nearest class mean, half of the penalty for few samples removed",
            paper=lambda: NCMScorer("euclidean", bias=HALF),
            published=lambda: NCMScorer("cosine", bias=HALF),
        ),
        Recipe(
            "teen+",
            "TEEN, half of the penalty for few samples removed",
            paper=lambda: NCMScorer("euclidean", calibration=TEXT, bias=HALF),
            published=lambda: NCMScorer("cosine", calibration=UNIT, bias=HALF),
        ),
        Recipe(
            "c-fecam+",
            "C-FeCAM, half of the penalty for few samples removed",
            paper=lambda: FeCAMScorer(calibration=TEXT, bias=HALF),
            published=lambda: FeCAMScorer(normalization="rows", calibration=UNIT, bias=HALF),
        ),
        # The paper has no such method, so both flavors are the same.
        Recipe(
            "unbiased-lda",
            "one covariance for all classes, posterior means, no penalty for few samples",
            paper=lambda: UnbiasedLDAScorer(),
            label="Unbiased LDA",
        ),
        Recipe(
            "deep-slda",
            "streaming linear discriminant analysis: one covariance, one sample after the other",
            paper=lambda: StreamingLDAScorer(),
            published=lambda: StreamingLDAScorer(from_zero=True),
            label="Deep SLDA",
        ),
        Recipe(
            "klda",
            "linear discriminant analysis of random Fourier features, one covariance",
            paper=lambda: KernelLDAScorer(),
            label="KLDA",
        ),
        Recipe(
            "loranpac",
            "least squares on random features, small singular values dropped in place of a ridge",
            paper=lambda: LoRanPACScorer(),
            label="LoRanPAC",
        ),
        Recipe(
            "joint-ridge",
            "ridge regression on all samples so far",
            paper=lambda: RefittedScorer(**RIDGE),
            label="Joint ridge",
        ),
        Recipe(
            "joint-ridge-balanced",
            "the same, every class counts alike",
            paper=lambda: RefittedScorer(**RIDGE, balanced=True),
            label="Joint ridge, balanced",
        ),
        Recipe(
            "joint-logistic",
            "logistic regression on all samples so far",
            paper=lambda: RefittedScorer(),
            label="Joint logistic",
        ),
        Recipe(
            "joint-logistic-balanced",
            "the same, every class counts alike",
            paper=lambda: RefittedScorer(balanced=True),
            label="Joint logistic, balanced",
        ),
        Recipe(
            "knn",
            "scikit-learn's, fitted again after every session",
            paper=lambda: RefittedScorer("knn"),
            label="k nearest neighbors",
        ),
        Recipe(
            "shrinkage-lda",
            "scikit-learn's, fitted again after every session",
            paper=lambda: RefittedScorer("lda"),
            label="Shrinkage LDA",
        ),
    )
}
PACKAGE_CLASSES: dict[str, type[Scorer]] = {
    kind.__name__: kind
    for kind in (
        NCMScorer,
        FeCAMScorer,
        RanPACScorer,
        UnbiasedLDAScorer,
        StreamingLDAScorer,
        KernelLDAScorer,
        LoRanPACScorer,
        RefittedScorer,
    )
}
_registered: dict[str, Recipe] = {}
_registered_classes: dict[str, type[Scorer]] = {}
_digests: dict[type[Scorer], str | None] = {}


class _Recipes(Mapping[str, Recipe]):
    """The recipes of the package, then the registered ones."""

    def __getitem__(self, name: str) -> Recipe:
        return _registered[name] if name in _registered else PACKAGE[name]

    def __iter__(self) -> Iterator[str]:
        yield from PACKAGE
        yield from _registered

    def __len__(self) -> int:
        return len(PACKAGE) + len(_registered)


RECIPES: Mapping[str, Recipe] = _Recipes()
"""The heads by name; a plugin adds to them with :func:`register_head`."""


def scorer_class(name: str) -> type[Scorer] | None:
    """Return the class that a file names; plugins are loaded if it is unknown."""
    known = {**PACKAGE_CLASSES, **_registered_classes}
    if name not in known:
        load_plugins()
        known.update(_registered_classes)
    return known.get(name)


def recipe_name(name: str, *, kind: str = "head") -> str:
    """Return the name if there is such a recipe; plugins are loaded if it is unknown.

    >>> recipe_name("ncm")
    'ncm'
    """
    if name not in RECIPES:
        load_plugins()
    if name not in RECIPES:
        raise unknown_or_unloaded(kind, name, RECIPES)
    return name


def make_scorer(name: str = DEFAULT_HEAD, flavor: Flavor = "paper", **parameters: Any) -> Scorer:
    """Return an unlearned scorer by the name of its recipe.

    Parameters
    ----------
    name : str
        One of ``RECIPES``; the default unless given.
    flavor : {"paper", "published"}
        ``"paper"`` follows the text, with the score that makes it work; ``"published"`` follows the published code
        where it differs.
    **parameters
        Parameters to change. Fields of a calibration, a prior or a sampling are named directly: ``alpha``,
        ``tau``, ``shrinkage``.

    Returns
    -------
    Scorer

    Raises
    ------
    InputError
        An unknown name, flavor or parameter.

    Examples
    --------
    >>> from fiveshot.core.scorers import make_scorer
    >>> make_scorer("c-fecam", gamma=10.0).gamma, make_scorer("c-fecam", alpha=0.75).calibration.alpha
    (10.0, 0.75)
    >>> make_scorer("ranpak")
    Traceback (most recent call last):
    fiveshot.errors.InputError: no head 'ranpak'; did you mean 'ranpac'? choose from c-fecam, c-fecam+, ...
    """
    name = recipe_name(name)
    if flavor not in get_args(Flavor):
        raise unknown_name("flavor", flavor, get_args(Flavor))
    scorer = RECIPES[name].make(flavor)
    refuse_unknown_parameters(name, scorer, parameters)
    return with_parameters(scorer, parameters)


def refuse_unknown_parameters(name: str, scorer: Scorer, given: Iterable[str]) -> None:
    """Raise an error for parameters that the scorer of a recipe does not have."""
    allowed = parameter_names(scorer)
    for one in given:
        if one not in allowed:
            raise InputError(
                f"head {name!r} has no parameter {one!r}",
                hint=f"it has {', '.join(allowed)}",
                code="unknown_name",
            )


def register_head(name: str, make: Make | Mapping[Flavor, Make], description: str = "") -> None:
    """Register a scorer under a name for :func:`~fiveshot.heads.make_head`, ``fiveshot bench``, models and files.

    Only the file that registered a name may register it again.

    Parameters
    ----------
    name : str
        Letters, digits, ``-``, ``_`` and ``+``.
    make : callable or mapping
        The class of the scorer, or a function that returns an unlearned scorer. A mapping has one for each flavor.
    description : str, optional
        A line for ``fiveshot bench --list``; the first line of the class's docstring unless given.

    Raises
    ------
    InputError
        If the name is taken or not allowed, or the scorer is incomplete.

    Examples
    --------
    >>> from fiveshot.core.scorers import NCMScorer, make_scorer
    >>> register_head("sharp-ncm", lambda: NCMScorer("cosine", temperature=0.01), "NCM that is surer of itself")
    >>> make_scorer("sharp-ncm").temperature
    0.01
    >>> unregister_head("sharp-ncm")
    >>> register_head("ncm", NCMScorer)
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
    if name in PACKAGE:
        raise InputError(f"the name {name!r} is taken by a head of fiveshot", hint="choose another")
    if name in _registered and not same_origin(_registered[name].paper, makers["paper"]):
        taken = _registered[name].paper.__module__
        raise InputError(f"the name {name!r} is taken by a head of {taken}", hint="choose another")
    for kind in {type(scorer) for scorer in made}:
        _refuse_namesake(kind)
        if not kind.__module__.startswith("fiveshot."):
            _registered_classes[kind.__name__] = kind
    line = description or (type(made[0]).__doc__ or type(made[0]).__name__).strip().splitlines()[0].rstrip(".")
    _registered[name] = Recipe(name, line, makers["paper"], makers["published"])


def unregister_head(name: str) -> None:
    """Remove the name of a registered head. Its class stays known, so its files can still be read.

    Parameters
    ----------
    name : str
        A registered name.

    Raises
    ------
    InputError
        If the name is not registered.

    Examples
    --------
    >>> from fiveshot.core.scorers import FeCAMScorer
    >>> register_head("wide-fecam", lambda: FeCAMScorer(1000.0))
    >>> unregister_head("wide-fecam")
    """
    if name not in _registered:
        raise InputError(f"{name!r} is not a registered head", hint="those of the package stay")
    del _registered[name]


def require_scorer(scorer: Any) -> Scorer:
    """Return the scorer if it is complete; otherwise raise an error that says what is missing.

    >>> require_scorer("ncm")
    Traceback (most recent call last):
    fiveshot.errors.InputError: str is not a scorer; make it a subclass of fiveshot.core.scorers.Scorer
    """
    kind = type(scorer).__name__
    if not isinstance(scorer, Scorer):
        raise InputError(f"{kind} is not a scorer", hint="make it a subclass of fiveshot.core.scorers.Scorer")
    if "__dataclass_fields__" not in vars(type(scorer)) and vars(type(scorer)).get("__annotations__"):
        raise InputError(f"the scorer {kind} is not a dataclass", hint="write @dataclass above its class")
    methods = ("derive", "score_classes")
    missing = [name for name in methods if getattr(type(scorer), name) is getattr(Scorer, name)]
    if missing:
        raise InputError(
            f"the scorer {kind} lacks {' and '.join(missing)}", hint="see fiveshot.core.scorers.Scorer"
        )
    scales_itself = type(scorer).softmax_factor is not Scorer.softmax_factor
    needed = ("device",) if scales_itself else ("temperature", "device")
    missing = [name for name in needed if name not in own_parameters(scorer)]
    if missing:
        raise InputError(
            f"the scorer {kind} lacks the parameters {' and '.join(missing)}", hint="add them to its fields"
        )
    try:
        read_parameters(json.loads(json.dumps(plain_parameters(own_parameters(scorer)), allow_nan=False)))
    except (TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"the parameters of {kind} cannot be written to a file ({error})",
            hint="use numbers, strings, tuples, Calibration, Prior or Sampling",
        ) from error
    return scorer


def source_digest(kind: type[Scorer]) -> str | None:
    """Return a digest of the source files of a class from outside this package; None for classes of this package.

    A changed file is another method, and its runs must not be confused with earlier ones. The file is read once,
    when the class is registered, because later changes are not in the running code.

    >>> from fiveshot.core.scorers import NCMScorer
    >>> source_digest(NCMScorer) is None
    True
    """
    if kind not in _digests:
        bases = [base for base in kind.__mro__ if issubclass(base, Scorer)]
        outside = [base for base in bases if not base.__module__.startswith("fiveshot.")]
        files = dict.fromkeys(file for base in outside if (file := defining_file(base)) is not None)
        parts = b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
        _digests[kind] = hashlib.sha256(parts).hexdigest() if files else None
    return _digests[kind]


def _checked(name: str, make: Make) -> Scorer:
    if not callable(make):
        raise InputError(
            f"head {name!r} needs a class or a function that returns an unlearned scorer, not {make!r}"
        )
    scorer = require_scorer(make())
    source_digest(type(scorer))
    return scorer


def _refuse_namesake(kind: type[Scorer]) -> None:
    known = PACKAGE_CLASSES.get(kind.__name__) or _registered_classes.get(kind.__name__)
    if known is not None and not same_origin(known, kind):
        raise InputError(
            f"a class called {kind.__name__!r} is known already, from {known.__module__}",
            hint="rename yours, because files of heads name their class",
        )
