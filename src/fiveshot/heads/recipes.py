"""The paper's methods by name, with the paper's values.

``paper`` follows the text, with the score that makes it work: cosine for the ridge heads, because with 800
samples per new class against some thirty features per base class the text's linear score loses the old
classes. ``published`` does what the published code does where that differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from fiveshot.core import Calibration
from fiveshot.core.draws import Sampling
from fiveshot.errors import InputError, unknown_name
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.head import FewShotHead
from fiveshot.heads.ncm import NCM
from fiveshot.heads.parameters import parameter_names, with_parameters
from fiveshot.heads.ranpac import RanPAC
from fiveshot.heads.tuned_head import TunedHead
from fiveshot.heads.tuning_candidates import is_auto, values_to_try
from fiveshot.heads.unbiased_lda import UnbiasedLDA
from fiveshot.plugins import load_plugins, unknown_or_unloaded

Flavour = Literal["paper", "published"]

TEXT = Calibration(alpha=0.9, beta=1.0)
UNIT = Calibration(alpha=0.9, beta=1.0, prototypes="unit")
RIDGE_TEXT = Calibration(alpha=0.9, beta=0.5)
RIDGE_DOT = Calibration(alpha=0.9, beta=0.5, similarity="dot")
# Half of the expected inflation: all of it raises A_HM further and costs accuracy (docs/default-head.md).
HALF = 0.5
FROM_TEN = tuple(10.0**k for k in range(1, 9))  # the published code's candidates for λ

RECIPES: dict[str, dict[Flavour, Callable[[], FewShotHead]]] = {
    "ncm": {
        "paper": lambda: NCM("euclidean"),
        "published": lambda: NCM("cosine"),
    },
    "teen": {
        "paper": lambda: NCM("euclidean", calibration=TEXT),
        "published": lambda: NCM("cosine", calibration=UNIT),
    },
    "fecam": {
        "paper": lambda: FeCAM(),
        "published": lambda: FeCAM(normalization="rows"),
    },
    "c-fecam": {
        "paper": lambda: FeCAM(calibration=TEXT),
        "published": lambda: FeCAM(normalization="rows", calibration=UNIT),
    },
    "ranpac": {
        "paper": lambda: RanPAC(),
        "published": lambda: RanPAC(lambdas=FROM_TEN),
    },
    "ranpac*": {
        "paper": lambda: RanPAC(sampling=Sampling()),
        "published": lambda: RanPAC(sampling=Sampling(), lambdas=FROM_TEN),
    },
    "c-ranpac": {
        "paper": lambda: RanPAC(sampling=Sampling(), calibration=RIDGE_TEXT),
        "published": lambda: RanPAC(sampling=Sampling(), calibration=RIDGE_DOT, lambdas=FROM_TEN),
    },
    "ncm+": {
        "paper": lambda: NCM("euclidean", bias=HALF),
        "published": lambda: NCM("cosine", bias=HALF),
    },
    "teen+": {
        "paper": lambda: NCM("euclidean", calibration=TEXT, bias=HALF),
        "published": lambda: NCM("cosine", calibration=UNIT, bias=HALF),
    },
    "c-fecam+": {
        "paper": lambda: FeCAM(calibration=TEXT, bias=HALF),
        "published": lambda: FeCAM(normalization="rows", calibration=UNIT, bias=HALF),
    },
    "ulda": {  # ours: the paper has no such head, so both flavours are the same
        "paper": lambda: UnbiasedLDA(),
        "published": lambda: UnbiasedLDA(),
    },
}
"""For each name of a head and each flavour, a function that returns the head unfitted. ``make_head`` calls it."""

DEFAULT_HEAD = "ulda"

DESCRIPTIONS = {
    "ncm": "nearest class mean",
    "teen": "nearest class mean, new means calibrated by similar base classes",
    "fecam": "Mahalanobis distance, one covariance per class",
    "c-fecam": "FeCAM, means and covariances of new classes calibrated",
    "ranpac": "ridge regression on random features",
    "ranpac*": "RanPAC on Gaussian samples of the new classes, not calibrated",
    "c-ranpac": "RanPAC on Gaussian samples of the calibrated new classes",
    "ncm+": "nearest class mean, half of the penalty for few samples removed",
    "teen+": "TEEN, half of the penalty for few samples removed",
    "c-fecam+": "C-FeCAM, half of the penalty for few samples removed",
    "ulda": "one covariance for all classes, posterior means, no penalty for few samples",
}
"""What each head of ``RECIPES`` is, in one line."""


def recipe_name(name: str, *, kind: str = "head") -> str:
    """Return the name under which a recipe is kept; plugins are loaded where it is none of those known so far.

    >>> recipe_name("default")
    'ulda'
    """
    name = DEFAULT_HEAD if name == "default" else name
    if name not in RECIPES:
        load_plugins()
    if name not in RECIPES:
        raise unknown_or_unloaded(kind, name, RECIPES)
    return name


def make_head(name: str, flavour: Flavour = "paper", **parameters: Any) -> FewShotHead:
    """Return an unfitted head by the name of its recipe; ``parameters`` replace single values.

    Fields of a calibration, a prior or a sampling are named directly: ``alpha``, ``tau``, ``shrinkage``. The value
    ``"auto"`` has a parameter chosen by episodes inside the base classes
    (:class:`~fiveshot.heads.TunedHead`).

    >>> from fiveshot.heads import make_head
    >>> make_head("c-fecam", gamma=10.0).gamma, make_head("c-fecam", alpha=0.75).calibration.alpha
    (10.0, 0.75)
    >>> make_head("c-fecam", alpha="auto", bias="auto").auto
    ('alpha', 'bias')
    >>> make_head("ranpak")
    Traceback (most recent call last):
    fiveshot.errors.InputError: no head 'ranpak'; did you mean 'ranpac'? choose from c-fecam, c-fecam+, ...
    """
    name = recipe_name(name)
    if flavour not in RECIPES[name]:
        raise unknown_name("flavour", flavour, get_args(Flavour))
    head = RECIPES[name][flavour]()
    allowed = parameter_names(head)
    for given in parameters:
        if given not in allowed:
            raise InputError(f"head {name!r} has no parameter {given!r}; it has {', '.join(allowed)}")
    auto = tuple(key for key, value in parameters.items() if is_auto(head, key, value))
    if not auto:
        return with_parameters(head, parameters)
    shared = {key: parameters[key] for key in ("device", "random_state") if key in parameters}
    fixed = {key: value for key, value in parameters.items() if key not in (*auto, *shared)}
    configured = with_parameters(head, fixed)
    for given in auto:
        values_to_try(configured, given)  # refuses what cannot be chosen
    return TunedHead(configured, auto, **shared)
