"""A backbone together with what runs its forward pass: ONNX Runtime or PyTorch, and in which precision."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

import torch
from torch import Tensor

from fiveshot.backbones import Backbone, Extractor, OnnxBackbone, Preprocessing, fastest_cpu
from fiveshot.errors import FiveshotError, InputError, unknown_name

RUNTIMES = ("auto", "torch", "onnx")


@dataclass(frozen=True, eq=False)
class Runner:
    """An extractor that knows its backbone, so that features carry their whole provenance.

    Another runtime is made ready when it is first used: features found in a cache need none.

    >>> import timm, torch
    >>> from fiveshot.backbones import Backbone, Preprocessing
    >>> from fiveshot.features import Runner
    >>> vit = timm.create_model("test_vit", num_classes=0).eval().requires_grad_(False)
    >>> runner = Runner(Backbone(vit, "test_vit", Preprocessing(size=160, resize=160)), chosen="torch")
    >>> runner.features(torch.zeros(2, 3, 160, 160)).shape, runner.runtime
    (torch.Size([2, 64]), 'PyTorch ... on cpu, float32')
    """

    backbone: Backbone
    chosen: str = "auto"  # of RUNTIMES
    precision: str = "float32"
    _ready: list[Extractor] = field(default_factory=list, repr=False)
    _lock: Any = field(default_factory=Lock, repr=False)

    @property
    def name(self) -> str:
        """Exact name of the backbone."""
        return self.backbone.name

    @property
    def preprocessing(self) -> Preprocessing:
        """How images must be prepared."""
        return self.backbone.preprocessing

    @property
    def width(self) -> int:
        """Length of a feature vector."""
        return self.backbone.width

    @property
    def device(self) -> torch.device:
        """Where the forward pass runs."""
        return self.backbone.device

    @property
    def runtime(self) -> str:
        """What runs the forward pass, and in which precision."""
        return f"{self.extractor.runtime}, {self.precision}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that decides the features; float32 is the same on every runtime."""
        if self.precision == "float32":
            return self.backbone.fingerprint
        return hashlib.sha256(f"{self.backbone.fingerprint} {self.precision}".encode()).hexdigest()

    @property
    def extractor(self) -> Extractor:
        """The backbone itself, or the same on another runtime."""
        with self._lock:
            if not self._ready:
                self._ready.append(self._made_ready())
            return self._ready[0]

    def identity(self) -> dict[str, Any]:
        """Return, as JSON values, everything that decides the features of an image."""
        return {**self.backbone.identity(), "precision": self.precision}

    def features(self, images: Tensor) -> Tensor:
        """Return the features (n, width) of preprocessed images (n, 3, size, size)."""
        extractor = self.extractor
        if extractor is self.backbone:
            return self.backbone.features(images, precision=self.precision)
        return extractor.features(images)

    def _made_ready(self) -> Extractor:
        if self.device.type != "cpu" or self.chosen == "torch":
            return self.backbone
        # Several calls of one thread each use the cores better than one call of several threads, and leave
        # none of them waiting while another decodes images.
        with one_thread():
            try:
                return OnnxBackbone(self.backbone) if self.chosen == "onnx" else fastest_cpu(self.backbone)
            except FiveshotError:
                raise
            except Exception as error:  # the exporter's errors have no common base
                if self.chosen == "auto":
                    return self.backbone
                raise InputError(
                    f"{self.name} with {self.preprocessing.size} px images cannot be exported to ONNX "
                    f"({type(error).__name__}); use the runtime 'torch'"
                ) from error


def choose_runner(backbone: Backbone, *, runtime: str = "auto", precision: str | None = None) -> Runner:
    """Return what computes this backbone's features fastest here, or the ``runtime`` asked for.

    On CUDA that is PyTorch, in bf16 unless another ``precision`` is given; on a CPU ONNX Runtime where it is
    installed, in float32.

    >>> import timm
    >>> from fiveshot.backbones import Backbone, Preprocessing
    >>> from fiveshot.features import choose_runner
    >>> vit = timm.create_model("test_vit", num_classes=0).eval().requires_grad_(False)
    >>> backbone = Backbone(vit, "test_vit", Preprocessing(size=160, resize=160))
    >>> choose_runner(backbone).runtime, choose_runner(backbone, runtime="torch").runtime
    ('ONNX Runtime ... on cpu, float32', 'PyTorch ... on cpu, float32')
    """
    if runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)
    on = backbone.device.type
    if runtime == "onnx" and on != "cpu":
        raise InputError(f"ONNX Runtime is for the CPU, and the device is {backbone.device}; use device 'cpu'")
    if precision not in (None, "float32") and on != "cuda":
        raise InputError(f"precision {precision!r} is for CUDA devices; on {on} use 'float32'")
    return Runner(backbone, runtime, precision or ("bf16" if on == "cuda" else "float32"))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread for each call, in this thread and in those started inside the block.

    PyTorch's number is that of the thread that sets it, and of all threads that begin later: blocks of several
    threads may overlap, each thread has its own number back, and the last one puts back that of the process.
    """
    own = _ONE_THREAD.enter()
    try:
        yield
    finally:
        _ONE_THREAD.leave(own)


class _OneThread:
    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._before = 0  # the number of the first, and of threads that begin when all have left

    def enter(self) -> int | None:
        """Return the number of this thread, or None for one that has its single thread from another's block."""
        with self._lock:
            own = torch.get_num_threads()
            inside = self._users > 0
            if not inside:
                self._before = own
            self._users += 1
            torch.set_num_threads(1)
            return None if inside and own == 1 else own

    def leave(self, own: int | None) -> None:
        with self._lock:
            self._users -= 1
            later = 1 if self._users else self._before
            torch.set_num_threads(later if own is None else own)
            if own not in (None, later):  # that was for this thread: those that begin later are to have theirs
                again = Thread(target=torch.set_num_threads, args=(later,))
                again.start()
                again.join()


_ONE_THREAD = _OneThread()
