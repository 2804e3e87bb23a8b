"""A RanPAC head from the sums of a cluster: the same head as if it had been fitted on all samples at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fiveshot.errors import InputError
from fiveshot.heads import RanPAC
from fiveshot.heads.evidence import Evidence, GramCache
from fiveshot.heads.memory import Memory, derive_models
from fiveshot.heads.ranpac import LAMBDAS
from fiveshot.heads.ridge_model import RidgeModel, solve_blocks
from fiveshot.heads.sampling import RandomFeatures, random_features
from fiveshot.scale.class_sample import ClassSample
from fiveshot.scale.cluster_statistics import ClusterStatistics
from fiveshot.scale.packed import unpack
from fiveshot.scale.ridge_sums import RidgeSums
from fiveshot.statistics.labels import python_labels

HELD_OUT = 5  # one sample of so many, and no more than were kept


def ranpac_from_sums(
    found: ClusterStatistics, *, lam: float | None = None, lambdas: Sequence[float] = LAMBDAS
) -> RanPAC:
    """Return the fitted head; it learns new classes and forgets them as any other.

    ``lam`` is chosen on the kept vectors unless it is given. The statistics must have been reduced with
    ``ridge`` and a covariance for each class.

    >>> from fiveshot.data import gaussian_classes
    >>> from fiveshot.features import Provenance
    >>> from fiveshot.heads import RanPAC
    >>> from fiveshot.scale import ClusterStatistics, Ridge, Wanted, ranpac_from_sums
    >>> from fiveshot.scale.rows import Rows
    >>> x, y, test_x, _ = gaussian_classes(
    ...     n_classes=3, n_features=8, train_per_class=20, test_per_class=10, seed=0)
    >>> wanted, rows = Wanted(ridge=Ridge(64, random_state=5)), Rows(x, y, tuple(map(str, range(60))))
    >>> parts = {name: reduction.reduce(rows) for name, reduction in wanted.reductions().items()}
    >>> found = ClusterStatistics(Provenance.unknown("toys"), {}, 60, **parts, notes={"random_state": 5})
    >>> fitted = RanPAC(64, lambdas=(100.0,), random_state=5).fit(x, y)
    >>> bool((ranpac_from_sums(found, lam=100.0).predict(test_x) == fitted.predict(test_x)).all())
    True
    """
    if found.ridge is None or found.classes is None:
        raise InputError(
            "RanPAC needs the sums and a covariance for each class: reduce with Wanted(ridge=Ridge())"
        )
    sums, statistics = found.ridge, unpack(found.classes)
    head = RanPAC(len(sums.gram), random_state=int(found.notes["random_state"]), lambdas=lambdas)
    like = statistics.means
    feature_map = random_features(like.shape[1], head.n_projections, seed=head.random_state, like=like)
    if lam is None:
        lam = choose_lambda(sums, _held_out(found), feature_map, lambdas)
    evidence = Evidence({}, sums.folded())
    weights, cache = solve_blocks([], evidence, feature_map, lam, GramCache())
    counts = dict(zip(python_labels(statistics.labels), statistics.counts.tolist(), strict=True))
    memory = Memory(base=statistics)
    tokens = derive_models(memory, lambda _, __: object(), None)
    mass = sum(counts.values()) / len(counts)
    model = RidgeModel(feature_map, lam, counts, mass, evidence, tokens, weights, cache)
    head.n_features_in_ = like.shape[1]
    return head._adopt(memory, model)


def choose_lambda(
    sums: RidgeSums, held_out: ClassSample, feature_map: RandomFeatures, lambdas: Sequence[float]
) -> float:
    """Return the λ of least squared error on held-out vectors, which are taken out of the sums first.

    With nothing to hold out, the middle candidate is taken, as ``fiveshot.heads.ridge.best_lambda`` does.
    """
    if not len(held_out):
        return float(sorted(lambdas)[len(lambdas) // 2])
    rows = feature_map(torch.from_numpy(held_out.vectors.copy()))  # (n, M)
    codes = torch.from_numpy(np.searchsorted(sums.labels, held_out.labels))
    own = torch.nn.functional.one_hot(codes, len(sums)).to(rows)  # (n, C)
    lower = torch.from_numpy(np.tril(sums.gram)) - (rows.T @ rows).tril()
    values, vectors = torch.linalg.eigh(lower, UPLO="L")
    values = values.clamp_min(0)
    inner = vectors.T @ (torch.from_numpy(sums.targets.copy()).T - rows.T @ own)  # (M, C)
    left = rows @ vectors
    resolution = float(values.max()) * torch.finfo(values.dtype).eps
    candidates = [lam for lam in lambdas if lam >= resolution] or [max(lambdas)]
    return float(min(candidates, key=lambda lam: _error(own, left, inner, values + lam)))


def _error(own: Tensor, left: Tensor, inner: Tensor, shifted: Tensor) -> float:
    return float((own - left @ (inner / shifted[:, None])).square().mean())


def _held_out(found: ClusterStatistics) -> ClassSample:
    """Return a part of the kept vectors, so that most samples of every class stay in the sums."""
    sample, classes = found.sample, found.classes
    if sample is None or classes is None:
        raise InputError("no vectors were kept to choose lambda on; reduce with a sample, or give lam")
    limits = classes.counts[np.searchsorted(classes.labels, sample.labels)] // HELD_OUT
    _, counts = np.unique(sample.labels, return_counts=True)
    rank = np.arange(len(sample)) - np.repeat(np.cumsum(counts) - counts, counts)
    return sample.select(rank < limits)
