"""Use the default head's bias correction in the paper's other heads, on the embedded features.

python benchmarks/bias_other_heads.py                                  # NCM and TEEN, FeCAM and C-FeCAM
python benchmarks/bias_other_heads.py --heads c-ranpac --option mass --values samples balanced
"""

from __future__ import annotations

import argparse

import numpy as np
from ablation_default import SETS, figures

from fiveshot.benchmark import get_protocol, run
from fiveshot.features import embedded_features
from fiveshot.heads import make_head


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--heads", nargs="+", default=["ncm", "teen", "fecam", "c-fecam"])
    parser.add_argument("--flavor", choices=["paper", "published"], default="paper")
    parser.add_argument("--option", default="bias")
    parser.add_argument("--values", nargs="+", default=["0", "0.5", "1"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--projections", type=int, default=2000, help="random features of the ridge heads")
    parser.add_argument("--sets", type=int, default=len(SETS), help="how many of the feature sets")
    options = parser.parse_args()
    sets = SETS[: options.sets]
    titles = [f"{pack}, {protocol.partition('/')[2]} start" for pack, protocol in sets]
    print(f"| head, {options.option} | " + " | ".join(titles) + " |\n" + "|---" * (len(sets) + 1) + "|")
    for name in options.heads:
        for value in options.values:
            parameters = {options.option: float(value) if value[0].isdigit() else value}
            if "ranpac" in name:
                parameters["n_projections"] = options.projections
            cells = []
            for pack, protocol in sets:
                found = [
                    figures(
                        run(
                            get_protocol(protocol).replace(shot_seed=seed),
                            embedded_features(pack),
                            make_head(name, options.flavor, **parameters),
                        )
                    )
                    for seed in options.seeds
                ]
                cells.append(" / ".join(f"{figure:.1f}" for figure in np.mean(found, axis=0)))
            print(f"| {name}, {value} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
