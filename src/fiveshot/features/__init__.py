"""Feature vectors: compute them from photos, store them with their provenance, and load the embedded packs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name
from fiveshot.features.feature_set import (
    FeatureSet,
    Provenance,
    embedded_features,
    embedded_packs,
    load_features,
    save_features,
)

if TYPE_CHECKING:
    from fiveshot.features._extraction import (
        Extraction,
        bare_rate,
        extract,
        extracted_features,
        extraction_seconds,
    )
    from fiveshot.features._npz import OWN_SPLIT, load_npz
    from fiveshot.features._parquet import load_parquet
    from fiveshot.features.job import (
        CacheKey,
        ExtractionSettings,
        FeatureCache,
        default_cache_folder,
        open_labeled_images,
    )
    from fiveshot.features.seeing import (
        Keep,
        PhotoVector,
        Seen,
        SeenBatch,
        bad_photos,
        decode_photos,
        embed,
        see_batches,
        see_photos,
    )

__all__ = [
    "OWN_SPLIT",
    "CacheKey",
    "Extraction",
    "ExtractionSettings",
    "FeatureCache",
    "FeatureSet",
    "Keep",
    "PhotoVector",
    "Provenance",
    "Seen",
    "SeenBatch",
    "bad_photos",
    "bare_rate",
    "decode_photos",
    "default_cache_folder",
    "embed",
    "embedded_features",
    "embedded_packs",
    "extract",
    "extracted_features",
    "extraction_seconds",
    "load_features",
    "load_npz",
    "load_parquet",
    "open_labeled_images",
    "save_features",
    "see_batches",
    "see_photos",
]

# Imported on first use: recognizing a photo needs no extraction.
_MODULES = ("seeing", "_npz", "_parquet", "job", "_extraction")


def __getattr__(name: str) -> Any:
    return imported_name(__name__, _MODULES, name, __all__)
