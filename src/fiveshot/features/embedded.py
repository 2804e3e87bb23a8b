"""Feature packs that come with the package, so that a benchmark runs without a download."""

from __future__ import annotations

from pathlib import Path

from fiveshot.errors import unknown_name
from fiveshot.features.feature_set import FeatureSet

PACKS = Path(__file__).parent / "packs"  # DATA_CARD.md there says how each was made, and on what terms


def embedded_packs() -> tuple[str, ...]:
    """Return the names of the feature packs that come with the package.

    Returns
    -------
    tuple of str
        Names that :func:`embedded_features` takes.

    Examples
    --------
    >>> from fiveshot.features import embedded_packs
    >>> embedded_packs()
    ('cub200', 'cub200-big', 'cub200-small')
    """
    return tuple(sorted(file.stem for file in PACKS.glob("*.safetensors")))


def embedded_features(name: str = "cub200") -> FeatureSet:
    """Return a feature pack that comes with the package, mapped into memory.

    Parameters
    ----------
    name : str, default "cub200"
        One of :func:`embedded_packs`.

    Returns
    -------
    FeatureSet
        Its vectors.

    Raises
    ------
    InputError
        When there is no such pack.

    Examples
    --------
    >>> from fiveshot.features import embedded_features
    >>> embedded_features()
    FeatureSet('cub200': 5994 training and 5794 test vectors of 1664 float16, 200 classes)
    """
    if name not in embedded_packs():
        raise unknown_name("embedded feature pack", name, embedded_packs())
    return FeatureSet.load(PACKS / f"{name}.safetensors")
