"""Heads in scikit-learn's hands, and what scorers import."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import BASE, FIRST, draw, flat, queries
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fiveshot.core import Calibration
from fiveshot.core.scorers import RECIPES, parameter_names
from fiveshot.heads import NCM, FeCAM, TunedHead, UnbiasedLDA, make_head

HEAVY = "{'torch', 'sklearn', 'scipy.linalg', 'pandas'} & set(sys.modules)"


def imported(code: str) -> str:
    run = [sys.executable, "-c", f"import sys\n{code}\nprint(sorted({HEAVY}))"]
    return subprocess.run(run, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_scorers_imports_neither_torch_nor_scikit_learn() -> None:
    assert imported("from fiveshot.core.scorers import make_scorer\nmake_scorer('c-fecam')") == "[]"


def test_learning_and_asking_scorers_import_neither() -> None:
    code = (
        "import numpy as np\nfrom fiveshot.core.scorers import RECIPES, make_scorer, parameter_names\n"
        "for name in RECIPES:\n"
        "    small = {'n_projections': 8} if 'n_projections' in parameter_names(make_scorer(name)) else {}\n"
        "    scorer = make_scorer(name, **small)\n"
        "    if type(scorer).__name__ == 'RefittedScorer':\n        continue  # is made of scikit-learn\n"
        "    scorer = scorer.learn(np.eye(4), list('abcd')).learn(np.ones((2, 4)), ['e', 'e'])\n"
        "    scorer.answer(np.eye(4)), scorer.classify(np.eye(4)), repr(scorer)"
    )
    assert imported(code) == "['scipy.linalg']"  # for its BLAS and LAPACK


def test_a_device_needs_torch_and_says_how_to_get_it() -> None:
    code = (
        "class NoTorch:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name.partition('.')[0] == 'torch':\n            raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import numpy as np\nfrom fiveshot.heads import make_head\n"
        "make_head('ncm', device='cpu').fit(np.eye(2), ['a', 'b'])\n"
        "try:\n    make_head('ncm', device='cuda').fit(np.eye(2), ['a', 'b'])\n"
        "except ValueError as error:\n    print(error)"
    )
    assert "pip install 'fiveshot[torch]'" in imported(code)


def test_scikit_learn_takes_a_head_for_one_of_its_own() -> None:
    X, y = flat(draw(dict.fromkeys(range(4), 12)))
    head = FeCAM(gamma=10.0, calibration=Calibration(alpha=0.5))
    assert is_classifier(head)
    assert clone(head).get_params() == head.get_params()
    assert cross_val_score(head, X, y, cv=3).mean() > 0.7
    search = GridSearchCV(make_pipeline(StandardScaler(), head), {"fecam__gamma": [1.0, 100.0]}, cv=3).fit(X, y)
    assert search.best_params_["fecam__gamma"] in (1.0, 100.0)
    assert "FeCAM" in search.best_estimator_._repr_html_()
    assert TunedHead(NCM()).set_params(head__bias=0.5).head.bias == 0.5
    with pytest.raises(NotFittedError):
        head.predict(X)


@pytest.mark.parametrize("name", RECIPES)
def test_a_pickled_head_answers_the_same(name: str) -> None:
    head = make_head(name, **({"n_projections": 30, "per_class": 20} if name == "c-ranpac" else {}))
    if "n_projections" in parameter_names(head.unlearned_scorer()):
        head.set_params(n_projections=30)
    head.fit(*flat(draw(BASE))).partial_fit(*flat(draw(FIRST)))
    back = pickle.loads(pickle.dumps(head))
    np.testing.assert_array_equal(back.class_scores(queries()), head.class_scores(queries()))


def test_dispatch_answers_in_the_library_of_the_input() -> None:
    pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    worker, names = Path(__file__).with_name("dispatch_worker.py"), ("ncm", "c-fecam", "ranpac", "unbiased-lda")
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    words = [sys.executable, str(worker), *names]
    found = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert found.stdout.splitlines() == [f"{name} as it should be" for name in names], found.stderr


def test_one_pass_gives_all_answers() -> None:
    for kind in (NCM, FeCAM, UnbiasedLDA):
        head = kind().fit(*flat(draw(BASE))).partial_fit(*flat(draw(FIRST)))
        answer = head.answer(queries())
        np.testing.assert_array_equal(answer.scores, head.class_scores(queries()))
        np.testing.assert_array_equal(answer.probabilities, head.predict_proba(queries()))
        np.testing.assert_array_equal(answer.familiarity, head.familiarity(queries()))
        assert answer.labels.tolist() == head.predict(queries()).tolist()
