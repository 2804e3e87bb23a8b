"""What is to be extracted, and the keys under which it is kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fiveshot.backbones import Embedder
from fiveshot.data import ImageDataset, ImageSource
from fiveshot.errors import unknown_name
from fiveshot.features.cache import CacheKey
from fiveshot.features.fingerprint import ImageIdentity, dataset_fingerprint
from fiveshot.features.image_marks import quick_marks
from fiveshot.features.provenance import Provenance

DTYPES: dict[str, type[np.floating[Any]]] = {"float16": np.float16, "float32": np.float32}


@dataclass(frozen=True, eq=False)
class ExtractionJob:
    """All images of a dataset, an embedder, and the type of the stored vectors."""

    dataset: ImageDataset
    embedder: Embedder
    dtype: str = "float16"

    def __post_init__(self) -> None:
        """Refuse a type that vectors are not stored in."""
        if self.dtype not in DTYPES:
            raise unknown_name("type of vectors", self.dtype, DTYPES)

    @cached_property
    def images(self) -> tuple[ImageSource, ...]:
        """The training images, then the test images: a position in this list identifies an image."""
        return self.dataset.train.images + self.dataset.test.images

    @cached_property
    def quick(self) -> NDArray[np.uint8]:
        """The images' quick marks (n_images, 16), as they were when first asked for."""
        return quick_marks(self.images)

    @cached_property
    def provenance(self) -> Provenance:
        """How the vectors are made."""
        return Provenance.of(self.dataset.name, self.embedder.identity())

    @cached_property
    def listing_key(self) -> CacheKey:
        """The key without the images' contents: their names, order and labels, and how vectors are made."""
        data = self.dataset
        listing = dataset_fingerprint(
            ImageIdentity(image.name, name, data.class_names[label], mark=str(position))
            for name, split in (("train", data.train), ("test", data.test))
            for position, (image, label) in enumerate(zip(split.images, split.labels, strict=True))
        )
        # The provenance has no place for the type of the vectors.
        return CacheKey(f"{listing} {self.dtype} {self.embedder.fingerprint}", self.provenance)

    def content_key(self, content: str) -> CacheKey:
        """Return the whole key, from the ``digest`` of the marks of the images' contents."""
        return CacheKey(f"{self.listing_key.images} {content}", self.provenance)


def digest(marks: NDArray[np.uint8]) -> str:
    """Return one SHA-256 for all marks in their order."""
    return hashlib.sha256(np.ascontiguousarray(marks).data).hexdigest()
