from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import PIL.features
import PIL.TiffImagePlugin
import pytest
from PIL import Image

from fiveshot.data.decoding import TILE, decode
from fiveshot.data.folders import is_image
from fiveshot.data.sources import BytesSource, FileSource, ImageError

pillow_heif = pytest.importorskip("pillow_heif", reason="the extra 'heic' is not installed")

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


@pytest.fixture
def decoded(tmp_path):
    """Save an image in a format and decode it again."""

    def save_and_decode(image: Image.Image, kind: str, **options) -> np.ndarray:
        path = tmp_path / f"image.{kind}"
        image.save(path, **options)
        result = decode(FileSource(path, path.name))
        assert result.mode == "RGB"
        return np.asarray(result)

    return save_and_decode


# The stored image has its marks at three corners; where each orientation (EXIF 2.3, tag 274) shows them.
CORNERS = {"top left": (0, 0), "top right": (0, -1), "bottom left": (-1, 0), "bottom right": (-1, -1)}
SHOWN = {
    1: ("top left", "top right", "bottom left"),
    2: ("top right", "top left", "bottom right"),
    3: ("bottom right", "bottom left", "top right"),
    4: ("bottom left", "bottom right", "top left"),
    5: ("top left", "bottom left", "top right"),
    6: ("top right", "bottom right", "top left"),
    7: ("bottom right", "top right", "bottom left"),
    8: ("bottom left", "top left", "bottom right"),
}


@pytest.mark.parametrize("kind", ["jpg", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", sorted(SHOWN))
def test_every_exif_orientation_is_shown_upright(decoded, orientation, kind):
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[:16, :16], pixels[:16, -16:], pixels[-16:, :16] = RED, GREEN, BLUE
    exif = Image.Exif()
    exif[274] = orientation
    shown = decoded(
        Image.fromarray(pixels), kind, exif=exif, **({"quality": 95} if kind in ("jpg", "webp") else {})
    )
    assert shown.shape == ((64, 96, 3) if orientation < 5 else (96, 64, 3))
    for colour, corner in zip((RED, GREEN, BLUE), SHOWN[orientation], strict=True):
        np.testing.assert_allclose(shown[CORNERS[corner]].astype(int), colour, atol=25)


def test_a_photo_with_unreadable_exif_data_is_shown_as_it_is(decoded):
    shown = decoded(Image.new("RGB", (6, 4), RED), "jpg", exif=b"Exif\0\0II*\0\xff\xff\xff\xff", quality=95)
    assert shown.shape == (4, 6, 3)


def test_greyscale_and_black_and_white(decoded):
    grey = np.array([[0, 100, 255]], np.uint8)
    assert decoded(Image.fromarray(grey), "png").tolist() == [[[0] * 3, [100] * 3, [255] * 3]]
    assert decoded(Image.new("1", (1, 1), 1), "png").tolist() == [[[255] * 3]]


@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_sixteen_bits_are_scaled_not_cut_off(decoded, kind):
    deep = np.array([[0, 1000, 25700, 65535]], np.uint16)
    assert decoded(Image.fromarray(deep), kind)[0, :, 0].tolist() == [0, 4, 100, 255]


def test_floats_and_wide_integers_use_the_whole_range(decoded):
    assert decoded(Image.fromarray(np.array([[0, 0.4, 1]], np.float32)), "tiff")[0, :, 1].tolist() == [0, 102, 255]
    wide = Image.fromarray(np.array([[-100_000, 0, 100_000]], np.int32))
    assert decoded(wide, "tiff")[0, :, 1].tolist() == [0, 128, 255]
    assert decoded(Image.fromarray(np.full((1, 2), 90_000, np.int32)), "tiff").tolist() == [[[0] * 3] * 2]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_pixels_that_are_no_numbers_are_black_and_change_no_other(decoded, odd):
    for values, shown in (([0, 0.4, 1], [0, 102, 255]), ([-10, 0, 10], [0, 128, 255])):
        floats = np.full((TILE + 1, 4), odd, np.float32)  # one tile holds no number at all
        floats[0, :3] = values
        grey = decoded(Image.fromarray(floats), "tiff")[..., 0]
        assert grey[0].tolist() == [*shown, 0]
        assert not grey[1:].any()


def test_an_image_without_a_number_is_refused(decoded):
    with pytest.raises(ImageError, match=r"image\.tiff: every pixel is NaN or infinite$"):
        decoded(Image.fromarray(np.array([[np.nan, np.inf, -np.inf]], np.float32)), "tiff")


def test_eight_bits_in_wider_integers_are_eight_bits(decoded):
    grey = np.array([[0, 7, 200]])
    assert decoded(Image.fromarray(grey.astype(np.int32)), "tiff")[0, :, 0].tolist() == [0, 7, 200]
    assert decoded(Image.fromarray(np.array([[0, 256, 65535]], np.int32)), "tiff")[0, :, 0].tolist() == [0, 1, 255]
    for kind in ("png", "tiff"):  # where the file says 16 bits, dark is dark
        assert decoded(Image.fromarray(grey.astype(np.uint16)), kind)[0, :, 0].tolist() == [0, 0, 1]


def test_alpha_becomes_white(decoded):
    pixels = np.array([[[255, 0, 0, 255], [255, 0, 0, 0], [0, 0, 0, 128]]], np.uint8)
    shown = decoded(Image.fromarray(pixels), "png")
    assert tuple(shown[0, 0]) == RED
    assert tuple(shown[0, 1]) == WHITE
    assert abs(int(shown[0, 2, 0]) - 127) <= 1
    grey_alpha = np.array([[[0, 255], [0, 0]]], np.uint8)
    assert decoded(Image.fromarray(grey_alpha), "png")[0, :, 0].tolist() == [0, 255]


@pytest.mark.parametrize("kind", ["png", "gif"])
def test_a_palette_with_a_transparent_colour(decoded, kind):
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putpixel((1, 0), 1)
    assert [tuple(p) for p in decoded(image, kind)[0]] == [RED, GREEN]
    assert [tuple(p) for p in decoded(image, kind, transparency=1)[0]] == [RED, WHITE]


def test_transparent_colours_outside_a_palette(decoded):
    image = Image.new("RGB", (2, 1), RED)
    image.putpixel((1, 0), GREEN)
    assert [tuple(p) for p in decoded(image, "png", transparency=GREEN)[0]] == [RED, WHITE]
    deep = Image.fromarray(np.array([[0, 25700]], np.uint16))
    assert decoded(deep, "png", transparency=0)[0, :, 0].tolist() == [255, 100]


def test_cmyk_is_not_shown_inverted(decoded):
    ink = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # magenta and yellow make red
    red, green, blue = decoded(ink, "jpg", quality=95)[4, 4]
    assert red > 240
    assert max(green, blue) < 15
    assert tuple(decoded(Image.new("CMYK", (2, 2), (0, 0, 0, 0)), "tiff")[0, 0]) == WHITE


@pytest.mark.parametrize("kind", ["gif", "webp", "png", "tiff"])
def test_an_animation_shows_its_first_frame(decoded, kind):
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, BLUE)]
    options = {"lossless": True} if kind == "webp" else {}
    shown = decoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert tuple(shown[0, 0]) == RED


def png_of_size(width: int, height: int) -> bytes:
    """A PNG whose header promises a size and whose data would be a bomb."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


@pytest.mark.parametrize(("width", "height"), [(20_000, 20_000), (60_000, 60_000)])
def test_a_decompression_bomb_is_refused_by_its_header(tmp_path, width, height):
    path = tmp_path / "bomb.png"
    path.write_bytes(png_of_size(width, height))
    with pytest.raises(ImageError, match=r"bomb\.png: too large") as caught:
        decode(FileSource(path, path.name))
    assert "truncated" not in str(caught.value)
    assert "pixels" in str(caught.value)
    assert "attack" not in str(caught.value)


def noise_with_wrecked_pixels(path: Path) -> None:
    """Write a noisy image of 200 x 120 and overwrite the second half of the file, where its pixels are."""
    noise = np.random.default_rng(0).integers(0, 256, (120, 200, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\xff" * (len(data) - len(data) // 2))


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "gif", "bmp", "mpo"])
def test_the_size_is_known_before_any_pixel_is_decoded(tmp_path, kind):
    path = tmp_path / f"wrecked.{kind}"
    noise_with_wrecked_pixels(path)
    with pytest.raises(ImageError, match="too large: 200 x 120, the limit is 23,999 pixels"):
        decode(FileSource(path, path.name), max_pixels=23_999)


def test_a_tiff_tells_its_size_too(tmp_path):
    Image.new("RGB", (200, 120)).save(tmp_path / "a.tif")  # its header may lie behind the pixels
    with pytest.raises(ImageError, match="too large: 200 x 120, the limit is 23,999 pixels"):
        decode(FileSource(tmp_path / "a.tif", "a.tif"), max_pixels=23_999)


@pytest.mark.parametrize("kind", ["ico", "ppm", "jp2", "tga", "pcx", "dds", "sgi", "msp", "xbm"])
def test_a_format_that_is_not_listed_is_refused_with_those_that_are(tmp_path, kind):
    """Each decoder is one more that a hostile file can try; icons are decoded while they are opened."""
    features = {"jp2": "jpg_2000"}
    if kind in features and not PIL.features.check(features[kind]):
        pytest.skip(f"this Pillow cannot write {kind}")
    Image.new("1" if kind in ("msp", "xbm") else "RGB", (64, 64)).save(tmp_path / f"a.{kind}")
    formats = "JPEG, PNG, WebP, GIF, BMP, TIFF, MPO, HEIC, AVIF"
    with pytest.raises(ImageError, match=f"a.{kind}: not a photo .*{formats}.$") as caught:
        decode(FileSource(tmp_path / f"a.{kind}", f"a.{kind}"))
    assert caught.value.code == "bad_image"
    assert not is_image(f"cat/a.{kind}")


def tiff(width: int, height: int, *, pixels: bytes = b"", **tags: int) -> bytes:
    """Return a gray TIFF compressed by zlib, with tags of any value: what it claims need not be true."""
    data = zlib.compress(pixels or bytes(width * height))
    entries = {256: width, 257: height, 258: 8, 259: 8, 262: 1, 277: 1, **{int(k[1:]): v for k, v in tags.items()}}
    tiled = 322 in entries
    where = 8 + 2 + 12 * (len(entries) + 2) + 4
    entries |= {324: where, 325: len(data)} if tiled else {273: where, 279: len(data)}
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in sorted(entries.items()))
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + bytes(4) + data


def test_the_tiff_of_these_tests_is_a_tiff():
    assert decode(BytesSource(tiff(16, 16, t278=16), "a.tif")).size == (16, 16)
    assert decode(BytesSource(tiff(16, 16, t322=16, t323=16), "a.tif")).size == (16, 16)


@pytest.mark.parametrize(
    ("size", "tags", "part"),
    [
        ((16, 16), {"t322": 23_168, "t323": 23_168}, "23168 x 23168"),
        ((16, 16), {"t322": 2**31, "t323": 2**31}, "2147483648 x 2147483648"),
        ((16, 16), {"t322": 16, "t323": 2**30}, "16 x 1073741824"),
        ((16, 16), {"t278": 40_000_000}, "16 x 40000000"),
        ((4000, 1), {"t278": 400_000, "t274": 6}, "4000 x 400000"),
    ],
    ids=["tile", "huge tile", "long tile", "strip", "turned strip"],
)
def test_a_tiff_whose_parts_are_larger_than_itself_is_refused_before_they_are_made(monkeypatch, size, tags, part):
    def load(image):
        raise AssertionError("it was decoded")

    monkeypatch.setattr(PIL.TiffImagePlugin.TiffImageFile, "load", load)
    with pytest.raises(ImageError, match=f"pixels in parts of {part}") as caught:
        decode(BytesSource(tiff(*size, **tags), "a.tif"))
    assert caught.value.code == "image_too_large"


@pytest.mark.parametrize(
    ("size", "tags"),
    [((16, 16), {"t278": 2**32 - 1}), ((16, 16), {"t278": 1000}), ((16, 16), {})],
    ids=["all rows in one strip", "more rows than there are", "nothing said"],
)
def test_a_tiff_may_say_more_rows_than_it_has(size, tags):
    assert decode(BytesSource(tiff(*size, **tags), "a.tif")).size == size


def test_a_small_tiff_in_tiles_of_a_usual_size_is_read():
    noise = np.random.default_rng(0).integers(0, 256, (30, 50), dtype=np.uint8)
    padded = np.zeros((256, 256), np.uint8)
    padded[:30, :50] = noise
    packed = tiff(50, 30, pixels=padded.tobytes(), t322=256, t323=256)
    np.testing.assert_array_equal(np.asarray(decode(BytesSource(packed, "a.tif")))[..., 0], noise)


@pytest.mark.parametrize("suffix", [".jpg", ".jpeg", ".jpe", ".jfif"])
def test_every_name_of_jpeg_is_a_photo(suffix):
    assert is_image(f"cat/1{suffix}")


def test_the_pixel_limit_can_be_set_and_counts_exactly(tmp_path):
    path = tmp_path / "photo.png"
    Image.new("RGB", (10, 10)).save(path)
    source = FileSource(path, path.name)
    assert decode(source, max_pixels=100).size == (10, 10)
    with pytest.raises(ImageError, match=r"photo.png: too large: 10 x 10, the limit is 99 pixels"):
        decode(source, max_pixels=99)


def test_a_large_photo_below_the_limit_gives_no_warning(tmp_path):
    path = tmp_path / "large.png"  # beyond the size at which PIL warns, and warnings are errors here
    path.write_bytes(png_of_size(10_000, 10_000))
    with pytest.raises(ImageError, match="truncated"):
        decode(FileSource(path, path.name))


@pytest.mark.parametrize("kind", ["jpg", "png", "webp", "gif", "bmp", "tiff"])
def test_a_truncated_file_is_refused_with_its_name(tmp_path, kind):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, {"jpg": "jpeg"}.get(kind, kind))
    path = tmp_path / f"half.{kind}"
    path.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    with pytest.raises(ImageError, match=rf"cat/half\.{kind}: "):
        decode(FileSource(path, f"cat/half.{kind}"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"hello, I am a text", "not a photo in a supported format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a photo in a supported format"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 20, r"."),
    ],
)
def test_what_is_not_an_image_is_refused_with_its_name(tmp_path, content, says):
    path = Path(tmp_path / "photo.jpg")
    path.write_bytes(content)
    with pytest.raises(ImageError, match=f"dog/photo.jpg: .*{says}"):
        decode(FileSource(path, "dog/photo.jpg"))


# Photos of phones: a corner says which way up is, and the container turns the picture (irot), not EXIF.
def phone_photo(kind: str, **options) -> bytes:
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[:16, :16], pixels[:16, -16:], pixels[-16:, :16] = RED, GREEN, BLUE
    return encoded(Image.fromarray(pixels), kind, **options)


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    pillow_heif.register_heif_opener()
    buffer = io.BytesIO()
    image.save(buffer, kind, quality=95, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_photos_of_phones_are_shown_upright(orientation, kind):
    exif = Image.Exif()
    exif[274] = orientation
    shown = np.asarray(decode(BytesSource(phone_photo(kind, exif=exif.tobytes()), "IMG_0001")))
    assert shown.shape == ((64, 96, 3) if orientation < 5 else (96, 64, 3))
    for colour, corner in zip((RED, GREEN, BLUE), SHOWN[orientation], strict=True):
        np.testing.assert_allclose(shown[CORNERS[corner]].astype(int), colour, atol=30)


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_transparent_photos_of_phones_lie_on_white(kind):
    shown = np.asarray(decode(BytesSource(encoded(Image.new("RGBA", (64, 64), (255, 0, 0, 0)), kind), "clear")))
    np.testing.assert_allclose(shown.astype(int), 255, atol=3)


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_the_first_frame_of_an_animation_is_shown(kind):
    frames = [Image.new("RGB", (64, 64), colour) for colour in (RED, GREEN, BLUE)]
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    np.testing.assert_allclose(np.asarray(decode(BytesSource(data, "live")))[32, 32].astype(int), RED, atol=30)


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_broken_photo_of_a_phone_is_refused_by_name(kind, share):
    data = phone_photo(kind)
    with pytest.raises(ImageError, match="IMG_0002: damaged or truncated") as caught:
        decode(BytesSource(data[: int(len(data) * share)], "IMG_0002"))
    assert caught.value.code == "bad_image"


@pytest.mark.parametrize("kind", ["HEIF", "AVIF"])
def test_the_size_of_a_phones_photo_is_checked_before_it_is_decoded(kind):
    data = bytearray(phone_photo(kind))
    place = data.index(b"ispe") + 8
    data[place : place + 8] = struct.pack(">II", 9000, 9000)
    with pytest.raises(ImageError) as caught:
        decode(BytesSource(bytes(data), "large"), max_pixels=64 * 96)
    assert caught.value.code in ("image_too_large", "bad_image")  # or the decoder finds the lie itself
    with pytest.raises(ImageError) as caught:
        decode(BytesSource(phone_photo(kind), "large"), max_pixels=64 * 96 - 1)
    assert caught.value.code == "image_too_large"


@pytest.mark.parametrize(
    ("kind", "missing", "line"),
    [("HEIF", "pillow_heif", "pip install 'fiveshot[heic]'"), ("AVIF", "PIL._avif", "pip install -U pillow")],
)
def test_where_the_library_is_missing_the_line_to_type_is_said(kind, missing, line, tmp_path):
    """In a separate process, because imports stay."""
    (tmp_path / "photo").write_bytes(phone_photo(kind))  # whatever the file is called
    program = f"""
import sys
sys.modules[{missing!r}] = None
from pathlib import Path
from fiveshot.data import FileSource, ImageError, decode
try:
    decode(FileSource(Path({str(tmp_path / "photo")!r}), "photo"))
except ImageError as error:
    print(error.code, error.reason)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("missing_library ")
    assert line in done.stdout


def test_a_video_is_not_a_photo():
    box = b"ftypmp42\0\0\0\0isommp42"
    with pytest.raises(ImageError, match="not a photo in a supported format"):
        decode(BytesSource(struct.pack(">I", len(box) + 4) + box + b"heic" * 9, "clip"))


@pytest.mark.parametrize("name", ["IMG_0001.HEIC", "a.heif", "b.hif", "c.avif"])
def test_photos_of_phones_are_photos_by_name(name):
    assert is_image(name)


def png(width: int, height: int, *, bits: int, colour: int, extra: bytes = b"") -> bytes:
    """Return a black PNG, made row by row: nothing of its size is in memory here."""
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    packer = zlib.compressobj(1)
    row = bytes(1 + width * channels * bits // 8)
    data = b"".join([*(packer.compress(row) for _ in range(height)), packer.flush()])
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def test_images_of_many_tiles_are_made_as_one(decoded):
    rng = np.random.default_rng(3)
    deep = rng.integers(0, 65536, (70, TILE + 40), dtype=np.uint16)
    np.testing.assert_array_equal(decoded(Image.fromarray(deep), "png")[..., 1], np.rint(deep / 257))
    wide = rng.integers(-9, 10, (2 * TILE + 1, 30), dtype=np.int32)
    wide[-1, -1] = 90  # the range is that of all tiles
    np.testing.assert_array_equal(decoded(Image.fromarray(wide), "tiff")[..., 2], np.rint((wide + 9) * 255 / 99))
    clear = rng.integers(0, 256, (TILE + 1, TILE + 1, 4), dtype=np.uint8)
    share = clear[..., 3:] / 255
    expected = clear[..., :3] * share + 255 * (1 - share)
    np.testing.assert_allclose(decoded(Image.fromarray(clear), "png"), expected, atol=1)


PEAK = """
import sys
from pathlib import Path
from fiveshot.data.decoding import decode
from fiveshot.data.sources import FileSource

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024

small, large = (FileSource(Path(name), name) for name in sys.argv[1:])
decode(small)
before = peak()
image = decode(large)
print((peak() - before) / (image.width * image.height))
"""


def has_peak() -> bool:
    status = Path("/proc/self/status")
    return status.exists() and "VmHWM:" in status.read_text()


@pytest.mark.skipif(not has_peak(), reason="peak memory is read from Linux's /proc")
@pytest.mark.parametrize(
    ("bits", "colour", "extra"),
    [
        (16, 0, b""),
        (8, 2, b""),
        (8, 3, chunk(b"PLTE", bytes(6)) + chunk(b"tRNS", b"\x80")),
        (8, 6, b""),
    ],
    ids=["16 bits", "RGB", "palette", "RGBA"],
)
def test_decoding_takes_a_few_bytes_a_pixel(tmp_path, bits, colour, extra):
    files = []
    for width, height in ((64, 48), (4000, 3000)):
        files.append(tmp_path / f"{width}.png")
        files[-1].write_bytes(png(width, height, bits=bits, colour=colour, extra=extra))
    done = subprocess.run([sys.executable, "-c", PEAK, *files], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 10, "of which 4 are the result, and 4 what PIL had decoded"
