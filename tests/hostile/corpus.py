"""Hostile files, made on the fly: shapes, headers that lie, bombs, truncations, other formats, places, archives.

``python tests/hostile/corpus.py FOLDER`` writes them all to a folder, to try other programs on them.
"""

from __future__ import annotations

import io
import os
import random
import socket
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pillow_heif
from PIL import Image

pillow_heif.register_heif_opener()
Size = tuple[int, int]
SUFFIXES = {
    "JPEG": "jpg",
    "PNG": "png",
    "WEBP": "webp",
    "GIF": "gif",
    "BMP": "bmp",
    "TIFF": "tif",
    "MPO": "mpo",
    "HEIF": "heic",
    "AVIF": "avif",
}


@cache
def photo(kind: str, size: Size = (64, 48), **options: object) -> bytes:
    """Return an honest photo."""
    x, y = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    noise = np.random.default_rng(0).integers(0, 60, (size[1], size[0]))
    image = Image.fromarray(np.stack([x * 3 % 256, y * 5 % 256, noise], axis=2).astype(np.uint8))
    return saved(image, kind, **options)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def flat(kind: str, size: Size, mode: str = "L", **options: object) -> bytes:
    return saved(Image.new(mode, size), kind, **options)


# PNG


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(
    width: int = 8,
    height: int = 8,
    depth: int = 8,
    color: int = 0,
    *,
    rows: bytes | None = None,
    before: bytes = b"",
    interlace: int = 0,
) -> bytes:
    """Return a PNG with this header, and with these packed rows or eight default ones."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    data = zlib.compress(bytes(9 * 8) if rows is None else rows, 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@cache
def inflating(megabytes: int) -> bytes:
    """Return bytes that inflate to a thousand times their size: the same packed megabyte of zeros, many times."""
    packer = zlib.compressobj(9, wbits=-15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = struct.pack(">HH", (megabytes << 20) % 65_521, 1)  # Adler-32 of so many zeros
    return b"\x78\xda" + block * megabytes + packer.flush() + checksum


def png_bomb() -> bytes:
    """Return a small PNG whose data inflates to 300 MB."""
    header = struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", inflating(300)) + chunk(b"IEND", b"")


def animated_png(frames: int) -> bytes:
    pictures = [Image.new("L", (16, 16), n % 256) for n in range(frames)]
    return saved(pictures[0], "PNG", save_all=True, append_images=pictures[1:], default_image=False)


# JPEG


def sof(data: bytes, size: Size | None = None, components: int | None = None) -> bytes:
    """Return a JPEG with another size, or another number of components, in its frame header."""
    start = next(i for i in range(len(data)) if data[i] == 0xFF and data[i + 1] in (0xC0, 0xC2))
    lying = bytearray(data)
    if size is not None:
        lying[start + 5 : start + 9] = struct.pack(">HH", size[1], size[0])
    if components is not None:
        lying[start + 9] = components
    return bytes(lying)


def marker(kind: int, data: bytes) -> bytes:
    return bytes([0xFF, kind]) + struct.pack(">H", len(data) + 2) + data


def many_scans(size: Size, scans: int) -> bytes:
    """Return a progressive JPEG without pixels, each of whose scans goes over all of them again."""
    table = marker(0xC4, b"\0" + bytes([1]) + bytes(15) + b"\0")
    frame = marker(0xC2, struct.pack(">BHHB", 8, size[1], size[0], 1) + b"\1\x11\0")
    first = marker(0xDA, b"\1\1\0" + b"\0\0\1") + bytes(4)
    again = marker(0xDA, b"\1\1\0" + b"\0\0\x10") + bytes(4)
    return b"\xff\xd8" + marker(0xDB, b"\0" + b"\1" * 64) + frame + table + first + again * scans + b"\xff\xd9"


def with_segments(segments: bytes) -> bytes:
    data = photo("JPEG")
    return data[:2] + segments + data[2:]


def exif(entries: bytes, count: int = 1, following: int = 0) -> bytes:
    """Return a JPEG whose EXIF data has these entries, of 12 bytes each."""
    tiff = b"II*\0" + struct.pack("<IH", 8, count) + entries + struct.pack("<I", following)
    return with_segments(marker(0xE1, b"Exif\0\0" + tiff))


def mpo_lie(entries: int, offset: int) -> bytes:
    """Return an MPO whose index claims so many pictures, each at an offset."""
    index = struct.pack("<IIIHH", 0x20000, 100, offset, 0, 0)
    tags = [(0xB000, 7, 4, b"0100"), (0xB001, 4, 1, struct.pack("<I", entries))]
    tags.append((0xB002, 7, 16 * entries & 0xFFFFFFFF, struct.pack("<I", 50)))
    body = b"".join(struct.pack("<HHI", *tag[:3]) + tag[3] for tag in tags)
    segment = b"MPF\0II*\0" + struct.pack("<IH", 8, 3) + body + bytes(4) + index * min(entries, 4000)
    return with_segments(marker(0xE2, segment))


# GIF


def gif(screen: Size, frame: Size, codes: bytes | None = None, at: Size = (0, 0), frames: int = 1) -> bytes:
    """Return a GIF with these headers of its screen and its frames."""
    data = b"\x02\x44\x01" if codes is None else codes
    blocks = b"".join(bytes([len(part)]) + part for part in (data[i : i + 255] for i in range(0, len(data), 255)))
    one = b"\x2c" + struct.pack("<HHHHB", *at, *frame, 0) + b"\x02" + blocks + b"\0"
    head = b"GIF89a" + struct.pack("<HHBBB", *screen, 0x80, 0, 0) + b"\0\0\0\xff\xff\xff"
    return head + one * frames + b";"


def lzw_bomb(size: Size) -> bytes:
    """Return a GIF of one color, whose codes each stand for more pixels than the one before."""
    return flat("GIF", size, "P")


# BMP


def bmp(width: int, height: int, bits: int = 24, compression: int = 0, colors: int = 0, **more: object) -> bytes:
    """Return a BMP with this header."""
    data = more.get("data", bytes(192))
    offset = more.get("offset", 54)
    assert isinstance(data, bytes)
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(data), 0, 0, colors, 0)
    return b"BM" + struct.pack("<IHHI", 54 + len(data), 0, 0, offset) + head + data


# WebP


def webp(width: int, height: int, inner: bytes | None = None, length: int | None = None) -> bytes:
    """Return a WebP with a canvas of any size around the picture of another."""
    inner = photo("WEBP")[12:] if inner is None else inner
    canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBP" + b"VP8X" + struct.pack("<I", 10) + bytes(4) + canvas + inner
    return b"RIFF" + struct.pack("<I", len(body) if length is None else length) + body


def animated_webp(frames: int, size: Size) -> bytes:
    pictures = [Image.new("RGB", size, (n % 256, 0, 0)) for n in range(frames)]
    return saved(pictures[0], "WEBP", save_all=True, append_images=pictures[1:], method=0)


def lossless_header(width: int, height: int) -> bytes:
    bits = (width - 1) | (height - 1) << 14
    data = b"\x2f" + struct.pack("<I", bits) + bytes(64)
    return webp(width, height, b"VP8L" + struct.pack("<I", len(data)) + data)


# TIFF


def tiff(
    tags: dict[int, int] | None = None,
    data: bytes = b"",
    *,
    extra: tuple[tuple[int, int, int, int], ...] = (),
    following: int = 0,
    length: int | None = None,
) -> bytes:
    """Return a gray TIFF of 16 x 16 with other tags, or more of them (tag, type, count, value)."""
    data = data or zlib.compress(bytes(256))
    entries = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 278: 16, **(tags or {})}
    entries = {tag: value for tag, value in entries.items() if value >= 0}
    offset = (324, 325) if 322 in entries else (273, 279)
    rows = [(tag, 4, 1, value) for tag, value in entries.items()]
    where = 8 + 2 + 12 * (len(rows) + 2 + len(extra)) + 4
    length = len(data) if length is None else length
    rows += [(offset[0], 4, 1, where), (offset[1], 4, 1, length), *extra]
    directory = b"".join(struct.pack("<HHII", *row) for row in sorted(rows))
    return b"II*\0" + struct.pack("<IH", 8, len(rows)) + directory + struct.pack("<I", following) + data


def tiff_float(value: float) -> bytes:
    pixels = np.full((16, 16), value, np.float32)
    pixels[0, 0] = 0.5
    return saved(Image.fromarray(pixels), "TIFF")


def jpeg_in_tiff() -> bytes:
    """Return a small TIFF around a JPEG that says that it is large."""
    inner = sof(saved(Image.new("L", (16, 16)), "JPEG"), (20_000, 20_000))
    return tiff({259: 7}, inner)


# HEIC and AVIF


def ispe(kind: str, size: Size) -> bytes:
    """Return a photo whose container says that the picture has another size than it has."""
    data = bytearray(photo(kind))
    start = data.index(b"ispe") + 8
    data[start : start + 8] = struct.pack(">II", *size)
    return bytes(data)


def box_length(kind: str, box: bytes, length: int) -> bytes:
    """Return a photo, one of whose boxes says that it has so many bytes."""
    data = bytearray(photo(kind))
    start = data.index(box) - 4
    data[start : start + 4] = struct.pack(">I", length)
    return bytes(data)


def other_bytes(kind: str, seed: int, first: int = 24, last: int | None = None, count: int = 6) -> bytes:
    """Return a photo in which some bytes after the first box are others."""
    data = bytearray(photo(kind))
    draw = random.Random(seed)
    for _ in range(count):
        data[draw.randrange(first, len(data) if last is None else last)] = draw.randrange(256)
    return bytes(data)


# Others


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def nested(data: bytes, depth: int, width: int) -> bytes:
    """Return archives inside archives, each with several copies of the next: 16 in each of 5 are 50 TB."""
    for level in range(depth):
        data = zipped({f"cat/{level} {number}.zip": data for number in range(width)})
    return data


def palette_out_of_range() -> bytes:
    """Return a PNG whose palette has two colors and whose pixels have the number 200."""
    return png(8, 8, 8, 3, rows=(b"\0" + b"\xc8" * 8) * 8, before=chunk(b"PLTE", b"\0\0\0\xff\xff\xff"))


SHAPES: dict[str, Callable[[], bytes]] = {
    "1x20000.png": lambda: flat("PNG", (1, 20_000)),
    "20000x1.png": lambda: flat("PNG", (20_000, 1)),
    "1x60000.png": lambda: flat("PNG", (1, 60_000)),
    "60000x1.png": lambda: flat("PNG", (60_000, 1)),
    "1x12000000.png": lambda: flat("PNG", (1, 12_000_000)),
    "12000000x1.png": lambda: flat("PNG", (12_000_000, 1)),
    "1x65500.jpg": lambda: flat("JPEG", (1, 65_500)),
    "65500x1.jpg": lambda: flat("JPEG", (65_500, 1)),
    "16383x1.webp": lambda: flat("WEBP", (16_383, 1), "RGB"),
    "1x60000.gif": lambda: flat("GIF", (1, 60_000)),
    "1x60000.bmp": lambda: flat("BMP", (1, 60_000)),
    "1x60000.tif": lambda: flat("TIFF", (1, 60_000)),
    "100x1.png": lambda: flat("PNG", (100, 1)),
    "1x1.png": lambda: flat("PNG", (1, 1)),
    "20000x200.png": lambda: flat("PNG", (20_000, 200)),
    "5200x5200.png": lambda: flat("PNG", (5200, 5200), "1"),
    "5000x5000.gif": lambda: lzw_bomb((5000, 5000)),
    "16x2000.heic": lambda: flat("HEIF", (16, 2000), "RGB"),
    "2000x16.avif": lambda: flat("AVIF", (2000, 16), "RGB", speed=10),
    "5100x5000.avif": lambda: flat("AVIF", (5100, 5000), "RGB", speed=10),
}
LIES: dict[str, Callable[[], bytes]] = {
    "ihdr-huge.png": lambda: png(2**31 - 1, 2**31 - 1),
    "ihdr-13000.png": lambda: png(13_000, 13_000, 16, 6),
    "ihdr-7000.png": lambda: png(7000, 7000, 8, 6),
    "ihdr-zero.png": lambda: png(0, 0),
    "ihdr-depth.png": lambda: png(8, 8, 77),
    "ihdr-color.png": lambda: png(8, 8, 8, 7),
    "ihdr-interlaced.png": lambda: png(7000, 7000, 8, 2, interlace=1),
    "ihdr-twice.png": lambda: png(before=chunk(b"IHDR", struct.pack(">IIBBBBB", 30_000, 30_000, 8, 6, 0, 0, 0))),
    "chunk-length.png": lambda: png()[:8] + b"\xff\xff\xff\xff" + png()[12:],
    "crc.png": lambda: png()[:-20] + b"\0\1\2\3" + png()[-16:],
    "sof-65535.jpg": lambda: sof(photo("JPEG"), (65_535, 65_535)),
    "sof-5200.jpg": lambda: sof(photo("JPEG"), (5200, 5200)),
    "sof-zero.jpg": lambda: sof(photo("JPEG"), (0, 0)),
    "sof-components.jpg": lambda: sof(photo("JPEG"), components=255),
    "sof-progressive.jpg": lambda: sof(photo("JPEG", progressive=True), (4500, 4500)),
    "segment-length.jpg": lambda: with_segments(b"\xff\xe0\0\0"),
    "screen-65535.gif": lambda: gif((65_535, 65_535), (8, 8)),
    "screen-7000.gif": lambda: gif((7000, 7000), (8, 8)),
    "screen-zero.gif": lambda: gif((0, 0), (0, 0)),
    "frame-outside.gif": lambda: gif((8, 8), (65_535, 65_535), at=(60_000, 60_000)),
    "codes.gif": lambda: gif((64, 64), (64, 64), bytes(range(256)) * 20),
    "huge.bmp": lambda: bmp(2**31 - 1, 2**31 - 1),
    "7000.bmp": lambda: bmp(7000, 7000),
    "negative-height.bmp": lambda: bmp(8, -8),
    "negative-width.bmp": lambda: bmp(-8, 8),
    "least-height.bmp": lambda: bmp(8, -(2**31)),
    "rle.bmp": lambda: bmp(7000, 7000, 8, 1, data=b"\xff\1" * 4000),
    "rle-delta.bmp": lambda: bmp(4000, 4000, 8, 1, data=b"\0\2\xff\xff" * 4000),
    "bitfields.bmp": lambda: bmp(8, 8, 32, 3, data=b"\xff" * 300),
    "colors.bmp": lambda: bmp(8, 8, 8, 0, 2**31),
    "offset.bmp": lambda: bmp(8, 8, offset=2**32 - 1),
    "canvas-16384.webp": lambda: webp(16_384, 16_384),
    "canvas-13000.webp": lambda: webp(13_000, 13_000),
    "canvas-5000.webp": lambda: webp(5000, 5000),
    "lossless-16383.webp": lambda: lossless_header(16_383, 16_383),
    "lossless-4900.webp": lambda: lossless_header(4900, 4900),
    "riff-length.webp": lambda: webp(64, 48, length=2**32 - 1),
    "tile-23168.tif": lambda: tiff({322: 23_168, 323: 23_168, 278: -1}),
    "tile-2048.tif": lambda: tiff({322: 2048, 323: 2048, 278: -1}),
    "tile-zero.tif": lambda: tiff({322: 0, 323: 0, 278: -1}),
    "strip-40000000.tif": lambda: tiff({278: 40_000_000}),
    "size-huge.tif": lambda: tiff({256: 2**31, 257: 2**31}),
    "size-13000.tif": lambda: tiff({256: 13_000, 257: 13_000, 278: 13_000}),
    "size-zero.tif": lambda: tiff({256: 0, 257: 0}),
    "bits-65535.tif": lambda: tiff({258: 65_535}),
    "samples-65535.tif": lambda: tiff({277: 65_535}),
    "duplicate-tags.tif": lambda: tiff(extra=((256, 4, 1, 60_000), (257, 4, 1, 60_000))),
    "directory-loop.tif": lambda: tiff(following=8),
    "directory-outside.tif": lambda: b"II*\0" + struct.pack("<I", 2**31),
    "count-huge.tif": lambda: tiff(extra=((700, 1, 2**32 - 1, 8),)),
    "offsets-many.tif": lambda: tiff(extra=((273, 4, 2**28, 8),)),
    "data-outside.tif": lambda: tiff(length=2**31),
    "predictor.tif": lambda: tiff({317: 99}),
    "planes.tif": lambda: tiff({284: 2, 277: 4}),
    "subsampling.tif": lambda: tiff({262: 6, 277: 3, 530: 0x00080008}),
    "sample-format.tif": lambda: tiff({339: 77}),
    "jpeg-inside.tif": jpeg_in_tiff,
    "index-4000.mpo": lambda: mpo_lie(4000, 0),
    "index-huge.mpo": lambda: mpo_lie(2**28, 0),
    "index-outside.mpo": lambda: mpo_lie(3, 2**31),
    "ispe-huge.heic": lambda: ispe("HEIF", (2**32 - 1, 2**32 - 1)),
    "ispe-13000.heic": lambda: ispe("HEIF", (13_000, 13_000)),
    "ispe-7000.heic": lambda: ispe("HEIF", (7000, 7000)),
    "ispe-zero.heic": lambda: ispe("HEIF", (0, 0)),
    "ispe-huge.avif": lambda: ispe("AVIF", (2**32 - 1, 2**32 - 1)),
    "ispe-13000.avif": lambda: ispe("AVIF", (13_000, 13_000)),
    "meta-zero.heic": lambda: box_length("HEIF", b"meta", 0),
    "meta-huge.heic": lambda: box_length("HEIF", b"meta", 2**32 - 1),
    "iloc-huge.heic": lambda: box_length("HEIF", b"iloc", 2**31),
    "iloc-huge.avif": lambda: box_length("AVIF", b"iloc", 2**31),
    "iprp-zero.avif": lambda: box_length("AVIF", b"iprp", 0),
    **{f"bytes-{n}.heic": lambda n=n: other_bytes("HEIF", n) for n in range(6)},
    **{f"bytes-{n}.avif": lambda n=n: other_bytes("AVIF", n) for n in range(6)},
    **{f"boxes-{n}.heic": lambda n=n: other_bytes("HEIF", n, last=400, count=3) for n in range(6)},
    **{f"boxes-{n}.avif": lambda n=n: other_bytes("AVIF", n, last=300, count=3) for n in range(6)},
    **{
        f"compression-{number}.tif": lambda number=number: tiff({259: number}, bytes(range(256)) * 4)
        for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 9999, 32773, 32946, 34712, 34887, 34925, 50000, 50001)
    },
}
BOMBS: dict[str, Callable[[], bytes]] = {
    "idat-300-mb.png": png_bomb,
    "iccp-300-mb.png": lambda: png(before=chunk(b"iCCP", b"a\0\0" + inflating(300))),
    "ztxt-300-mb.png": lambda: png(before=chunk(b"zTXt", b"a\0\0" + inflating(300))),
    "itxt-300-mb.png": lambda: png(before=chunk(b"iTXt", b"a\0\1\0\0\0" + inflating(300))),
    "ztxt-many.png": lambda: png(before=chunk(b"zTXt", b"a\0\0" + inflating(1)) * 400),
    "text-8-mb.png": lambda: png(before=chunk(b"tEXt", b"a\0" + b"b" * (8 << 20))),
    "exif-4-mb.png": lambda: png(before=chunk(b"eXIf", b"II*\0" + struct.pack("<IH", 8, 65_535) + bytes(4 << 20))),
    "chunks-100000.png": lambda: png(before=chunk(b"tEXt", b"a\0b") * 100_000),
    "frames-300.png": lambda: animated_png(300),
    "frames-5000.gif": lambda: gif((64, 64), (8, 8), frames=5000),
    "scans-3000.jpg": lambda: many_scans((4900, 5000), 3000),
    "segments-20000.jpg": lambda: with_segments(marker(0xE2, b"ICC_PROFILE\0\1\1") * 20_000),
    "profile-16-mb.jpg": lambda: with_segments(
        b"".join(marker(0xE2, b"ICC_PROFILE\0" + bytes([n, 255]) + bytes(65_000)) for n in range(1, 255))
    ),
    "tables-20000.jpg": lambda: with_segments(marker(0xDB, b"\0" + b"\1" * 64) * 20_000),
    "deflate-300-mb.tif": lambda: tiff({}, inflating(300)),
    "packbits.tif": lambda: tiff({259: 32773}, b"\x81\0" * 500_000),
    "lzw.tif": lambda: tiff({259: 5}, b"\x80\0" + b"\x81\x02" * 200_000),
    "frames-300.webp": lambda: animated_webp(300, (64, 64)),
    "frames-10-large.webp": lambda: animated_webp(10, (2000, 2000)),
}
MODES: dict[str, Callable[[], bytes]] = {
    "16-bit.png": lambda: saved(Image.fromarray(np.full((16, 16), 40_000, np.uint16)), "PNG"),
    "32-bit.tif": lambda: saved(Image.fromarray(np.full((16, 16), 2**30, np.int32)), "TIFF"),
    "nan.tif": lambda: tiff_float(float("nan")),
    "infinite.tif": lambda: tiff_float(float("inf")),
    "only-nan.tif": lambda: saved(Image.fromarray(np.full((16, 16), np.nan, np.float32)), "TIFF"),
    "cmyk.jpg": lambda: flat("JPEG", (16, 16), "CMYK"),
    "cmyk.tif": lambda: flat("TIFF", (16, 16), "CMYK"),
    "lab.tif": lambda: flat("TIFF", (16, 16), "LAB"),
    "one-bit.png": lambda: flat("PNG", (16, 16), "1"),
    "gray-alpha.png": lambda: flat("PNG", (16, 16), "LA"),
    "palette-range.png": palette_out_of_range,
    "palette-none.png": lambda: png(8, 8, 8, 3, rows=(b"\0" + b"\xc8" * 8) * 8),
    "orientation-99.jpg": lambda: exif(struct.pack("<HHII", 274, 3, 1, 99)),
    "orientation-text.jpg": lambda: exif(struct.pack("<HHI4s", 274, 2, 4, b"abc\0")),
    "orientation-many.jpg": lambda: exif(struct.pack("<HHII", 274, 3, 2**31, 8)),
    "exif-loop.jpg": lambda: exif(struct.pack("<HHII", 0x8769, 4, 1, 8), following=8),
    "exif-short.jpg": lambda: exif(b"", count=65_535),
    "exif-fraction.jpg": lambda: exif(struct.pack("<HHII", 282, 5, 1, 26) + bytes(8)),
}
OTHERS: dict[str, Callable[[], bytes]] = {
    "empty.jpg": lambda: b"",
    "one-byte.jpg": lambda: b"\xff",
    "zeros.jpg": lambda: bytes(1 << 20),
    "random.jpg": lambda: random.Random(0).randbytes(1 << 20),
    "text.jpg": lambda: b"this is not a photo\n" * 100,
    "page.jpg": lambda: b"<html><script>alert(1)</script></html>",
    "png-inside.jpg": lambda: photo("PNG"),
    "jpeg-inside.png": lambda: photo("JPEG"),
    "eps.jpg": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(id) (w) file\n%%EOF",
    "psd.jpg": lambda: b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 30_000, 30_000, 8, 3) + bytes(64),
    "ico.png": lambda: flat("ICO", (16, 16), "RGBA"),
    "jpeg2000.jpg": lambda: b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(64),
    "svg.png": lambda: b'<svg xmlns="http://www.w3.org/2000/svg"><image href="file:///etc/passwd"/></svg>',
    "pdf.jpg": lambda: b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>",
    "heic.jpg": lambda: b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64),
    "avif.png": lambda: b"\0\0\0\x18ftypavif\0\0\0\0mif1avif" + bytes(64),
    "ppm.jpg": lambda: b"P6\n30000 30000\n255\n",
    "xbm.png": lambda: b"#define a_width 30000\n#define a_height 30000\nstatic char a_bits[] = {",
    "metafile.jpg": lambda: b"\xd7\xcd\xc6\x9a" + bytes(64),
    "fits.tif": lambda: b"SIMPLE  =                    T" + b" " * 2850,
    "mcidas.tif": lambda: b"\0\0\0\0\0\0\0\4" + bytes(256),
    "program.jpg": lambda: b"\x7fELF\2\1\1" + bytes(64),
    "gif-and-zip.gif": lambda: photo("GIF") + zipped({"a.jpg": photo("JPEG")}),
    "jpeg-and-zip.jpg": lambda: photo("JPEG") + zipped({"a.jpg": photo("JPEG")}),
    "jpeg-and-script.jpg": lambda: with_segments(marker(0xFE, b"*/=alert(1)/*")),
    "zip.jpg": lambda: zipped({"a.jpg": photo("JPEG")}),
    "gzip.png": lambda: b"\x1f\x8b\x08" + bytes(7) + inflating(50)[2:-4],
}
CUTS = {"quarter": 0.25, "half": 0.5, "last": 0.98}
TRUNCATED: dict[str, Callable[[], bytes]] = {
    f"cut-{cut}.{suffix}": lambda kind=kind, share=share: _cut(photo(kind), share)
    for kind, suffix in SUFFIXES.items()
    for cut, share in CUTS.items()
}


def _cut(data: bytes, share: float) -> bytes:
    return data[: int(len(data) * share)]


FILES: dict[str, Callable[[], bytes]] = SHAPES | LIES | BOMBS | MODES | OTHERS | TRUNCATED
"""Every kind of file by a name of its own."""


NAMES = (
    "line\nbreak.jpg",
    "red\x1b[31m.jpg",
    "bell\a.jpg",
    "right\u202eto-left.jpg",
    os.fsdecode(b"not-utf8-\xff.jpg"),
)


def write_places(folder: Path) -> list[Path]:
    """Make things that are named like photos and are not, and photos with odd names."""
    good = photo("JPEG")
    made = {name: folder / f"{name}.jpg" for name in ("fifo", "socket", "device", "dangling", "loop", "folder")}
    os.mkfifo(made["fifo"])
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.open(folder, os.O_RDONLY)  # the names of sockets must be short
        try:
            listening.bind(f"/proc/self/fd/{here}/socket.jpg")
        finally:
            os.close(here)
    made["device"].symlink_to("/dev/zero")
    made["dangling"].symlink_to("nowhere.jpg")
    made["loop"].symlink_to("loop.jpg")
    made["folder"].mkdir()
    for name, size in (("sparse-3-gb", 3 << 30), ("sparse-250-mb", 250 << 20)):
        made[name] = folder / f"{name}.jpg"
        with made[name].open("wb") as file:
            file.write(good[:200])
            file.truncate(size)
    for name in NAMES:
        made[name] = folder / name
        made[name].write_bytes(good)
    return list(made.values())


def _tar(members: list[tuple[tarfile.TarInfo, bytes]], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    packing = {"compresslevel": 1} if mode == "w:gz" else {}
    with tarfile.open(fileobj=buffer, mode=mode, **packing) as archive:  # type: ignore[call-overload]
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def _lying_zip() -> bytes:
    """Return a zip whose member says that it unpacks to 10 bytes, and holds a photo."""
    data = bytearray(zipped({"cat/1.jpg": photo("JPEG")}))
    for mark, at in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        place = data.index(mark) + at
        data[place : place + 4] = struct.pack("<I", 10)
    return bytes(data)


def _encrypted_zip() -> bytes:
    data = bytearray(zipped({"cat/1.jpg": photo("JPEG")}))
    for mark, at in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        data[data.index(mark) + at] |= 1
    return bytes(data)


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "inside.zip": lambda: zipped({"cat/1.zip": zipped({"a.jpg": photo("JPEG")}), "cat/1.jpg": zipped({})}),
    "deep.zip": lambda: zipped({"cat/a.zip": zipped({"b.zip": zipped({"c.zip": b""})})}),
    "bomb.zip": lambda: zipped({f"cat/{n}.jpg": bytes(100 << 20) for n in range(3)}),
    "lying.zip": _lying_zip,
    "encrypted.zip": _encrypted_zip,
    "outside.zip": lambda: zipped({"../cat/1.jpg": photo("JPEG")}),
    "absolute.zip": lambda: zipped({"/tmp/cat/1.jpg": photo("JPEG")}),
    "empty.zip": lambda: zipped({}),
    "cut.zip": lambda: _cut(zipped({"cat/1.jpg": photo("JPEG")}), 0.7),
    "outside.tar": lambda: _tar([(_member("../cat/1.jpg"), photo("JPEG"))]),
    "absolute.tar": lambda: _tar([(_member("/tmp/cat/1.jpg"), photo("JPEG"))]),
    "link.tar": lambda: _tar([(_member("cat/1.jpg", tarfile.SYMTYPE, "/etc/passwd"), b"")]),
    "hard-link.tar": lambda: _tar([(_member("cat/1.jpg", tarfile.LNKTYPE, "/etc/passwd"), b"")]),
    "device.tar": lambda: _tar([(_member("cat/1.jpg", tarfile.CHRTYPE), b"")]),
    "fifo.tar": lambda: _tar([(_member("cat/1.jpg", tarfile.FIFOTYPE), b"")]),
    "bomb.tar.gz": lambda: _tar([(_member(f"cat/{n}.jpg"), bytes(100 << 20)) for n in range(3)], "w:gz"),
    "cut.tar.gz": lambda: _cut(_tar([(_member("cat/1.jpg"), photo("JPEG"))], "w:gz"), 0.5),
    "inside.tar": lambda: _tar([(_member("cat/1.jpg"), _tar([(_member("a.jpg"), photo("JPEG"))]))]),
    "deep-60.zip": lambda: nested(b"", 60, 1),
    "forty-two.zip": lambda: nested(zipped({"a.jpg": bytes(50 << 20)}), 5, 16),
    "text.tar": lambda: b"this is not an archive" * 100,
}


def write_files(folder: Path, kinds: dict[str, Callable[[], bytes]] = FILES) -> list[Path]:
    """Write kinds of files to a folder."""
    paths = []
    for name, make in kinds.items():
        paths.append(folder / name)
        paths[-1].write_bytes(make())
    return paths


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    written = [*write_files(target), *write_files(target, ARCHIVES), *write_places(target)]
    print(f"{len(written)} kinds in {target}")  # noqa: T201
