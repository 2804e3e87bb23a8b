"""timm networks that torch runs, with the embedded weights, weights from the hub or from a local file."""

from __future__ import annotations

import logging
import math
import pickle
import ssl
import zipfile
import zlib
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from traceback import clear_frames
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fiveshot.backbones._adapter import included_adapter, is_of_adapter
from fiveshot.backbones.embedded import EMBEDDED_FILE, PREPROCESSING, read_weights
from fiveshot.backbones.preprocessing import Preprocessing
from fiveshot.backbones.spec import EMBEDDED
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.storage import FilePath

PROBE_SECONDS = 5.0

_PICKLED = (".pth", ".pt", ".bin", ".tar")
_NESTED = (
    "state_dict_ema",
    "model_ema",
    "state_dict",
    "model",
    "teacher",
)  # the first one found holds the tensors
_WRAPPERS = ("module.", "_orig_mod.")  # prefixes that data-parallel training and torch.compile add to names
_SAFE_TWIN = {
    "pytorch_model.bin": "model.safetensors",
    "open_clip_pytorch_model.bin": "open_clip_model.safetensors",
}

_log = logging.getLogger(__name__)


def load_network(name: str, weights: FilePath | None) -> Any:
    """Return a network by its exact name, without classifier, with weights from a local file or from the hub."""
    if name == EMBEDDED:
        arrays = read_weights(EMBEDDED_FILE if weights is None else weights)
        model = import_extra("timm").create_model(name, num_classes=0)
        # Not strict: the file leaves out the batch-norm counters, which are not used.
        model.load_state_dict({key: torch.from_numpy(array) for key, array in arrays.items()}, strict=False)
        return model
    if weights is not None:
        return _from_file(name, weights)
    timm = import_extra("timm")
    config = timm.models.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise InputError(f"timm has no pre-trained weights for {name}", hint="pass weights=FILE (--weights FILE)")
    cached = cached_weights(config)
    if cached is not None:
        return _from_file(name, cached)
    require_hub(name, config)
    try:
        return _without_classifier(timm.create_model(name, pretrained=True))
    except Exception as error:  # the errors of the hub's client have no common base
        raise _unreachable(name, config, type(error).__name__) from error


def resolve_name(name: str) -> str:
    """Return the exact name of a backbone: ``arch.tag``; the tag names the weights.

    Parameters
    ----------
    name : str
        An exact name, or a bare architecture, which gets its default tag; the choice is logged.

    Returns
    -------
    str
        The exact name.

    Raises
    ------
    InputError
        When neither the package nor timm has it; the nearest names are in the message.

    Examples
    --------
    >>> from fiveshot.backbones import resolve_name
    >>> resolve_name("vit_base_patch16_224.augreg_in21k_ft_in1k")
    'vit_base_patch16_224.augreg_in21k_ft_in1k'
    """
    if name == EMBEDDED:
        return name
    registry = import_extra("timm.models")
    deprecated = registry.get_deprecated_models()
    if deprecated.get(name):
        return _stated(name, resolve_name(deprecated[name]))
    architecture, _, tag = name.partition(".")
    if not registry.is_model(architecture) or architecture in deprecated:
        raise _unknown(name, [EMBEDDED, *registry.list_models()])
    tags = [known.partition(".")[2] for known in registry.get_arch_pretrained_cfgs(architecture)]
    if tag:
        if tag not in tags:
            raise _unknown(name, [f"{architecture}.{known}" for known in tags if known])
        return name
    default = registry.get_pretrained_cfg(architecture)
    if default is None or not default.tag:
        return name
    return _stated(name, f"{architecture}.{default.tag}")


def _stated(given: str, exact: str) -> str:
    _log.warning("backbone %s means %s; use the exact name to fix this choice", given, exact)
    return exact


def _unknown(name: str, known: list[str]) -> InputError:
    near = get_close_matches(name.lower(), known, n=4, cutoff=0.6)
    hint = f"nearest: {', '.join(near)}" if near else f"the embedded one is {EMBEDDED}"
    return InputError(f"no backbone {name!r}; {hint}; any timm name is allowed")


def _from_file(name: str, weights: FilePath) -> Any:
    """Return timm's ``name`` without classifier, with all tensors from the file."""
    path = Path(weights)
    if path.suffix == ".npz":
        return _from_npz(name, path)
    state = read_state(path)
    if included_adapter(path) is not None:
        state = {key: tensor for key, tensor in state.items() if not is_of_adapter(key)}
    return _from_state(name, state, source=path)


def read_state(weights: FilePath) -> dict[str, Tensor]:
    """Return the named tensors of a safetensors file, or of a PyTorch file without running code from it."""
    path = Path(weights)
    if not path.is_file():
        raise StorageError(f"no such file: {path}")
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise StorageError(
                f"{path} is not a safetensors file, or it is truncated ({error})", hint="get a fresh copy of it"
            ) from error
    if path.suffix not in _PICKLED:
        raise InputError(
            f"{path} cannot be read as weights; give .safetensors, .pth (also .pt, .bin) or Google's .npz"
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise StorageError(
            f"{path} is truncated, or it holds more than tensors, which could run code; "
            "if you trust it, convert it to safetensors"
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
    # timm loads strictly only if the number of classes is that of the file, so request exactly that number.
    for classes in _class_counts(config, state):
        overlay = {"state_dict": dict(state), "num_classes": classes, "label_offset": 0}
        try:
            model = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay, num_classes=classes)
        except (RuntimeError, KeyError) as error:
            problem = error if isinstance(error, RuntimeError) else RuntimeError(f"no tensor {error}")
            continue
        model.pretrained_cfg["state_dict"] = None  # or the model would hold its weights twice
        return _without_classifier(model)
    raise InputError(
        f"{source} does not fit {name}: {_brief(problem)}",
        hint="give weights of this network",
    ) from problem


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
            parameter.fill_(math.nan)  # timm skips missing tensors; they stay NaN and are found below
    try:
        zipfile.ZipFile(path).close()  # NumPy would leave a truncated file open
        model.load_pretrained(str(path))
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise StorageError(
            f"{path} is not an .npz file, or it is truncated ({error}); get a fresh copy of it"
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError, AssertionError) as error:
        clear_frames(error.__traceback__)  # timm's frames keep the file open until garbage collection
        raise InputError(f"{path} does not fit {name} in Google's .npz layout: {_brief(error)}") from error
    unfilled = [key for key, parameter in model.named_parameters() if parameter.isnan().any()]
    if unfilled:
        raise InputError(f"{path} does not fit {name}: {unfilled[0]} is missing ({len(unfilled)} missing in all)")
    return model


def _without_classifier(model: Any) -> Any:
    """Remove the classifier: features do not need it, and it must not change the hash of the weights."""
    model.reset_classifier(0)
    return model


def _brief(error: Exception | None) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[1:2] or lines[:1]) or type(error).__name__
    return text if len(text) <= 160 else text[:160] + " ..."


def cached_weights(config: Any) -> Path | None:
    """Return the file of an earlier download on this machine, or None; it does not use the network.

    ``config`` is timm's record of the pre-trained weights.
    """
    if config.hf_hub_id:
        repository, _, revision = config.hf_hub_id.partition("@")
        lookup = import_extra("huggingface_hub").try_to_load_from_cache
        found = (lookup(repository, name, revision=revision or None) for name in _hub_files(config))
        return next((Path(path) for path in found if isinstance(path, str)), None)
    if config.url:
        folder = Path(torch.hub.get_dir()) / "checkpoints"
        file = folder / PurePosixPath(urlsplit(config.url).path).name
        return file if file.is_file() else None
    return None


def require_hub(name: str, config: Any) -> None:
    """Raise at once, with a hint, if the hub with these weights does not answer.

    The hub's own client retries for most of a minute before it gives up; one short request is enough.
    """
    constants = import_extra("huggingface_hub").constants
    if config.hf_hub_id and constants.HF_HUB_OFFLINE:
        raise _unreachable(name, config, "HF_HUB_OFFLINE is set")
    address = constants.ENDPOINT if config.hf_hub_id else config.url
    try:
        with urlopen(Request(address, method="HEAD"), timeout=PROBE_SECONDS):
            return
    except HTTPError:
        return  # it answers; the client handles the answer
    except URLError as error:
        if isinstance(error.reason, ssl.SSLError):
            return  # the client may know certificates that the standard library does not know
        raise _unreachable(name, config, "no connection to the hub") from error
    except (OSError, ValueError) as error:
        raise _unreachable(name, config, "no answer from the hub") from error


def _unreachable(name: str, config: Any, reason: str) -> StorageError:
    """Return the error for weights that are not on this machine and cannot be fetched."""
    what = f"{_hub_files(config)[0]} of {config.hf_hub_id}" if config.hf_hub_id else config.url
    return StorageError(
        f"the weights of {name} are not on this machine and cannot be fetched ({reason}); "
        f"download {what} elsewhere and pass weights=FILE (--weights FILE), or use the embedded {EMBEDDED}"
    )


def _hub_files(config: Any) -> list[str]:
    named = config.hf_hub_filename or "pytorch_model.bin"
    return [_SAFE_TWIN[named], named] if named in _SAFE_TWIN else [named]


def weights_preprocessing(model: Any, *, name: str) -> Preprocessing:
    """Return timm's preprocessing for the model's weights; for the embedded weights, our own."""
    if name == EMBEDDED:
        return PREPROCESSING
    config = import_extra("timm.data").resolve_model_data_config(model)
    channels, height, width = config["input_size"]
    if channels != 3 or height != width or config["crop_mode"] not in ("center", "squash"):
        raise InputError(
            f"{name} needs {channels} x {height} x {width} images, crop mode {config['crop_mode']!r}; "
            "only square RGB inputs with a center crop are supported",
            hint="choose another backbone",
        )
    resize = math.floor(height / config["crop_pct"])
    return Preprocessing(
        size=height,
        resize=resize,
        interpolation=config["interpolation"],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        squash=resize if config["crop_mode"] == "squash" else None,
        views=2,
        name="weights",
    )
