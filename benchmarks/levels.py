"""Measure how many more photos are answered if groups of species are answers, at the same error rate, on CUB-200.

    python benchmarks/levels.py
    python benchmarks/levels.py --unlearned

The group of a species is the last word of its name (albatross, sparrow, ...). For each seed, five photos of each
of the 200 species are learned, or with a base all photos of the 100 base classes of cub200/big and five of each
other species. A photo is answered if a probability reaches a threshold: that of the species, or that of the
narrowest level, as in ``predict`` with ``sure``. Both thresholds are set on half of the test photos, as low as the
error rate allows (the share of wrong answers). All figures are for the other half.

With ``--unlearned``, 100 species are drawn and learned from five photos each, without a base, and test photos of
the other species are predicted. The figures are the area under the ROC curve of familiarity for species of known
groups against those of other groups (0.5 is chance), and how often a group answered at 0.8 is right for the
former.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from fiveshot.benchmark import get_protocol
from fiveshot.core import NO_CLASSES, class_statistics
from fiveshot.core.memory import Memory
from fiveshot.core.scorers import Scorer, make_scorer
from fiveshot.features import FeatureSet, embedded_features
from fiveshot.recognizer.recognition.levels import Groups, is_within, surest
from fiveshot.values import Candidate

SHOTS = 5
SURE = 0.8  # probability of groups that are answered for species that were not learned
HEADINGS = (
    "features",
    "start",
    "error asked for",
    "species: answered",
    "error",
    "levels: answered",
    "error",
    "of these groups",
    "more answers",
)


@dataclass(frozen=True)
class Answers:
    answered: float
    error: float
    groups: float


def path_of(name: str) -> str:
    """Return the name of a species with its group.

    >>> path_of("001.Black_footed_Albatross")
    'albatross/Black footed Albatross'
    """
    words = name.partition(".")[2].replace("_", " ")
    return f"{words.split()[-1].lower()}/{words}"


def learned_head(features: FeatureSet, names: NDArray[np.str_], *, base: bool, seed: int) -> Scorer:
    X, y = np.asarray(features.train_x, dtype=np.float32), features.train_y
    first = np.array(get_protocol("cub200/big").session_classes[0]) if base else np.array([], dtype=np.int64)
    rng = np.random.default_rng([seed, 1])
    drawn = [rng.permutation(np.flatnonzero(y == c))[:SHOTS] for c in range(200) if c not in first]
    rows, head = np.concatenate(drawn), make_scorer()
    if base:
        of_base = np.isin(y, first)
        return head.learn(X[of_base], names[y[of_base]]).learn(X[rows], names[y[rows]])
    return head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X[rows]), names[y[rows]])))


def answers(chains: list[tuple[Candidate, ...]], true: NDArray[np.str_], threshold: float) -> Answers:
    given = [surest(chain, threshold) for chain in chains]
    wrong = [one is not None and not is_within(name, one.label) for one, name in zip(given, true, strict=True)]
    count = sum(one is not None for one in given)
    groups = sum(one is not None and one != chain[-1] for one, chain in zip(given, chains, strict=True))
    return Answers(count / len(true), sum(wrong) / max(1, count), groups / max(1, count))


def lowest_threshold(chains: list[tuple[Candidate, ...]], true: NDArray[np.str_], rate: float) -> float:
    """Return the lowest of 200 thresholds at which at most this share of the answers is wrong."""
    tried = np.linspace(0.005, 1, 200)
    return next((float(one) for one in tried if answers(chains, true, float(one)).error <= rate), 1.0)


def measure(chains: list[tuple[Candidate, ...]], true: NDArray[np.str_], rate: float, seed: int) -> Answers:
    order = np.random.default_rng([seed, 2]).permutation(len(true))
    chosen, held = order[: len(order) // 2], order[len(order) // 2 :]
    threshold = lowest_threshold([chains[row] for row in chosen], true[chosen], rate)
    return answers([chains[row] for row in held], true[held], threshold)


def draw(features: FeatureSet, rate: list[float], *, base: bool, seed: int) -> list[list[float]]:
    names = np.array([path_of(name) for name in features.class_names])
    head = learned_head(features, names, base=base, seed=seed)
    probabilities = head.answer(np.asarray(features.test_x, dtype=np.float32)).probabilities
    classes = [str(name) for name in head.classes]
    best = probabilities.argmax(axis=1)
    species: list[tuple[Candidate, ...]] = [
        (Candidate(classes[one], float(row[one])),) for one, row in zip(best, probabilities, strict=True)
    ]
    levels = Groups.of(classes).chains(probabilities)
    found = []
    for asked in rate:
        alone = measure(species, names[features.test_y], asked, seed)
        both = measure(levels, names[features.test_y], asked, seed)
        more = both.answered - alone.answered
        found.append([alone.answered, alone.error, both.answered, both.error, both.groups, more])
    return found


def unlearned(features: FeatureSet, seed: int) -> list[float]:
    names = np.array([path_of(name) for name in features.class_names])
    rng = np.random.default_rng([seed, 3])
    known = rng.permutation(200)[:100]
    X, y = np.asarray(features.train_x, dtype=np.float32), features.train_y
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:SHOTS] for c in known])
    head = make_scorer()
    head = head.adopt(Memory(NO_CLASSES, class_statistics(head.embed(X[rows]), names[y[rows]])))
    others = ~np.isin(features.test_y, known)
    answer = head.answer(np.asarray(features.test_x, dtype=np.float32)[others])
    chains = Groups.of([str(name) for name in head.classes]).chains(answer.probabilities)
    true = names[features.test_y[others]]
    groups = {name.partition("/")[0] for name in names[known]}
    of_known = np.array([name.partition("/")[0] in groups for name in true])
    given = [(chain[0], name) for chain, name, own in zip(chains, true, of_known, strict=True) if own]
    sure = [
        name.partition("/")[0] == level.label.partition("/")[0]
        for level, name in given
        if level.probability >= SURE
    ]
    return [float(roc_auc_score(of_known, answer.familiarity)), len(sure) / len(given), float(np.mean(sure))]


def print_unlearned(features: FeatureSet, name: str, seeds: int) -> None:
    print("| features | familiarity: AUROC | answered at 0.8 | group right |")
    print("|---|---|---|---|")
    found = np.array([unlearned(features, seed) for seed in range(seeds)])
    mean, spread = found.mean(axis=0), found.std(axis=0)
    shares = [f"{100 * m:.1f} ± {100 * s:.1f} %" for m, s in zip(mean[1:], spread[1:], strict=True)]
    print("| " + " | ".join([name, f"{mean[0]:.3f} ± {spread[0]:.3f}", *shares]) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", default="cub200", help="an embedded set of features")
    parser.add_argument(
        "--rates", type=float, nargs="+", default=[0.05, 0.1], help="allowed shares of wrong answers"
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--unlearned", action="store_true", help="predict species that were not learned")
    options = parser.parse_args()
    features = embedded_features(options.features)
    if options.unlearned:
        print_unlearned(features, options.features, options.seeds)
        return
    print("| " + " | ".join(HEADINGS) + " |")
    print("|" + "---|" * len(HEADINGS))
    for start, base in (("no base", False), ("100 base classes", True)):
        draws = [draw(features, options.rates, base=base, seed=seed) for seed in range(options.seeds)]
        for number, rate in enumerate(options.rates):
            found = np.array([one[number] for one in draws])
            cells = [f"{100 * m:.1f} ± {100 * s:.1f} %" for m, s in zip(found.mean(0), found.std(0), strict=True)]
            cells[-1] = f"{cells[-1].removesuffix(' %')} points, least {100 * found[:, -1].min():.1f}"
            print("| " + " | ".join([options.features, start, f"{100 * rate:g} %", *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
