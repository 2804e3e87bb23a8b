"""Tensors with a kind, a format version and JSON metadata in one safetensors file: no pickle, ever."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fiveshot.errors import StorageError
from fiveshot.storage.atomic import atomic_path

LONGEST_HEADER = 100_000_000  # bytes: the most the format allows
FRESH_COPY = "; get a fresh copy of it"  # the way out for whoever has no other: it ends a message
HEADER = "fiveshot"  # the one metadata entry we write: a JSON object with kind, version and meta


@dataclass(frozen=True)
class TensorFile:
    """What a file holds: named tensors and the metadata they were written with.

    >>> import torch
    >>> file = TensorFile({"means": torch.zeros(2, 3)}, meta={"shots": 5})
    >>> file.tensors["means"].shape, file.meta["shots"]
    (torch.Size([2, 3]), 5)
    """

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


def write_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    *,
    kind: str,
    version: int,
    meta: Mapping[str, Any],
) -> None:
    """Write tensors and metadata atomically; an existing file is replaced only by a complete new one.

    ``kind`` and ``version`` say what the file is, for ``read_tensors`` to check; ``meta`` holds JSON values.

    >>> import tempfile, torch
    >>> from fiveshot.storage import read_tensors, write_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/means.safetensors"
    ...     write_tensors(file, {"means": torch.ones(2)}, kind="means", version=1, meta={"shots": 5})
    ...     read_tensors(file, kind="means", version=1)
    TensorFile(tensors={'means': tensor([1., 1.])}, meta={'shots': 5})
    """
    header = json.dumps({"kind": kind, "version": version, "meta": dict(meta)}, allow_nan=False)
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata={HEADER: header})
        except SafetensorError as error:  # how the library reports an input/output error
            raise StorageError(f"cannot write {path}: {error}; nothing was left behind") from error


def read_tensors(path: str | os.PathLike[str], *, kind: str, version: int) -> TensorFile:
    """Read a file written by ``write_tensors``, mapped into memory, after checking what it is.

    ``version`` is the newest version the caller understands. A missing, truncated or foreign file, one of
    another ``kind``, and one of a newer version are refused with a ``StorageError`` that says which.

    >>> import tempfile, torch
    >>> from fiveshot.storage import read_tensors, write_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/means.safetensors"
    ...     write_tensors(file, {"means": torch.ones(2)}, kind="means", version=3, meta={})
    ...     try:
    ...         read_tensors(file, kind="means", version=2)
    ...     except OSError as error:
    ...         print(error)
    /.../means.safetensors has format version 3, this release reads up to 2; upgrade with: pip install ...
    """
    path = Path(path)
    try:
        if not path.is_file():
            raise StorageError(f"no such file: {path}")
        path.open("rb").close()  # safe_open calls every file that it cannot open a missing one
        with safe_open(path, framework="pt", device="cpu") as file:
            meta = _checked_header(path, file.metadata(), kind, version)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise StorageError(f"{path} is not a fiveshot {kind} file, or it is truncated{FRESH_COPY}") from error
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror or error}") from error
    return TensorFile(tensors, meta)


def file_kind(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of a file that ``write_tensors`` wrote, in any version; None for any other file.

    >>> import tempfile, torch
    >>> from fiveshot.storage.tensorfile import file_kind, write_tensors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/means.safetensors"
    ...     write_tensors(file, {"means": torch.ones(2)}, kind="means", version=1, meta={})
    ...     file_kind(file), file_kind(__file__)
    ('means', None)
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            kind = json.loads((file.metadata() or {})[HEADER])["kind"]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
        return None
    return kind if isinstance(kind, str) else None


def begins_as_ours(path: str | os.PathLike[str]) -> bool:
    """Tell whether a file begins as ``write_tensors`` begins one, so that it may be ours, cut off or damaged.

    >>> begins_as_ours(__file__)
    False
    """
    with Path(path).open("rb") as file:
        beginning = file.read(9)
    short = len(beginning) < 9  # it cannot be told
    return short or (beginning[8:] == b"{" and int.from_bytes(beginning[:8], "little") < LONGEST_HEADER)


def _checked_header(path: Path, metadata: dict[str, str] | None, kind: str, version: int) -> dict[str, Any]:
    try:
        header = json.loads((metadata or {})[HEADER])
        found, found_version, meta = header["kind"], header["version"], header["meta"]
    except (KeyError, TypeError, ValueError, RecursionError):  # the last where it is nested without end
        raise StorageError(
            f"{path} is a safetensors file, but not a fiveshot {kind}: it was written by another program"
        ) from None
    if found != kind:
        raise StorageError(f"{path} holds a fiveshot {found}, not a {kind}")
    if not isinstance(found_version, int) or found_version > version:
        raise StorageError(
            f"{path} has format version {found_version}, this release reads up to {version}; "
            "upgrade with: pip install --upgrade fiveshot"
        )
    if not isinstance(meta, dict):
        raise StorageError(f"{path} has damaged metadata{FRESH_COPY}")
    return meta
