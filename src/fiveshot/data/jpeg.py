"""What a JPEG file says of its picture, read without decoding it: for decoders that believe every file."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from fiveshot.data.decoding import MAX_PIXELS
from fiveshot.data.reduction import LONGEST_SIDE

_START, _END = b"\xff\xd8", b"\xff\xd9"
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive, all with Huffman codes
_OTHER_FRAMES = (0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF)
_SCAN, _EXIF, _PICTURES, _ADOBE = 0xDA, 0xE1, 0xE2, 0xEE
_ORIENTATION = 274  # the EXIF tag
_LABEL, _DIGEST = struct.Struct("!III"), 32  # width, height and orientation, behind a digest of so many bytes


@dataclass(frozen=True)
class JpegFacts:
    """Size of the stored picture in pixels, and how it is to be turned (EXIF's 1 to 8)."""

    width: int
    height: int
    orientation: int = 1


@dataclass(frozen=True, eq=False)
class JpegFile:
    """A usual photo, encoded, with what it says of itself."""

    data: bytes | memoryview
    sha256: bytes
    facts: JpegFacts

    @classmethod
    def of(cls, data: bytes) -> JpegFile | None:
        """Return what these bytes are; None for anything else than a usual photo."""
        facts = plain_jpeg(data)
        return None if facts is None else cls(data, hashlib.sha256(data).digest(), facts)

    def label(self) -> bytes:
        """Return all but the data, for another process."""
        return self.sha256 + _LABEL.pack(self.facts.width, self.facts.height, self.facts.orientation)

    @classmethod
    def labeled(cls, label: bytes | memoryview, data: bytes | memoryview) -> JpegFile:
        """Return the file that has this label."""
        return cls(data, bytes(label[:_DIGEST]), JpegFacts(*_LABEL.unpack(label[_DIGEST:])))


def plain_jpeg(data: bytes) -> JpegFacts | None:
    """Return what a usual photo says of itself, or None for any other file.

    Usual is: 8 bits, three colors in YCbCr, one picture in the file, complete, not too large, no strip. Whatever
    else it is may be a fine photo, but one that the decoders with limits have to look at.

    >>> plain_jpeg(b"GIF89a") is None
    True
    """
    if data[:2] != _START or not data.rstrip(b"\0").endswith(_END):
        return None
    at, orientation, frame = 2, 1, None
    while True:
        while data[at : at + 2] == b"\xff\xff":  # fill bytes
            at += 1
        if data[at : at + 1] != b"\xff" or len(data) < at + 4:
            return None
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        body = data[at + 4 : at + 2 + length]
        if marker == _SCAN:
            break
        if length < 2 or marker in _OTHER_FRAMES or (marker in _FRAMES and frame is not None):
            return None
        if marker in _FRAMES:
            frame = body
        elif marker == _EXIF and body.startswith(b"Exif\0\0"):
            orientation = _turned(body)
        elif (marker == _PICTURES and body.startswith(b"MPF\0")) or (marker == _ADOBE and body[11:12] == b"\0"):
            return None  # several pictures in one file; colors that are not YCbCr
        at += 2 + length
    return None if frame is None else _checked(frame, orientation)


def _checked(frame: bytes, orientation: int) -> JpegFacts | None:
    if len(frame) != 15 or frame[0] != 8 or frame[5] != 3 or frame[6::3] == b"RGB":
        return None
    height, width = int.from_bytes(frame[1:3], "big"), int.from_bytes(frame[3:5], "big")
    short, long = sorted((width, height))
    if not 0 < long <= LONGEST_SIDE * short or width * height > MAX_PIXELS:
        return None
    return JpegFacts(width, height, orientation)


def _turned(body: bytes) -> int:
    from PIL.Image import Exif

    facts = Exif()
    try:
        facts.load(body)
        orientation = int(facts.get(_ORIENTATION) or 1)
    except Exception:  # unreadable EXIF data says nothing about the orientation
        return 1
    return orientation if orientation in range(2, 9) else 1
