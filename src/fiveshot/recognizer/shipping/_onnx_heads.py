"""What a head computes, as nodes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fiveshot.core.distances import CholeskyMetric, LowRankMetric, Metric, SpectralMetric
from fiveshot.core.labels import python_labels
from fiveshot.core.lda import ALONG, BETWEEN, LinearScorer, Surroundings
from fiveshot.core.scatter import BY_CHANCE, LEAST_TAILS, TAILS
from fiveshot.core.scorers import FeCAMScorer, NCMScorer, Prototype, Scorer, UnbiasedLDAScorer
from fiveshot.errors import InputError
from fiveshot.recognizer.recognition.rejection import CHANCE, LEAST_CHANCE, LENGTH, MOST_LONGER, Strangers
from fiveshot.recognizer.shipping._onnx_graph import LEAST, GraphBuilder


@dataclass(frozen=True)
class HeadNodes:
    """The names of the values that a head computes."""

    embedded: str  # (n, d): transformed features
    logits: str  # (n, classes)
    probabilities: str  # (n, classes)
    familiarity: str  # (n,)


def head_nodes(graph: GraphBuilder, head: Scorer, *, familiar: bool = True) -> HeadNodes:
    """Add the nodes of a head. Without familiarity, most of its cost is saved."""
    if isinstance(head, UnbiasedLDAScorer):
        return _linear_nodes(graph, head.linear(), familiar=familiar)
    embedded = graph.features
    if isinstance(head, NCMScorer) and head.metric == "cosine":
        # The axes are unit vectors, so their scores are the coordinates of the prototypes.
        width = len(head.memory.statistics.means[0])
        weights = head.scores(np.eye(width, dtype=np.float32))  # (d, classes)
        scores = graph.node("MatMul", graph.unit_rows(graph.features), weights)
    elif isinstance(head, NCMScorer | FeCAMScorer):
        embedded = graph.unit_rows(embedded) if isinstance(head, FeCAMScorer) and head.normalize else embedded
        scores = _distance_nodes(graph, embedded, head)
    else:
        raise InputError(
            f"a {type(head).__name__} head cannot be written as ONNX", hint="choose unbiased-lda, ncm or fecam"
        )
    logits = graph.node("Div", scores, np.float32(head.temperature))
    return HeadNodes(embedded, logits, graph.node("Softmax", logits, axis=1), graph.largest(scores))


def _linear_nodes(graph: GraphBuilder, scorer: LinearScorer, *, familiar: bool) -> HeadNodes:
    features = _shortened(graph, len(scorer.center)) if scorer.shortened else graph.features
    unit = embedded = graph.unit_rows(graph.node("Sub", features, scorer.center))
    plain = graph.node("Sub", graph.node("MatMul", unit, scorer.weights[0].T), scorer.shifts[0])
    if scorer.projection is not None:
        drawn = graph.node("Relu", graph.node("MatMul", unit, scorer.projection))
        more = graph.node("Sub", graph.node("MatMul", drawn, scorer.weights[1].T), scorer.shifts[1])
        plain, embedded = graph.node("Add", plain, more), graph.node("Concat", unit, drawn, axis=1)
    scores = graph.node("Add", plain, scorer.offset * np.asarray(scorer.gaps))
    logits = graph.node("Mul", scores, np.float32(scorer.sharpness))
    best = graph.node("ArgMax", scores, axis=1, keepdims=0)
    own = graph.product(unit, graph.node("Gather", scorer.own.weights, best, axis=0))
    familiarity = graph.node("Sub", own, graph.node("Gather", scorer.own.levels, best, axis=0))
    if scorer.own.around is not None and familiar:
        familiarity = graph.node("Add", familiarity, _around_nodes(graph, scorer.own.around, unit, best))
    if scorer.rival and len(scorer.gaps) > 1:
        second = graph.node("Gather", graph.node("TopK", scores, np.array([2]), outputs=2), np.array([1]), axis=1)
        rival = graph.node("Mul", graph.largest(second), np.float32(scorer.rival))
        familiarity = graph.node("Sub", familiarity, rival)
    return HeadNodes(embedded, logits, graph.node("Softmax", logits, axis=1), familiarity)


def _around_nodes(graph: GraphBuilder, around: Surroundings, unit: str, best: str) -> str:
    """Add the nodes of ``fiveshot.core.lda.Surroundings``."""
    matrix = around.covariance.whiten(np.eye(len(around.origin), dtype=np.float32))
    white = graph.unit_rows(graph.node("MatMul", graph.node("Sub", unit, around.origin), matrix))
    along = graph.product(white, graph.node("Gather", around.white, best, axis=0))
    inside = graph.node("MatMul", white, around.directions)
    between = graph.node("Max", graph.product(inside, inside), np.float32(around.share))
    along, between = (
        graph.node("Mul", one, np.float32(weight)) for one, weight in ((along, ALONG), (between, BETWEEN))
    )
    return graph.node("Sub", along, between)


def _shortened(graph: GraphBuilder, width: int) -> str:
    """Add the nodes of ``fiveshot.core.scatter.shortened``; return the name of the result."""
    scaled = graph.node("Mul", graph.unit_rows(graph.features), np.float32(width**0.5))
    upper, places = np.array([width - width // 2]), np.array([width - width // 2 - 1])
    median = graph.node("Gather", graph.node("TopK", scaled, upper, outputs=2), places, axis=1)
    skew = graph.node("Sub", graph.node("ReduceMean", scaled, np.array([1]), keepdims=1), median)
    tails = graph.node("Mul", graph.node("Sub", skew, np.float32(BY_CHANCE / width**0.5)), np.float32(TAILS))
    return graph.node("Asinh", graph.node("Mul", graph.node("Max", tails, np.float32(LEAST_TAILS)), scaled))


def standing_nodes(
    graph: GraphBuilder, found: HeadNodes, strangers: Strangers, is_learned: NDArray[np.bool_]
) -> str:
    """Lower the familiarity of photos that are like the learned photos of none of the classes."""
    probabilities = head_nodes(graph, strangers.fitted, familiar=False).probabilities
    own = graph.node("Gather", probabilities, np.flatnonzero(~strangers.strange), axis=1)
    chance = graph.node("Max", graph.node("ReduceSum", own, np.array([1]), keepdims=0), np.float32(LEAST_CHANCE))
    chance = graph.node("Mul", graph.node("Log", chance), np.float32(CHANCE))
    length = graph.node("Log", graph.node("Max", graph.lengths(graph.features, keepdims=0), LEAST))
    longer = graph.node("Sub", length, np.float32(strangers.length))
    longer = graph.node("Max", graph.node("Min", longer, np.float32(MOST_LONGER)), np.float32(-MOST_LONGER))
    beside = graph.node("Add", chance, graph.node("Mul", longer, np.float32(LENGTH)))
    best = graph.node("ArgMax", found.probabilities, axis=1, keepdims=0)
    learned = graph.node("Gather", is_learned.astype(np.float32), best)
    return graph.node("Add", found.familiarity, graph.node("Mul", beside, learned))


def _distance_nodes(graph: GraphBuilder, embedded: str, head: NCMScorer | FeCAMScorer) -> str:
    """Add squared distances without linear solves, which ONNX lacks; return the name of the scores.

    Every metric is Σⱼ aⱼ(x − μ)ⱼ² + Σᵢ ±(eᵢ·(x − μ))². Classes with the same number of rows eᵢ are computed
    together.
    """
    metrics = head.model.of(python_labels(head.classes))
    means = np.stack([metric.mean for metric in metrics])  # (k, d)
    # Coordinates relative to a point among the means lose fewer digits than relative to zero.
    origin = means.mean(axis=0)
    means = means - origin
    parts = [_quadratic(metric) for metric in metrics]
    diagonals = np.stack([diagonal for diagonal, _, _ in parts])  # (k, d)
    X = graph.node("Sub", embedded, origin)
    squares = graph.node("MatMul", graph.node("Mul", X, X), diagonals.T)
    linear = graph.node("MatMul", X, 2 * (diagonals * means).T)
    distances = graph.node("Add", graph.node("Sub", squares, linear), (diagonals * means**2).sum(axis=1))
    ranks = np.array([len(rows) for _, rows, _ in parts])
    if ranks.any():
        groups = [np.flatnonzero(ranks == rank) for rank in np.unique(ranks)]
        lengths = [_length_nodes(graph, X, [parts[i] for i in group], means[group]) for group in groups]
        joined = graph.node("Concat", *lengths, axis=1)
        ordered = graph.node("Gather", joined, np.argsort(np.concatenate(groups)), axis=1)
        distances = graph.node("Add", distances, ordered)
    inflations = np.array([metric.inflation for metric in metrics], np.float32)
    return graph.node("Sub", inflations, graph.node("Relu", distances))


Quadratic = tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]]


def _length_nodes(graph: GraphBuilder, X: str, parts: Sequence[Quadratic], means: NDArray[np.floating]) -> str:
    """Add Σᵢ ±(eᵢ·(x − μ))² for classes with the same number of rows, (n, k); zero for no rows."""
    rank = max(1, len(parts[0][1]))
    rows = np.concatenate([own if len(own) else np.zeros((1, means.shape[1])) for _, own, _ in parts])
    offsets = (rows.reshape(len(parts), rank, -1) * means[:, None]).sum(axis=2).ravel()  # (k · r,)
    projected = graph.node("Sub", graph.node("MatMul", X, rows.T), offsets)
    squares = graph.node("Reshape", graph.node("Mul", projected, projected), np.array([-1, len(parts), rank]))
    signs = np.stack([own if len(own) else np.ones(1) for _, _, own in parts])  # (k, r)
    return graph.node("ReduceSum", graph.node("Mul", squares, signs), np.array([2]), keepdims=0)


def _quadratic(metric: Metric | Prototype) -> Quadratic:
    """Return a (d,), the rows e (r, d) and their signs (r,). For a prototype this is the Euclidean distance."""
    width = len(metric.mean)
    if isinstance(metric, LowRankMetric):
        more = np.zeros((0, width)) if metric.added is None else metric.added[None]
        rows = np.concatenate([metric.projection, more]) / metric.gamma**0.5
        return metric.scale**2 / metric.gamma, rows, np.repeat([-1.0, 1.0], [len(rows) - len(more), len(more)])
    if isinstance(metric, CholeskyMetric):
        rows = np.linalg.inv(metric.cholesky)
        if metric.null is not None:
            rows = rows - np.outer(rows @ metric.null, metric.null)
        return np.zeros(width), rows, np.ones(width)
    if isinstance(metric, SpectralMetric):
        return np.zeros(width), metric.whitener, np.ones(len(metric.whitener))
    return np.ones(width), np.zeros((0, width)), np.zeros(0)
