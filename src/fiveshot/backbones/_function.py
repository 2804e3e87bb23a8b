"""A Python function as a network: pictures in, vectors out."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from fiveshot.backbones.preprocessing import Pixels, Preprocessing
from fiveshot.backbones.spec import FUNCTION
from fiveshot.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

    from fiveshot.backbones.embedder import Vectors

Function: TypeAlias = "Callable[[list[Image]], Any]"
_NAME = re.compile(r"[A-Za-z0-9][\w.+-]{0,99}", re.ASCII)


class FunctionNetwork:
    """A function from square pictures to vectors; a :class:`Network` of an embedder.

    The function is called by one thread at a time. Its code cannot be compared, so its name stands for it.
    """

    device = "cpu"
    precision = "float32"
    adapter_hash = None

    def __init__(self, function: Function, name: str, preprocessing: Preprocessing) -> None:
        """Call the function once, on black pictures, to learn the length of its vectors."""
        if not callable(function):
            raise InputError(f"{function!r} cannot be called", hint="give a function from PIL images to vectors")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InputError(f"{name!r} cannot name a function", hint="use letters, digits, '.', '-', '_' and '+'")
        self._function, self._lock = function, Lock()
        self.name = f"{FUNCTION}{name}"
        self.weights_hash = sha256(self.name.encode()).hexdigest()
        self.width = 0
        self.width = self.forward(np.zeros((2, *preprocessing.shape[1:]), np.uint8)).shape[1]

    def ready(self) -> str:
        """Return the name of the runtime; there is nothing to load."""
        return "Python"

    def forward(self, images: Pixels) -> Vectors:
        """Return the vectors (n, width) of pixels (n, 3, size, size)."""
        import PIL.Image

        pictures = [PIL.Image.fromarray(np.ascontiguousarray(one.transpose(1, 2, 0))) for one in images]
        with self._lock:
            found = self._function(pictures)
        if hasattr(found, "detach"):  # a tensor of torch
            found = found.detach().cpu()
        vectors = np.asarray(found, dtype=np.float32)
        wanted = (len(images), self.width or vectors.shape[-1])
        if vectors.ndim != 2 or vectors.shape != wanted or not wanted[1]:
            length = self.width or "length"
            raise InputError(
                f"{self.name} gave an array of shape {vectors.shape} for {len(images)} pictures",
                hint=f"return one vector for each picture: ({len(images)}, {length})",
            )
        return vectors


def missing_function(name: str) -> InputError:
    """Return the error for a model whose features a Python function computes, where there is none."""
    return InputError(
        f"the features of this model are computed by a Python function, {name.removeprefix(FUNCTION)!r}",
        hint="open it in Python: Recognizer.open(path, embedder=Embedder.from_callable(...))",
        code="needs_function",
    )
