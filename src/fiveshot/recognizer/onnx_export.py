"""Backbone and head as one ONNX file: photos in, probabilities out, on a runtime without PyTorch."""

from __future__ import annotations

import json
import os
import warnings
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from fiveshot import __version__
from fiveshot.backbones import Backbone
from fiveshot.backbones.onnx import OPSET
from fiveshot.backbones.readout import read_features
from fiveshot.backbones.silence import silent_output
from fiveshot.errors import FiveshotError, InputError
from fiveshot.extras import import_extra
from fiveshot.heads import FewShotHead
from fiveshot.recognizer.onnx_target import PROPERTY, onnx_targets
from fiveshot.recognizer.threshold import Rejection
from fiveshot.recognizer.traced_scores import Outputs, scorer
from fiveshot.statistics.labels import python_labels
from fiveshot.storage import atomic_paths

if TYPE_CHECKING:
    from fiveshot.recognizer.recognizer import Recognizer

OUTPUTS = ("scores", "probabilities", "familiarity")
TOLERANCE = 1e-3
_LARGEST = 2 * 1024**3  # bytes: the most one ONNX file can hold


def export_model(recognizer: Recognizer, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a model's backbone, classes and thresholds as ONNX; see ``export_onnx``."""
    snapshot = recognizer.refresh()
    if not snapshot.classes:
        raise InputError(f"the model {recognizer.path} knows no class yet; teach it one before it is exported")
    onnx_targets(path, overwrite=overwrite)  # before the backbone is loaded
    return export_onnx(
        recognizer.runner.backbone, snapshot.head, path, rejection=snapshot.rejection, overwrite=overwrite
    )


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
