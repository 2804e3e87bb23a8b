"""Feature vectors: compute them from photos, store them with their provenance, and load the embedded packs.

Names in ``__all__`` are for everybody. The others are for the packages of fiveshot above this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fiveshot.extras import imported_name
from fiveshot.features.feature_set import FEATURE_ARRAYS as FEATURE_ARRAYS
from fiveshot.features.feature_set import UNRECORDED as UNRECORDED
from fiveshot.features.feature_set import (
    FeatureSet,
    Provenance,
    embedded_features,
    embedded_packs,
    load_features,
    save_features,
)
from fiveshot.features.feature_set import readout_in_words as readout_in_words
from fiveshot.features.feature_set import refuse_other_forms as refuse_other_forms

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
    from fiveshot.features.job import STORED_DTYPES as STORED_DTYPES
    from fiveshot.features.job import (
        CacheKey,
        ExtractionSettings,
        FeatureCache,
        default_cache_folder,
        open_labeled_images,
    )
    from fiveshot.features.job import quick_marks as quick_marks
    from fiveshot.features.parts import TEST as TEST
    from fiveshot.features.parts import TRAIN as TRAIN
    from fiveshot.features.parts import Part as Part
    from fiveshot.features.parts import join_parts as join_parts
    from fiveshot.features.parts import part_key as part_key
    from fiveshot.features.parts import stored_vectors as stored_vectors
    from fiveshot.features.parts import work_folder as work_folder
    from fiveshot.features.seeing import KEEP_NOTHING as KEEP_NOTHING
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

# For the packages of fiveshot above this one.
_FOR_PACKAGES = [
    "KEEP_NOTHING",
    "Part",
    "STORED_DTYPES",
    "TEST",
    "TRAIN",
    "join_parts",
    "part_key",
    "quick_marks",
    "stored_vectors",
    "work_folder",
]

# Imported on first use: recognizing a photo needs no extraction.
_MODULES = ("seeing", "job", "_npz", "_parquet", "parts", "_extraction")


def __getattr__(name: str) -> Any:
    return imported_name(__name__, _MODULES, name, [*__all__, *_FOR_PACKAGES])
