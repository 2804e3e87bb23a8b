"""Feature vectors: a set with provenance, its file, other programs' files, the cache, the embedded pack."""

from fiveshot.features.bare_rate import bare_rate
from fiveshot.features.cache import CacheKey, FeatureCache, default_cache_folder
from fiveshot.features.embedded import embedded_features, embedded_packs
from fiveshot.features.extraction import extract, run_extraction
from fiveshot.features.extraction_report import Extraction
from fiveshot.features.feature_set import FeatureSet
from fiveshot.features.fingerprint import ImageIdentity, bytes_mark, dataset_fingerprint, file_mark
from fiveshot.features.image_features import extracted_features, open_labelled_images
from fiveshot.features.loading import load_features
from fiveshot.features.npz import convert_npz, load_npz
from fiveshot.features.provenance import Provenance

__all__ = [
    "CacheKey",
    "Extraction",
    "FeatureCache",
    "FeatureSet",
    "ImageIdentity",
    "Provenance",
    "bare_rate",
    "bytes_mark",
    "convert_npz",
    "dataset_fingerprint",
    "default_cache_folder",
    "embedded_features",
    "embedded_packs",
    "extract",
    "extracted_features",
    "file_mark",
    "load_features",
    "load_npz",
    "open_labelled_images",
    "run_extraction",
]
