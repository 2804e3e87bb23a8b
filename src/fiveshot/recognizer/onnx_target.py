"""The two files of an ONNX export, and how those of an earlier one are known."""

from __future__ import annotations

import json
import os
from pathlib import Path

from fiveshot.errors import InputError
from fiveshot.extras import import_extra
from fiveshot.recognizer.arguments import given_path
from fiveshot.recognizer.export_target import check_target

PROPERTY = "fiveshot"  # of the ONNX file: the text of the JSON file


def onnx_targets(path: str | os.PathLike[str], *, overwrite: bool) -> tuple[Path, Path]:
    """Return the paths of the graph and of the JSON file beside it, if an export may be written there."""
    target = given_path(path, "path")
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
