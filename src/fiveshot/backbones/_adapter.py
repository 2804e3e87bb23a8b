"""Adapter files. Each belongs to the backbone it was trained on; the package includes some.

The file of a whole backbone (``fiveshot backbone export``) may hold an adapter beside the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones.embedder import hash_arrays
from fiveshot.errors import InputError, StorageError, unknown_name
from fiveshot.storage import FRESH_COPY, FilePath, file_kind, read_tensors, write_tensors

if TYPE_CHECKING:
    from fiveshot.backbones.backbone import Backbone
    from fiveshot.backbones.spec import BackboneSpec

ADAPTERS = Path(__file__).parent / "adapters"  # see ADAPTER_CARD.md there for how each was tuned
KIND, VERSION = "adapter", 1
BACKBONE_KIND, BACKBONE_VERSION = "backbone", 1  # of the file of a whole backbone
SHAPE = ("bottleneck", "scale", "dropout")  # of an adapter, besides its tensors
_MARK = ".adapter."  # in the names of all tensors of adapters


@dataclass(frozen=True, eq=False)
class AdapterFile:
    """The checked tensors of an adapter file, and its metadata.

    Parameters
    ----------
    tensors : dict of str to float32 array
        For each place ``p``, such as ``blocks.0``: ``p.adapter.down.weight`` (bottleneck, width) and
        ``.down.bias``, ``p.adapter.up.weight`` (width, bottleneck) and ``.up.bias``.
    meta : dict
        ``backbone``, ``weights_hash``, ``bottleneck``, ``scale``, ``dropout`` and ``training``.

    Examples
    --------
    >>> from fiveshot.backbones import adapter_path, read_adapter
    >>> adapter = read_adapter(adapter_path("cub200-big"))
    >>> adapter.bottleneck, adapter.scale, len(adapter.tensors)
    (64, 0.1, 40)
    """

    tensors: dict[str, NDArray[np.float32]]
    meta: dict[str, Any]

    @property
    def bottleneck(self) -> int:
        """Width of the bottleneck."""
        return int(self.meta["bottleneck"])

    @property
    def scale(self) -> float:
        """Factor of the adapter's output."""
        return float(self.meta["scale"])

    @property
    def held_back(self) -> frozenset[str] | None:
        """Marks (``content_mark``) of images that were held back from tuning; None if the file lists none."""
        training = self.meta.get("training")
        marks = training.get("held_back") if isinstance(training, Mapping) else None
        return frozenset(map(str, marks)) if isinstance(marks, list) and marks else None

    @property
    def hash(self) -> str:
        """SHA-256 of the tensors."""
        return hash_arrays(self.tensors)

    def require(self, weights_hash: str, *, name: str, path: FilePath) -> None:
        """Refuse a network whose weights differ from those the adapter was trained on."""
        bound_to = str(self.meta["weights_hash"])
        if bound_to != weights_hash:
            raise InputError(
                f"{path} was trained on {self.meta['backbone']} (weights {bound_to[:12]}) and does not fit "
                f"{name} (weights {weights_hash[:12]})",
                hint="load it with its own backbone, or tune an adapter for this one: fiveshot tune",
                code="other_backbone",
            )

    def require_places(self, places: Mapping[str, int], *, path: FilePath) -> None:
        """Refuse a network with other blocks for adapters, or with another width there."""
        found = {name: tensor.shape for name, tensor in self.tensors.items()}
        if found != adapter_shapes(places, self.bottleneck):
            raise StorageError(
                f"{path} does not hold one adapter for each of {len(places)} blocks", hint=FRESH_COPY
            )


def embedded_adapters() -> tuple[str, ...]:
    """Return the names of the adapters in the package.

    Returns
    -------
    tuple of str
        Valid names for the ``adapter`` of a ``BackboneSpec``.

    Examples
    --------
    >>> from fiveshot.backbones import embedded_adapters
    >>> embedded_adapters()
    ('cub200-big', 'cub200-small')
    """
    return tuple(sorted(file.stem for file in ADAPTERS.glob("*.safetensors")))


def adapter_path(adapter: FilePath) -> Path:
    """Return the file of an adapter.

    Parameters
    ----------
    adapter : str or path
        A path, or the name of an embedded adapter.

    Returns
    -------
    pathlib.Path
        A file that exists.

    Raises
    ------
    StorageError
        When there is no such file.
    InputError
        When there is no embedded adapter of that name.

    Examples
    --------
    >>> from fiveshot.backbones import adapter_path
    >>> adapter_path("cub200-big").name
    'cub200-big.safetensors'
    """
    path, name = Path(adapter), str(adapter)
    if path.exists() or path.suffix:
        if not path.is_file():
            raise StorageError(
                f"no such file: {path}", hint=f"embedded adapters are {', '.join(embedded_adapters())}"
            )
        return path
    if name not in embedded_adapters():
        raise unknown_name("adapter", name, embedded_adapters(), elsewhere="or give the file of another")
    return ADAPTERS / f"{name}.safetensors"


def read_adapter(path: FilePath) -> AdapterFile:
    """Read an adapter file and check its tensors against its metadata.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    AdapterFile
        Its tensors and its metadata.

    Raises
    ------
    StorageError
        When the file is missing, damaged, or not an adapter.

    Examples
    --------
    >>> from fiveshot.backbones import adapter_path, read_adapter
    >>> read_adapter(adapter_path("cub200-small")).meta["backbone"]
    'tiny_vit_5m_224.dist_in22k'
    """
    file = read_tensors(path, kind=KIND, version=VERSION)
    return _checked(file.tensors, file.meta, path)


def included_adapter(path: FilePath) -> AdapterFile | None:
    """Return the adapter that the file of a whole backbone holds beside the weights; None if it holds none.

    >>> included_adapter(adapter_path("cub200-big")) is None  # it holds an adapter and no weights
    True
    """
    if file_kind(path) != BACKBONE_KIND:
        return None
    file = read_tensors(path, kind=BACKBONE_KIND, version=BACKBONE_VERSION)
    tensors = {name: tensor for name, tensor in file.tensors.items() if is_of_adapter(name)}
    if not tensors:
        return None
    shape = file.meta.get("adapter")
    about: dict[str, Any] = {key: file.meta[key] for key in ("backbone", "weights_hash") if key in file.meta}
    return _checked(tensors, about | (shape if isinstance(shape, dict) else {}), path)


def is_of_adapter(name: str) -> bool:
    """Tell whether a tensor of a backbone's file belongs to an adapter, by its name.

    >>> is_of_adapter("blocks.0.adapter.up.bias"), is_of_adapter("blocks.0.mlp.fc1.bias")
    (True, False)
    """
    return _MARK in name


def chosen_adapter(spec: BackboneSpec) -> tuple[AdapterFile, Path] | None:
    """Return the adapter that a specification names or that its file of weights holds, and the file; or None."""
    included = None if spec.weights is None else included_adapter(spec.weights)
    if spec.adapter is None:
        return None if included is None else (included, Path(str(spec.weights)))
    path = adapter_path(spec.adapter)
    named = read_adapter(path)
    if included is not None and included.hash != named.hash:
        raise InputError(
            f"{spec.weights} already holds an adapter, and {path} is another one",
            hint="leave the adapter out, or give weights without one",
        )
    return named, path


def _checked(tensors: Mapping[str, NDArray[Any]], meta: dict[str, Any], path: FilePath) -> AdapterFile:
    """Return an adapter whose tensors are those that its metadata describe."""
    lacking = {"backbone", "weights_hash", *SHAPE} - meta.keys()
    if lacking:
        raise StorageError(f"{path} lacks {', '.join(sorted(lacking))} in its metadata", hint=FRESH_COPY)
    found = {name: tensor.shape for name, tensor in tensors.items()}
    ending = f"{_MARK}up.bias"
    places = {
        name.removesuffix(ending): shape[0] for name, shape in found.items() if name.endswith(ending) and shape
    }
    if not places or found != adapter_shapes(places, meta["bottleneck"]):
        raise StorageError(f"{path} does not hold the adapters that its metadata describes", hint=FRESH_COPY)
    return AdapterFile({name: tensor.astype(np.float32) for name, tensor in tensors.items()}, meta)


def adapter_shapes(places: Mapping[str, int], bottleneck: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors of an adapter; ``places`` maps each block to the network's width there."""
    return {
        f"{place}.adapter.{part}": shape
        for place, width in places.items()
        for part, shape in (
            ("down.weight", (bottleneck, width)),
            ("down.bias", (bottleneck,)),
            ("up.weight", (width, bottleneck)),
            ("up.bias", (width,)),
        )
    }


def save_adapter(path: FilePath, backbone: Backbone, *, meta: Mapping[str, Any] | None = None) -> None:
    """Write only the adapters of a backbone to a file, atomically.

    Parameters
    ----------
    path : str or path
        The file to write.
    backbone : Backbone
        A backbone with adapters.
    meta : mapping, optional
        JSON values about the training, stored in the file.

    Raises
    ------
    InputError
        When the backbone has no adapters.
    StorageError
        When the file cannot be written.

    Examples
    --------
    >>> import tempfile, timm
    >>> from fiveshot.backbones import Backbone, Preprocessing, attach_adapters, read_adapter, save_adapter
    >>> vit = attach_adapters(timm.create_model("test_vit", num_classes=0), seed=0)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=160, resize=160))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_adapter(f"{folder}/birds.safetensors", backbone, meta={"epochs": 15})
    ...     read_adapter(f"{folder}/birds.safetensors").meta["training"]
    {'epochs': 15}
    """
    from fiveshot.backbones._adaptformer import adapter_state, adapters

    attached = adapters(backbone.model)
    if not attached:
        raise InputError(f"{backbone.name} has no adapters to save", hint="add them with attach_adapters")
    first = attached[0]
    header = {
        "backbone": backbone.name,
        "weights_hash": backbone.weights_hash,
        "bottleneck": first.down.out_features,
        "scale": first.scale,
        "dropout": first.dropout.p,
        "training": dict(meta or {}),
    }
    state = {name: tensor.detach().cpu().numpy() for name, tensor in adapter_state(backbone.model).items()}
    write_tensors(path, state, kind=KIND, version=VERSION, meta=header)


def load_adapter(path: FilePath, backbone: Backbone) -> dict[str, Any]:
    """Load the adapters of a file into a torch backbone, frozen.

    Parameters
    ----------
    path : str or path
        The adapter file. It must have been trained with the same weights; their name does not matter.
    backbone : Backbone
        A backbone without adapters; it is changed in place.

    Returns
    -------
    dict
        The metadata of the file.

    Raises
    ------
    InputError
        When the adapter belongs to other weights.
    StorageError
        When the file is missing or damaged.

    Examples
    --------
    >>> from fiveshot.backbones import adapter_path, load_adapter, load_backbone
    >>> backbone = load_backbone()
    >>> about = load_adapter(adapter_path("cub200-big"), backbone)
    >>> about["bottleneck"], about["weights_hash"] == backbone.weights_hash
    (64, True)
    """
    adapter = read_adapter(path)
    put_adapter(adapter, backbone, path=path)
    return adapter.meta


def put_adapter(adapter: AdapterFile, backbone: Backbone, *, path: FilePath) -> None:
    """Put an adapter that was read from a file into a torch backbone, frozen."""
    import torch

    from fiveshot.backbones._adaptformer import adapter_places, attach_adapters

    adapter.require(backbone.weights_hash, name=backbone.name, path=path)
    model = backbone.model
    adapter.require_places(adapter_places(model), path=path)
    shape = {key: adapter.meta[key] for key in SHAPE}
    attach_adapters(model, **shape, seed=0)
    state = {name: torch.from_numpy(tensor) for name, tensor in adapter.tensors.items()}
    model.load_state_dict(state, strict=False)
    model.requires_grad_(False).eval()
