"""The files of a bundle, on this machine or on the hub: which of them is the graph, and where the others are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from fiveshot.errors import InputError, StorageError, one_line, some_of
from fiveshot.hub import HUB
from fiveshot.storage import FilePath

CONFIG = "config.json"
# Where a text model lies beside the one for images, the latter has its own name. float32 goes first: a CPU
# computes in it, and smaller files lose accuracy.
GRAPHS = tuple(
    f"{folder}{kind}{precision}.onnx"
    for kind in ("vision_model", "model")
    for folder in ("onnx/", "")
    for precision in ("", "_fp16", "_quantized")
)
MAX_JSON = 1 << 20  # bytes
_PINNED = re.compile(rf"{HUB}[^@]+@[0-9a-f]{{40}}/")  # the name of a bundle on the hub in a model
MAX_GRAPH = 2 * 1024**3 - 1  # bytes of a graph with its weights: the most one ONNX file can hold


class BundleFiles(Protocol):
    """Where the files of a bundle are."""

    @property
    def name(self) -> str:
        """What a model remembers; empty: a name made of the content."""

    @property
    def place(self) -> str:
        """The local path; empty for one on the hub."""

    @property
    def shown(self) -> str:
        """How errors call it."""

    @property
    def license(self) -> str:
        """The license that its repository names, if that was asked."""

    def graph(self) -> Path:
        """Return the file of the graph."""

    def beside(self, graph: Path, name: str) -> Path:
        """Return a file with weights that a graph names; refuse one outside of the bundle."""

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file; None where there is none."""


def bundle_files(name: str, weights: FilePath | None) -> BundleFiles:
    """Return the files of a bundle by its name, or by the place where it is now."""
    if weights is not None:
        return LocalFiles(Path(weights), name if _PINNED.match(name) else "")
    if name.startswith(HUB):
        from fiveshot.backbones.bundles.hub import HubFiles  # it builds on this module

        files: BundleFiles = HubFiles(name)
        return files
    return LocalFiles(Path(name))


class LocalFiles:
    """A folder, or a graph in one; ``name`` is that of the repository whose copy it is, if any."""

    license = ""

    def __init__(self, path: Path, name: str = "") -> None:
        if not (path.is_file() or path.is_dir()):
            raise StorageError(
                f"no such file or folder: {path}",
                hint="give the place of the ONNX bundle, or hf://OWNER/NAME for one on the hub; for a model "
                "weights=PLACE (--weights PLACE)",
                code="no_bundle",
            )
        self.name, self.place, self.shown = name, str(path.absolute()), str(path)
        self._file = None if path.is_dir() else path
        self._root = path if self._file is None else _root_of(path)

    def graph(self) -> Path:
        """Return the file of the graph: the one that was named, or the best one in the folder."""
        if self._file is not None:
            return _checked_size(self._file)
        there = [
            path.relative_to(self._root).as_posix()
            for folder in (self._root / "onnx", self._root)
            for path in sorted(folder.glob("*.onnx"))
            if path.is_file()
        ]
        return _checked_size(inside(self._root, chosen_graph(there, self.shown)))

    def beside(self, graph: Path, name: str) -> Path:
        """Return a file with weights beside the graph."""
        path = graph.parent / plain_path(name)
        return _checked_size(inside(self._root, path.relative_to(self._root).as_posix()))

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Return the content of a JSON file in the folder."""
        return parsed_json(inside(self._root, name)) if (self._root / name).is_file() else None


def chosen_graph(names: Iterable[str], shown: str) -> str:
    """Return the graph to use of those that are there, in the order of ``GRAPHS``.

    >>> chosen_graph(["onnx/model_fp16.onnx", "onnx/model.onnx", "onnx/vision_model_fp16.onnx"], "clip")
    'onnx/vision_model_fp16.onnx'
    """
    there = set(names)
    found = next((name for name in GRAPHS if name in there), None)
    if found is None:
        others = [name for name in sorted(there) if name.endswith(".onnx")]
        export = "with fiveshot[torch] write one: fiveshot backbone export NAME FILE"
        if others:
            raise StorageError(
                f"{shown} has no ONNX file of a known name, but {one_line(some_of(others))}",
                hint=f"name the file itself, such as {shown.rstrip('/')}/{others[0]}, or {export}",
                code="no_bundle",
            )
        raise StorageError(f"{shown} has no ONNX file", hint=f"choose another, or {export}", code="no_bundle")
    return found


def plain_path(name: str) -> PurePosixPath:
    """Return a relative path of plain names; refuse any other.

    >>> plain_path("model.onnx_data")
    PurePosixPath('model.onnx_data')
    >>> plain_path("../secret")
    Traceback (most recent call last):
    fiveshot.errors.InputError: the file '../secret' is outside of its bundle; ...
    """
    path = PurePosixPath(name)
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") or "\\" in part or ":" in part or "\0" in part for part in parts):
        raise _outside(name)
    return path


def inside(root: Path, name: str) -> Path:
    """Return a file in a folder; refuse one that is reached through links to elsewhere.

    A commit in the hub's cache, ``snapshots/COMMIT``, holds links into the folder ``blobs`` beside ``snapshots``.
    """
    path, own = root / name, root.resolve()
    folders = [own, own.parents[1] / "blobs"] if own.parent.name == "snapshots" else [own]
    if not path.is_file():
        raise StorageError(f"{root} lacks the file {name}", hint="get a fresh copy of it", code="bad_bundle")
    if not any(path.resolve().is_relative_to(folder) for folder in folders):
        raise _outside(name)
    return path


def parsed_json(path: Path) -> dict[str, Any]:
    """Return the object in a small JSON file."""
    try:
        if path.stat().st_size > MAX_JSON:
            raise ValueError(f"it has more than {MAX_JSON:,} bytes")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"{path} cannot be read ({error})", hint="get a fresh copy of it", code="bad_bundle"
        ) from error
    if not isinstance(found, dict):
        raise InputError(f"{path} holds no JSON object", hint="get a fresh copy of it", code="bad_bundle")
    return found


def check_bytes(size: int, shown: object) -> None:
    """Refuse a file of a graph that is larger than ONNX allows."""
    if size > MAX_GRAPH:
        raise InputError(
            f"{shown} has {size / 1e9:.1f} GB; the most for a graph with its weights is 2.1 GB",
            hint="choose a smaller network, or its half precision (model_fp16.onnx)",
            code="bad_bundle",
        )


def _checked_size(path: Path) -> Path:
    check_bytes(path.stat().st_size, path)
    return path


def _root_of(file: Path) -> Path:
    """Return the folder of a graph's bundle: the graph's own, or the one above if that has config.json."""
    above = file.parent.parent
    is_above = not (file.parent / CONFIG).is_file() and (above / CONFIG).is_file()
    return above if is_above else file.parent


def _outside(name: str) -> InputError:
    return InputError(
        f"the file {name[:80]!r} is outside of its bundle",
        hint="do not use this file, or get it from where it was published",
        code="bad_bundle",
    )
