from __future__ import annotations

import numpy as np
import pytest
from cases import BASE, FIRST, SECOND, Case, draw, flat, learned, queries

from fiveshot.core.scorers import ScoreTable, ranpac, scorer
from fiveshot.errors import InputError
from fiveshot.heads import FewShotHead


def agree(table: ScoreTable, head: FewShotHead, X: np.ndarray) -> None:
    np.testing.assert_allclose(table.scores(head.scorer_), head.class_scores(X), rtol=1e-9, atol=1e-9)
    assert table.classify(head.scorer_).tolist() == head.predict(X).tolist()


def test_the_table_is_the_heads_scores_after_every_session(case: Case) -> None:
    X = queries()
    head = learned(case, draw(BASE))
    table = ScoreTable(X)
    agree(table, head, X)
    changes = [
        lambda: head.partial_fit(*flat(draw(FIRST))),
        lambda: head.partial_fit(*flat(draw(SECOND))),
        lambda: head.partial_fit(*flat(draw({25: 2, 60: 1}, seed=1))),  # more of known new classes
        lambda: head.partial_fit(*flat(draw({30: 3, 70: 2}, seed=1))),  # more of a base class, and a new one
    ]
    for change in changes:
        change()
        agree(table, head, X)
    head.fit(*flat(draw({10: 8, 5: 8}, seed=2)))  # another head altogether
    agree(table, head, X)


def test_forgotten_classes_leave_the_table() -> None:
    X = queries()
    for gone in (25, 30):
        head = learned(Case("c-fecam", "paper"), draw(BASE), draw(FIRST))
        table = ScoreTable(X)
        agree(table, head, X)
        head.forget(gone)
        agree(table, head, X)
        assert table.scores(head.scorer_).shape == (len(X), len(BASE) + len(FIRST) - 1)


@pytest.mark.parametrize("recipe", ["ncm", "teen", "fecam", "c-fecam"])
@pytest.mark.parametrize("flavor", ["paper", "published"])
def test_old_classes_are_not_computed_again(recipe: str, flavor: str) -> None:
    head = learned(Case(recipe, flavor), draw(BASE))
    table = ScoreTable(queries())
    counts = []
    for session in (None, FIRST, SECOND, {60: 3}):  # the last brings more samples of a known new class
        if session:
            head.partial_fit(*flat(draw(session, seed=4)))
        table.scores(head.scorer_)
        table.classify(head.scorer_)
        counts.append(table.computed)
    assert counts == [5, 7, 8, 9]


def test_ridge_heads_are_computed_again_only_after_a_session() -> None:
    head = learned(Case("ranpac", "paper", 52), draw(BASE))
    table = ScoreTable(queries())
    table.scores(head.scorer_)
    table.scores(head.scorer_)
    assert table.computed == 5
    head.partial_fit(*flat(draw(SECOND)))
    table.scores(head.scorer_)
    assert table.computed == 5 + 6


@pytest.mark.parametrize("kept", [0, 1 << 26])  # random features of the samples, or none of them
def test_more_samples_than_are_scored_at_once(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(ranpac, "SCORED_AT_ONCE", 3)
    monkeypatch.setattr(ranpac, "KEPT_AT_MOST", kept)
    X = queries(23)
    for case in (Case("ncm", "paper"), Case("c-fecam", "published"), Case("ranpac", "paper", 52)):
        model = learned(case, draw(BASE))
        whole = np.concatenate([model.class_scores(X[i : i + 1]) for i in range(len(X))])
        np.testing.assert_allclose(model.class_scores(X), whole, rtol=1e-9, atol=1e-9)
        agree(ScoreTable(X), model, X)


def test_a_table_takes_tensors() -> None:
    torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    model, X = learned(Case("ncm", "paper"), draw(BASE)), queries()
    agree(ScoreTable(torch.from_numpy(X)), model, X)


def test_a_table_takes_what_a_head_takes() -> None:
    model = learned(Case("ncm", "paper"), draw(BASE))
    X = queries()
    agree(ScoreTable(X.tolist()), model, X)
    with pytest.raises(InputError, match="X has 3 features, but the scorer is expecting 16"):
        ScoreTable(np.ones((2, 3))).scores(model.scorer_)
    with pytest.raises(InputError, match="NaN"):
        ScoreTable(np.full((1, 16), np.nan))


def test_a_table_does_not_follow_changes_of_the_callers_array() -> None:
    model, X = learned(Case("ncm", "paper"), draw(BASE)), queries()
    kept, table = X.copy(), ScoreTable(X)
    table.scores(model.scorer_)
    X[:] = 0
    model.partial_fit(*flat(draw(FIRST)))
    agree(table, model, kept)
