"""Score changes of the default head on base classes only: episodes inside the base session, no test image.

Half of the base classes are learned from five samples; 30 % of every class are test samples. Every change shifts
the balance between old and new classes, so each is scored at its best offset. Figures are in percent: A_HM,
accuracy, and the change of their mean against the head without random features, with its 95 % interval over the
episodes.

    python benchmarks/default_head_ideas.py cub200/big=embedded:cub200 cub200/small=embedded:cub200-small
    python benchmarks/default_head_ideas.py cub200/big=embedded:cub200 --start 20 --general general.tar

With ``--start``, so many base classes are learned from all photos but ten, the others from five photos: a small
start, for ideas about the covariance. Classes that an adapter has seen do not take part.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from background import general_features
from numpy.typing import NDArray

from fiveshot.benchmark import get_protocol, open_features, sessions
from fiveshot.core import Memory, class_statistics
from fiveshot.core.arrays import unit_rows
from fiveshot.core.draws import random_features
from fiveshot.core.episodes import (
    DEFAULT_OFFSET,
    DEFAULT_SHARPNESS,
    DEPTHS,
    OFFSETS,
    Episode,
    known_at,
    play_episodes,
)
from fiveshot.core.lda import Prior, SpaceModel, TiedCovariance, default_shrinkage, space_model, tied_model
from fiveshot.core.scatter import Embedding, PooledScatter, make_embedding, pooled_scatter
from fiveshot.metrics import paired_difference

PRIOR = Prior()
HELD_OUT, SHOTS = 10, 5  # photos of a class in a small start
GENERAL = 500  # general photographs
Matrix = NDArray[Any]
Scored = tuple[Matrix, Matrix]  # scores, (n, n_classes), and gaps, (n_classes,)


@dataclass(frozen=True, eq=False)
class Played:
    """An episode in whitened coordinates."""

    episode: Episode
    embedding: Embedding

    @cached_property
    def pooled(self) -> PooledScatter:
        return pooled_scatter(self.episode.memory, self.embedding.spaces, None)

    @cached_property
    def model(self) -> SpaceModel:
        memory, spaces = self.episode.memory, self.embedding.spaces
        model = tied_model(memory, spaces, self.pooled, prior=PRIOR, pool_new=True).spaces[0]
        assert isinstance(model, SpaceModel)
        return model

    def white(self, rows: Matrix) -> Matrix:
        found: Matrix = self.model.shared.covariance.whiten(rows - self.model.origin)
        return found

    @cached_property
    def means(self) -> Matrix:
        return self.white(self.episode.memory.statistics.means)

    @cached_property
    def asked(self) -> Matrix:
        return self.white(self.episode.X)

    @cached_property
    def counts(self) -> Matrix:
        return self.episode.memory.statistics.counts.astype(np.float32)

    @cached_property
    def noise(self) -> Matrix:
        """The variance per direction of the samples of each class."""
        covariance = self.model.shared.covariance
        return np.where(self.episode.new, covariance.new_noise, covariance.noise).astype(np.float32)

    @cached_property
    def spread(self) -> Matrix:
        """The variance of each class relative to the mean of its kind, base or new."""
        found = []
        for summary in self.episode.memory.statistics.summaries:
            rows = self.model.shared.covariance.whiten(np.array(summary.factor, dtype=np.float32))
            found.append(float((rows**2).sum()) / (summary.count - 1))
        raw, new = np.array(found, dtype=np.float32), self.episode.new
        return np.where(new, raw / raw[new].mean(), raw / raw[~new].mean())

    def scored(self, guess: Matrix, kept: Matrix, noise: Matrix, *, gaps: Matrix | None = None) -> Scored:
        """Return scores for estimated means; ``kept`` is tr K² of each class."""
        shared = self.model.shared
        squared = (guess**2).sum(axis=1)
        length = np.sqrt(np.maximum(squared - PRIOR.bias * kept * noise, 0.02 * squared.mean()))
        scores = self.asked @ (guess / length[:, None]).T / shared.spectrum.trace**0.5
        return scores, self.model.gaps if gaps is None else gaps

    def posterior(self, means: Matrix, noise: Matrix) -> tuple[Matrix, Matrix, Matrix]:
        """Return K x̄, tr K² and the gaps for a variance of each mean."""
        spectrum = self.model.shared.spectrum
        b, rest = PRIOR.strength * spectrum.variances, PRIOR.strength * spectrum.rest
        keep, other = b / (b + noise[:, None]), rest / (rest + noise)  # (C, r), (C,)
        along = means @ spectrum.directions
        guess = other[:, None] * means + ((keep - other[:, None]) * along) @ spectrum.directions.T
        left = means.shape[1] - len(b)
        signal = keep @ spectrum.variances + left * spectrum.rest * other
        square = keep**2 @ spectrum.variances + left * spectrum.rest * other**2
        gaps = 1 - signal / np.sqrt(square) / spectrum.trace**0.5
        return guess, (keep**2).sum(axis=1) + left * other**2, gaps


def as_is(played: Played) -> Scored:
    """The head without changes, in the space of the features only."""
    noise = played.noise / played.counts
    guess, kept, gaps = played.posterior(played.means, noise)
    return played.scored(guess, kept, noise, gaps=gaps)


def conditioned(played: Played, *, nearest: int, local: float, share: float) -> Scored:
    """The mean of a new class is N(s m, B_c), from the mean and covariance of the nearest base classes and from B.

    B_c = local · L + (1 − local) · B; L is the covariance of the ``nearest`` base means, scaled to B's trace.
    """
    spectrum, new = played.model.shared.spectrum, played.episode.new
    noise = played.noise / played.counts
    guess, kept, gaps = played.posterior(played.means, noise)
    along = played.means @ spectrum.directions  # (C, r): the directions of the base means
    base = np.flatnonzero(~new)
    left = played.means.shape[1] - len(spectrum.variances)
    rest = PRIOR.strength * (1 - local) * spectrum.rest
    for c in np.flatnonzero(new):
        cosines = along[base] @ along[c] / np.linalg.norm(along[base], axis=1) / np.linalg.norm(along[c])
        near = base[np.argsort(-cosines)[:nearest]]
        center = along[near].mean(axis=0)
        apart = along[near] - center
        around = apart.T @ apart
        around *= spectrum.trace / np.trace(around)
        B = PRIOR.strength * (local * around + (1 - local) * np.diag(spectrum.variances))
        K = np.linalg.solve(B + noise[c] * np.eye(len(B)), B).T
        other = rest / (rest + noise[c])
        inside = share * center + K @ (along[c] - share * center)
        guess[c] = other * (played.means[c] - spectrum.directions @ along[c]) + spectrum.directions @ inside
        kept[c] = (K**2).sum() + left * other**2
    return played.scored(guess, kept, noise, gaps=gaps)


def heteroscedastic(played: Played, *, share: float, scaled: float) -> Scored:
    """A share of a class's noise comes from its own samples; its scores are divided by a power of the noise."""
    own = 1 - share + share * played.spread
    noise = played.noise * own / played.counts
    guess, kept, gaps = played.posterior(played.means, noise)
    scores, gaps = played.scored(guess, kept, noise, gaps=gaps)
    return scores / own**scaled, gaps


def transduced(played: Played, *, weight: float, rounds: int) -> Scored:
    """The test samples move the means of their predicted classes, as in a mixture model."""
    means, counts = played.means, played.counts
    scores, gaps = as_is(played)
    for _ in range(rounds):
        logits = DEFAULT_SHARPNESS * (scores + DEFAULT_OFFSET * gaps)
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares *= weight / shares.sum(axis=1, keepdims=True)
        counts = played.counts + shares.sum(axis=0)
        means = (played.counts[:, None] * played.means + shares.T @ played.asked) / counts[:, None]
        noise = played.noise / counts
        guess, kept, _ = played.posterior(means, noise)
        scores, _ = played.scored(guess, kept, noise)
    return scores, gaps


def covariance(
    played: Played, *, share: float | None = None, general: Matrix | None = None, part: float = 0
) -> Scored:
    """Σ shrunk by another share, or partly towards the covariance of general photographs instead of a sphere."""
    base, new = (one.matrices[0].astype(np.float64) for one in (played.pooled.base, played.pooled.new))
    base, new = (np.tril(one) + np.tril(one, -1).T for one in (base, new))
    dofs = played.pooled.base.dof, played.pooled.new.dof
    d, dof = len(base), sum(dofs)
    share = default_shrinkage(d, dof) if share is None else share
    target = (1 - part) * np.eye(d)
    if general is not None:
        around = np.cov(played.embedding(general).T.astype(np.float64))
        target += part * d / np.trace(around) * around
    cholesky = np.linalg.cholesky(
        (1 - share) * (base + new) / dof + share * np.trace(base + new) / d / dof * target
    )
    inverse = np.linalg.inv(cholesky)
    inside = [
        float(((inverse @ one) * inverse).sum()) / count for one, count in zip((base, new), dofs, strict=True)
    ]
    noise = [one / max(1 - (1 - share) * one / dof, 0.1) / d for one in inside]  # as in fiveshot.core.lda
    statistics = played.episode.memory.statistics
    model = space_model(
        statistics.means,
        played.counts,
        TiedCovariance(cholesky.astype(np.float32), *noise),
        new=played.episode.new,
        origin=played.model.origin,
        prior=PRIOR,
    )
    return model.scores(played.episode.X), model.gaps


def varied(played: Played, *, prior: Prior) -> Scored:
    """The head with another prior."""
    memory, spaces = played.episode.memory, played.embedding.spaces
    model = tied_model(memory, spaces, played.pooled, prior=prior, pool_new=True).spaces[0]
    return model.scores(played.episode.X), model.gaps


def single_photos(played: Played, *, unit: Matrix, y: NDArray[Any], weight: float, peak: float) -> Scored:
    """To the scores, a soft maximum of the whitened cosines with the photos of each class is added."""
    scores, gaps = as_is(played)
    rows = np.concatenate([played.episode.base_rows, played.episode.new_rows])
    member = (y[rows][:, None] == played.episode.memory.labels).astype(np.float32)
    cosines = unit_rows(played.asked) @ unit_rows(played.white(unit[rows])).T
    return scores + weight / peak * np.log(np.exp(peak * cosines) @ (member / member.sum(axis=0))), gaps


IDEAS: dict[str, Callable[[Played], Scored]] = {
    "features alone": as_is,
    **{
        f"conditioned prior: {k} nearest, {local} of B, {share} of their mean": partial(
            conditioned, nearest=k, local=local, share=share
        )
        for k, local, share in itertools.product((5, 10, 20), (0.2, 0.5), (0.0, 0.5, 1.0))
    },
    "own noise of a class, half": partial(heteroscedastic, share=0.5, scaled=0),
    "own noise of a class, all": partial(heteroscedastic, share=1, scaled=0),
    "own noise, half, and scores over its root": partial(heteroscedastic, share=0.5, scaled=0.5),
    "own noise, half, and scores times its root": partial(heteroscedastic, share=0.5, scaled=-0.5),
    "asked together: one round, weight 0.3": partial(transduced, weight=0.3, rounds=1),
    "asked together: one round": partial(transduced, weight=1, rounds=1),
    "asked together: three rounds": partial(transduced, weight=1, rounds=3),
}
RANDOM = {"random features: 1,000": (1000, 1), "two draws of 700": (700, 2), "three draws of 1,000": (1000, 3)}


def started(
    X: Matrix, y: NDArray[Any], base: int, draws: int, general: Matrix
) -> Iterator[tuple[Episode, dict[str, Scored]]]:
    """Yield small starts with the scores of each change of the covariance."""
    for seed in range(draws):
        rng = np.random.default_rng([seed, base])
        old, new = np.split(rng.permutation(np.unique(y)), [base])
        rows = {label: rng.permutation(np.flatnonzero(y == label)) for label in (*old, *new)}
        many = np.concatenate([rows[label][HELD_OUT:] for label in old])
        few = np.concatenate([rows[label][:SHOTS] for label in new])
        asked = np.concatenate(
            [*(rows[label][:HELD_OUT] for label in old), *(rows[label][SHOTS:] for label in new)]
        )
        plain = make_embedding(X[many].mean(axis=0), 0, seed=0, shortened=False)
        unit = plain(X)
        memory = Memory(*(class_statistics(unit[part], y[part]) for part in (many, few)))
        codes, is_new = np.searchsorted(memory.labels, y[asked]), np.isin(memory.labels, new)
        played = Played(Episode(memory, unit[asked], codes, is_new, many, few, asked), plain)
        found = {"features alone": as_is(played)}
        for share in (0.3, 0.5, 0.6, 0.7):
            found[f"share of the sphere {share}"] = covariance(played, share=share)
        for part, share in itertools.product((0.3, 0.6, 1.0), (None, 0.5, 0.7)):
            name = f"{part} of it general photographs, share {share or 'as now'}"
            found[name] = covariance(played, share=share, general=general, part=part)
        for changed in ({"smoothing": 0.5}, {"smoothing": 0.85}, {"strength": 0.15}, {"strength": 0.5}):
            found[f"prior: {changed}"] = varied(played, prior=replace(PRIOR, **changed))
        for weight, peak in itertools.product((0.3, 1.0), (3.0, 10.0, 20.0)):
            name = f"single photos: weight {weight}, peak {peak:.0f}"
            found[name] = single_photos(played, unit=unit, y=y, weight=weight, peak=peak)
        yield played.episode, found


def seen(X: Matrix, y: NDArray[Any], episodes: int) -> Iterator[tuple[Episode, dict[str, Scored]]]:
    """Yield episodes with the scores of each change."""
    plain = make_embedding(X.mean(axis=0), 0, seed=0, shortened=False)
    unit, wide = plain(X), len(X) - len(np.unique(y)) > 1000
    for episode in play_episodes(unit, y, shots=5, episodes=episodes, seed=0):
        played = Played(episode, plain)
        found = {name: idea(played) for name, idea in IDEAS.items()}
        for name, (width, draws) in RANDOM.items() if wide else ():
            found[name] = blended(episode, found["features alone"], unit, y, width, draws)
        yield episode, found


def blended(episode: Episode, plain: Scored, unit: Matrix, y: NDArray[Any], width: int, draws: int) -> Scored:
    """Return 0.6 of the scores plus 0.4 of the scores of random features, averaged over several draws."""
    scores, gaps = 0.6 * plain[0], 0.6 * plain[1]
    for seed in range(draws):
        drawn = random_features(unit.shape[1], width, seed=seed, like=unit)
        memory = Memory(
            *(class_statistics(drawn(unit[rows]), y[rows]) for rows in (episode.base_rows, episode.new_rows))
        )
        spaces = (slice(0, width),)
        pooled = pooled_scatter(memory, spaces, None)
        space = tied_model(memory, spaces, pooled, prior=PRIOR, pool_new=True).spaces[0]
        scores, gaps = scores + 0.4 / draws * space.scores(drawn(episode.X)), gaps + 0.4 / draws * space.gaps
    return scores, gaps


def curves(episode: Episode, scored: Scored) -> NDArray[np.float64]:
    """Return A_HM and accuracy for every offset, (2, offsets), with a third and with all of the new classes."""
    found = []
    for depth in DEPTHS:
        kept = np.flatnonzero(known_at(episode.new, depth))
        asked = np.isin(episode.codes, kept)
        scores, gaps = scored[0][asked][:, kept], scored[1][kept]
        codes = np.searchsorted(kept, episode.codes[asked])
        of_new = episode.new[kept][codes]
        values = []
        for offset in OFFSETS:
            right = (scores + offset * gaps).argmax(axis=1) == codes
            old, new = right[~of_new].mean(), right[of_new].mean()
            values.append((2 * old * new / max(old + new, 1e-9), right.mean()))
        found.append(np.array(values).T)
    both: NDArray[np.float64] = np.mean(found, axis=0)
    return both


def base_photos(protocol: str, source: str) -> tuple[Matrix, NDArray[Any]]:
    """Return the training photos of the base classes."""
    features = open_features(source)
    rows = sessions(get_protocol(protocol), features.train_y, features.test_y, features.class_names)[
        0
    ].train_indices
    return features.train_x[rows].astype(np.float32), features.train_y[rows]


def table(protocol: str, source: str, shown: Iterable[tuple[Episode, dict[str, Scored]]]) -> str:
    found: dict[str, list[NDArray[np.float64]]] = {}
    for episode, scored in shown:
        for name, one in scored.items():
            found.setdefault(name, []).append(curves(episode, one))
    lines = [f"| {protocol}, {source} | A_HM | accuracy | their mean, change |", "|---|---|---|---|"]
    at_best: dict[str, NDArray[np.float64]] = {}
    for name, some in found.items():
        stacked = 100 * np.stack(some)  # (episodes, 2, offsets)
        best = int(stacked.mean(axis=(0, 1)).argmax())
        at_best[name] = stacked[:, :, best]
        change = paired_difference(at_best[name].mean(axis=1), at_best["features alone"].mean(axis=1))
        interval = "" if change.low is None or not change.mean else f", {change.low:+.1f} to {change.high:+.1f}"
        hm, accuracy = at_best[name].mean(axis=0)
        lines.append(f"| {name} | {hm:.1f} | {accuracy:.1f} | {change.mean:+.1f}{interval} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", help="PROTOCOL=FEATURES")
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--start", type=int, help="play a small start of so many base classes; needs --general")
    parser.add_argument("--general", type=Path, help="archive of photographs of anything")
    options = parser.parse_args()
    general = general_features(options.general)[:GENERAL] if options.start else None
    for text in options.sets:
        protocol, source = text.split("=", 1)
        X, y = base_photos(protocol, source)
        if general is None:
            print(table(protocol, source, seen(X, y, options.episodes)), flush=True)
            continue
        unseen = ~np.isin(y, get_protocol("cub200/small").session_classes[0] if "small" in source else ())
        played = started(X[unseen], y[unseen], options.start, options.episodes, general)
        print(table(f"{protocol}, {options.start} base classes", source, played), flush=True)


if __name__ == "__main__":
    main()
