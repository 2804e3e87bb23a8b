"""The features of images by path: open them, load a backbone, extract, and find the result again."""

from __future__ import annotations

from pathlib import Path

from fiveshot.backbones import BackboneSpec, load_embedder
from fiveshot.data import ImageDataset, open_dataset, open_images
from fiveshot.errors import InputError
from fiveshot.features.cache import FeatureCache
from fiveshot.features.extraction import run_extraction
from fiveshot.progress import Progress
from fiveshot.storage import FilePath


def open_labelled_images(
    images: FilePath | None = None,
    *,
    dataset: str | None = None,
    root: FilePath | None = None,
    seed: int,
    holdout: float = 0.2,
) -> ImageDataset:
    """Open a folder or an archive of class folders, or the ``dataset`` of that name in ``root``.

    ``seed`` draws the test images, a fraction ``holdout`` of every class, where there is no test split.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from fiveshot.features import open_labelled_images
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for photo in (Path(folder, name, f"{number}.jpg") for name in ("cat", "dog") for number in range(5)):
    ...         photo.parent.mkdir(exist_ok=True)
    ...         photo.touch()
    ...     dataset = open_labelled_images(folder, seed=0, holdout=0.4)
    >>> dataset.class_names, len(dataset.train), len(dataset.test)
    (('cat', 'dog'), 6, 4)
    """
    if images is not None and dataset is None and root is None:
        return open_images(Path(images), seed=seed, holdout=holdout)
    if images is None and dataset is not None and root is not None:
        return open_dataset(dataset, Path(root), seed=seed, holdout=holdout)
    raise InputError("give either images (--images DIR) or a dataset and its folder (--dataset NAME --root DIR)")


def extracted_features(
    images: FilePath | ImageDataset,
    *,
    seed: int,
    holdout: float = 0.2,
    spec: BackboneSpec = BackboneSpec(),  # noqa: B008  # frozen
    cache: FeatureCache | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    skip_bad: bool = False,
    dtype: str = "float16",
    progress: Progress | None = None,
) -> Path:
    """Return the cached feature file of a folder, an archive or a dataset; it is made where it is missing.

    The arguments are those of ``open_labelled_images``, ``load_embedder`` and ``run_extraction``; ``cache`` is the
    default one unless given.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from fiveshot.features import FeatureCache, extracted_features, load_features
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for file in (Path(folder, "colours", c, f"{n}.png") for c in ("red", "blue") for n in range(2)):
    ...         file.parent.mkdir(parents=True, exist_ok=True)
    ...         Image.new("RGB", (64, 64), file.parent.name).save(file)
    ...     cache = FeatureCache(folder)
    ...     load_features(extracted_features(Path(folder, "colours"), seed=0, cache=cache))
    FeatureSet('colours': 2 training and 2 test vectors of 384 float16, 2 classes)
    """
    dataset = images
    if not isinstance(dataset, ImageDataset):
        dataset = open_labelled_images(dataset, seed=seed, holdout=holdout)
    return run_extraction(
        dataset,
        load_embedder(spec),
        cache=cache or FeatureCache(),
        batch_size=batch_size,
        workers=workers,
        skip_bad=skip_bad,
        dtype=dtype,
        progress=progress,
    ).kept_path
