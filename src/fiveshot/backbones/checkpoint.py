"""Fill a timm architecture with the weights of a local file: nothing half-loaded, no pickled code."""

from __future__ import annotations

import math
import os
import pickle
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra

_PICKLED = (".pth", ".pt", ".bin", ".tar")
_NESTED = (
    "state_dict_ema",
    "model_ema",
    "state_dict",
    "model",
    "teacher",
)  # the first one found holds the tensors
_WRAPPERS = ("module.", "_orig_mod.")  # left in the names by data-parallel training and torch.compile


def timm_from_file(name: str, weights: str | os.PathLike[str]) -> Any:
    """Return timm's ``name`` without classifier, every tensor of it from the file."""
    path = Path(weights)
    if path.suffix == ".npz":
        return _from_npz(name, path)
    return _from_state(name, read_state(path), source=path)


def read_state(weights: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return the named tensors of a safetensors file, or of a PyTorch one read without running its code."""
    path = Path(weights)
    if not path.is_file():
        raise StorageError(f"no such file: {path}")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise StorageError(f"{path} is no safetensors file, or it is truncated ({error})") from error
    if path.suffix not in _PICKLED:
        raise InputError(
            f"{path} cannot be read as weights; give .safetensors, .pth (also .pt, .bin) or Google's .npz"
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise StorageError(
            f"{path} is truncated, or holds more than tensors, which is refused because it could run code; "
            "convert it to safetensors where you trust it"
        ) from error
    return _tensors(content, path)


def _tensors(content: Any, path: Path) -> dict[str, Tensor]:
    if isinstance(content, dict):
        content = next((content[key] for key in _NESTED if isinstance(content.get(key), dict)), content)
        state = {_plain(name): value for name, value in content.items() if isinstance(value, Tensor)}
        if state:
            return state
    raise StorageError(f"{path} holds no state dict: no named tensors were found in it")


def _plain(name: str) -> str:
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    return name


def _from_state(name: str, state: dict[str, Tensor], *, source: Path) -> Any:
    timm = import_extra("timm")
    config = timm.models.get_pretrained_cfg(name)
    problem: RuntimeError | None = None
    # timm loads strictly only when the number of classes is the file's: ask for exactly that one.
    for classes in _class_counts(config, state):
        overlay = {"state_dict": dict(state), "num_classes": classes, "label_offset": 0}
        try:
            model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=classes)
        except (RuntimeError, KeyError) as error:
            problem = error if isinstance(error, RuntimeError) else RuntimeError(f"no tensor {error}")
            continue
        model.pretrained_cfg["state_dict"] = None  # or the model would hold its weights twice
        return without_classifier(model)
    raise InputError(f"{source} does not fit {name}: {_brief(problem)}") from problem


def _class_counts(config: Any, state: dict[str, Tensor]) -> list[int]:
    classifier = config.classifier if config else None
    first = classifier[0] if isinstance(classifier, tuple | list) else classifier
    head = state.get(f"{first}.weight")
    if head is not None:
        return [head.shape[0]]
    return list(dict.fromkeys([0, config.num_classes if config else 1000]))


def _from_npz(name: str, path: Path) -> Any:
    if not path.is_file():
        raise StorageError(f"no such file: {path}")
    model = import_extra("timm").create_model(name, pretrained=False, num_classes=0)
    if not hasattr(model, "load_pretrained"):
        raise InputError(f"{name} cannot be read from .npz; give a .safetensors or .pth file")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(math.nan)  # timm skips what it does not find: then the mark stays
    try:
        zipfile.ZipFile(path).close()  # NumPy would leave a truncated file open
        model.load_pretrained(str(path))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise StorageError(
            f"{path} is no .npz file, or it is truncated ({error}); get a fresh copy of it"
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        raise InputError(f"{path} does not fit {name} in Google's .npz layout: {_brief(error)}") from error
    unfilled = [key for key, parameter in model.named_parameters() if parameter.isnan().any()]
    if unfilled:
        raise InputError(f"{path} does not fit {name}: it gives no {unfilled[0]} ({len(unfilled)} such)")
    return model


def without_classifier(model: Any) -> Any:
    """Drop the classifier: features do not need it, and it must not decide which weights these are."""
    model.reset_classifier(0)
    return model


def _brief(error: Exception | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[1:2] or lines[:1]) or type(error).__name__
    return text if len(text) <= 160 else text[:160] + " ..."
