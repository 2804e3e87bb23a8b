"""Heads by the names of their recipes."""

from __future__ import annotations

from typing import Any

from fiveshot.core.scorers import (
    DEFAULT_HEAD,
    Flavor,
    Scorer,
    make_scorer,
    own_parameters,
    refuse_unknown_parameters,
    with_parameters,
)
from fiveshot.heads.fecam import FeCAM
from fiveshot.heads.head import FewShotHead, ScorerHead
from fiveshot.heads.ncm import NCM
from fiveshot.heads.ranpac import RanPAC
from fiveshot.heads.tuned import TunedHead, is_auto, values_to_try
from fiveshot.heads.unbiased_lda import UnbiasedLDA

ESTIMATORS: dict[type[Scorer], type[FewShotHead]] = {
    kind.scorer_class: kind for kind in (NCM, FeCAM, RanPAC, UnbiasedLDA)
}


def make_head(name: str = DEFAULT_HEAD, flavor: Flavor = "paper", **parameters: Any) -> FewShotHead:
    """Return an unfitted head by the name of its recipe.

    Parameters
    ----------
    name : str
        One of ``fiveshot.core.scorers.RECIPES``; by default the default head.
    flavor : {"paper", "published"}
        ``"paper"`` follows the text of the paper, with the score that makes it work. ``"published"`` follows the
        published code where the two differ.
    **parameters
        Values that replace those of the recipe. Fields of a calibration, a prior or a sampling are named directly:
        ``alpha``, ``tau``, ``shrinkage``. With the value ``"auto"``, a parameter is chosen by episodes inside the
        base classes (:class:`~fiveshot.heads.TunedHead`).

    Returns
    -------
    FewShotHead
        An estimator of this package; for a scorer without its own estimator, a
        :class:`~fiveshot.heads.ScorerHead`.

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
    start = make_scorer(name, flavor)
    refuse_unknown_parameters(name, start, parameters)
    auto = tuple(key for key, value in parameters.items() if is_auto(start, key, value))
    if not auto:
        return head_of(with_parameters(start, parameters))
    shared = {key: parameters[key] for key in ("device", "random_state") if key in parameters}
    fixed = {key: value for key, value in parameters.items() if key not in (*auto, *shared)}
    scorer = with_parameters(start, fixed)
    for given in auto:
        values_to_try(scorer, given)  # raises for parameters that cannot be chosen
    return TunedHead(head_of(scorer), auto, **shared)


def head_of(scorer: Scorer) -> FewShotHead:
    """Return an unfitted estimator with the parameters of a scorer.

    >>> from fiveshot.core.scorers import NCMScorer, StreamingLDAScorer
    >>> type(head_of(NCMScorer())).__name__, type(head_of(StreamingLDAScorer())).__name__
    ('NCM', 'ScorerHead')
    """
    kind = ESTIMATORS.get(type(scorer))
    return kind(**own_parameters(scorer)) if kind is not None else ScorerHead(with_parameters(scorer, {}))
