"""The contract of all heads, over every recipe and both libraries, and what only some heads promise."""

from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, CASES, FIRST, SECOND, Case, draw, flat, halves, queries

from fiveshot.heads import Sampling, check_head
from fiveshot.heads._testing import PROMISES

# The published c-heads are made of parts that other heads have: in torch these are asked, and below all of them.
KEPT = [(case, "numpy") for case in CASES]
KEPT += [(case, "torch") for case in CASES if case.flavor == "paper" or not case.recipe.startswith("c-")]


@pytest.mark.parametrize(("case", "library"), KEPT, ids=str)
def test_every_recipe_keeps_the_contract(case: Case, library: str) -> None:
    """With one λ the ridge heads keep all; those that draw samples do so by the label of a class."""
    pytest.importorskip(library)
    kept = check_head(case.make_with_one_lambda, without=case.broken, library=library)
    assert set(kept) == set(PROMISES) - set(case.broken)


@pytest.mark.parametrize("names", ["strings", "renumbered"])
def test_the_values_of_labels_do_not_matter(case: Case, names: str) -> None:
    """Samples are drawn with a seed of the label, so sampled heads agree up to the error of many samples."""
    many = {"sampling": Sampling(per_class=4000)} if case.sampled else {}
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    name = {label: f"class {-label}" if names == "strings" else 1000 - label for label in base | new}
    one, other = case.make_with_one_lambda(**many), case.make_with_one_lambda(**many)
    one.fit(*flat(base)).partial_fit(*flat(new))
    for part in (base, new):
        X_part, y_part = flat(part)
        other.partial_fit(X_part, np.array([name[label] for label in y_part.tolist()]))
    columns = [other.classes_.tolist().index(name[label]) for label in one.classes_.tolist()]
    expected, found = one.class_scores(X), other.class_scores(X)[:, columns]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=0.08 if case.sampled else 1e-8)
    if not case.sampled:
        assert other.predict(X).tolist() == [name[label] for label in one.predict(X).tolist()]


def test_more_samples_of_a_base_class_equal_all_at_once(case: Case) -> None:
    """λ is chosen only on the first session, so it is given here."""
    if {"more samples", "forgetting base"} & set(case.broken):
        pytest.skip("not promised")
    base, new, X = draw(BASE), draw(FIRST), queries()
    early, late = halves(base)
    at_once, in_parts = case.make_with_one_lambda(), case.make_with_one_lambda()
    at_once.fit(*flat(base)).partial_fit(*flat(new))
    in_parts.fit(*flat(early)).partial_fit(*flat(new)).partial_fit(*flat(late))
    np.testing.assert_allclose(in_parts.class_scores(X), at_once.class_scores(X), rtol=1e-7, atol=1e-8)
    assert in_parts.base_classes_.tolist() == sorted(BASE)


def test_every_kind_of_input_gives_the_same_answer(case: Case) -> None:
    """Half precision cannot hold the features, so all start from values that it can."""
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    sessions = [{k: v.astype(np.float16) for k, v in draw(part).items()} for part in (BASE, FIRST)]
    X = queries().astype(np.float16)
    exact = [(x.astype(np.float32), y) for x, y in map(flat, sessions)]
    forms = {
        "numpy 32": (lambda x: x, 0.0),
        "torch 32": (torch.from_numpy, 1e-3),
        "numpy 16": (lambda x: x.astype(np.float16), 0.0),
        "torch 16": (lambda x: torch.from_numpy(x).half(), 1e-3),
        "list": (lambda x: x.tolist(), 1e-3),
        "numpy 64": (lambda x: x.astype(np.float64), 1e-3),
        "torch 64": (lambda x: torch.from_numpy(x).double(), 1e-3),
    }
    scores = {}
    for name, (form, _) in forms.items():
        head = case.make_with_one_lambda()
        for x, y in exact:
            head.partial_fit(form(x), torch.from_numpy(y) if "torch" in name else y)
        scores[name] = head.class_scores(form(X.astype(np.float32)))
    expected = scores["numpy 32"]
    for name, (_, tolerance) in forms.items():
        np.testing.assert_allclose(scores[name], expected, rtol=tolerance, atol=tolerance, err_msg=name)
