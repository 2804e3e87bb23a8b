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
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fiveshot import __version__
from fiveshot.backbones import BundleNetwork, EmbeddedNetwork, Embedder, FunctionNetwork, Preprocessing
from fiveshot.core.labels import python_labels
from fiveshot.core.scorers import Scorer
from fiveshot.data import INNER_VIEW, VIEWS
from fiveshot.errors import InputError
from fiveshot.extras import import_extra, require_extra
from fiveshot.recognizer.recognition.rejection import Rejection, Strangers, is_learned
from fiveshot.recognizer.shipping._onnx_graph import OUTPUTS, GraphBuilder
from fiveshot.recognizer.shipping._onnx_heads import head_nodes, standing_nodes
from fiveshot.recognizer.shipping._portable import check_target
from fiveshot.storage import FilePath, atomic_paths

PROPERTY = "fiveshot"  # of the ONNX file: the text of the JSON file
LABELS = "labels.txt"
OPSET = 18  # version of the operators behind a backbone
TOLERANCE = 1e-3
LARGEST = 2 * 1024**3  # bytes: the most one ONNX file can hold


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
    found = head_nodes(graph, head)
    familiarity = found.familiarity
    if strangers is not None:
        familiarity = standing_nodes(graph, found, strangers, is_learned(head.memory))
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


def _backbone_graph(onnx: Any, embedder: Embedder) -> GraphBuilder:
    """Return the graph from ``images`` to the features."""
    network = embedder.network
    if isinstance(network, FunctionNetwork):
        raise InputError(
            f"{embedder.name} is a Python function, which cannot be written as ONNX",
            hint="make the model with an ONNX file of the network instead (--backbone FILE.onnx)",
        )
    if isinstance(network, BundleNetwork):
        return GraphBuilder(onnx, _modern(onnx, network.feature_graph(), embedder.name))
    if not isinstance(network, EmbeddedNetwork):
        require_extra("torch", "timm", "torchvision")
        from fiveshot.backbones import export_onnx as exported

        try:
            content = exported(network.backbone)  # type: ignore[attr-defined]  # all other networks use torch
        except Exception as error:  # the exporter's errors have no common base
            raise InputError(f"{embedder.name} cannot be written as ONNX ({error})") from error
        return GraphBuilder(onnx, onnx.load_model_from_string(content))
    structure, arrays = network.graph()
    model = onnx.load_model_from_string(structure)
    inputs = [one for one in model.graph.input if one.name == "images"]
    own = [one for one in model.graph.initializer if one.name not in arrays]  # not weights, but constants
    del model.graph.initializer[:], model.graph.input[:]
    model.graph.input.extend(inputs)
    model.graph.initializer.extend(own)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return GraphBuilder(onnx, model)


def _modern(onnx: Any, content: bytes, name: str) -> Any:
    """Return a graph as an ONNX model of the version that the nodes of heads need, or of a later one."""
    try:
        model = onnx.load_model_from_string(content)
        version = max(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
        return model if version >= OPSET else onnx.version_converter.convert_version(model, OPSET)
    except Exception as error:  # the errors of the converter have no common base
        raise InputError(f"{name} cannot be written as ONNX of version {OPSET} ({error})") from error


def _compare(
    content: bytes, embedder: Embedder, head: Scorer, strangers: Strangers | None, *, all_views: bool
) -> None:
    """Raise an error if the graph does not compute the same as the backbone and the head."""
    runtime = import_extra("onnxruntime", extra="")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # errors are reported below
    pixels = np.random.default_rng(0).integers(0, 256, (3, *embedder.preprocessing.shape), np.uint8)
    given = embedder.preprocessing.normalize(pixels) if all_views else pixels[:, 0].astype(np.float32) / 255
    mixes = isinstance(embedder.network, BundleNetwork) and embedder.network.bundle.facts.mixes
    step = 1 if mixes else len(given)  # some quantized graphs answer for a photo also by the photos beside it
    try:
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        answers = [session.run(None, {"images": given[row : row + step]}) for row in range(0, len(given), step)]
        found = [np.concatenate(parts) for parts in zip(*answers, strict=True)]
    except Exception as error:  # the runtime's errors have no common base
        raise InputError(f"ONNX Runtime cannot run this backbone and head ({type(error).__name__})") from error
    X = embedder.features(pixels)
    answer = head.answer(X) if strangers is None else strangers.judged(X, head.answer(X))
    wanted = (answer.probabilities, answer.scores * head.softmax_factor(), answer.familiarity)
    for name, ours, theirs in zip(OUTPUTS, wanted, found, strict=True):
        worst = float(np.abs(ours - theirs).max())
        if not worst <= TOLERANCE * max(1.0, float(np.abs(ours).max())):
            hint = "nothing was written"
            if mixes:
                hint += "; this graph is quantized: use one of float32 or float16, such as model_fp16.onnx"
            raise InputError(f"ONNX Runtime computes other {name} (by {worst:.3g})", hint=hint)


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
