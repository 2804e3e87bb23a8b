"""What every head keeps, whatever it computes. Forgetting and files are in the two modules beside this one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import BASE, FIRST, SECOND, Case, draw, flat, halves, learned, queries, shuffled
from sklearn.base import clone

from fiveshot.heads import Sampling


def test_inputs_are_not_changed(case: Case) -> None:
    sessions = [flat(draw(part, dtype=np.float32)) for part in (BASE, FIRST, SECOND)]
    X = queries(dtype=np.float32)
    tensors = [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in sessions]  # share their memory
    before = [array.copy() for pair in (*sessions, (X,)) for array in pair]
    head = case.make()
    for features, labels in tensors:
        head.partial_fit(features, labels)
    head.predict(torch.from_numpy(X))
    head.predict_proba(X)
    after = [array for pair in (*sessions, (X,)) for array in pair]
    assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))


def test_the_order_of_classes_does_not_matter(case: Case) -> None:
    """Classes come in another order, or interleaved; the samples of a class keep theirs."""
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    expected = learned(case, base, new).class_scores(X)
    backwards = learned(case, dict(reversed(base.items())), dict(reversed(new.items())))
    case.close(backwards.class_scores(X), expected)
    features, labels = flat(base)
    turns = np.concatenate([np.arange(n) for n in BASE.values()])
    order = np.argsort(turns, kind="stable")
    interleaved = case.make().fit(features[order], labels[order]).partial_fit(*flat(new))
    case.close(interleaved.class_scores(X), expected)


def test_the_order_of_samples_does_not_matter(case: Case) -> None:
    base, new, X = draw(BASE), draw(FIRST | SECOND), queries()
    one, other = case.make_with_one_lambda(), case.make_with_one_lambda()
    one.fit(*flat(base)).partial_fit(*flat(new))
    other.fit(*shuffled(base)).partial_fit(*shuffled(new))
    np.testing.assert_allclose(other.class_scores(X), one.class_scores(X), rtol=1e-7, atol=1e-8)


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


def test_a_class_seen_once_works(case: Case) -> None:
    single = draw({60: 1})
    head = learned(case, draw(BASE), single)
    scores = head.class_scores(np.concatenate([queries(), single[60]]))
    assert np.isfinite(scores).all()
    assert head.predict(single[60]).tolist() == [60]


def test_a_base_class_seen_once_works(case: Case) -> None:
    base = draw(BASE | {10: 1})
    head = learned(case, base, draw(FIRST))
    assert np.isfinite(head.class_scores(queries())).all()
    assert head.predict(base[10]).tolist() == [10]


def test_a_base_session_of_single_samples_works(case: Case) -> None:
    head = learned(case, draw(dict.fromkeys(BASE, 1)), draw(FIRST))
    assert np.isfinite(head.class_scores(queries())).all()
    assert head.classes_.tolist() == sorted(BASE | FIRST)


def test_one_class_alone_is_always_predicted(case: Case) -> None:
    head = learned(case, draw({10: 5}))
    assert set(head.predict(queries()).tolist()) == {10}
    np.testing.assert_allclose(head.predict_proba(queries()), 1)


def test_sessions_equal_one_call(case: Case) -> None:
    base, first, second, X = draw(BASE), draw(FIRST), draw(SECOND), queries()
    expected = learned(case, base, first | second).class_scores(X)
    case.close(learned(case, base, first, second).class_scores(X), expected)
    case.close(learned(case, base, second, first).class_scores(X), expected)
    one_by_one = [{label: rows} for label, rows in (first | second).items()]
    case.close(learned(case, base, *one_by_one).class_scores(X), expected)


def test_fit_is_the_first_partial_fit_and_starts_anew(case: Case) -> None:
    base, X = draw(BASE), queries()
    expected = learned(case, base).class_scores(X)
    again = learned(case, draw({7: 9, 8: 9}), draw(FIRST)).fit(*flat(base))
    np.testing.assert_array_equal(again.class_scores(X), expected)
    assert again.base_classes_.tolist() == sorted(BASE)


def test_more_samples_of_a_new_class_equal_all_at_once(case: Case) -> None:
    base, new, X = draw(BASE), draw({25: 5, 5: 2, 60: 20}), queries()
    early, late = halves(new)
    at_once = learned(case, base, new)
    in_parts = learned(case, base, early, late)
    np.testing.assert_allclose(in_parts.class_scores(X), at_once.class_scores(X), rtol=1e-7, atol=1e-8)
    assert in_parts.statistics_.counts.tolist() == at_once.statistics_.counts.tolist()


def test_more_samples_of_a_base_class_equal_all_at_once(case: Case) -> None:
    """λ is chosen on the first session alone, so it is given here."""
    base, new, X = draw(BASE), draw(FIRST), queries()
    early, late = halves(base)
    at_once, in_parts = case.make_with_one_lambda(), case.make_with_one_lambda()
    at_once.fit(*flat(base)).partial_fit(*flat(new))
    in_parts.fit(*flat(early)).partial_fit(*flat(new)).partial_fit(*flat(late))
    np.testing.assert_allclose(in_parts.class_scores(X), at_once.class_scores(X), rtol=1e-7, atol=1e-8)
    assert in_parts.base_classes_.tolist() == sorted(BASE)


def test_new_sessions_leave_the_statistics_of_old_classes_alone(case: Case) -> None:
    head = learned(case, draw(BASE))
    before = {label: head.statistics_[label] for label in BASE}
    copies = {label: (s.mean.copy(), s.factor.copy()) for label, s in before.items()}
    head.partial_fit(*flat(draw(FIRST))).partial_fit(*flat(draw(SECOND)))
    for label, (mean, factor) in copies.items():
        assert head.statistics_[label] is before[label]
        assert np.array_equal(before[label].mean, mean)
        assert np.array_equal(before[label].factor, factor)


def test_all_answers_come_from_one_score(case: Case) -> None:
    X = queries()
    for head in (learned(case, draw(BASE), draw(FIRST)), learned(case, draw({10: 5, 20: 5}))):
        scores, decision = head.class_scores(X), head.decision_function(X)
        probabilities = head.predict_proba(X)
        assert scores.shape == probabilities.shape == (len(X), len(head.classes_))
        assert head.predict(X).tolist() == head.classes_[scores.argmax(axis=1)].tolist()
        if len(head.classes_) == 2:
            np.testing.assert_array_equal(decision, scores[:, 1] - scores[:, 0])
        else:
            np.testing.assert_array_equal(decision, scores)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
        powers = np.exp((scores - scores.max(axis=1, keepdims=True)) * head.softmax_factor())
        np.testing.assert_allclose(
            probabilities, powers / powers.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-12
        )


def test_every_kind_of_input_gives_the_same_answer(case: Case) -> None:
    """Half precision cannot hold the features, so all start from values that it can."""
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


def test_a_clone_is_unfitted_and_learns_the_same(case: Case) -> None:
    head = learned(case, draw(BASE))
    twin = clone(head)
    assert not hasattr(twin, "classes_")
    assert repr(twin) == repr(head)
    np.testing.assert_array_equal(
        twin.fit(*flat(draw(BASE))).class_scores(queries()), head.class_scores(queries())
    )
