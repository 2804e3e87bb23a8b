"""A backbone in one file that says everything about itself: as an ONNX graph, or as weights.

The ONNX file runs without torch: ``images`` (n, 3, size, size), normalized float32, become ``features``
(n, width), with the adapter inside the graph. The safetensors file holds the network's weights under timm's names
and the adapter's tensors beside them, because a ReLU keeps an adapter from being folded into the weights;
``--weights FILE`` reads it again.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones._adapter import (
    BACKBONE_KIND,
    BACKBONE_VERSION,
    KIND,
    SHAPE,
    AdapterFile,
    chosen_adapter,
    read_adapter,
)
from fiveshot.backbones.catalog import known_license
from fiveshot.backbones.embedded import open_session, run_session
from fiveshot.backbones.embedder import TORCH, Vectors
from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.backbones.spec import OWN, BackboneSpec, Readout, is_bundle
from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.extras import import_extra, require_extra
from fiveshot.storage import (
    FRESH_COPY,
    FilePath,
    atomic_path,
    file_kind,
    read_tensors,
    require_replaceable,
    require_writable,
    write_tensors,
)

if TYPE_CHECKING:
    from fiveshot.backbones.backbone import Backbone

ONNX, SAFETENSORS = ".onnx", ".safetensors"
PREFIX = "fiveshot."  # of the metadata of an ONNX file
TOLERANCE = 1e-3  # of features, relative to the largest
LEAST_COSINE = 0.9999  # between features of rounded weights and of the others
_LARGEST_HALF = float(np.finfo(np.float16).max)
LEAST_ROUNDED = 256  # numbers of an array from which on half precision is worth it


@dataclass(frozen=True)
class BackboneFile:
    """What a file of a backbone or an adapter says about itself.

    Parameters
    ----------
    kind : {"onnx", "weights", "adapter", "bundle"}
        A graph for ONNX Runtime, weights for torch, an adapter alone, or a graph of another program.
    backbone : str
        Exact name of the network.
    bytes : int
        Size of the file, with the files of its weights if it has any.
    weights_hash : str
        SHA-256 of the weights of the network, without the adapter and before they were rounded. For a graph of
        another program, that of the graph.
    width : int, optional
        Length of a feature vector.
    preprocessing : Preprocessing, optional
        How photos are prepared; None for an adapter.
    readout : Readout
        What is read from the network.
    adapter : str, optional
        SHA-256 of the adapter, if there is one.
    license : str
        License of the weights; empty if it is not known for certain.
    precision : {"float32", "float16"}
        Number format of the stored weights.
    reads : str
        What is read from the graph of another program, in words.

    Examples
    --------
    >>> from fiveshot.backbones import adapter_path, describe_file
    >>> found = describe_file(adapter_path("cub200-big"))
    >>> found.kind, found.backbone, found.adapter[:12]
    ('adapter', 'tiny_vit_5m_224.dist_in22k', '...')
    """

    kind: str
    backbone: str
    bytes: int
    weights_hash: str
    width: int | None = None
    preprocessing: Preprocessing | None = None
    readout: Readout = OWN
    adapter: str | None = None
    license: str = ""
    precision: str = "float32"
    reads: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        prepared = None if self.preprocessing is None else self.preprocessing.to_json()
        return {**asdict(self), "preprocessing": prepared}


def export_backbone(
    spec: BackboneSpec, path: FilePath, *, half: bool = False, overwrite: bool = False
) -> BackboneFile:
    """Write a backbone with its adapter and its preprocessing to one file, and check the file against torch.

    Parameters
    ----------
    spec : BackboneSpec
        The backbone. Its device, runtime and precision are not used.
    path : str or path
        The file to write. ``.onnx`` is a graph for ONNX Runtime, without torch; ``.safetensors`` holds weights for
        ``BackboneSpec(weights=...)``.
    half : bool, default False
        Store the weights of a graph in half precision.
    overwrite : bool, default False
        Whether to replace a file that is not an earlier export.

    Returns
    -------
    BackboneFile
        What the file says about itself.

    Raises
    ------
    InputError
        When a library is missing, the network cannot be written in this form, or the file's features of drawn
        pictures differ from torch's. Nothing is written then.
    StorageError
        When a file is missing or exists already, or cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.backbones import BackboneSpec, export_backbone
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = export_backbone(BackboneSpec(adapter="cub200-big"), f"{folder}/birds.onnx", half=True)
    >>> made.width, made.license, made.precision
    (320, 'MIT', 'float16')
    """
    target = Path(path)
    _check_form(target, spec, half=half)
    require_writable(target)
    require_replaceable(target, _is_export, overwrite=overwrite)
    require_extra(*TORCH)
    if target.suffix == ONNX:
        require_extra("onnx", extra="onnx")
    from fiveshot.backbones.backbone import load_backbone

    spec = spec.replace(device="cpu", runtime="torch", precision=None)
    backbone = load_backbone(spec)
    pixels, wanted = _examples(backbone)
    with (
        atomic_path(target) as temporary,
        tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder,
    ):
        written = Path(folder, target.name)  # readers look at the suffix
        if target.suffix == ONNX:
            written.write_bytes(_graph(backbone, half=half))
            found = _features_of_graph(written, backbone.preprocessing, pixels)
        else:
            chosen = chosen_adapter(spec)
            _write_weights(written, backbone, None if chosen is None else chosen[0])
            found = _examples(load_backbone(spec.replace(weights=written, adapter=None)))[1]
        _compare(found, wanted, backbone.name, half=half)
        written.replace(temporary)
    return describe_file(target)


def describe_file(path: FilePath) -> BackboneFile:
    """Return what a file of a backbone or an adapter says about itself; torch is not needed.

    Parameters
    ----------
    path : str or path
        A file of :func:`export_backbone`, an adapter, or an ONNX bundle: its folder or its graph.

    Returns
    -------
    BackboneFile
        Its name, size, hashes and preprocessing.

    Raises
    ------
    InputError
        When it is another kind of file.
    StorageError
        When it is missing or damaged.

    Examples
    --------
    >>> from fiveshot.backbones import adapter_path, describe_file
    >>> describe_file(adapter_path("cub200-small")).kind
    'adapter'
    """
    file = Path(path)
    if file.is_dir():
        return _described_graph(file)
    if not file.is_file():
        raise StorageError(
            f"no such file: {file}",
            hint="give a file that 'fiveshot backbone export' wrote, or for the hub: fiveshot backbones hf://OWNER/NAME",
            code="no_file",
        )
    if file.suffix == ONNX:
        return _described_graph(file)
    if file.suffix != SAFETENSORS:
        raise _other_suffix(file)
    kind = file_kind(file)
    if kind == KIND:
        adapter = read_adapter(file)
        about = adapter.meta
        return BackboneFile(
            "adapter", about["backbone"], file.stat().st_size, about["weights_hash"], adapter=adapter.hash
        )
    return _described_weights(file)


def _check_form(target: Path, spec: BackboneSpec, *, half: bool) -> None:
    """Refuse a suffix that stands for no form, and what a form does not have."""
    if is_bundle(spec.name):
        raise InputError(
            f"{spec.name} is an ONNX bundle, which runs without torch already",
            hint="use it as it is, or give the name of a timm network",
        )
    if target.suffix not in (ONNX, SAFETENSORS):
        raise _other_suffix(target)
    if target.suffix == ONNX:
        return
    if half:
        raise InputError("only ONNX files can have rounded weights", hint="leave half precision (--half) out")
    if spec.readout != OWN or spec.views is not None or spec.preprocessing not in (None, "weights"):
        raise InputError(
            f"{target} will hold weights, which can be used with any preprocessing, tokens and views",
            hint="choose these where the weights are used, or write an .onnx file",
            code="unused_option",
        )


def _other_suffix(file: Path) -> InputError:
    return InputError(
        f"{file} ends neither in {ONNX} nor in {SAFETENSORS}",
        hint=f"name a file that ends in {ONNX} (runs without torch) or {SAFETENSORS} (weights for torch)",
    )


def _is_export(path: Path) -> bool:
    """Tell whether a file is an earlier export, also of another backbone."""
    try:
        return describe_file(path).kind in ("onnx", "weights")
    except FiveshotError:
        return False


def _examples(backbone: Backbone) -> tuple[Pixels, Vectors]:
    """Return drawn pictures as pixels (n, views, 3, size, size), and their features in torch."""
    from fiveshot.backbones.backbone import torch_embedder
    from fiveshot.data import drawn_pictures

    embedder = torch_embedder(backbone, BackboneSpec(runtime="torch", device="cpu"))
    pixels = np.stack([embedder.pixels(picture) for picture in drawn_pictures(seed=0)])
    return pixels, embedder.features(pixels)


def _features_of_graph(file: Path, preprocessing: Preprocessing, pixels: Pixels) -> Vectors:
    """Return the features of a graph on ONNX Runtime."""
    try:
        session = open_session(file.read_bytes())
        each = run_session(session, preprocessing.normalize(pixels.reshape(-1, *pixels.shape[2:])))
    except Exception as error:  # the runtime's errors have no common base
        raise InputError(
            f"ONNX Runtime cannot run this graph ({type(error).__name__})", hint=f"write a {SAFETENSORS} file"
        ) from error
    vectors: Vectors = each.reshape(len(pixels), pixels.shape[1], -1).mean(axis=1)
    return vectors


def _compare(found: Vectors, wanted: Vectors, name: str, *, half: bool) -> None:
    """Refuse features of a file that are not those of torch."""
    if half:
        lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(wanted, axis=1)
        cosine = float(((found * wanted).sum(axis=1) / np.maximum(lengths, np.finfo(np.float32).tiny)).min())
        if not cosine >= LEAST_COSINE:
            raise InputError(
                f"with weights in half precision the features of {name} change too much (cosine {cosine:.5f}, "
                f"the least is {LEAST_COSINE})",
                hint="leave half precision (--half) out; nothing was written",
            )
        return
    worst = float(np.abs(found - wanted).max() / max(float(np.abs(wanted).max()), 1e-12))
    if not worst <= TOLERANCE:
        raise InputError(
            f"the file would give other features of {name} than torch (by {worst:.2g}, relative)",
            hint="nothing was written",
        )


def _graph(backbone: Backbone, *, half: bool) -> bytes:
    """Return a backbone as an ONNX file with its metadata."""
    from fiveshot.backbones.export import export_onnx, fits_onnx

    if not fits_onnx(backbone):
        raise InputError(
            f"{backbone.name} is larger than the 2 GB an ONNX file can hold", hint=f"write a {SAFETENSORS} file"
        )
    try:
        bare = export_onnx(backbone)
    except Exception as error:  # the exporter's errors have no common base
        raise InputError(
            f"{backbone.name} cannot be exported to ONNX ({type(error).__name__})",
            hint=f"write a {SAFETENSORS} file",
        ) from error
    onnx = import_extra("onnx", extra="onnx")
    model = onnx.load_model_from_string(bare)
    if half:
        _round_weights(model)
    values = _about(backbone) | {"precision": "float16" if half else "float32", "adapter": backbone.adapter_hash}
    properties = {
        PREFIX + key: value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
        if value
    }
    onnx.helper.set_model_props(model, properties)
    content: bytes = model.SerializeToString()
    return content


def _round_weights(model: Any) -> None:
    """Store the large float32 arrays of an ONNX model in half precision; a node makes float32 of each again."""
    onnx = import_extra("onnx", extra="onnx")
    graph, kept, casts = model.graph, [], []
    for tensor in graph.initializer:
        values: NDArray[Any] = onnx.numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < LEAST_ROUNDED or np.abs(values).max() > _LARGEST_HALF:
            kept.append(tensor)
            continue
        stored = f"{tensor.name}.half"
        kept.append(onnx.numpy_helper.from_array(values.astype(np.float16), stored))
        casts.append(onnx.helper.make_node("Cast", [stored], [tensor.name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)


def _write_weights(file: Path, backbone: Backbone, adapter: AdapterFile | None) -> None:
    """Write the weights of a backbone, and the tensors of its adapter beside them."""
    state = {name: tensor.detach().cpu().numpy() for name, tensor in backbone.model.state_dict().items()}
    shape = None if adapter is None else {key: adapter.meta[key] for key in SHAPE} | {"hash": adapter.hash}
    meta = _about(backbone) | {"width": backbone.width, "adapter": shape}
    write_tensors(file, state, kind=BACKBONE_KIND, version=BACKBONE_VERSION, meta=meta)


def _about(backbone: Backbone) -> dict[str, Any]:
    """Return what both forms say about a backbone."""
    return {
        "backbone": backbone.name,
        "preprocessing": backbone.preprocessing.to_json(),
        "readout": asdict(backbone.readout),
        "license": known_license(backbone.name),
        "weights_hash": backbone.weights_hash,
    }


def _described_graph(place: Path) -> BackboneFile:
    """Return what an ONNX file, or a folder with one, says; a graph that does not say its width is run once."""
    from fiveshot.backbones.bundles.bundle import BundleNetwork, load_bundle

    found = load_bundle(BackboneSpec(str(place.absolute())))
    graph = BackboneFile(
        "bundle",
        found.name,
        sum(path.stat().st_size for path in (found.graph, *found.beside.values())),
        found.sha256,
        width=BundleNetwork(found, found.preprocessing).width,
        preprocessing=found.preprocessing,
        license=found.license,
        reads=str(found.reading),
    )
    said = {key.removeprefix(PREFIX): value for key, value in found.facts.properties.items()}
    if "backbone" not in said:
        return graph
    try:
        return replace(
            graph,
            kind="onnx",
            backbone=said["backbone"],
            weights_hash=said["weights_hash"],
            readout=Readout(**json.loads(said["readout"])),
            adapter=said.get("adapter"),
            precision=said["precision"],
            reads="",
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(place) from error


def _described_weights(file: Path) -> BackboneFile:
    about = read_tensors(file, kind=BACKBONE_KIND, version=BACKBONE_VERSION).meta
    adapter = about.get("adapter")
    try:
        return BackboneFile(
            "weights",
            str(about["backbone"]),
            file.stat().st_size,
            str(about["weights_hash"]),
            width=int(about["width"]),
            preprocessing=Preprocessing.from_json(about["preprocessing"]),
            readout=Readout(**about["readout"]),
            adapter=None if adapter is None else adapter["hash"],
            license=str(about.get("license", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(file) from error


def _damaged(file: Path) -> StorageError:
    return StorageError(f"{file} lacks some of the metadata of a backbone, or they are damaged", hint=FRESH_COPY)
