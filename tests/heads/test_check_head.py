"""The check for authors of heads: its error names the broken promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fiveshot.core.scorers import NCMScorer, Scorer
from fiveshot.errors import InputError
from fiveshot.heads import NCM, RanPAC, Sampling, ScorerHead, UnbiasedLDA, check_head
from fiveshot.heads._testing import PROMISES


class Plain(NCMScorer):
    """Says what NCM says; the scorers below each say one thing wrong."""

    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        return super().derive(memory, X, y, previous)


class Halves(NCM):
    def __init__(self, metric: str = "cosine", *, temperature: float = 1.0, device: Any = None) -> None:
        super().__init__(metric, temperature=temperature / 2, device=device)

    def unlearned_scorer(self) -> Scorer:
        return NCMScorer(self.metric, temperature=self.temperature, device=self.device)


class Divides(Plain):
    def score_classes(self, X: Any, labels: Any) -> Any:
        counts = np.array([self.memory.statistics[label].count for label in labels])
        with np.errstate(divide="ignore"):
            return super().score_classes(X, labels) / (counts - 1)


class Standardizes(Plain):
    def score_classes(self, X: Any, labels: Any) -> Any:
        return super().score_classes(X - X.mean(axis=0), labels)


class TooMany(Plain):
    def score_classes(self, X: Any, labels: Any) -> Any:
        return super().score_classes(X, labels)[:, :1]


class Overwrites(Plain):
    def score_classes(self, X: Any, labels: Any) -> Any:
        X -= 1
        return super().score_classes(X, labels)


class RemembersTheFirst(Plain):
    """Adds a little for the class that its samples begin with."""

    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        self.first_ = getattr(self, "first_", y[0] if len(y) else None)
        return super().derive(memory, X, y, previous)

    def score_classes(self, X: Any, labels: Any) -> Any:
        bonus = np.array([0.1 * (label == self.first_) for label in labels])
        return super().score_classes(X, labels) + bonus


class RemembersASample(Plain):
    """Looks at the very first sample."""

    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        self.sample_ = self.sample_ if hasattr(self, "sample_") else X[0, 0]
        return super().derive(memory, X, y, previous)

    def score_classes(self, X: Any, labels: Any) -> Any:
        return super().score_classes(X, labels) * self.sample_


class PrefersNames(Plain):
    def score_classes(self, X: Any, labels: Any) -> Any:
        return super().score_classes(X, labels) + np.array([len(str(label)) / 10 for label in labels])


class CountsSessions(Plain):
    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        self.sessions_ = getattr(self, "sessions_", 0) + 1
        return super().derive(memory, X, y, previous)

    def score_classes(self, X: Any, labels: Any) -> Any:
        return super().score_classes(X, labels) / self.sessions_


class KeepsEarlyMeans(Plain):
    """Never looks at a class again."""

    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        derived = super().derive(memory, X, y, None)
        if previous is not None:
            derived.models.update({k: v for k, v in previous.models.items() if k in derived.models})
        return derived


class RemembersTheForgotten(Plain):
    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        self.most_ = max(getattr(self, "most_", 0), len(memory.labels))
        return super().derive(memory, X, y, previous)

    def score_classes(self, X: Any, labels: Any) -> Any:
        return super().score_classes(X, labels) / self.most_


class LosesStateInFiles(Plain):
    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        if len(X):
            self.largest_ = max(getattr(self, "largest_", 0.0), float(X.max()))
        return super().derive(memory, X, y, previous)

    def score_classes(self, X: Any, labels: Any) -> Any:
        return super().score_classes(X, labels) + getattr(self, "largest_", 0.0)


class ChangesThePreviousModel(Plain):
    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        derived = super().derive(memory, X, y, previous)
        if previous is not None:
            for model in previous.models.values():
                model.mean[:] = -model.mean
            return super().derive(memory, X, y, None)
        return derived


class Sure(Plain):
    """Is never in doubt."""

    def probabilities(self, X: Any) -> Any:
        return np.round(super().probabilities(X))


class StartsFromBefore(NCM):
    """An estimator whose fit goes on from what it knows."""

    def fit(self, X: Any, y: Any) -> Any:
        return self.partial_fit(X, y)


class Scales(Plain):
    """Changes statistics in place."""

    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        for summary in memory.base.summaries if previous is not None else ():
            summary.mean[:] *= 1.01
        return super().derive(memory, X, y, previous)


class LyingTokens(Plain):
    """Scores depend on how many classes there are, tokens do not."""

    def score_classes(self, X: Any, labels: Any) -> Any:
        return super().score_classes(X, labels) / len(self.classes)


class NeedsABase(Plain):
    def derive(self, memory: Any, X: Any, y: Any, previous: Any) -> Any:
        self.center_ = memory.base.means.mean(axis=0)
        return super().derive(memory, X, y, previous)


@pytest.mark.parametrize(
    ("kind", "promise", "sentence"),
    [
        (
            Divides,
            "few samples",
            "scores are not finite for classes with few samples ({60: 1}); does the code divide by n − 1",
        ),
        (Standardizes, "scores", "Standardizes: scores of a sample depend on other samples, by up to"),
        (TooMany, "scores", r"returns scores (23, 1), not (samples, classes) (23, 7)"),
        (Overwrites, "inputs", "Overwrites: changes the samples it is given"),
        (RemembersTheFirst, "class order", "the order of classes in a session changes the scores"),
        (RemembersASample, "sample order", "the order of a class's samples changes the scores"),
        (PrefersNames, "label values", "other names for the classes change the scores"),
        (CountsSessions, "sessions", "new classes in two sessions get other scores than in one"),
        (KeepsEarlyMeans, "more samples", "samples in two sessions give other scores than in one"),
        (RemembersTheForgotten, "forgetting", "a forgotten class leaves something behind"),
        (RemembersTheForgotten, "forgetting base", "a forgotten class leaves something behind"),
        (Sure, "answers", "predict_proba does not follow from scores"),
        (Scales, "old classes", "new classes change the statistics of"),
        (StartsFromBefore, "starting over", "fit does not forget what was learned before"),
        (LosesStateInFiles, "loaded heads", "learns something else after loading"),
        (LosesStateInFiles, "files", "gives different scores after loading"),
        (ChangesThePreviousModel, "copies", "changes when a copy of it learns"),
        (LyingTokens, "tokens", "class_tokens keeps the object of a class whose scores changed"),
    ],
)
def test_a_broken_promise_is_a_sentence(kind: Any, promise: str, sentence: str) -> None:
    make = kind if kind is StartsFromBefore else lambda: ScorerHead(kind())
    with pytest.raises(AssertionError) as caught:
        PROMISES[promise](make)
    assert sentence in str(caught.value)
    with pytest.raises(AssertionError):
        check_head(kind)


def test_the_head_that_they_change_keeps_all() -> None:
    assert len(check_head(Plain)) == len(PROMISES)


def test_the_error_says_which_promise_it_was() -> None:
    with pytest.raises(AssertionError) as caught:
        check_head(PrefersNames)
    (note,) = caught.value.__notes__
    assert note.startswith("This was the promise 'label values': Classes may have any names")


def test_a_head_that_needs_a_base_fails_without_one() -> None:
    """A model may start without base classes."""
    with pytest.raises(InputError, match="no class is known"):
        check_head(NeedsABase)


def test_parameters_must_be_stored_as_given() -> None:
    with pytest.raises(AssertionError, match="changes its parameters"):
        check_head(Halves)


def test_promises_that_are_not_made_are_left_out() -> None:
    with pytest.raises(InputError, match="no promise 'labels'; did you mean 'label values'"):
        check_head(NCM, without=["labels"])
    assert "label values" not in check_head(PrefersNames, without=["label values"])


def test_heads_as_they_are_keep_what_they_can() -> None:
    """The default chooses on its base session; a ridge head chooses λ on some of the samples."""
    assert check_head(lambda: UnbiasedLDA(n_random=10), without=["sample order", "forgetting base"])
    ridge = check_head(
        lambda: RanPAC(30, sampling=Sampling(per_class=20)), without=["label values", "sample order"]
    )
    assert "statistics" in ridge, "it says that statistics do not suffice"
