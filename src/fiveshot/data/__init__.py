"""Labeled images: from folders, archives and official layouts; downloads; session lists; Gaussian classes."""

from fiveshot.data.checking import BadImage, bad_images_error, check_dataset, check_images
from fiveshot.data.dataset import ImageDataset, ImageSplit, restrict
from fiveshot.data.decoder_pool import Decoders, decoders
from fiveshot.data.decoder_process import Reduced, Reduction
from fiveshot.data.decoding import MAX_PIXELS, decode
from fiveshot.data.fetching import Fetched, fetch
from fiveshot.data.folders import open_images
from fiveshot.data.gaussian import gaussian_classes, gaussian_parameters
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

__all__ = [
    "MAX_PHOTO_BYTES",
    "MAX_PIXELS",
    "ArchiveSource",
    "ArraySource",
    "BadImage",
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
