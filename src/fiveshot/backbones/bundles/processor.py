"""Read ``preprocessor_config.json``: how the networks of ``transformers`` want their photos.

The pixels equal those of that library's own processors within one gray level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fiveshot.backbones.preprocessing import Preprocessing, Triple
from fiveshot.errors import InputError, is_number

MAX_SIDE = 4096  # pixels
MOST, LEAST_STD = 1e6, 1e-6  # for mean and standard deviation, so that float32 can hold the result
RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # Pillow's numbers 0 to 5
SUPPORTED = ("lanczos", "bilinear", "bicubic")
WAY_OUT = "give the preprocessing in Python: BackboneSpec(NAME, preprocessing=Preprocessing(...))"
WARPED_FROM = 384  # ConvNeXt's processor crops smaller images, and squeezes images of this size or larger
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
_CLIP = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))


@dataclass(frozen=True)
class _Kind:
    """The values that a processor of ``transformers`` uses for what its file leaves out."""

    size: Mapping[str, int]
    interpolation: str
    mean: Triple
    std: Triple
    crop: int | None = None
    plain_size: str = "square"  # what a size means that is one number
    crop_pct: float | None = None
    resampling: tuple[str, ...] = SUPPORTED


_SHORTEST = "shortest_edge"
_SQUARE = {"height": 224, "width": 224}
_CROPPED = _Kind({_SHORTEST: 224}, "bicubic", *_CLIP, crop=224, plain_size=_SHORTEST)
_KINDS = {
    "Beit": _Kind(_SQUARE, "bicubic", *_HALF),
    "Bit": _CROPPED,
    "Blip": _Kind({"height": 384, "width": 384}, "bicubic", *_CLIP),
    "CLIP": _CROPPED,
    "ChineseCLIP": _CROPPED,
    "ConvNext": _Kind({_SHORTEST: 384}, "bicubic", *_HALF, plain_size=_SHORTEST, crop_pct=224 / 256),
    # It scales numbers that are not rounded, so other resampling than bilinear goes beyond 0 to 255.
    "DINOv3ViT": _Kind(_SQUARE, "bilinear", *_IMAGENET, resampling=("bilinear",)),
    "DeiT": _Kind({"height": 256, "width": 256}, "bicubic", *_HALF, crop=224),
    "Pvt": _Kind(_SQUARE, "bicubic", *_IMAGENET),
    "Siglip": _Kind(_SQUARE, "bicubic", *_HALF, plain_size=_SHORTEST),
    "ViT": _Kind(_SQUARE, "bilinear", *_HALF),
}
_OF_MODEL = {  # for files that do not name their processor
    "beit": "Beit",
    "clip": "CLIP",
    "clip_vision_model": "CLIP",
    "convnext": "ConvNext",
    "convnextv2": "ConvNext",
    "data2vec-vision": "Beit",
    "deit": "DeiT",
    "dinov2": "Bit",
    "dinov2_with_registers": "Bit",
    "dinov3_vit": "DINOv3ViT",
    "siglip": "Siglip",
    "siglip_vision_model": "Siglip",
    "swin": "ViT",
    "swinv2": "ViT",
    "vit": "ViT",
}
_ENDINGS = ("ImageProcessorFast", "ImageProcessorPil", "ImageProcessor", "FeatureExtractor")
_NOT_DONE = {
    "do_pad": "pads photos",
    "do_flip_channel_order": "swaps red and blue",
    "do_thumbnail": "shrinks photos",
}


def read_processor(config: Mapping[str, Any], model_type: str = "") -> Preprocessing:
    """Return the preprocessing that a ``preprocessor_config.json`` describes.

    Parameters
    ----------
    config : mapping
        The content of the file.
    model_type : str, optional
        The network's kind in its ``config.json``; it decides if the file does not name its processor.

    Returns
    -------
    Preprocessing
        With one view, as the file says.

    Raises
    ------
    InputError
        When the file asks for something that is not supported.

    Examples
    --------
    >>> made = read_processor({"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 256}})
    >>> made.size, made.resize, made.interpolation, made.views
    (224, 256, 'bicubic', 1)
    """
    kind = _kind(config, model_type)
    for key, what in _NOT_DONE.items():
        if config.get(key):
            raise _unsupported(f"it {what} ({key})")
    if config.get("do_resize") is False:
        raise _unsupported("it does not resize photos (do_resize is false)")
    size, resize, squash = _sides(config, kind)
    mean, std = _colors(config, kind)
    return Preprocessing(
        size=size,
        resize=resize,
        interpolation=_interpolation(config.get("resample"), kind),
        mean=mean,
        std=std,
        squash=squash,
        name="weights",
        rounding="down",
    )


def _kind(config: Mapping[str, Any], model_type: str) -> _Kind:
    """Return the defaults of the processor that a file names, or of the network's usual one."""
    named = config.get("image_processor_type") or config.get("feature_extractor_type")
    if named is None:
        if model_type not in _OF_MODEL:
            raise _unsupported("it does not name its processor (image_processor_type)")
        return _KINDS[_OF_MODEL[model_type]]
    ending = next((ending for ending in _ENDINGS if str(named).endswith(ending)), "")
    kind = _KINDS.get(str(named)[: len(str(named)) - len(ending)])
    if kind is None:
        raise _unsupported(f"its processor is {str(named)[:80]!r}")
    return kind


def _sides(config: Mapping[str, Any], kind: _Kind) -> tuple[int, int, int | None]:
    """Return the network's side, the short side before the crop, and the side to squeeze to, if any."""
    size: Any = config.get("size") or kind.size
    if is_number(size):
        size = {"height": size, "width": size} if kind.plain_size == "square" else {_SHORTEST: size}
    elif isinstance(size, list | tuple) and len(size) == 2:
        size = {"height": size[0], "width": size[1]}
    given = {key for key, value in size.items() if value is not None} if isinstance(size, Mapping) else set()
    crop = _crop(config, kind)
    if kind.crop_pct is not None and (crop is not None or given != {_SHORTEST}):
        raise _unsupported(f"a processor of this kind takes a {_SHORTEST} and no crop_size")
    if given == {"height", "width"}:
        side = _square(size, "size")
        return _cropped(crop or side, side, side)
    if given != {_SHORTEST}:
        raise _unsupported(f"its size is {repr(size)[:80]}")
    short = _side(size[_SHORTEST], "size")
    if kind.crop_pct is not None:
        share = config.get("crop_pct") or kind.crop_pct
        if not is_number(share) or not 0 < share <= 1:
            raise _unsupported(f"its crop_pct is {share!r}")
        return (short, int(short / share), None) if short < WARPED_FROM else (short, short, short)
    if crop is None:
        raise _unsupported("it cuts no square out of a photo (do_center_crop is false)")
    return _cropped(crop, short, None)


def _cropped(crop: int, resize: int, squash: int | None) -> tuple[int, int, int | None]:
    if crop > resize:
        raise _unsupported(f"it scales photos to {resize} px and then cuts out {crop} px, which pads them")
    return crop, resize, squash


def _crop(config: Mapping[str, Any], kind: _Kind) -> int | None:
    """Return the side of the center crop; None without one."""
    done = config.get("do_center_crop")
    if done is False or (done is None and kind.crop is None):
        return None
    given = config.get("crop_size") or kind.crop or 224
    if isinstance(given, list | tuple) and len(given) == 2:
        given = {"height": given[0], "width": given[1]}
    return _square(given, "crop_size") if isinstance(given, Mapping) else _side(given, "crop_size")


def _square(sides: Mapping[str, Any], key: str) -> int:
    height, width = (_side(sides.get(name), key) for name in ("height", "width"))
    if height != width:
        raise _unsupported(f"its {key} is {height} x {width}, and only squares are possible")
    return height


def _side(value: Any, key: str) -> int:
    if not is_number(value, whole=True) or not 1 <= value <= MAX_SIDE:
        raise _unsupported(f"its {key} holds {value!r}, not a whole number from 1 to {MAX_SIDE}")
    return int(value)


def _interpolation(number: Any, kind: _Kind) -> str:
    if number is None:
        return kind.interpolation
    known = is_number(number, whole=True) and 0 <= number < len(RESAMPLING)
    name = RESAMPLING[int(number)] if known else str(number)[:80]
    if name not in kind.resampling:
        raise _unsupported(f"it resamples photos with {name!r}; possible are {', '.join(kind.resampling)}")
    return name


def _colors(config: Mapping[str, Any], kind: _Kind) -> tuple[Triple, Triple]:
    """Return mean and standard deviation of pixels in 0..1; another scale than 1/255 becomes a part of them."""
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if config.get("do_normalize") is not False:
        mean = _triple(config.get("image_mean"), kind.mean, "image_mean")
        std = _triple(config.get("image_std"), kind.std, "image_std")
    factor = 1.0 if config.get("do_rescale") is False else config.get("rescale_factor", 1 / 255)
    if not is_number(factor) or not math.isfinite(factor) or factor <= 0:
        raise _unsupported(f"its rescale_factor is {factor!r}")
    if min(std) < LEAST_STD:
        raise _unsupported(f"its image_std is {std}")
    # (x f - m) / s = (x / 255 - m / k) / (s / k) with k = 255 f
    scale = 1.0 if math.isclose(255 * factor, 1.0) else 255 * factor
    return _scaled(mean, scale), _scaled(std, scale)


def _scaled(values: Triple, scale: float) -> Triple:
    red, green, blue = (value / scale for value in values)
    return red, green, blue


def _triple(given: Any, default: Triple, key: str) -> Triple:
    values = default if given is None else [given] * 3 if is_number(given) else given
    if (
        not isinstance(values, list | tuple)
        or len(values) != 3
        or not all(is_number(value) and abs(value) <= MOST for value in values)
    ):
        raise _unsupported(f"its {key} is {repr(given)[:80]}, not three numbers")
    red, green, blue = map(float, values)
    return red, green, blue


def _unsupported(why: str) -> InputError:
    return InputError(f"preprocessor_config.json cannot be followed: {why}", hint=WAY_OUT, code="bad_bundle")
