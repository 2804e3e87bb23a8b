"""Feature vectors: a set with provenance in one file; extraction and its cache; the embedded packs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name
from fiveshot.features.feature_set import FeatureSet, Provenance, embedded_features, embedded_packs, load_features

if TYPE_CHECKING:
    from fiveshot.features._extraction import extract, extracted_features
    from fiveshot.features._npz import load_npz
    from fiveshot.features.job import (
        CacheKey,
        ExtractionSettings,
        FeatureCache,
        default_cache_folder,
        open_labeled_images,
    )
    from fiveshot.features.stream import Extraction, bare_rate

__all__ = [
    "CacheKey",
    "Extraction",
    "ExtractionSettings",
    "FeatureCache",
    "FeatureSet",
    "Provenance",
    "bare_rate",
    "default_cache_folder",
    "embedded_features",
    "embedded_packs",
    "extract",
    "extracted_features",
    "load_features",
    "load_npz",
    "open_labeled_images",
]

# Imported when it is asked for: recognizing a photo needs neither pools of processes nor datasets.
_MODULES = ("_npz", "job", "stream", "_extraction")


def __getattr__(name: str) -> Any:
    return imported_name(__name__, _MODULES, name, __all__)
