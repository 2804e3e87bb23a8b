"""Measure the effect of tuning by episodes inside the base classes, on the embedded features.

python benchmarks/tune_on_base.py --heads ncm teen fecam unbiased-lda      # a minute or two
python benchmarks/tune_on_base.py --heads teen c-fecam c-ranpac --auto alpha bias   # make_head(..., alpha="auto")
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from ablation_default import SETS, figures
from sklearn.base import clone

from fiveshot.benchmark import get_protocol, run, sessions
from fiveshot.core.scorers import parameter, parameter_names
from fiveshot.features import embedded_features
from fiveshot.heads import FewShotHead, choose_parameters, make_head, tune_on_base
from fiveshot.heads.tuned import ParameterValues


def _changes(head: FewShotHead, parameters: ParameterValues) -> list[str]:
    """Return the parameters that differ from the given head."""
    return [
        f"{name} = {value}"
        for name, value in parameters.items()
        if value != parameter(head.unlearned_scorer(), name)
    ]


def _made(name: str, projections: int, **values: Any) -> FewShotHead:
    return make_head(name, **({"n_projections": projections} if "ranpac" in name else {}), **values)


def _grid_row(given: FewShotHead, X: np.ndarray, y: np.ndarray) -> tuple[list[str], FewShotHead]:
    tuned = tune_on_base(given, X, y)
    picks = np.array2string(np.array(tuned.single_picks), separator=" ")
    return [", ".join(_changes(given, tuned.parameters)) or "nothing", picks], tuned.head


def _auto_row(
    given: FewShotHead, names: Sequence[str], X: np.ndarray, y: np.ndarray
) -> tuple[list[str], FewShotHead]:
    chosen = choose_parameters(
        given, X, y, names=[name for name in names if name in parameter_names(given.unlearned_scorer())]
    )
    return [", ".join(_changes(given, chosen)) or "nothing"], clone(given).set_params(**chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--heads", nargs="+", default=["ncm", "teen", "fecam", "unbiased-lda"])
    parser.add_argument("--sets", type=int, default=len(SETS), help="how many of the feature sets")
    parser.add_argument("--auto", nargs="+", default=[], help="choose these one after another, not from a grid")
    parser.add_argument("--projections", type=int, default=2000, help="random features of the RanPAC heads")
    options = parser.parse_args()
    middle = ["picked"] if options.auto else ["picked", "best of single episodes"]
    columns = ["head", "features, start", "seconds", *middle, "as given", "tuned"]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for name in options.heads:
        for pack, protocol in SETS[: options.sets]:
            features, steps = embedded_features(pack), get_protocol(protocol)
            rows = sessions(steps, features.train_y, features.test_y, features.class_names)[0].train_indices
            X, y = features.train_x[rows], features.train_y[rows]
            given = _made(name, options.projections)
            start = time.perf_counter()
            found, tuned = _auto_row(given, options.auto, X, y) if options.auto else _grid_row(given, X, y)
            seconds = time.perf_counter() - start
            scores = [
                " / ".join(f"{figure:.1f}" for figure in figures(run(steps, features, head)))
                for head in (given, tuned)
            ]
            cells = [name, f"{pack}, {protocol.partition('/')[2]}", f"{seconds:.1f}", *found, *scores]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
