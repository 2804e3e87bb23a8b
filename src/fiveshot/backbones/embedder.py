"""Photos in, feature vectors out: one object for every runtime."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones._function import Function, FunctionNetwork, missing_function
from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.backbones.spec import EMBEDDED, FUNCTION, BackboneSpec, is_bundle
from fiveshot.errors import InputError
from fiveshot.extras import is_installed, require_extra

if TYPE_CHECKING:
    from PIL.Image import Image

Vectors: TypeAlias = NDArray[np.float32]
STREAMS = 3  # batches on a GPU at a time: one computes, one is copied to the GPU, one is copied back
DRIVER = ("/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg")  # NVIDIA's driver files on Linux and WSL
TORCH = ("torch", "timm", "torchvision")  # what the extra `torch` installs


class NotFiniteError(InputError):
    """Raised when a feature vector holds NaN or infinity.

    Parameters
    ----------
    row : int
        Index of the image.
    name : str, optional
        The name of that image, if known.

    Examples
    --------
    >>> print(NotFiniteError(3))
    the vector of image 4 holds NaN or infinity; the backbone's weights look damaged
    """

    default_code = "not_finite"

    def __init__(self, row: int, name: str = "") -> None:
        what = name or f"image {row + 1}"
        super().__init__(f"the vector of {what} holds NaN or infinity", hint="the backbone's weights look damaged")
        self.row = row


class Network(Protocol):
    """A network on one runtime: what an :class:`Embedder` needs from it."""

    @property
    def name(self) -> str:
        """Exact name of the backbone."""

    @property
    def width(self) -> int:
        """Length of a feature vector."""

    @property
    def device(self) -> str:
        """Where it runs: ``cpu``, ``cuda`` or ``cuda:0``."""

    @property
    def precision(self) -> str:
        """Number format of the forward pass."""

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the weights, without adapters."""

    @property
    def adapter_hash(self) -> str | None:
        """SHA-256 of the adapter's weights, or None without one."""

    def ready(self) -> str:
        """Load what is needed, once, and return the name of the runtime."""

    def forward(self, images: Pixels) -> Vectors:
        """Return the features (n, width) of pixels (n, 3, size, size), n at least 1."""


@dataclass(frozen=True, eq=False)
class Embedder:
    """A backbone with its adapter, preprocessing and runtime; :func:`load_embedder` makes one.

    The network is loaded on first use, so features in a cache do not need it. Threads may share an embedder. On
    a CPU each call uses one thread, so parallel calls use the cores best.

    Parameters
    ----------
    spec : BackboneSpec
        The backbone's specification.
    preprocessing : Preprocessing
        How photos become pixels.
    network : Network
        Turns pixels into vectors.

    Examples
    --------
    >>> import PIL.Image
    >>> from fiveshot.backbones import load_embedder
    >>> embedder = load_embedder()
    >>> pixels = embedder.pixels(PIL.Image.new("RGB", (500, 375), "green"))
    >>> pixels.shape, embedder.features(pixels[None]).shape
    ((2, 3, 224, 224), (1, 320))
    """

    spec: BackboneSpec
    preprocessing: Preprocessing
    network: Network

    @classmethod
    def from_callable(
        cls, function: Function, *, size: int, name: str, preprocessing: Preprocessing | None = None
    ) -> Embedder:
        """Return an embedder whose vectors a Python function computes.

        Parameters
        ----------
        function : callable
            Takes a list of n square PIL images, and returns n vectors: an array (n, width) or a torch tensor. It
            is called by one thread at a time.
        size : int
            Side of the images, in pixels: the center of the photo, scaled to it.
        name : str
            Stands for the function and its weights. Models and cached features made under one name belong
            together, so change it when the function changes.
        preprocessing : Preprocessing, optional
            How photos become images of this size, if not by their center. Its ``mean`` and ``std`` are not used.

        Returns
        -------
        Embedder
            The embedder. Only Python programs that have the function can open models made with it.

        Raises
        ------
        InputError
            When the function does not return a vector for each image.

        Examples
        --------
        >>> import numpy as np
        >>> from fiveshot.backbones import Embedder
        >>> colors = Embedder.from_callable(
        ...     lambda images: [np.asarray(image).mean((0, 1)) for image in images], size=64, name="colors"
        ... )
        >>> colors.name, colors.width
        ('python:colors', 3)
        """
        prepared = preprocessing or Preprocessing(size=size, resize=size, name=name)
        if prepared.size != size:
            raise InputError(
                f"the preprocessing gives {prepared.size} px images, not {size}", hint="give one size"
            )
        network = FunctionNetwork(function, name, prepared)
        return cls(BackboneSpec(network.name, preprocessing=prepared, device="cpu"), prepared, network)

    @property
    def name(self) -> str:
        """Exact name of the backbone."""
        return self.network.name

    @property
    def width(self) -> int:
        """Length of a feature vector."""
        return self.network.width

    @property
    def device(self) -> str:
        """Where the network runs: ``cpu``, ``cuda`` or ``cuda:0``."""
        return self.network.device

    @property
    def on_cpu(self) -> bool:
        """Whether the network runs on the CPU."""
        return self.device == "cpu"

    @property
    def runtime(self) -> str:
        """The name of the runtime and its precision; this loads the network."""
        return f"{self.network.ready()}, {self.network.precision}"

    @property
    def weights_hash(self) -> str:
        """SHA-256 of the network's weights, without adapters."""
        return self.network.weights_hash

    def identity(self) -> dict[str, Any]:
        """Return everything that affects the features of a photo, as JSON values."""
        return {
            "name": self.name,
            "weights_hash": self.network.weights_hash,
            "adapter_hash": self.network.adapter_hash,
            "preprocessing": self.preprocessing.decisive(),
            "readout": asdict(self.spec.readout),
            "precision": self.network.precision,
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that affects the features; with float32 it is the same on every runtime."""
        return fingerprint_of(self.identity())

    def pixels(self, image: Image | Pixels) -> Pixels:
        """Return the network's input for a photo.

        Parameters
        ----------
        image : PIL.Image.Image or uint8 array (height, width, 3)
            The photo, in RGB.

        Returns
        -------
        uint8 array (views, 3, size, size)
            The pixels, scaled and cropped: one square for each view.
        """
        return self.preprocessing.pixels(image)

    def features(self, pixels: Pixels) -> Vectors:
        """Return the feature vectors of prepared photos.

        Parameters
        ----------
        pixels : uint8 array (n, views, 3, size, size)
            Stacked results of :meth:`pixels`. If torch runs the network, this may be a tensor on its device.

        Returns
        -------
        float32 array (n, width)
            One vector for each photo: the mean over its views.

        Raises
        ------
        InputError
            When the pixels have another type or shape.
        NotFiniteError
            When a vector holds NaN or infinity.
        """
        views, *shape = self.preprocessing.shape
        if str(pixels.dtype) not in ("uint8", "torch.uint8") or tuple(pixels.shape[1:]) != (views, *shape):
            raise InputError(
                f"pixels must be uint8 of shape (n, {', '.join(map(str, (views, *shape)))}), "
                f"not {pixels.dtype} of {tuple(pixels.shape)}"
            )
        if not len(pixels):
            return np.zeros((0, self.width), np.float32)
        self.network.ready()
        # One pass for all views of all photos is faster than one pass for each view.
        each = self.network.forward(pixels.reshape(-1, *shape))
        vectors = each if views == 1 else each.reshape(len(pixels), views, -1).mean(axis=1)
        good = np.isfinite(vectors).all(axis=1)
        if not good.all():
            raise NotFiniteError(int(good.argmin()))
        return vectors

    def streams(self, workers: int) -> int:
        """Return how many batches to work on at a time: one for each worker on a CPU, a few on a GPU.

        While one batch is copied to or from the GPU, the GPU computes another one.
        """
        return workers if self.on_cpu else STREAMS

    @property
    def batch_size(self) -> int:
        """The smallest batch that uses the device fully; small batches spread evenly over workers."""
        return 8 if self.on_cpu else 128


def load_embedder(spec: BackboneSpec = BackboneSpec()) -> Embedder:  # noqa: B008  # frozen
    """Return the embedder for a backbone's specification.

    The embedded backbone runs on ONNX Runtime without torch, adapters included. So do ONNX bundles, which need
    ``pip install 'fiveshot[onnx]'``. Other names, CUDA and the runtime ``torch`` need
    ``pip install 'fiveshot[torch]'``.

    Parameters
    ----------
    spec : BackboneSpec, optional
        The backbone; by default the embedded one without adapter.

    Returns
    -------
    Embedder
        The embedder; its network is loaded with the first photos.

    Raises
    ------
    InputError
        When a library is missing (the hint says how to install it), when the name, the device or the precision
        cannot be used, or when the adapter belongs to another network.
    StorageError
        When a file is missing or damaged, or weights cannot be fetched.

    Examples
    --------
    >>> from fiveshot.backbones import BackboneSpec, load_embedder
    >>> embedder = load_embedder(BackboneSpec(adapter="cub200-big", device="cpu"))
    >>> embedder.name, embedder.width, embedder.runtime
    ('tiny_vit_5m_224.dist_in22k', 320, 'ONNX Runtime ... on cpu, float32')
    """
    if spec.name.startswith(FUNCTION):
        raise missing_function(spec.name)
    if is_bundle(spec.name):
        from fiveshot.backbones.bundles.bundle import bundle_embedder

        return bundle_embedder(spec)
    device = choose_device(spec.device)
    check_place(spec, device)
    if not needs_torch(spec):
        from fiveshot.backbones.embedded import PREPROCESSING, EmbeddedNetwork

        preprocessing = spec.prepared(PREPROCESSING)
        return Embedder(spec, preprocessing, EmbeddedNetwork(spec, preprocessing))
    require_extra(*TORCH)
    from fiveshot.backbones.backbone import load_backbone, torch_embedder

    return torch_embedder(load_backbone(spec), spec)


def needs_torch(spec: BackboneSpec) -> bool:
    """Tell whether a backbone runs on torch: all do, except ONNX bundles and the embedded one on a CPU.

    >>> needs_torch(BackboneSpec(device="cpu")), needs_torch(BackboneSpec(device="cpu", runtime="torch"))
    (False, True)
    """
    if is_bundle(spec.name) or spec.name.startswith(FUNCTION):
        return False
    return spec.name != EMBEDDED or spec.runtime == "torch" or choose_device(spec.device) != "cpu"


def choose_device(device: str) -> str:
    """Return a device that this machine has.

    Without an installed GPU driver the CPU is chosen without loading torch.

    Parameters
    ----------
    device : str
        ``cpu``, ``cuda``, ``cuda:0``, or ``auto`` for a GPU if there is one and the CPU otherwise.

    Returns
    -------
    str
        ``cpu``, ``cuda`` or ``cuda:0``.

    Raises
    ------
    InputError
        When this machine has no such device.

    Examples
    --------
    >>> from fiveshot.backbones import choose_device
    >>> choose_device("cpu")
    'cpu'
    """
    if device == "cpu" or (device == "auto" and not _may_have_gpu()):
        return "cpu"
    require_extra("torch")
    from fiveshot.backbones.backbone import checked_device

    return str(checked_device(device))


def check_place(spec: BackboneSpec, device: str) -> None:
    """Refuse a runtime or a precision that this device does not have."""
    if spec.runtime == "onnx" and device != "cpu":
        raise InputError(f"ONNX Runtime is for the CPU, but the device is {device}", hint="use device 'cpu'")
    if spec.runtime == "compiled" and not device.startswith("cuda"):
        raise InputError(
            f"the runtime 'compiled' is for CUDA devices, not {device}", hint="use the runtime 'auto'"
        )
    if spec.precision not in (None, "float32") and not device.startswith("cuda"):
        raise InputError(f"precision {spec.precision!r} is for CUDA devices", hint=f"on {device} use 'float32'")


def default_workers() -> int:
    """Return how many images to process in parallel.

    Returns
    -------
    int
        The number of CPU cores that this process may use.

    Examples
    --------
    >>> from fiveshot.backbones import default_workers
    >>> default_workers() > 0
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _may_have_gpu() -> bool:
    """Tell whether torch and the files of NVIDIA's driver are present; only torch knows whether a GPU works."""
    return is_installed("torch") and (sys.platform == "win32" or any(Path(file).exists() for file in DRIVER))


def fingerprint_of(identity: Mapping[str, Any]) -> str:
    """Return the fingerprint for the ``identity()`` of an embedder.

    >>> embedder = load_embedder()
    >>> fingerprint_of(embedder.identity()) == embedder.fingerprint
    True
    >>> fingerprint_of({**embedder.identity(), "precision": "bf16"}) == embedder.fingerprint
    False
    """
    weights = {key: value for key, value in identity.items() if key != "precision"}
    own = hashlib.sha256(json.dumps(weights, sort_keys=True).encode()).hexdigest()
    precision = identity["precision"]
    return own if precision == "float32" else hashlib.sha256(f"{own} {precision}".encode()).hexdigest()


def hash_arrays(arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return one SHA-256 over the names, types, shapes and bytes of arrays, sorted by name.

    >>> a, b = np.ones(2, np.float32), np.zeros(1, np.float32)
    >>> hash_arrays({"a": a, "b": b}) == hash_arrays({"b": b, "a": a}) != hash_arrays({"a": b, "b": a})
    True
    """
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        # Types are written in torch's form, so that hashes made by earlier releases with torch stay valid.
        digest.update(f"{name} torch.{array.dtype.name} {array.shape}\n".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
