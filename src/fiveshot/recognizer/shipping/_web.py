"""Export a model as a static web page that recognizes photos in the browser."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import Embedder
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.recognizer.recognition.levels import Groups
from fiveshot.recognizer.recognition.snapshot import Snapshot
from fiveshot.recognizer.shipping._onnx import as_json, is_description, model_graph
from fiveshot.recognizer.shipping._portable import refuse_inside
from fiveshot.storage import FilePath, atomic_paths

DESCRIPTION, GRAPH, RUNTIME, SERVICE_WORKER = "model.json", "model.onnx.gz", "ort.wasm.gz", "sw.js"
# The page loads files only from its own folder and sends nothing. Of all code, only WebAssembly is compiled.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "worker-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types fiveshot",
    )
)
# Some hosts (Netlify, Cloudflare Pages) read this file and send the policy as headers.
HEADERS = f"""/*
  Content-Security-Policy: {POLICY}; frame-ancestors 'none'
  Permissions-Policy: camera=(self), geolocation=(), microphone=()
  Referrer-Policy: no-referrer
  X-Content-Type-Options: nosniff
"""
HALF_FROM, BYTES_FROM = 256, 1 << 17  # smallest sizes of arrays to store in half precision, and in 8 bits
MOST_BYTES = 100_000_000  # of the graph: every visitor loads it
SCALE_BLOCK = 16  # weights of a convolution that share a scale
TEMPLATE = "index.html"
BESIDE = ("NOTICE", "_headers", "ort.notices.txt.gz")  # not loaded by browsers


@dataclass(frozen=True)
class WebExport:
    """A folder that recognizes photos in a browser.

    Attributes
    ----------
    folder : Path
        The folder.
    files : tuple of str
        Names of the files that were written.
    size : int
        Bytes that a browser loads on the first visit.

    Examples
    --------
    >>> WebExport(Path("site"), ("index.html",), 1000).size
    1000
    """

    folder: Path
    files: tuple[str, ...]
    size: int


def check_folder(folder: FilePath, *, overwrite: bool) -> Path:
    """Return the folder if an export may be written there: it is new, empty or an earlier export."""
    target = Path(folder)
    refuse_inside(target.resolve() / DESCRIPTION, str(target), hint="name a folder outside of it")
    if not target.exists():
        return target
    if not target.is_dir():
        raise StorageError(f"{target} is not a folder", hint="choose another name", code="exists")
    if not overwrite and any(target.iterdir()) and not is_description(target / DESCRIPTION):
        raise StorageError(
            f"{target} is not empty, and not an earlier export of this kind",
            hint="choose another folder, or write into this one with overwrite=True (--force)",
            code="exists",
        )
    return target


def write_web(
    embedder: Embedder, snapshot: Snapshot, folder: FilePath, *, title: str, overwrite: bool = False
) -> WebExport:
    """Write a folder for any web server: a page, the graph with 8-bit weights, and its runtime."""
    target = check_folder(folder, overwrite=overwrite)
    model, said = model_graph(embedder, snapshot.head, rejection=snapshot.rejection, strangers=snapshot.strangers)
    pack_weights(model)
    graph = gzip.compress(model.SerializeToString(), 9, mtime=0)
    if len(graph) > MOST_BYTES:
        raise InputError(
            f"the graph of {embedder.name} takes {len(graph) / 1e6:.0f} MB, too much for a web page",
            hint=f"choose a backbone of at most {MOST_BYTES / 1e6:.0f} MB in 8 bits, or export with --onnx",
        )
    contents = _page(title) | {GRAPH: graph}
    said |= {"title": title, "sure": snapshot.sure, "groups": _tree(Groups.of(said["classes"]))}
    said["input"]["rounding"] = embedder.preprocessing.rounding
    said["bytes"] = len(contents[GRAPH]) + len(contents[RUNTIME])
    contents[DESCRIPTION] = as_json(said).encode()
    contents[SERVICE_WORKER] = _versioned(contents)
    target.mkdir(parents=True, exist_ok=True)
    names = sorted(contents)
    with atomic_paths(*(target / name for name in names)) as temporary:
        for path, name in zip(temporary, names, strict=True):
            path.write_bytes(contents[name])
    loaded = sum(len(content) for name, content in contents.items() if name not in BESIDE)
    return WebExport(target, tuple(names), loaded)


def pack_weights(model: Any) -> None:
    """Store the large arrays of an ONNX model in 8 bits and the smaller ones in half precision.

    When the graph is loaded, a few nodes convert them back to float32. The file is a quarter of the size. Only
    weights are rounded, not the numbers that the graph computes.
    """
    onnx = import_extra("onnx", extra="onnx")
    graph, helper = model.graph, onnx.numpy_helper
    kept, nodes = [], []

    def stored(name: str, array: NDArray[Any]) -> str:
        kept.append(helper.from_array(array, f"{name}.packed"))
        nodes.append(onnx.helper.make_node("Cast", [f"{name}.packed"], [name], to=onnx.TensorProto.FLOAT))
        return name

    for tensor in graph.initializer:
        values, name = helper.to_array(tensor), tensor.name
        if values.dtype != np.float32 or values.size < HALF_FROM:
            kept.append(tensor)
        elif values.size < BYTES_FROM or values.ndim < 2:
            stored(name, values.astype(np.float16))
        else:
            steps, scales = packed(values)
            parts = [stored(f"{name}.steps", steps), stored(f"{name}.scales", scales)]
            kept.append(helper.from_array(np.array(values.shape, np.int64), f"{name}.shape"))
            nodes.append(onnx.helper.make_node("Mul", parts, [f"{name}.flat"]))
            nodes.append(onnx.helper.make_node("Reshape", [f"{name}.flat", f"{name}.shape"], [name]))
    nodes += graph.node
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)


def packed(values: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return an array as integers from −127 to 127, (rows, blocks, size), and the scales to multiply them by.

    A matrix has one scale for each row. Convolutions are more sensitive: one scale for every 16 numbers of a row.

    >>> steps, scales = packed(np.array([[1.0, -127.0], [0.5, 0.25]], np.float32))
    >>> steps.tolist(), (steps * scales.astype(np.float32)).round(2).tolist()
    ([[[1, -127]], [[127, 64]]], [[[1.0, -127.0]], [[0.5, 0.25]]])
    """
    rows = values.reshape(len(values), -1)
    size = SCALE_BLOCK if values.ndim > 2 and rows.shape[1] % SCALE_BLOCK == 0 else rows.shape[1]
    blocks = rows.reshape(len(rows), -1, size)
    scales = np.maximum(np.abs(blocks).max(axis=2, keepdims=True) / 127, np.finfo(np.float16).tiny)
    halves = scales.astype(np.float16)
    steps = np.clip(np.rint(blocks / halves.astype(np.float32)), -127, 127)
    return steps.astype(np.int8), halves


def _page(title: str) -> dict[str, bytes]:
    """Return the files that are the same for every model, except for its name."""
    contents = {
        file.name: file.read_bytes() for file in (files("fiveshot.recognizer.shipping") / "page").iterdir()
    }
    page = contents[TEMPLATE].decode()
    page = page.replace("{policy}", escape(POLICY)).replace("{title}", escape(title))
    manifest = {
        "name": title,
        "short_name": title[:12],
        "start_url": "./",
        "display": "standalone",
        "background_color": "#f4f5f8",
        "theme_color": "#2b5fd9",
        "icons": [
            {"src": "icon.svg", "sizes": "any", "type": "image/svg+xml"},
            *({"src": f"icon-{side}.png", "sizes": f"{side}x{side}", "type": "image/png"} for side in (192, 512)),
        ],
    }
    return contents | {
        TEMPLATE: page.encode(),
        "manifest.webmanifest": json.dumps(manifest, indent=1, ensure_ascii=False).encode(),
        "_headers": HEADERS.encode(),
    }


def _versioned(contents: dict[str, bytes]) -> bytes:
    """Return the service worker with a version of all files; after a change, browsers load them again."""
    digest = sha256()
    for name in sorted(contents):
        digest.update(name.encode() + sha256(contents[name]).digest())
    large = (GRAPH, RUNTIME)  # cached when the page loads them, so they are loaded once
    small = [
        name for name in sorted(contents) if name not in (*large, SERVICE_WORKER, TEMPLATE, "_headers", "NOTICE")
    ]
    said = f"const VERSION = {json.dumps(digest.hexdigest()[:16])};\nconst FILES = {json.dumps(['./', *small])};\n"
    return said.encode() + contents[SERVICE_WORKER]


def _tree(groups: Groups) -> dict[str, Any]:
    """Return the groups of classes as JSON values; the empty name is the root."""
    if not groups.members:
        return {}
    return {
        above: {
            "inner": list(groups.inner[above]),
            "own": groups.own[above].tolist(),
            "members": groups.members[above].tolist() if above else [],
        }
        for above in groups.own
    }
