"""The same features through ONNX Runtime, which is faster than eager PyTorch on CPUs."""

from __future__ import annotations

import os
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fiveshot.backbones.backbone import Backbone, Extractor
from fiveshot.backbones.preprocessing import Preprocessing
from fiveshot.backbones.readout import Readout, read_features
from fiveshot.backbones.silence import silent_output
from fiveshot.errors import StorageError
from fiveshot.extras import import_extra
from fiveshot.storage import atomic_path

OPSET = 18

_PROTOBUF_LIMIT = 2 * 1024**3  # bytes: the most one ONNX file can hold


class OnnxBackbone:
    """A backbone's forward pass in ONNX Runtime; later changes of its adapters are not seen here.

    >>> import timm, torch
    >>> from fiveshot.backbones import Backbone, OnnxBackbone, Preprocessing
    >>> vit = timm.create_model("test_vit", num_classes=0).eval().requires_grad_(False)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=160, resize=160))
    >>> images = torch.rand(2, 3, 160, 160, generator=torch.Generator().manual_seed(0))
    >>> torch.allclose(OnnxBackbone(backbone).features(images), backbone.features(images), atol=1e-4)
    True
    """

    def __init__(
        self,
        backbone: Backbone,
        *,
        cache: str | os.PathLike[str] | None = None,
        threads: int | None = None,
    ) -> None:
        """Export the backbone, or take the export of the same weights from the ``cache`` folder.

        ``threads`` is PyTorch's number where it is not given.
        """
        self._runtime = import_extra("onnxruntime", extra="onnx")
        self.name: str = backbone.name
        self.preprocessing: Preprocessing = backbone.preprocessing
        self.width: int = backbone.width
        self.fingerprint: str = backbone.fingerprint
        threads = threads or torch.get_num_threads()
        if cache is None:
            with tempfile.TemporaryDirectory() as folder:
                self._session = self._open(_exported(backbone, Path(folder)), threads)
        else:
            self._session = self._open_cached(backbone, Path(cache), threads)

    @property
    def runtime(self) -> str:
        """What runs the forward pass."""
        return f"ONNX Runtime {self._runtime.__version__} on cpu"

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, width) of preprocessed images (n, 3, size, size)."""
        if not len(images):
            return torch.zeros(0, self.width)
        (features,) = self._session.run(None, {"images": images.float().cpu().contiguous().numpy()})
        return torch.from_numpy(features)

    def _open(self, file: Path, threads: int) -> Any:
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = threads
        # Idle threads must not spin: the cores are shared with those who decode images.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return self._runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def _open_cached(self, backbone: Backbone, folder: Path, threads: int) -> Any:
        file = _exported(backbone, folder)
        try:
            return self._open(file, threads)
        except Exception:  # the runtime's own errors have no common base: the file is damaged
            file.unlink()
            return self._open(_exported(backbone, folder), threads)


def fastest_cpu(backbone: Backbone, *, cache: str | os.PathLike[str] | None = None) -> Extractor:
    """Return what computes this backbone's features fastest here; its ``runtime`` says what that is.

    On a CPU, ONNX Runtime where it is installed and the weights fit into one ONNX file (2 GiB); otherwise
    the backbone itself. ``cache`` is a folder where the export is kept for the next time.

    >>> import timm
    >>> from fiveshot.backbones import Backbone, Preprocessing, fastest_cpu
    >>> vit = timm.create_model("test_vit", num_classes=0).eval().requires_grad_(False)
    >>> fastest_cpu(Backbone(vit, "test_vit", Preprocessing(size=160, resize=160))).runtime
    'ONNX Runtime ... on cpu'
    """
    size = sum(parameter.numel() * parameter.element_size() for parameter in backbone.model.parameters())
    fits = size < _PROTOBUF_LIMIT
    if backbone.device.type == "cpu" and fits and find_spec("onnxruntime") is not None:
        return OnnxBackbone(backbone, cache=cache)
    return backbone


def export_onnx(backbone: Backbone, path: str | os.PathLike[str]) -> None:
    """Write the forward pass as an ONNX file: ``images`` (n, 3, size, size) to ``features`` (n, width)."""
    size = backbone.preprocessing.size
    # Two images: a batch of one would be taken for a constant.
    images = torch.zeros(2, 3, size, size, device=backbone.device)
    network = _Features(backbone.model, backbone.readout).eval()
    with atomic_path(path) as temporary, warnings.catch_warnings(), silent_output():
        # The tracing exporter needs no further library and its graph runs at least as fast as the newer one's.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network,
            (images,),
            str(temporary),
            dynamo=False,
            opset_version=OPSET,
            input_names=["images"],
            output_names=["features"],
            dynamic_axes={"images": {0: "n"}, "features": {0: "n"}},
        )


class _Features(nn.Module):
    def __init__(self, model: nn.Module, readout: Readout) -> None:
        super().__init__()
        self.model = model
        self.readout = readout

    def forward(self, images: Tensor) -> Tensor:
        return read_features(self.model, images, self.readout)


def _exported(backbone: Backbone, folder: Path) -> Path:
    if not folder.is_dir():
        raise StorageError(f"no such folder: {folder}; create it first")
    file = folder / f"{backbone.name}-{backbone.fingerprint[:16]}-opset{OPSET}.onnx"
    if not file.is_file():
        export_onnx(backbone, file)
    return file
