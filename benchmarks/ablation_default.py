"""The default head with one part left out at a time, on the embedded features, as a Markdown table.

python benchmarks/ablation_default.py                     # three seeds: some minutes on one core
python benchmarks/ablation_default.py --seeds 0 --rows "default" "no posterior means"
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from fiveshot.benchmark import RunRecord, get_protocol, run
from fiveshot.features import embedded_features
from fiveshot.heads import Prior, make_head

SETS = (
    ("cub200", "cub200/big"),
    ("cub200", "cub200/small"),
    ("cub200-big", "cub200/big"),
    ("cub200-small", "cub200/small"),
)
ROWS: dict[str, dict[str, Any]] = {
    "default": {},
    "lengths not corrected (`bias=0`)": {"prior": Prior(bias=0)},
    "no posterior means (`posterior=False`)": {"prior": Prior(posterior=False)},
    "neither of the two": {"prior": Prior(bias=0, posterior=False)},
    "between-class covariance a sphere (`smoothing=1`)": {"prior": Prior(smoothing=1.0)},
    'covariance of base classes alone (`pooled="base"`)': {"pooled": "base"},
    "features not centered (`center=False`)": {"center": False},
    "no random features (`n_random=0`)": {"n_random": 0},
    "random features alone (`random_weight=1`)": {"random_weight": 1.0},
    "gap left open (`offset=0`)": {"offset": 0.0},
    "gap left open, lengths not corrected": {"offset": 0.0, "prior": Prior(bias=0)},
    "default offset, no episodes (`offset=0.6`)": {"offset": 0.6},
    "shrinkage fixed (`shrinkage=0.1`)": {"prior": Prior(shrinkage=0.1)},
}


def figures(record: RunRecord) -> tuple[float, float, float, float]:
    """Return A_HM after the last session, A_HM averaged over the sessions, A_last and A_inc, in percent."""
    metrics = record.metrics
    harmonic = [100 * (session.a_hm or 0.0) for session in metrics.sessions[1:]]
    return harmonic[-1], float(np.mean(harmonic)), 100 * metrics.a_last, 100 * metrics.a_inc


def measured(parameters: dict[str, Any], pack: str, protocol: str, seeds: list[int]) -> np.ndarray:
    """Return the figures of every seed, (seeds, 4)."""
    features = embedded_features(pack)
    found = []
    for seed in seeds:
        head = make_head(**parameters, random_state=seed)
        found.append(figures(run(get_protocol(protocol).replace(shot_seed=seed), features, head)))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--rows", nargs="+", default=list(ROWS), help="which rows; the others are compared with the first"
    )
    parser.add_argument("--sets", type=int, default=len(SETS), help="how many of the feature sets")
    options = parser.parse_args()
    sets = SETS[: options.sets]
    names = [name for row in options.rows for name in ROWS if name == row or name.startswith(f"{row} (")]
    titles = [f"{pack}, {protocol.partition('/')[2]} start" for pack, protocol in sets]
    print("| | " + " | ".join(titles) + " | mean change |")
    print("|---" * (len(sets) + 2) + "|")
    first: np.ndarray | None = None
    for name in names:
        values = np.stack([measured(ROWS[name], *part, options.seeds) for part in sets])  # (sets, seeds, 4)
        first = values if first is None else first
        cells = [" / ".join(f"{figure:.1f}" for figure in part.mean(axis=0)) for part in values]
        change = (values - first).mean(axis=(0, 1))
        last = " / ".join(f"{figure:+.1f}" for figure in change) if values is not first else ""
        print(f"| {name} | " + " | ".join(cells) + f" | {last} |", flush=True)
    if first is not None and len(options.seeds) > 1:
        spread = [" / ".join(f"{figure:.1f}" for figure in part.std(axis=0, ddof=1)) for part in first]
        print("| *spread of the first row over seeds* | " + " | ".join(spread) + " | |")


if __name__ == "__main__":
    main()
