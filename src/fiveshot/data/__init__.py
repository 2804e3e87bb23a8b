"""Labeled images: from folders, archives and official layouts; downloads; session lists; Gaussian classes.

Each name is imported on first use, because processes that only decode photos need few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name

if TYPE_CHECKING:
    from fiveshot.data._decoder_pool import Decoders, decoders
    from fiveshot.data._decoder_process import Reduced, Reduction
    from fiveshot.data._fetching import Fetched, fetch
    from fiveshot.data.dataset import (
        ImageDataset,
        ImageSplit,
        bad_images_error,
        check_dataset,
        check_images,
        restrict,
    )
    from fiveshot.data.decoding import MAX_PIXELS, decode
    from fiveshot.data.folders import is_image, open_images
    from fiveshot.data.photo import Photo, by_source
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
    from fiveshot.values import BadImage

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
    "Photo",
    "Reduced",
    "Reduction",
    "SessionLists",
    "bad_images_error",
    "by_source",
    "check_dataset",
    "check_images",
    "dataset_specs",
    "decode",
    "decoders",
    "fetch",
    "gaussian_classes",
    "gaussian_parameters",
    "is_image",
    "match_names",
    "open_dataset",
    "open_images",
    "read_session_lists",
    "register_dataset",
    "restrict",
    "unregister_dataset",
]

_MODULES = (
    "sources",
    "reduction",
    "decoding",
    "_decoder_process",
    "_decoder_pool",
    "photo",
    "synthetic",
    "dataset",
    "folders",
    "sessions",
    "registry",
    "_fetching",
)


def __getattr__(name: str) -> Any:
    return imported_name(__name__, _MODULES, name, __all__)
