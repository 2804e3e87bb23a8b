"""Adapters that come with the package, for the embedded backbone."""

from __future__ import annotations

import os
from pathlib import Path

from fiveshot.errors import StorageError, unknown_name

ADAPTERS = Path(__file__).parent / "adapters"  # ADAPTER_CARD.md there says how each was tuned


def embedded_adapters() -> tuple[str, ...]:
    """Return the names of the adapters that are present.

    >>> embedded_adapters()
    ('cub200-big', 'cub200-big-paper', 'cub200-small', 'cub200-small-paper')
    """
    return tuple(sorted(file.stem for file in ADAPTERS.glob("*.safetensors")))


def adapter_path(adapter: str | os.PathLike[str]) -> Path:
    """Return the file of an adapter given by its path, or by the name of an embedded one.

    >>> adapter_path("cub200-big").name
    'cub200-big.safetensors'
    """
    path, name = Path(adapter), os.fspath(adapter)
    if path.exists() or path.suffix:
        if not path.is_file():
            raise StorageError(f"no such file: {path}; embedded adapters are {', '.join(embedded_adapters())}")
        return path
    if name not in embedded_adapters():
        raise unknown_name("embedded adapter, nor adapter file,", name, embedded_adapters())
    return ADAPTERS / f"{name}.safetensors"
