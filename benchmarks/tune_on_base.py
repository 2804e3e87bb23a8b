"""What tuning by episodes inside the base classes changes, on the embedded features.

python benchmarks/tune_on_base.py --heads ncm teen fecam ulda      # a minute or two
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from ablation_default import SETS, figures

from fiveshot.benchmark import get_protocol, run, sessions
from fiveshot.features import embedded_features
from fiveshot.heads import FewShotHead, make_head
from fiveshot.heads.parameters import parameter
from fiveshot.heads.tune_on_base import tune_on_base
from fiveshot.heads.tuning_candidates import Candidate


def _changes(head: FewShotHead, parameters: Candidate) -> list[str]:
    """Return what differs from the head as given."""
    return [f"{name} = {value}" for name, value in parameters.items() if value != parameter(head, name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--heads", nargs="+", default=["ncm", "teen", "fecam", "ulda"])
    parser.add_argument("--sets", type=int, default=len(SETS), help="how many of the feature sets")
    options = parser.parse_args()
    print("| head | features, start | seconds | picked | best of single episodes | as given | tuned |")
    print("|---" * 7 + "|")
    for name in options.heads:
        for pack, protocol in SETS[: options.sets]:
            features, steps = embedded_features(pack), get_protocol(protocol)
            rows = sessions(steps, features.train_y, features.test_y, features.class_names)[0].train_indices
            start = time.perf_counter()
            tuned = tune_on_base(make_head(name), features.train_x[rows], features.train_y[rows])
            seconds = time.perf_counter() - start
            given, changed = (
                " / ".join(f"{figure:.1f}" for figure in figures(run(steps, features, head)))
                for head in (make_head(name), tuned.head)
            )
            values = ", ".join(_changes(make_head(name), tuned.parameters)) or "nothing"
            picks = np.array2string(np.array(tuned.single_picks), separator=" ")
            print(
                f"| {name} | {pack}, {protocol.partition('/')[2]} | {seconds:.1f} | {values} | {picks} "
                f"| {given} | {changed} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
