"""Heads under scikit-learn's array API dispatch, in a process that sets it before SciPy is imported."""

from __future__ import annotations

import sys

import numpy as np
import sklearn
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from fiveshot.heads import make_head
from fiveshot.heads._testing import draw, joined


def check(name: str) -> None:
    import torch

    X, y = joined(draw(dict.fromkeys(range(4), 12), dtype=np.float32))
    head = make_head(name, **({"n_projections": 40} if name == "ranpac" else {}))
    expected = clone(head).fit(X, y)
    features, labels = torch.from_numpy(X), torch.from_numpy(y)
    with sklearn.config_context(array_api_dispatch=True):
        fitted = clone(head).fit(features, labels)
        predicted, probabilities = fitted.predict(features), fitted.predict_proba(features)
        assert isinstance(predicted, torch.Tensor)
        assert isinstance(probabilities, torch.Tensor)
        assert isinstance(fitted.answer(features).familiarity, torch.Tensor)
        assert abs(fitted.score(features, labels) - expected.score(X, y)) < 1e-6  # scikit-learn's, in 32 bits
        assert cross_val_score(head, features, labels, cv=3, scoring="accuracy").mean() > 0.7
        assert isinstance(fitted.predict(X), np.ndarray)
    assert isinstance(fitted.predict(features), np.ndarray)
    assert predicted.tolist() == expected.predict(X).tolist()
    np.testing.assert_allclose(probabilities.numpy(), expected.predict_proba(X), atol=1e-4)
    sys.stdout.write(f"{name} as it should be\n")


if __name__ == "__main__":
    for given in sys.argv[1:]:
        check(given)
