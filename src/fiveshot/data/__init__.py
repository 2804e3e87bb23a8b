"""Labeled images: from folders, archives and official layouts; downloads; session lists; Gaussian classes.

Each name is imported when it is used: processes that only decode need little of this.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fiveshot.data.dataset import (
        BadImage,
        ImageDataset,
        ImageSplit,
        bad_images_error,
        check_dataset,
        check_images,
        restrict,
    )
    from fiveshot.data.decoder_pool import Decoders, decoders
    from fiveshot.data.decoder_process import Reduced, Reduction
    from fiveshot.data.decoding import MAX_PIXELS, decode
    from fiveshot.data.fetching import Fetched, fetch
    from fiveshot.data.folders import open_images
    from fiveshot.data.reduction import Box
    from fiveshot.data.registry import (
        DatasetSpec,
        Download,
        dataset_specs,
        open_dataset,
        register_dataset,
        unregister_dataset,
    )
    from fiveshot.data.sessions import SessionLists, match_names, read_session_lists
    from fiveshot.data.sources import (
        MAX_PHOTO_BYTES,
        ArchiveSource,
        ArraySource,
        BytesSource,
        FileSource,
        ImageError,
        ImageSource,
    )
    from fiveshot.data.synthetic import gaussian_classes, gaussian_parameters

__all__ = [
    "MAX_PHOTO_BYTES",
    "MAX_PIXELS",
    "ArchiveSource",
    "ArraySource",
    "BadImage",
    "Box",
    "BytesSource",
    "DatasetSpec",
    "Decoders",
    "Download",
    "Fetched",
    "FileSource",
    "ImageDataset",
    "ImageError",
    "ImageSource",
    "ImageSplit",
    "Reduced",
    "Reduction",
    "SessionLists",
    "bad_images_error",
    "check_dataset",
    "check_images",
    "dataset_specs",
    "decode",
    "decoders",
    "fetch",
    "gaussian_classes",
    "gaussian_parameters",
    "match_names",
    "open_dataset",
    "open_images",
    "read_session_lists",
    "register_dataset",
    "restrict",
    "unregister_dataset",
]

_PLACES = {
    "dataset": (
        "BadImage",
        "ImageDataset",
        "ImageSplit",
        "bad_images_error",
        "check_dataset",
        "check_images",
        "restrict",
    ),
    "decoder_pool": ("Decoders", "decoders"),
    "decoder_process": ("Reduced", "Reduction"),
    "decoding": ("MAX_PIXELS", "decode"),
    "fetching": ("Fetched", "fetch"),
    "folders": ("open_images",),
    "reduction": ("Box",),
    "synthetic": ("gaussian_classes", "gaussian_parameters"),
    "registry": (
        "DatasetSpec",
        "Download",
        "dataset_specs",
        "open_dataset",
        "register_dataset",
        "unregister_dataset",
    ),
    "sessions": ("SessionLists", "match_names", "read_session_lists"),
    "sources": (
        "MAX_PHOTO_BYTES",
        "ArchiveSource",
        "ArraySource",
        "BytesSource",
        "FileSource",
        "ImageError",
        "ImageSource",
    ),
}


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names:
            return getattr(import_module(f"fiveshot.data.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
