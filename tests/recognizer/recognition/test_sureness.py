"""When an answer is sure: thresholds against a search spelled out, and the rates that models keep."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from models import photos

from fiveshot.core.scorers import make_scorer
from fiveshot.errors import InputError
from fiveshot.recognizer import Recognizer
from fiveshot.recognizer.advice.evaluation import evaluate_features
from fiveshot.recognizer.recognition.rejection import Rejection, fit_rejection
from fiveshot.recognizer.recognition.sureness import EXPECTED, sure_threshold, threshold_in
from fiveshot.values import Candidate

Chain = tuple[Candidate, ...]


def drawn(count: int, rng: np.random.Generator) -> tuple[list[Chain], list[str]]:
    """Return answers with a group each, whose probabilities are right on average."""
    own = rng.uniform(0.3, 1, size=count)
    group = own + (1 - own) * rng.uniform(size=count)
    place = rng.uniform(size=count)
    truth = np.where(place < own, "owl/barn owl", np.where(place < group, "owl/tawny owl", "wren"))
    chains = [
        (Candidate("owl", float(wide)), Candidate("owl/barn owl", float(p)))
        for wide, p in zip(group, own, strict=True)
    ]
    return chains, truth.tolist()


def answers(chains: list[Chain], truth: list[str], threshold: float) -> list[tuple[float, bool]]:
    """Return probability and rightness of all answers that reach a threshold, one photo after the other."""
    given = []
    for (group, own), name in zip(chains, truth, strict=True):
        if own.probability >= threshold:
            given.append((own.probability, name == own.label))
        elif group.probability >= threshold:
            given.append((group.probability, name.startswith("owl/")))
    return given


@pytest.mark.parametrize("rate", [0.02, 0.05, 0.2])
def test_the_threshold_is_the_lowest_that_keeps_the_rate(rate: float) -> None:
    chains, truth = drawn(60, np.random.default_rng(0))
    found = sure_threshold(chains, truth, rate)

    def keeps(threshold: float) -> bool:
        given = answers(chains, truth, threshold)
        wrong = sum(not right for _, right in given)
        expected = sum(1 - p for p, _ in given) / len(given)
        return (wrong + EXPECTED * expected) / (len(given) + EXPECTED) <= rate

    tried = sorted({level.probability for chain in chains for level in chain if level.probability < 1 - rate})
    assert found == next((threshold for threshold in tried if keeps(threshold)), 1 - rate)


def test_of_many_answers_few_are_wrong() -> None:
    threshold = sure_threshold(*drawn(3000, np.random.default_rng(1)), 0.1)
    given = answers(*drawn(3000, np.random.default_rng(2)), threshold)
    assert 0.08 < np.mean([not right for _, right in given]) < 0.12


def test_without_photos_each_answer_must_be_probable_enough() -> None:
    assert sure_threshold([], [], 0.1) == threshold_in((), 0.1) == 0.9


def test_look_alikes_are_unsure_and_others_are_named(make: Callable[..., Recognizer]) -> None:
    model = make(head="unbiased-lda")
    twin = photos("barn owl", 20)
    model.learn_features("barn owl", twin[:5])
    model.learn_features("tawny owl", twin[5:10])
    model.learn_features("wren", photos("wren"))
    *seen, named = model.predict_features(np.concatenate([twin[10:], photos("wren", 1, seed=2)]))
    unsure = [one for one in seen if one.answer == "unsure"]
    assert len(unsure) >= 5
    assert all(set(one.between) == {"barn owl", "tawny owl"} and one.label is None for one in unsure)
    assert (named.label, named.between) == ("wren", ())
    assert all(one.label for one in model.predict_features(twin[10:], sure=0.01))  # what is asked for goes before


def test_an_unsure_photo_is_not_called_unknown_when_it_is_measured(make: Callable[..., Recognizer]) -> None:
    model = make(head="unbiased-lda")
    twin = photos("barn owl", 20)
    model.learn_features("barn owl", twin[:5])
    model.learn_features("tawny owl", twin[5:10])
    model.learn_features("wren", photos("wren"))
    seen = model.predict_features(twin[10:])
    unsure = [one for one in seen if one.unsure]
    named = [one for one in seen if one.label is not None]
    found = evaluate_features(model.snapshot, twin[10:], ["barn owl"] * 10)
    assert (found.unsure, found.named.share) == (len(unsure) / 10, len(named) / 10)
    assert found.false_rejection == pytest.approx(1 - found.unsure - found.named.share)
    right = [one.label == "barn owl" for one in named]
    assert found.named.right == (np.mean(right) if right else None)
    said = [one for one in found.wrong if one.answer.startswith("unsure: ")]
    assert len(said) == len(unsure) > 0
    assert {one.answer for one in said} <= {"unsure: barn owl or tawny owl", "unsure: tawny owl or barn owl"}
    assert [one.between for one in found.wrong] == sorted((one.between for one in found.wrong), key=bool)


def test_the_rate_of_wrong_answers_is_changed_and_undone(make: Callable[..., Recognizer]) -> None:
    model = make(head="unbiased-lda")
    twin = photos("barn owl", 20)
    model.learn_features("barn owl", twin[:5])
    model.learn_features("tawny owl", twin[5:10])
    before = model.predict_features(twin[10:])
    head = model.snapshot.head
    model.set(wrong_answers=0.99)
    assert model.snapshot.head is head  # nothing is derived again
    assert model.show().wrong_answers == 0.99
    assert all(one.label for one in model.predict_features(twin[10:]))
    assert model.undo().action == "set"
    assert model.show().wrong_answers == 0.05
    assert model.predict_features(twin[10:]) == before
    with pytest.raises(InputError, match="wrong_answers=2"):
        model.set(wrong_answers=2)
    with pytest.raises(InputError, match="no setting was given"):
        model.set()
    model.set(wrong_answers=0.1, false_rejection=0.2)  # one change, which undo takes back as a whole
    assert (model.show().wrong_answers, model.show().false_rejection) == (0.1, 0.2)
    model.undo()
    assert (model.show().wrong_answers, model.show().false_rejection) == (0.05, 0.05)


def test_a_base_says_when_answers_are_sure() -> None:
    names = [f"class {number}" for number in range(30)]
    width = 4  # so few that classes are mixed up
    X = np.concatenate([photos(name, 40, width=width) / 3 for name in names])
    y = np.repeat(names, 40)
    head = make_scorer("unbiased-lda").learn(X, y)
    found = fit_rejection(head, X, y, seed=0)
    assert Rejection.from_dict(found.as_dict()) == found
    others = np.concatenate([photos(name, 40, width=width, seed=5) / 3 for name in names])
    answer = head.answer(others)
    best = answer.probabilities.max(axis=1)
    for rate in (0.05, 0.1):
        said = best >= threshold_in(found.sure, rate)
        wrong = (answer.labels != y)[said].mean()
        assert rate / 3 < wrong < rate < (answer.labels != y).mean()
