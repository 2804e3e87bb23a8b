"""Turn photos into vectors: one step decodes, one step runs the network, and a loop runs both over many photos.

Learning, predicting and extraction use the loop. The service, which batches photos of several requests, and a
cluster, whose machines share the work, call the two steps themselves. Photos are decoded, scaled and cropped on
the CPU, also for a network on a GPU: it sees the same pixels.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import BoundedSemaphore
from typing import Literal

import numpy as np

from fiveshot.backbones import Embedder, NotFiniteError, Pixels, Preprocessing, Vectors, default_workers
from fiveshot.data import (
    MAX_PIXELS,
    BadImage,
    ImageError,
    Photo,
    PixelsAndCopies,
    Reduced,
    by_source,
    decoders,
    size_of,
)
from fiveshot.work import in_order

PART_COPY = 1 << 20  # bytes; if the file itself is kept, the copy of a box may have twice this size


@dataclass(frozen=True)
class Keep:
    """What is kept of a photo in addition to its vector.

    Parameters
    ----------
    thumbnail : bool
        A small copy.
    original : {"file", "copy"}, optional
        The unchanged file, or a copy of the picture without metadata. For a box, it is always a copy.

    Examples
    --------
    >>> from fiveshot.features import Keep
    >>> Keep(thumbnail=True).original is None
    True
    """

    thumbnail: bool = False
    original: Literal["file", "copy"] | None = None


KEEP_NOTHING: Keep = Keep()


@dataclass(frozen=True, eq=False)
class Seen:
    """A decoded photo, or the decoded part in a box: the network's input, and what is kept.

    Parameters
    ----------
    name : str
        Name of the photo in errors.
    pixels : uint8 array (views, 3, size, size)
        Scaled and cropped for the network.
    sha256 : str
        Digest of the photo; the box counts.
    thumbnail, original : bytes, optional
        What is kept of it.
    size : tuple of int, optional
        Width and height of the photo, or of the part, before it was scaled.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.features import Seen
    >>> Seen("owl.jpg", np.zeros((2, 3, 224, 224), np.uint8)).original is None
    True
    """

    name: str
    pixels: Pixels = field(repr=False)
    sha256: str = ""
    thumbnail: bytes | None = field(default=None, repr=False)
    original: bytes | None = field(default=None, repr=False)
    size: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class PhotoVector:
    """A photo after the network: its vector, and what is kept of it.

    Parameters
    ----------
    photo : Photo
        The photo as it was given.
    vector : float32 array (width,)
        Its feature vector.
    sha256 : str
        Digest of the photo; the box counts.
    thumbnail, original : bytes, optional
        What is kept of it.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.data import BytesSource, Photo
    >>> from fiveshot.features import PhotoVector
    >>> PhotoVector(Photo(BytesSource(b"", "owl.jpg")), np.ones(320, np.float32), sha256=64 * "0").photo.name
    'owl.jpg'
    """

    photo: Photo
    vector: Vectors = field(repr=False)
    sha256: str
    thumbnail: bytes | None = field(default=None, repr=False)
    original: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, eq=False)
class SeenBatch:
    """Photos that went through both steps together, and how long each step took.

    Parameters
    ----------
    found : tuple of PhotoVector or BadImage
        One for each photo, in order.
    decode_seconds, forward_seconds : float
        Reading, decoding and scaling; and the network.

    Examples
    --------
    >>> from fiveshot.data import BadImage
    >>> from fiveshot.features import SeenBatch
    >>> len(SeenBatch((BadImage("owl.jpg", "the file is empty"),)).found)
    1
    """

    found: tuple[PhotoVector | BadImage, ...]
    decode_seconds: float = 0.0
    forward_seconds: float = 0.0


def decode_photos(
    photos: Sequence[Photo],
    preprocessing: Preprocessing,
    keep: Keep = KEEP_NOTHING,
    *,
    max_pixels: int = MAX_PIXELS,
) -> list[Seen | BadImage]:
    """Decode photos for the network; this is the first of two steps.

    A photo is decoded only once for consecutive boxes of it.

    Parameters
    ----------
    photos : sequence of Photo
        The photos.
    preprocessing : Preprocessing
        How a picture is scaled and cropped.
    keep : Keep, optional
        What is made of each photo in addition to its pixels.
    max_pixels : int
        The most pixels that a photo may have.

    Returns
    -------
    list of Seen or BadImage
        One for each photo, in order.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.backbones import Preprocessing
    >>> from fiveshot.data import ArraySource, BytesSource, Photo
    >>> from fiveshot.features import decode_photos
    >>> photos = [Photo(ArraySource(np.zeros((9, 9, 3), np.uint8), "black")), Photo(BytesSource(b"", "empty"))]
    >>> good, bad = decode_photos(photos, Preprocessing(size=8, resize=8))
    >>> good.pixels.shape, bad.reason
    ((1, 3, 8, 8), 'the file is empty')
    """
    found: list[Seen | BadImage] = []
    for same in by_source(photos):
        found += _decode_same(same, preprocessing, keep, max_pixels)
    return found


def _decode_same(
    same: Sequence[Photo], preprocessing: Preprocessing, keep: Keep, max_pixels: int
) -> Iterator[Seen | BadImage]:
    """Yield the results for photos of the same source: boxes, or the whole photo."""
    source, boxes = same[0].source, [photo.box for photo in same if photo.box is not None]
    wanted = PixelsAndCopies(preprocessing.squares, keep.thumbnail)
    try:
        if keep.original is not None:  # read once, so that the kept bytes are the decoded ones
            source = same[0].loaded().source
        if keep.original == "copy":
            wanted = replace(wanted, copy_of=len(source.read()))
        elif keep.original == "file" and boxes:
            wanted = replace(wanted, copy_of=PART_COPY)
        if boxes:
            made = decoders().cut(source, boxes, wanted, max_pixels=max_pixels)
        else:
            made = [decoders().attempt(source, wanted, max_pixels=max_pixels)] * len(same)
    except ImageError as error:
        made = [Reduced(error=error)] * len(same)
    for photo, one in zip(same, made, strict=True):
        if one.error is not None:
            yield BadImage(one.error.name, one.error.reason, one.error.code)
            continue
        yield Seen(
            photo.name,
            preprocessing.from_bytes(one.parts["pixels"]),
            photo.digest(one.sha256),
            one.parts.get("thumbnail"),
            source.read() if keep.original == "file" and not boxes else one.parts.get("copy"),
            size_of(one.parts["size"]),
        )


def embed(embedder: Embedder, seen: Sequence[Seen]) -> Vectors:
    """Run the network on decoded photos, all at once; this is the second of two steps.

    Parameters
    ----------
    embedder : Embedder
        The network.
    seen : sequence of Seen
        Photos that ``decode_photos`` returned with the preprocessing of the embedder.

    Returns
    -------
    float32 array (n, width)
        One vector for each photo.

    Raises
    ------
    NotFiniteError
        When a vector holds NaN or infinity; it names the photo.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.data import ArraySource, Photo
    >>> from fiveshot.features import decode_photos, embed
    >>> embedder, black = load_embedder(), Photo(ArraySource(np.zeros((9, 9, 3), np.uint8), "black"))
    >>> embed(embedder, decode_photos([black], embedder.preprocessing)).shape
    (1, 320)
    """
    if not seen:  # do not load the network for nothing
        return np.zeros((0, embedder.width), np.float32)
    try:
        return embedder.features(np.stack([one.pixels for one in seen]))
    except NotFiniteError as error:
        raise NotFiniteError(error.row, seen[error.row].name) from error


def see_batches(
    embedder: Embedder,
    batches: Iterable[Sequence[Photo]],
    keep: Keep = KEEP_NOTHING,
    *,
    workers: int | None = None,
) -> Generator[SeenBatch]:
    """Take batches of photos through both steps.

    Each thread decodes a batch and runs the network on it. Only a bounded number of batches is in memory. The
    result for a batch does not depend on the number of threads.

    Parameters
    ----------
    embedder : Embedder
        The network.
    batches : iterable of sequences of Photo
        The photos of each forward pass.
    keep : Keep, optional
        What is kept of each photo beside its vector.
    workers : int, optional
        Threads; one for each core unless given.

    Yields
    ------
    SeenBatch
        One for each batch, in order.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.data import ArraySource, Photo
    >>> from fiveshot.features import see_batches
    >>> photos = [Photo(ArraySource(np.full((9, 9, 3), gray, np.uint8), f"{gray}")) for gray in (0, 100, 200)]
    >>> [len(batch.found) for batch in see_batches(load_embedder(), [photos[:2], photos[2:]])]
    [2, 1]
    """
    workers = workers or default_workers()
    passes = BoundedSemaphore(embedder.streams(workers))

    def see(photos: Sequence[Photo]) -> SeenBatch:
        began = time.perf_counter()
        decoded = decode_photos(photos, embedder.preprocessing, keep)
        decoding = time.perf_counter() - began
        with passes:
            began = time.perf_counter()
            vectors = iter(embed(embedder, [one for one in decoded if isinstance(one, Seen)]))
            forward = time.perf_counter() - began
        found = (
            one
            if isinstance(one, BadImage)
            else PhotoVector(photo, next(vectors), one.sha256, one.thumbnail, one.original)
            for photo, one in zip(photos, decoded, strict=True)
        )
        return SeenBatch(tuple(found), decoding, forward)

    yield from in_order(see, batches, threads=workers, ahead=2 * workers)


def even_batches(photos: Iterable[Photo], size: int, *, workers: int) -> Iterator[list[Photo]]:
    """Yield photos in batches of at most ``size``; few photos are spread evenly over the workers.

    >>> [len(batch) for batch in even_batches([None] * 21, 8, workers=2)]
    [8, 8, 3, 2]
    """
    left = iter(photos)
    while chunk := list(islice(left, size * workers)):
        each = -(-len(chunk) // workers)
        yield from (chunk[start : start + each] for start in range(0, len(chunk), each))


def see_photos(
    embedder: Embedder, photos: Iterable[Photo], keep: Keep = KEEP_NOTHING
) -> Generator[tuple[PhotoVector | BadImage, ...]]:
    """Take photos through both steps, in batches that suit the device.

    Parameters
    ----------
    embedder : Embedder
        The network.
    photos : iterable of Photo
        The photos; only a bounded number is in memory.
    keep : Keep, optional
        What is kept of each photo beside its vector.

    Yields
    ------
    tuple of PhotoVector or BadImage
        The next photos, in order.

    Examples
    --------
    >>> import numpy as np
    >>> from fiveshot.backbones import load_embedder
    >>> from fiveshot.data import ArraySource, Photo
    >>> from fiveshot.features import see_photos
    >>> photos = [Photo(ArraySource(np.full((9, 9, 3), gray, np.uint8), f"{gray}")) for gray in (0, 100, 200)]
    >>> [one.vector.shape for found in see_photos(load_embedder(), photos) for one in found]
    [(320,), (320,), (320,)]
    """
    batches = even_batches(photos, embedder.batch_size, workers=default_workers())
    with closing(see_batches(embedder, batches, keep)) as seen:
        for batch in seen:
            yield batch.found


def bad_photos(
    photos: Sequence[Photo], preprocessing: Preprocessing, *, workers: int | None = None
) -> dict[int, BadImage]:
    """Return the photos that cannot be used, by their positions; no network runs.

    Parameters
    ----------
    photos : sequence of Photo
        The photos.
    preprocessing : Preprocessing
        How a picture is scaled and cropped.
    workers : int, optional
        Threads; one for each core unless given.

    Returns
    -------
    dict of int to BadImage
        In order.

    Examples
    --------
    >>> from fiveshot.backbones import Preprocessing
    >>> from fiveshot.data import BytesSource, Photo
    >>> from fiveshot.features import bad_photos
    >>> bad_photos([Photo(BytesSource(b"", "owl.jpg"))], Preprocessing(size=8, resize=8))
    {0: BadImage(name='owl.jpg', reason='the file is empty')}
    """
    workers = workers or default_workers()
    found: dict[int, BadImage] = {}
    start = 0
    for batch in in_order(
        lambda batch: decode_photos(batch, preprocessing),
        even_batches(photos, 8, workers=workers),
        threads=workers,
        ahead=2 * workers,
    ):
        found.update({start + at: one for at, one in enumerate(batch) if isinstance(one, BadImage)})
        start += len(batch)
    return found
