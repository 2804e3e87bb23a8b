"""Parameters out of range: refused when learning, as scikit-learn wants it, and the head stays as it was."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import BASE, FIRST, draw, flat, queries

from fiveshot.errors import InputError
from fiveshot.heads import NCM, FeCAM, FewShotHead, RanPAC, Sampling

BAD_PARAMETERS = [
    (NCM, {"metric": "cosin"}, r"no metric 'cosin'; did you mean 'cosine'\? choose from cosine, euclidean"),
    (FeCAM, {"gamma": -1.0}, "gamma must be finite and not negative, got -1.0; the paper's is 100"),
    (FeCAM, {"gamma": math.nan}, "gamma .*nan"),
    (FeCAM, {"gamma": math.nan, "normalization": "rows"}, "gamma .*nan"),
    (FeCAM, {"gamma": math.inf}, "gamma .*inf"),
    (FeCAM, {"normalization": "row"}, r"no normalization 'row'; did you mean 'rows'\?"),
    (
        RanPAC,
        {"n_projections": 0},
        "n_projections must be a whole number of at least 1, got 0; the paper uses",
    ),
    (RanPAC, {"scoring": "cosinus"}, r"no scoring 'cosinus'; did you mean 'cosine'\? choose from cosine, linear"),
    (RanPAC, {"mass": "balance"}, r"no mass 'balance'; did you mean 'balanced'\? choose from balanced, samples"),
    (
        RanPAC,
        {"lambdas": ()},
        r"lambdas must only hold numbers that are positive and finite, got \(\); for",
    ),
    (
        RanPAC,
        {"lambdas": (1.0, -1.0)},
        r"lambdas .*\(1.0, -1.0\)",
    ),
    (RanPAC, {"lambdas": (1.0, math.nan)}, "lambdas .*nan"),
    (RanPAC, {"random_state": None}, "random_state .*None"),
    *((kind, {"temperature": 0.0}, "temperature must be positive and finite") for kind in (NCM, FeCAM, RanPAC)),
    *((kind, {"temperature": math.nan}, "temperature .*nan") for kind in (NCM, FeCAM, RanPAC)),
]


@pytest.mark.parametrize(("kind", "parameters", "message"), BAD_PARAMETERS)
def test_bad_parameters(kind: type[FewShotHead], parameters: dict[str, object], message: str) -> None:
    small = {"n_projections": 30} if kind is RanPAC else {}
    with pytest.raises(InputError, match=message):
        kind(**small | parameters).fit(*flat(draw(BASE)))
    head = kind(**small).fit(*flat(draw(BASE)))
    scorer, scores = head.scorer_, head.class_scores(queries())
    head.set_params(**parameters)
    with pytest.raises(InputError, match=message):
        head.fit(*flat(draw(FIRST)))
    assert head.scorer_ is scorer
    head.set_params(**kind(**small).get_params(deep=False))
    np.testing.assert_array_equal(head.class_scores(queries()), scores)


@pytest.mark.parametrize("width", [30, 400])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Sampling(20), None),
        (None, Sampling(20)),
        (Sampling(20), Sampling(20, "all")),
        (Sampling(20, "all"), Sampling(20)),
        (Sampling(20, "all"), None),
    ],
)
def test_a_parameter_changed_between_sessions_is_refused_or_works(
    width: int, before: Sampling | None, after: Sampling | None
) -> None:
    head = RanPAC(width, sampling=before).fit(*flat(draw(BASE))).partial_fit(*flat(draw(FIRST)))
    scores = head.class_scores(queries())
    try:
        head.set_params(sampling=after).partial_fit(*flat(draw({60: 4})))
    except InputError:
        np.testing.assert_array_equal(head.set_params(sampling=before).class_scores(queries()), scores)
    else:
        assert head.class_scores(queries()).shape == (len(queries()), len(BASE) + len(FIRST) + 1)
        assert head.predict(draw({60: 4})[60]).tolist() == [60] * 4
