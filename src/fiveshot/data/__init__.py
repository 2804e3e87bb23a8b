"""Labeled images: from folders, archives and official layouts; downloads; session lists; Gaussian classes.

Each name is imported on first use, because processes that only decode photos need few of them. Names in
``__all__`` are for everybody. The others are for the packages of fiveshot above this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name

if TYPE_CHECKING:
    from fiveshot.data._decoder_pool import Decoders, decoders
    from fiveshot.data._decoder_process import Reduced, Reduction
    from fiveshot.data._fetching import Fetched, fetch
    from fiveshot.data.archives import StrictTarInfo as StrictTarInfo
    from fiveshot.data.archives import is_archive as is_archive
    from fiveshot.data.dataset import (
        ImageDataset,
        ImageSplit,
        bad_images_error,
        restrict,
    )
    from fiveshot.data.dataset import bad_image_lines as bad_image_lines
    from fiveshot.data.decoding import MAX_PIXELS, decode
    from fiveshot.data.decoding import decode_only as decode_only
    from fiveshot.data.folders import IMAGE_SUFFIXES as IMAGE_SUFFIXES
    from fiveshot.data.folders import SPLITS as SPLITS
    from fiveshot.data.folders import Tree as Tree
    from fiveshot.data.folders import is_hidden as is_hidden
    from fiveshot.data.folders import is_image, open_images
    from fiveshot.data.folders import is_model_folder as is_model_folder
    from fiveshot.data.folders import open_tree as open_tree
    from fiveshot.data.folders import other_suffixes as other_suffixes
    from fiveshot.data.folders import split_archive as split_archive
    from fiveshot.data.folders import tree_dataset as tree_dataset
    from fiveshot.data.folders import unread_note as unread_note
    from fiveshot.data.folders import walk_files as walk_files
    from fiveshot.data.parquet import HUGGING_FACE_KEY as HUGGING_FACE_KEY
    from fiveshot.data.parquet import read_parquet as read_parquet
    from fiveshot.data.photo import Photo, by_source
    from fiveshot.data.reduction import INNER_VIEW as INNER_VIEW
    from fiveshot.data.reduction import ROUNDINGS as ROUNDINGS
    from fiveshot.data.reduction import THUMBNAIL_SIZE as THUMBNAIL_SIZE
    from fiveshot.data.reduction import VIEWS as VIEWS
    from fiveshot.data.reduction import Box
    from fiveshot.data.reduction import PixelsAndCopies as PixelsAndCopies
    from fiveshot.data.reduction import RandomSquare as RandomSquare
    from fiveshot.data.reduction import Squares as Squares
    from fiveshot.data.reduction import WholePhoto as WholePhoto
    from fiveshot.data.reduction import bad_box as bad_box
    from fiveshot.data.reduction import check_usable as check_usable
    from fiveshot.data.reduction import is_thumbnail as is_thumbnail
    from fiveshot.data.reduction import size_of as size_of
    from fiveshot.data.registry import NO_DATASET as NO_DATASET
    from fiveshot.data.registry import (
        DatasetSpec,
        Download,
        dataset_specs,
        open_dataset,
        register_dataset,
        unregister_dataset,
    )
    from fiveshot.data.registry import dataset_spec as dataset_spec
    from fiveshot.data.sessions import SessionLists, match_names, read_session_lists
    from fiveshot.data.sessions import official_shots as official_shots
    from fiveshot.data.sources import (
        MAX_PHOTO_BYTES,
        ArchiveSource,
        ArraySource,
        BytesSource,
        FileSource,
        ImageError,
        ImageSource,
    )
    from fiveshot.data.sources import StoredSource as StoredSource
    from fiveshot.data.sources import content_mark as content_mark
    from fiveshot.data.sources import image_digest as image_digest
    from fiveshot.data.sources import open_regular as open_regular
    from fiveshot.data.sources import read_regular as read_regular
    from fiveshot.data.synthetic import draw_samples, drawn_pictures, gaussian_classes, gaussian_parameters
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
    "dataset_specs",
    "decode",
    "decoders",
    "draw_samples",
    "drawn_pictures",
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

# For the packages of fiveshot above this one.
_FOR_PACKAGES = [
    "HUGGING_FACE_KEY",
    "IMAGE_SUFFIXES",
    "INNER_VIEW",
    "NO_DATASET",
    "PixelsAndCopies",
    "ROUNDINGS",
    "RandomSquare",
    "SPLITS",
    "Squares",
    "StoredSource",
    "StrictTarInfo",
    "THUMBNAIL_SIZE",
    "Tree",
    "VIEWS",
    "WholePhoto",
    "bad_box",
    "bad_image_lines",
    "check_usable",
    "content_mark",
    "dataset_spec",
    "decode_only",
    "image_digest",
    "is_archive",
    "is_hidden",
    "is_model_folder",
    "is_thumbnail",
    "official_shots",
    "open_regular",
    "open_tree",
    "other_suffixes",
    "read_parquet",
    "read_regular",
    "size_of",
    "split_archive",
    "tree_dataset",
    "unread_note",
    "walk_files",
]

_MODULES = (
    "sources",
    "reduction",
    "decoding",
    "archives",
    "_decoder_process",
    "_decoder_pool",
    "photo",
    "dataset",
    "folders",
    "parquet",
    "sessions",
    "registry",
    "synthetic",
    "_fetching",
)


def __getattr__(name: str) -> Any:
    return imported_name(__name__, _MODULES, name, [*__all__, *_FOR_PACKAGES])
