"""The values of the paper and of its published code, written out a second time."""

from __future__ import annotations

import pytest

from fiveshot.core import Calibration
from fiveshot.core.draws import Sampling
from fiveshot.core.scorers import (
    RECIPES,
    FeCAMScorer,
    KernelLDAScorer,
    LoRanPACScorer,
    NCMScorer,
    RanPACScorer,
    RefittedScorer,
    StreamingLDAScorer,
    UnbiasedLDAScorer,
    make_scorer,
    own_parameters,
)
from fiveshot.errors import InputError
from fiveshot.heads import make_head

FROM_A_TENTH = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8)
TEXT = {"alpha": 0.9, "beta": 1.0, "tau": 16.0, "similarity": "cosine", "prototypes": "raw"}
UNIT = TEXT | {"prototypes": "unit"}
RIDGE = TEXT | {"beta": 0.5}
RIDGE_DOT = RIDGE | {"similarity": "dot"}
PAPER_RANPAC = {"n_projections": 10_000, "scoring": "cosine", "mass": "samples", "lambdas": FROM_A_TENTH}
LOGISTIC = {"classifier": "logistic", "balanced": False, "strength": 1.0, "temperature": 1.0}
PUBLISHED_RANPAC = PAPER_RANPAC | {"lambdas": FROM_A_TENTH[2:]}

CORRELATION = {"gamma": 100, "normalization": "correlation", "normalize": True}
ROWS = CORRELATION | {"normalization": "rows"}

EXPECTED = {
    ("ncm", "paper"): (NCMScorer, {"metric": "euclidean"}, None, None),
    ("ncm", "published"): (NCMScorer, {"metric": "cosine"}, None, None),
    ("teen", "paper"): (NCMScorer, {"metric": "euclidean"}, TEXT, None),
    ("teen", "published"): (NCMScorer, {"metric": "cosine"}, UNIT, None),
    ("fecam", "paper"): (
        FeCAMScorer,
        CORRELATION,
        None,
        None,
    ),
    ("fecam", "published"): (FeCAMScorer, ROWS, None, None),
    ("c-fecam", "paper"): (
        FeCAMScorer,
        CORRELATION,
        TEXT,
        None,
    ),
    ("c-fecam", "published"): (
        FeCAMScorer,
        ROWS,
        UNIT,
        None,
    ),
    ("ranpac", "paper"): (RanPACScorer, PAPER_RANPAC, None, None),
    ("ranpac", "published"): (RanPACScorer, PUBLISHED_RANPAC, None, None),
    ("ranpac*", "paper"): (RanPACScorer, PAPER_RANPAC, None, 800),
    ("ranpac*", "published"): (RanPACScorer, PUBLISHED_RANPAC, None, 800),
    ("c-ranpac", "paper"): (RanPACScorer, PAPER_RANPAC, RIDGE, 800),
    ("c-ranpac", "published"): (RanPACScorer, PUBLISHED_RANPAC, RIDGE_DOT, 800),
    ("ncm+", "paper"): (NCMScorer, {"metric": "euclidean", "bias": 0.5}, None, None),
    ("ncm+", "published"): (NCMScorer, {"metric": "cosine", "bias": 0.5}, None, None),
    ("teen+", "paper"): (NCMScorer, {"metric": "euclidean", "bias": 0.5}, TEXT, None),
    ("teen+", "published"): (NCMScorer, {"metric": "cosine", "bias": 0.5}, UNIT, None),
    ("c-fecam+", "paper"): (FeCAMScorer, {"gamma": 100, "normalization": "correlation", "bias": 0.5}, TEXT, None),
    ("c-fecam+", "published"): (FeCAMScorer, {"gamma": 100, "normalization": "rows", "bias": 0.5}, UNIT, None),
    ("unbiased-lda", "paper"): (UnbiasedLDAScorer, {"n_random": 1000, "offset": "auto"}, None, None),
    ("deep-slda", "paper"): (StreamingLDAScorer, {"shrinkage": 1e-4, "from_zero": False}, None, None),
    ("deep-slda", "published"): (StreamingLDAScorer, {"shrinkage": 1e-4, "from_zero": True}, None, None),
    ("klda", "paper"): (KernelLDAScorer, {"n_projections": 5000}, None, None),
    ("loranpac", "paper"): (LoRanPACScorer, {"n_projections": 10_000, "truncation": 0.25}, None, None),
    ("joint-ridge", "paper"): (RefittedScorer, {"classifier": "ridge", "balanced": False}, None, None),
    ("joint-ridge-balanced", "paper"): (RefittedScorer, {"classifier": "ridge", "balanced": True}, None, None),
    ("joint-logistic", "paper"): (RefittedScorer, LOGISTIC, None, None),
    ("joint-logistic-balanced", "paper"): (RefittedScorer, LOGISTIC | {"balanced": True}, None, None),
    ("knn", "paper"): (RefittedScorer, {"classifier": "knn"}, None, None),
    ("shrinkage-lda", "paper"): (RefittedScorer, {"classifier": "lda", "balanced": False}, None, None),
}


@pytest.mark.parametrize(("name", "flavor"), EXPECTED)
def test_a_recipe_has_the_values_of_the_paper(name: str, flavor: str) -> None:
    kind, values, calibration, samples = EXPECTED[name, flavor]
    scorer = make_scorer(name, flavor)
    assert type(scorer) is kind
    parameters = own_parameters(scorer)
    assert own_parameters(make_head(name, flavor).unlearned_scorer()) == parameters
    assert {key: parameters[key] for key in values} == values
    assert parameters.get("calibration") == (Calibration(**calibration) if calibration else None)
    if kind is RanPACScorer:
        assert parameters["sampling"] == (Sampling(per_class=samples, classes="new") if samples else None)


def test_every_recipe_is_checked_and_described_in_one_line() -> None:
    ours = {name: recipe for name, recipe in RECIPES.items() if recipe.paper.__module__.startswith("fiveshot.")}
    flavors = {(name, "published") for name, recipe in ours.items() if recipe.published is not None}
    assert {(name, "paper") for name in ours} | flavors == set(EXPECTED)
    assert all(recipe.description and "\n" not in recipe.description for recipe in ours.values())


def test_the_paper_is_the_default_flavor() -> None:
    assert make_scorer("teen").calibration == make_scorer("teen", "paper").calibration


def test_single_values_can_be_replaced() -> None:
    head = make_scorer("c-ranpac", "published", n_projections=64, random_state=7)
    assert (head.n_projections, head.random_state, head.calibration.similarity) == (64, 7, "dot")
    assert make_scorer("c-ranpac").n_projections == 10_000, "the recipe itself is not changed"


@pytest.mark.parametrize(
    ("arguments", "parameters", "message"),
    [
        (
            ("ranpak",),
            {},
            r"no head 'ranpak'; did you mean 'ranpac'\? choose from c-fecam, c-fecam\+, c-ranpac, deep-slda,",
        ),
        (("C-RanPAC",), {}, r"no head 'C-RanPAC'; did you mean 'c-ranpac'\?"),
        (("zzz",), {}, r"no head 'zzz'; choose from c-fecam"),
        (
            ("ncm", "publishd"),
            {},
            r"no flavor 'publishd'; did you mean 'published'\? choose from paper, published",
        ),
        (
            ("ncm",),
            {"gama": 1},
            r"head 'ncm' has no parameter 'gama'; it has bias, calibration, device, metric, temp",
        ),
    ],
)
def test_a_wrong_name_gets_the_nearest_right_one(
    arguments: tuple[str, ...], parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_scorer(*arguments, **parameters)
    with pytest.raises(InputError, match=message):
        make_head(*arguments, **parameters)
