"""Where pre-trained weights are: on this machine, or on a hub that can or cannot be reached."""

from __future__ import annotations

import ssl
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import torch

from fiveshot.backbones.embedded import EMBEDDED
from fiveshot.errors import StorageError
from fiveshot.extras import import_extra

PROBE_SECONDS = 5.0

_SAFE_TWIN = {
    "pytorch_model.bin": "model.safetensors",
    "open_clip_pytorch_model.bin": "open_clip_model.safetensors",
}


def cached_weights(config: Any) -> Path | None:
    """Return the file that an earlier download left on this machine, or None; asks no network.

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
    """Raise at once, with the way out, where the hub that holds these weights does not answer.

    The hub's own client retries for most of a minute before it gives up; one short request tells as much.
    """
    constants = import_extra("huggingface_hub").constants
    if config.hf_hub_id and constants.HF_HUB_OFFLINE:
        raise unreachable(name, config, "HF_HUB_OFFLINE is set")
    address = constants.ENDPOINT if config.hf_hub_id else config.url
    try:
        with urlopen(Request(address, method="HEAD"), timeout=PROBE_SECONDS):
            return
    except HTTPError:
        return  # it answers: what it says about the file is for the client to read
    except URLError as error:
        if isinstance(error.reason, ssl.SSLError):
            return  # the client may know certificates that the standard library does not
        raise unreachable(name, config, "no connection to the hub") from error
    except (OSError, ValueError) as error:
        raise unreachable(name, config, "no answer from the hub") from error


def unreachable(name: str, config: Any, reason: str) -> StorageError:
    """Return the error for weights that are not on this machine and cannot be fetched."""
    what = f"{_hub_files(config)[0]} of {config.hf_hub_id}" if config.hf_hub_id else config.url
    return StorageError(
        f"the weights of {name} are not on this machine and cannot be fetched ({reason}); "
        f"download {what} elsewhere and pass weights=FILE (--weights FILE), or use the embedded {EMBEDDED}"
    )


def _hub_files(config: Any) -> list[str]:
    named = config.hf_hub_filename or "pytorch_model.bin"
    return [_SAFE_TWIN[named], named] if named in _SAFE_TWIN else [named]
