"""Backbone and head as one ONNX file: photos in, probabilities out, on a runtime without fiveshot."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from fiveshot import __version__
from fiveshot.backbones import Backbone
from fiveshot.backbones.backbone import read_features
from fiveshot.backbones.export import OPSET, silent_output
from fiveshot.core.arrays import Array
from fiveshot.core.distances import CholeskyMetric, LowRankMetric, Metric
from fiveshot.core.labels import python_labels
from fiveshot.core.lda import LinearScorer
from fiveshot.errors import FiveshotError, InputError
from fiveshot.extras import import_extra
from fiveshot.heads import FeCAM, FewShotHead
from fiveshot.recognizer.recognition.rejection import Rejection
from fiveshot.recognizer.shipping.portable import check_target
from fiveshot.storage import atomic_paths

if TYPE_CHECKING:
    pass


PROPERTY = "fiveshot"  # of the ONNX file: the text of the JSON file


def onnx_targets(path: str | os.PathLike[str], *, overwrite: bool) -> tuple[Path, Path]:
    """Return the paths of the graph and of the JSON file beside it, if an export may be written there."""
    target = Path(path)
    if target.suffix != ".onnx":
        raise InputError(f"{target} must end in .onnx; a model for another fiveshot is exported without --onnx")
    sidecar = target.with_suffix(".json")
    check_target(target, _is_onnx_export, overwrite=overwrite)
    check_target(sidecar, _is_description, overwrite=overwrite, beside=target)
    return target, sidecar


def _is_onnx_export(path: Path) -> bool:
    onnx = import_extra("onnx", extra="onnx")
    try:
        properties = onnx.load(str(path), load_external_data=False).metadata_props
    except Exception:  # what is no ONNX file fails in many ways
        return False
    return any(one.key == PROPERTY and _describes(one.value) for one in properties)


def _is_description(path: Path) -> bool:
    try:
        return _describes(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return False


def _describes(text: str) -> bool:
    """Tell whether a text is what ``describe`` gives, in this release or another."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(said, dict) or not {"made_with", "input", "outputs", "classes"} <= set(said):
        return False
    return str(said["made_with"]).startswith("fiveshot ")


OUTPUTS = ("scores", "probabilities", "familiarity")
TOLERANCE = 1e-3
_LARGEST = 2 * 1024**3  # bytes: the most one ONNX file can hold


def export_onnx(
    backbone: Backbone,
    head: FewShotHead,
    path: str | os.PathLike[str],
    *,
    rejection: Rejection | None = None,
    overwrite: bool = False,
) -> Path:
    """Write ``path`` (.onnx) and beside it a JSON file that says how to use it; return the latter's path.

    Input ``images`` is (n, 3, size, size), prepared as the JSON says; outputs are ``scores`` and
    ``probabilities`` (n, classes) and ``familiarity`` (n,). The same JSON text is in the file's own metadata
    under ``fiveshot``. Where ONNX Runtime is installed, the result is compared with PyTorch's before it counts.
    The files of an earlier export are replaced, any others only with ``overwrite``. Both are on the disk before
    the first takes its place: only a kill in the moment between can leave one without the other.
    """
    onnx = import_extra("onnx", extra="onnx")
    target, sidecar = onnx_targets(path, overwrite=overwrite)
    if sum(tensor.nbytes for tensor in backbone.model.state_dict().values()) > _LARGEST:
        raise InputError(
            f"{backbone.name} is larger than the 2 GB an ONNX file can hold; choose a smaller backbone"
        )
    network = Recognition(backbone, head).eval()
    text = json.dumps(describe(backbone, head, rejection), indent=1, ensure_ascii=False)
    size = backbone.preprocessing.size
    with atomic_paths(target, sidecar) as (temporary, beside):
        _trace(network, torch.zeros(2, 3, size, size), temporary)
        model = onnx.load(str(temporary))
        onnx.helper.set_model_props(model, {PROPERTY: text})
        onnx.save(model, str(temporary))
        _compare(network, temporary, size)
        beside.write_text(text + "\n", encoding="utf-8")
    return sidecar


def describe(backbone: Backbone, head: FewShotHead, rejection: Rejection | None) -> dict[str, Any]:
    """Return what a program needs beside the graph: preprocessing, class names, thresholds."""
    prepared = backbone.preprocessing
    counts = head.memory_.statistics.counts.numpy()
    thresholds = rejection.thresholds_of(counts) if rejection else np.full(len(counts), -np.inf)
    return {
        "made_with": f"fiveshot {__version__}",
        "backbone": backbone.name,
        "input": {
            "name": "images",
            "shape": ["n", 3, prepared.size, prepared.size],
            "type": "float32",
            "channels": "RGB",
            "squash_both_sides_to": prepared.squash,
            "resize_short_side_to": prepared.resize,
            "interpolation": prepared.interpolation,
            "centre_crop": prepared.size,
            "then": "x / 255, minus mean, divided by std",
            "mean": list(prepared.mean),
            "std": list(prepared.std),
        },
        "outputs": list(OUTPUTS),
        "classes": python_labels(head.classes_),
        # A photo is unknown where its familiarity is below the threshold of the most probable class.
        "unknown_below": [float(value) if np.isfinite(value) else None for value in thresholds],
        "false_rejection": rejection.false_rejection if rejection else None,
    }


class Recognition(nn.Module):
    """Images (n, 3, size, size) to scores, probabilities and familiarity, as one traceable module."""

    def __init__(self, backbone: Backbone, head: FewShotHead) -> None:
        super().__init__()
        on_cpu = backbone.device.type == "cpu"
        self.network = backbone.model if on_cpu else deepcopy(backbone.model).cpu()
        self.readout = backbone.readout
        self.scorer = scorer(head)

    def forward(self, images: Tensor) -> Outputs:
        """Return the three outputs."""
        result: Outputs = self.scorer(read_features(self.network, images, self.readout))
        return result


def _trace(network: nn.Module, images: Tensor, path: Path) -> None:
    try:
        with warnings.catch_warnings(), silent_output(), torch.inference_mode():
            warnings.simplefilter("ignore")  # about constants: a head's classes are constants here
            torch.onnx.export(
                network,
                (images,),
                str(path),
                dynamo=False,
                opset_version=OPSET,
                input_names=["images"],
                output_names=list(OUTPUTS),
                dynamic_axes={name: {0: "n"} for name in ("images", *OUTPUTS)},
            )
    except FiveshotError:
        raise
    except Exception as error:  # the exporter's errors have no common base
        raise InputError(f"this backbone and head cannot be written as ONNX ({error})") from error


def _compare(network: nn.Module, path: Path, size: int) -> None:
    """Refuse a file that does not compute what the network does."""
    if find_spec("onnxruntime") is None:
        return
    runtime = import_extra("onnxruntime", extra="onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # what goes wrong is said below
    images = torch.randn(3, 3, size, size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted = network(images)
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        found = session.run(None, {"images": images.numpy()})
    except Exception as error:  # the runtime's errors have no common base
        raise InputError(f"ONNX Runtime cannot run this backbone and head ({type(error).__name__})") from error
    for name, ours, theirs in zip(OUTPUTS, wanted, found, strict=True):
        worst = float(np.abs(ours.numpy() - theirs).max())
        if not worst <= TOLERANCE * max(1.0, float(ours.abs().max())):
            raise InputError(f"ONNX Runtime gives other {name} than PyTorch (by {worst:.3g}); nothing was written")


Outputs = tuple[Tensor, Tensor, Tensor]


def scorer(head: FewShotHead) -> nn.Module:
    """Return the head's scoring as a module: features (n, d) to scores, probabilities and familiarity.

    A head that has a method ``scorer`` gives its own; of others the score function itself is traced.
    """
    own = getattr(head, "scorer", None)
    module: nn.Module = TracedScores(head) if own is None else TracedLinearScores(own())
    return module.eval()


class TracedLinearScores(nn.Module):
    """The default head as plain tensor operations; nothing is written in place."""

    def __init__(self, scorer: LinearScorer) -> None:
        super().__init__()
        self.offset, self.sharpness, self.doubt = scorer.offset, scorer.sharpness, scorer.doubt
        self.center, self.gaps = _tensor(scorer.center), _tensor(scorer.gaps)
        self.projection = None if scorer.projection is None else _tensor(scorer.projection)
        self.weights, self.shifts = [_tensor(w) for w in scorer.weights], [_tensor(s) for s in scorer.shifts]

    def forward(self, features: Tensor) -> Outputs:
        """Return scores and probabilities (n, classes) and familiarity (n,)."""
        shifted = features - self.center
        unit = shifted / torch.linalg.vector_norm(shifted, dim=1, keepdim=True).clamp_min(1e-12)
        plain = unit @ self.weights[0].T - self.shifts[0]
        if self.projection is not None:
            plain = plain + torch.relu(unit @ self.projection) @ self.weights[1].T - self.shifts[1]
        scores = plain + self.offset * self.gaps
        logits = self.sharpness * scores
        best = torch.log_softmax(logits, dim=1).amax(dim=1)
        return scores, torch.softmax(logits, dim=1), (plain + self.gaps).amax(dim=1) + self.doubt * best


def _tensor(array: Array) -> Tensor:
    return torch.as_tensor(array).clone()


class TracedScores(nn.Module):
    """The score function of a head whose probabilities are softmax(score / temperature)."""

    def __init__(self, head: FewShotHead) -> None:
        super().__init__()
        self.head = head
        self.labels = python_labels(head.classes_)
        self.metrics = MetricScores(head) if isinstance(head, FeCAM) else None

    def forward(self, features: Tensor) -> Outputs:
        """Return scores and probabilities (n, classes) and familiarity (n,)."""
        features = features.to(self.head.memory_.statistics.means)
        if self.metrics is not None:
            scores = self.metrics(features)
        else:
            scores = self.head.score_classes(features, self.labels)
        return scores, torch.softmax(scores * self.head.softmax_factor(), dim=1), scores.amax(dim=1)


class MetricScores(nn.Module):
    """FeCAM's distances without solving systems and without writing in place, neither of which ONNX has.

    Every metric is Σⱼ aⱼ(x − μ)ⱼ² ± ‖E(x − μ)‖². Classes whose E has as many rows are computed together.
    """

    def __init__(self, head: FeCAM) -> None:
        super().__init__()
        self.embed = head.prepared
        metrics = head.model_.of(python_labels(head.classes_))
        # Distances from a point among the means lose fewer digits than from zero.
        self.origin = torch.stack([metric.mean for metric in metrics]).mean(dim=0)
        parts = [_quadratic(metric) for metric in metrics]
        means = torch.stack([metric.mean for metric in metrics]) - self.origin  # (k, d)
        self.diagonals = torch.stack([diagonal for diagonal, _, _ in parts])  # (k, d)
        self.linear = self.diagonals * means
        self.constants = (self.linear * means).sum(dim=1)
        self.inflations = means.new_tensor([metric.inflation for metric in metrics])
        ranks = np.array([len(rows) for _, rows, _ in parts])
        self.groups = [
            _Group([parts[i][1] for i in members], means[torch.as_tensor(members)], [parts[i][2] for i in members])
            for members in (np.flatnonzero(ranks == rank) for rank in np.unique(ranks))
        ]
        order = np.concatenate([np.flatnonzero(ranks == rank) for rank in np.unique(ranks)])
        self.positions = torch.as_tensor(np.argsort(order))

    def forward(self, features: Tensor) -> Tensor:
        """Return scores (n, classes), the negative squared distances."""
        X = self.embed(features) - self.origin
        axes = X.square() @ self.diagonals.T - 2 * X @ self.linear.T + self.constants
        projected = torch.cat([group.signed_lengths(X) for group in self.groups], dim=1)[:, self.positions]
        scores: Tensor = self.inflations - (axes + projected).clamp_min(0)
        return scores


class _Group:
    def __init__(self, rows: Sequence[Tensor], means: Tensor, signs: Sequence[float]) -> None:
        self.shape = (len(rows), len(rows[0]))  # classes, rows of each
        self.rows = torch.cat(list(rows))  # (k · r, d)
        self.offsets = torch.cat([own @ mean for own, mean in zip(rows, means, strict=True)])
        self.signs = means.new_tensor(signs)

    def signed_lengths(self, X: Tensor) -> Tensor:
        projected = (X @ self.rows.T - self.offsets).square()  # (n, k · r)
        return projected.reshape(-1, *self.shape).sum(dim=2) * self.signs


def _quadratic(metric: Metric) -> tuple[Tensor, Tensor, float]:
    """Return a (d,), E (r, d) and the sign between their parts."""
    if isinstance(metric, LowRankMetric):
        # A class seen once has no covariance of its own; a row of zeros stands for it.
        rows = metric.projection if len(metric.projection) else torch.zeros_like(metric.mean)[None]
        return metric.scale.square() / metric.gamma, rows / metric.gamma**0.5, -1.0
    if isinstance(metric, CholeskyMetric):
        identity = torch.eye(len(metric.cholesky)).to(metric.cholesky)
        inverse = torch.linalg.solve_triangular(metric.cholesky, identity, upper=False)
        return torch.zeros_like(metric.mean), inverse * metric.scale, 1.0
    return torch.zeros_like(metric.mean), metric.whitener, 1.0
