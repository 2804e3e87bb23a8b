"""NVIDIA's decoder of JPEG, called directly: photos are decoded on a GPU to the pixels that Pillow makes of them.

torchvision calls the same library, but has it repeat the stored colors where Pillow interpolates them, so that
features differ; its threads wait for each other; and it is about to leave decoding to other libraries. nvJPEG
comes with torchvision, with NVIDIA's packages or with CUDA itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fiveshot.data.decoding import JpegFile

_ANY, _HARDWARE = 0, 3  # what decodes: the GPU's multiprocessors and a core, or units of its own for plain photos
_INTERPOLATE = 1 << 5  # colors, when they are enlarged to the picture's size
_PLANES = 3  # red, green and blue, one after the other


class _Image(ctypes.Structure):
    _fields_ = (("channel", ctypes.c_void_p * 4), ("pitch", ctypes.c_size_t * 4))


@dataclass(eq=False)
class _State:
    """What the library keeps for the photos of one stream."""

    state: ctypes.c_void_p
    count: int = 0  # photos that it is ready for
    lock: threading.Lock = field(default_factory=threading.Lock)


class JpegDecoder:
    """Decodes photos on one GPU, into memory that lies there; threads with streams of their own do so at once."""

    def __init__(self, library: ctypes.CDLL, device: torch.device) -> None:
        self._library, self._device = library, device
        self._states: dict[tuple[int | None, int], _State] = {}  # by handle and stream
        with torch.cuda.device(device):
            self._any, self._hardware = self._handle(_ANY), self._handle(_HARDWARE)

    def __call__(self, files: Sequence[JpegFile], places: Sequence[Tensor]) -> bool:
        """Decode each file into its place, (3, height, width) of uint8; return False where one is refused.

        The work is done in the order of the thread's stream; nobody waits for it here.
        """
        plain = [file.facts.baseline for file in files]
        with torch.cuda.device(self._device):
            for handle, kind in ((self._hardware or self._any, True), (self._any, False)):
                chosen = [row for row, own in enumerate(plain) if own is kind]
                if chosen and not self._decode(handle, [files[i] for i in chosen], [places[i] for i in chosen]):
                    return False
        return True

    def _handle(self, backend: int) -> ctypes.c_void_p | None:
        """Return the library's own handle, or None where the GPU does not have what is asked for."""
        handle = ctypes.c_void_p()
        made = self._library.nvjpegCreateEx(backend, None, None, _INTERPOLATE, ctypes.byref(handle))
        return None if made else handle

    def _decode(self, handle: ctypes.c_void_p | None, files: Sequence[JpegFile], places: Sequence[Tensor]) -> bool:
        stream: Any = torch.cuda.current_stream(self._device)
        own = None if handle is None else self._state(handle, stream.cuda_stream)
        if own is None:
            return False
        count = len(files)
        images = (_Image * count)()
        for image, place in zip(images, places, strict=True):
            start, (plane, row, _) = place.data_ptr(), place.stride()
            image.channel[:3] = [start, start + plane, start + 2 * plane]
            image.pitch[:3] = [row, row, row]
        encoded = [np.frombuffer(file.data, np.uint8) for file in files]
        data = (ctypes.c_void_p * count)(*(array.ctypes.data for array in encoded))
        sizes = (ctypes.c_size_t * count)(*map(len, encoded))
        library, failed = self._library, 0
        with own.lock:
            if own.count != count:
                failed = library.nvjpegDecodeBatchedInitialize(handle, own.state, count, 1, _PLANES)
                own.count = 0 if failed else count
            given = (data, sizes, images, ctypes.c_void_p(stream.cuda_stream))
            failed = failed or library.nvjpegDecodeBatched(handle, own.state, *given)
            if failed:  # what state it is in now, nobody says
                own.count = 0
        return not failed

    def _state(self, handle: ctypes.c_void_p, stream: int) -> _State | None:
        key = handle.value, stream
        if key not in self._states:
            state = ctypes.c_void_p()
            if self._library.nvjpegJpegStateCreate(handle, ctypes.byref(state)):
                return None
            self._states[key] = _State(state)
        return self._states[key]


@cache
def jpeg_decoder(device: torch.device) -> JpegDecoder | None:
    """Return what decodes on a GPU; None where nvJPEG is not to be found."""
    library = _library() if device.type == "cuda" else None
    return None if library is None else JpegDecoder(library, device)


def _library() -> ctypes.CDLL | None:
    found: list[str] = []
    places = (("nvidia", "*/lib/libnvjpeg.so.*"), ("torchvision", "../torchvision.libs/libnvjpeg*"))
    for package, pattern in places:
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or []) if spec else []:
            found += map(str, sorted(Path(folder).glob(pattern)))
    for name in (*found, "libnvjpeg.so.13", "libnvjpeg.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
