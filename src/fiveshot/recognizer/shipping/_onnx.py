"""Backbone and head as one ONNX file: photos in, probabilities out, on a runtime without fiveshot.

The package contains the graph of the embedded backbone; a few nodes for the head are added to it. Only other
backbones need PyTorch.

Input, outputs and metadata of the plain form follow the classifiers of Ultralytics, which other programs load,
too: ``images`` (n, 3, size, size) is RGB from 0 to 1, the first output says how probable each class is, and the
metadata hold ``names``, ``task`` and ``imgsz``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot import __version__
from fiveshot.backbones import EmbeddedNetwork, Embedder, Preprocessing
from fiveshot.core.distances import CholeskyMetric, LowRankMetric, Metric, SpectralMetric, make_metric
from fiveshot.core.labels import python_labels
from fiveshot.core.lda import ALONG, BETWEEN, LinearScorer, Surroundings
from fiveshot.core.scatter import BY_CHANCE, LEAST_TAILS, TAILS
from fiveshot.core.scorers import FeCAMScorer, NCMScorer, Prototype, Scorer, UnbiasedLDAScorer
from fiveshot.data import INNER_VIEW, VIEWS
from fiveshot.errors import InputError
from fiveshot.extras import import_extra, require_extra
from fiveshot.recognizer.recognition.rejection import (
    CHANCE,
    LEAST_CHANCE,
    LENGTH,
    MOST_LONGER,
    Rejection,
    Strangers,
    is_learned,
)
from fiveshot.recognizer.shipping._portable import check_target
from fiveshot.storage import FilePath, atomic_paths

PROPERTY = "fiveshot"  # of the ONNX file: the text of the JSON file
LABELS = "labels.txt"
OUTPUTS = ("probabilities", "logits", "familiarity")
TOLERANCE = 1e-3
LARGEST = 2 * 1024**3  # bytes: the most one ONNX file can hold
_LEAST = np.float32(1e-12)  # length of a vector that has none


def onnx_targets(path: FilePath, *, overwrite: bool) -> tuple[Path, Path, Path]:
    """Return the paths of the graph, its JSON file and its labels, if an export may be written there."""
    target = Path(path)
    if target.suffix != ".onnx":
        raise InputError(f"{target} must end in .onnx", hint="leave out --onnx to export a model for fiveshot")
    sidecar, labels = target.with_suffix(".json"), target.with_name(LABELS)
    check_target(target, _is_onnx_export, overwrite=overwrite)
    check_target(labels, partial(_are_labels_of, sidecar), overwrite=overwrite, beside=target)
    check_target(sidecar, is_description, overwrite=overwrite, beside=target)
    return target, sidecar, labels


def write_onnx(
    embedder: Embedder,
    head: Scorer,
    path: FilePath,
    *,
    rejection: Rejection | None = None,
    strangers: Strangers | None = None,
    all_views: bool = False,
    overwrite: bool = False,
) -> tuple[Path, Path, Path]:
    """Write ``path`` (.onnx), and beside it a JSON file that describes it, and the labels; return all paths.

    Input ``images`` is (n, 3, size, size), RGB from 0 to 1: one view of each photo. With ``all_views`` it is
    (n, views, 3, size, size), prepared as the JSON says. Outputs are ``probabilities`` and ``logits``
    (n, classes) and ``familiarity`` (n,). The same JSON text is in the file's own metadata under ``fiveshot``. The
    files of an earlier export are replaced, other files only with ``overwrite``. All are on the disk before the
    first replacement; only a kill between the replacements can leave some old.
    """
    targets = onnx_targets(path, overwrite=overwrite)
    model, said = model_graph(embedder, head, rejection=rejection, strangers=strangers, all_views=all_views)
    text = as_json(said)
    import_extra("onnx", extra="onnx").helper.set_model_props(model, _properties(said) | {PROPERTY: text})
    with atomic_paths(*targets) as (graph, sidecar, labels):
        graph.write_bytes(model.SerializeToString())
        sidecar.write_text(text + "\n", encoding="utf-8")
        labels.write_text(_label_lines(said["classes"]), encoding="utf-8")
    return targets


def model_graph(
    embedder: Embedder,
    head: Scorer,
    *,
    rejection: Rejection | None,
    strangers: Strangers | None,
    all_views: bool = True,
) -> tuple[Any, dict[str, Any]]:
    """Return backbone and head as an ONNX model, and its description.

    The outputs of the graph are compared with those of the head first.
    """
    graph = _backbone_graph(import_extra("onnx", extra="onnx"), embedder)
    if all_views:
        graph.average_views(embedder.preprocessing.shape)
    else:
        embedder = _with_one_view(embedder)
        graph.take_pixels(embedder.preprocessing)
    found = _head_nodes(graph, head)
    familiarity = found.familiarity
    if strangers is not None:
        familiarity = _standing_nodes(graph, found, strangers, is_learned(head.memory))
    graph.finish((found.probabilities, found.logits, familiarity), classes=len(head.classes))
    if graph.model.ByteSize() > LARGEST:
        raise InputError(
            f"{embedder.name} is larger than the 2 GB an ONNX file can hold", hint="choose a smaller backbone"
        )
    _compare(graph.model.SerializeToString(), embedder, head, strangers, all_views=all_views)
    return graph.model, describe(embedder, head, rejection, all_views=all_views)


def _with_one_view(embedder: Embedder) -> Embedder:
    """Return the embedder that sees only the center crop of a photo."""
    single = replace(embedder.preprocessing, views=1)
    return replace(embedder, spec=embedder.spec.replace(views=1), preprocessing=single)


def describe(
    embedder: Embedder, head: Scorer, rejection: Rejection | None, *, all_views: bool = True
) -> dict[str, Any]:
    """Return what a program needs to use the graph: preprocessing, class names, thresholds."""
    prepared = embedder.preprocessing
    thresholds = rejection.thresholds_in(head.memory) if rejection else np.full(len(head.classes), -np.inf)
    return {
        "made_with": f"fiveshot {__version__}",
        "backbone": embedder.name,
        "input": {
            "name": "images",
            "shape": ["n", *(prepared.shape if all_views else prepared.shape[1:])],
            "type": "float32",
            "channels": "RGB",
            "squash_both_sides_to": prepared.squash,
            "views": [_view_in_words(name, prepared) for name in VIEWS[prepared.views]],
            "interpolation": prepared.interpolation,
            "then": "x / 255, minus mean, divided by std",
            # The plain graph normalizes by itself.
            "mean": list(prepared.mean) if all_views else [0.0] * 3,
            "std": list(prepared.std) if all_views else [1.0] * 3,
        },
        "outputs": list(OUTPUTS),
        "classes": python_labels(head.classes),
        # A photo is unknown where its familiarity is below the threshold of the most probable class.
        "unknown_below": [float(value) if np.isfinite(value) else None for value in thresholds],
        "false_rejection": rejection.false_rejection if rejection else None,
    }


def _properties(said: Mapping[str, Any]) -> dict[str, str]:
    """Return metadata as Ultralytics writes it for its classifiers; X-AnyLabeling and Netron read it, too."""
    size = said["input"]["shape"][-1]
    names = {str(number): str(name) for number, name in enumerate(said["classes"])}
    return {
        "description": f"{said['made_with']} classifier on {said['backbone']}",
        "task": "classify",
        "names": json.dumps(names, ensure_ascii=False),  # also reads as a dict of Python, as Ultralytics wants
        "imgsz": f"[{size}, {size}]",
        "channels": "3",
        "stride": "1",
        "batch": "1",
    }


def _label_lines(classes: Sequence[object]) -> str:
    return "".join(f"{name}\n" for name in classes)


def as_json(said: dict[str, Any]) -> str:
    """Return values as JSON that is also safe inside a script of a web page."""
    return json.dumps(said, indent=1, ensure_ascii=False).replace("<", "\\u003c")


def _view_in_words(name: str, prepared: Preprocessing) -> dict[str, Any]:
    """Describe how one view is cut out of a photo."""
    part = name.removeprefix("mirrored ")
    mirrored = part != name
    if part == "whole":
        return {"resize_both_sides_to": prepared.size, "mirrored": mirrored}
    short = prepared.resize if part == "center" else round(prepared.resize / INNER_VIEW)
    return {"resize_short_side_to": short, "center_crop": prepared.size, "mirrored": mirrored}


class _Graph:
    """An ONNX graph that is built node by node; values have names."""

    def __init__(self, onnx: Any, model: Any) -> None:
        self.onnx, self.model = onnx, model
        self.features = "features"  # the output of the backbone
        self._count = 0

    def constant(self, values: Any) -> str:
        """Add a constant array: int64 for integers, float32 otherwise."""
        array = np.asarray(values)
        array = np.ascontiguousarray(array, np.int64 if array.dtype.kind in "iu" else np.float32)
        name = self._fresh("constant")
        self.model.graph.initializer.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, operator: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output. Inputs are names, or arrays for constants."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        found = [self._fresh(operator) for _ in range(outputs)]
        self.model.graph.node.append(self.onnx.helper.make_node(operator, names, found, **attributes))
        return found[0]

    def average_views(self, shape: tuple[int, int, int, int]) -> None:
        """Change the input to photos with several views each, (n, *shape); average the features of the views."""
        views, *square = shape
        flat = self.constant(np.array([-1, *square]))
        self._before_network(shape, ("Reshape", flat))
        each = self.node("Unsqueeze", self.features, np.array([0]))  # (1, n · views, d)
        apart = self.node("Reshape", each, np.array([-1, views, 0]), allowzero=0)
        self.features = self.node("ReduceMean", apart, np.array([1]), keepdims=0)

    def take_pixels(self, prepared: Preprocessing) -> None:
        """Take squares of RGB from 0 to 1, (n, 3, size, size), in the place of normalized ones."""
        mean, std = (self.constant(np.reshape(values, (3, 1, 1))) for values in (prepared.mean, prepared.std))
        self._before_network(prepared.shape[1:], ("Sub", mean), ("Div", std))

    def _before_network(self, shape: Sequence[int], *steps: tuple[str, str]) -> None:
        """Put nodes of an operator and a constant before the network, and say what shape the first one takes."""
        (taken,) = self.model.graph.input
        nodes, helper = self.model.graph.node, self.onnx.helper
        names = [taken.name, *(self._fresh("input") for _ in steps)]
        for node in nodes:
            inputs = [names[-1] if name == taken.name else name for name in node.input]
            del node.input[:]
            node.input.extend(inputs)
        for number, (operator, constant) in enumerate(steps):
            step = helper.make_node(operator, [names[number], constant], [names[number + 1]])
            nodes.insert(number, step)
        taken.CopyFrom(helper.make_tensor_value_info(taken.name, self.onnx.TensorProto.FLOAT, ["n", *shape]))

    def finish(self, outputs: Sequence[str], *, classes: int) -> None:
        """Set the outputs of the graph."""
        helper, floats = self.onnx.helper, self.onnx.TensorProto.FLOAT
        del self.model.graph.output[:]
        shapes = (["n", classes], ["n", classes], ["n"])
        for name, value, shape in zip(OUTPUTS, outputs, shapes, strict=True):
            self.model.graph.node.append(helper.make_node("Identity", [value], [name]))
            self.model.graph.output.append(helper.make_tensor_value_info(name, floats, shape))

    def unit_rows(self, rows: str) -> str:
        """Scale the rows to length one."""
        return self.node("Div", rows, self.node("Max", self.lengths(rows, keepdims=1), _LEAST))

    def lengths(self, rows: str, *, keepdims: int) -> str:
        """Return the length of each row."""
        return self.node("ReduceL2", rows, np.array([1]), keepdims=keepdims)

    def product(self, rows: str, others: str) -> str:
        """Return the dot products of all rows with all rows of the other array."""
        return self.node("ReduceSum", self.node("Mul", rows, others), np.array([1]), keepdims=0)

    def largest(self, rows: str) -> str:
        """Return the largest value of each row."""
        return self.node("ReduceMax", rows, np.array([1]), keepdims=0)

    def _fresh(self, kind: str) -> str:
        self._count += 1
        return f"fiveshot.{kind}.{self._count}"


def _backbone_graph(onnx: Any, embedder: Embedder) -> _Graph:
    """Return the graph from ``images`` to the features."""
    network = embedder.network
    if not isinstance(network, EmbeddedNetwork):
        require_extra("torch", "timm", "torchvision")
        from fiveshot.backbones import export_onnx as exported

        try:
            content = exported(network.backbone)  # type: ignore[attr-defined]  # all other networks use torch
        except Exception as error:  # the exporter's errors have no common base
            raise InputError(f"{embedder.name} cannot be written as ONNX ({error})") from error
        return _Graph(onnx, onnx.load_model_from_string(content))
    structure, arrays = network.graph()
    model = onnx.load_model_from_string(structure)
    inputs = [one for one in model.graph.input if one.name == "images"]
    own = [one for one in model.graph.initializer if one.name not in arrays]  # not weights, but constants
    del model.graph.initializer[:], model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(own)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return _Graph(onnx, model)


@dataclass(frozen=True)
class _HeadNodes:
    """The names of the values that a head computes."""

    embedded: str  # (n, d): transformed features
    logits: str  # (n, classes)
    probabilities: str  # (n, classes)
    familiarity: str  # (n,)


def _head_nodes(graph: _Graph, head: Scorer, *, familiar: bool = True) -> _HeadNodes:
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
    return _HeadNodes(embedded, logits, graph.node("Softmax", logits, axis=1), graph.largest(scores))


def _linear_nodes(graph: _Graph, scorer: LinearScorer, *, familiar: bool) -> _HeadNodes:
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
    return _HeadNodes(embedded, logits, graph.node("Softmax", logits, axis=1), familiarity)


def _around_nodes(graph: _Graph, around: Surroundings, unit: str, best: str) -> str:
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


def _shortened(graph: _Graph, width: int) -> str:
    """Add the nodes of ``fiveshot.core.scatter.shortened``; return the name of the result."""
    scaled = graph.node("Mul", graph.unit_rows(graph.features), np.float32(width**0.5))
    upper, places = np.array([width - width // 2]), np.array([width - width // 2 - 1])
    median = graph.node("Gather", graph.node("TopK", scaled, upper, outputs=2), places, axis=1)
    skew = graph.node("Sub", graph.node("ReduceMean", scaled, np.array([1]), keepdims=1), median)
    tails = graph.node("Mul", graph.node("Sub", skew, np.float32(BY_CHANCE / width**0.5)), np.float32(TAILS))
    return graph.node("Asinh", graph.node("Mul", graph.node("Max", tails, np.float32(LEAST_TAILS)), scaled))


def _standing_nodes(graph: _Graph, found: _HeadNodes, strangers: Strangers, is_learned: NDArray[np.bool_]) -> str:
    """Lower the familiarity of photos that are like the learned photos of none of the classes."""
    probabilities = _head_nodes(graph, strangers.fitted, familiar=False).probabilities
    own = graph.node("Gather", probabilities, np.flatnonzero(~strangers.strange), axis=1)
    chance = graph.node("Max", graph.node("ReduceSum", own, np.array([1]), keepdims=0), np.float32(LEAST_CHANCE))
    chance = graph.node("Mul", graph.node("Log", chance), np.float32(CHANCE))
    length = graph.node("Log", graph.node("Max", graph.lengths(graph.features, keepdims=0), _LEAST))
    longer = graph.node("Sub", length, np.float32(strangers.length))
    longer = graph.node("Max", graph.node("Min", longer, np.float32(MOST_LONGER)), np.float32(-MOST_LONGER))
    beside = graph.node("Add", chance, graph.node("Mul", longer, np.float32(LENGTH)))
    best = graph.node("ArgMax", found.probabilities, axis=1, keepdims=0)
    learned = graph.node("Gather", is_learned.astype(np.float32), best)
    return graph.node("Add", found.familiarity, graph.node("Mul", beside, learned))


def _distance_nodes(graph: _Graph, embedded: str, head: NCMScorer | FeCAMScorer) -> str:
    """Add squared distances without linear solves, which ONNX lacks; return the name of the scores.

    Every metric is Σⱼ aⱼ(x − μ)ⱼ² + Σᵢ ±(eᵢ·(x − μ))². Classes with the same number of rows eᵢ are computed
    together.
    """
    metrics = [_whole(metric, head) for metric in head.model.of(python_labels(head.classes))]
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


def _whole(metric: Metric | Prototype, head: NCMScorer | FeCAMScorer) -> Metric | Prototype:
    """Return the metric without its dependence on the base classes."""
    if not isinstance(head, FeCAMScorer) or not isinstance(metric, LowRankMetric) or metric.borrowed is None:
        return metric
    gaussian = metric.borrowed.gaussian(metric.mean)
    return make_metric(gaussian, gamma=head.gamma, normalization=head.normalization)


Quadratic = tuple[NDArray[np.floating], NDArray[np.floating], NDArray[np.floating]]


def _length_nodes(graph: _Graph, X: str, parts: Sequence[Quadratic], means: NDArray[np.floating]) -> str:
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


def _compare(
    content: bytes, embedder: Embedder, head: Scorer, strangers: Strangers | None, *, all_views: bool
) -> None:
    """Raise an error if the graph does not compute the same as the backbone and the head."""
    runtime = import_extra("onnxruntime", extra="")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # errors are reported below
    pixels = np.random.default_rng(0).integers(0, 256, (3, *embedder.preprocessing.shape), np.uint8)
    given = embedder.preprocessing.normalize(pixels) if all_views else pixels[:, 0].astype(np.float32) / 255
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        found = session.run(None, {"images": given})
    except Exception as error:  # the runtime's errors have no common base
        raise InputError(f"ONNX Runtime cannot run this backbone and head ({type(error).__name__})") from error
    X = embedder.features(pixels)
    answer = head.answer(X) if strangers is None else strangers.judged(X, head.answer(X))
    wanted = (answer.probabilities, answer.scores * head.softmax_factor(), answer.familiarity)
    for name, ours, theirs in zip(OUTPUTS, wanted, found, strict=True):
        worst = float(np.abs(ours - theirs).max())
        if not worst <= TOLERANCE * max(1.0, float(np.abs(ours).max())):
            raise InputError(f"ONNX Runtime computes other {name} (by {worst:.3g})", hint="nothing was written")


def _is_onnx_export(path: Path) -> bool:
    onnx = import_extra("onnx", extra="onnx")
    try:
        properties = onnx.load(str(path), load_external_data=False).metadata_props
    except Exception:  # a file that is not ONNX fails in many ways
        return False
    return any(one.key == PROPERTY and _describes(one.value) for one in properties)


def is_description(path: Path) -> bool:
    """Tell whether a file is the JSON of an earlier export."""
    try:
        return _describes(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return False


def _are_labels_of(sidecar: Path, labels: Path) -> bool:
    """Tell whether a file lists the classes of the earlier export that the JSON beside it describes."""
    try:
        return is_description(sidecar) and labels.read_text(encoding="utf-8") == _label_lines(
            json.loads(sidecar.read_text(encoding="utf-8"))["classes"]
        )
    except (OSError, UnicodeDecodeError, TypeError):
        return False


def _describes(text: str) -> bool:
    """Tell whether a text is a description made by ``describe``, in any release."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict) or not {"made_with", "input", "outputs", "classes"} <= set(said):
        return False
    return str(said["made_with"]).startswith("fiveshot ")
