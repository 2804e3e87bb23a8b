"""Labelled images: from folders, archives and official layouts; downloads; session lists; Gaussian classes."""

from fiveshot.data.check import BadImage, bad_images_error, check_dataset, check_images
from fiveshot.data.dataset import ImageDataset, ImageSplit, restrict
from fiveshot.data.decode import MAX_PIXELS, decode
from fiveshot.data.fetch import Fetched, fetch
from fiveshot.data.folder import open_images
from fiveshot.data.gaussian import gaussian_classes, gaussian_parameters
from fiveshot.data.registry import dataset_specs, open_dataset, register_dataset, unregister_dataset
from fiveshot.data.sessions import SessionLists, match_names, read_session_lists
from fiveshot.data.source import (
    ArchiveSource,
    ArraySource,
    BytesSource,
    FileSource,
    ImageError,
    ImageSource,
    identity,
)
from fiveshot.data.spec import DatasetSpec, Download

__all__ = [
    "MAX_PIXELS",
    "ArchiveSource",
    "ArraySource",
    "BadImage",
    "BytesSource",
    "DatasetSpec",
    "Download",
    "Fetched",
    "FileSource",
    "ImageDataset",
    "ImageError",
    "ImageSource",
    "ImageSplit",
    "SessionLists",
    "bad_images_error",
    "check_dataset",
    "check_images",
    "dataset_specs",
    "decode",
    "fetch",
    "gaussian_classes",
    "gaussian_parameters",
    "identity",
    "match_names",
    "open_dataset",
    "open_images",
    "read_session_lists",
    "register_dataset",
    "restrict",
    "unregister_dataset",
]
