from __future__ import annotations

import hashlib
import io
import os
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fiveshot.data import MAX_PHOTO_BYTES, ImageError, Photo
from fiveshot.data.reduction import thumbnail
from fiveshot.errors import InputError
from fiveshot.recognizer.photos import inputs as inputs_module
from fiveshot.recognizer.photos.inputs import class_photos, find_classes, find_photos, gather_photos

RED, BLUE = (255, 0, 0), (0, 0, 255)


def picture(color: tuple[int, int, int] = RED, size: tuple[int, int] = (30, 20)) -> Image.Image:
    return Image.new("RGB", size, color)


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two class folders, one with a folder below, and other files; the working folder is next to them."""
    for name in ("owl/1.png", "owl/2.PNG", "owl/night/3.jpg", "wren/1.webp"):
        path = tmp_path / "birds" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture().save(path)
    (tmp_path / "birds" / "owl" / "notes.txt").write_text("hoo")
    (tmp_path / "birds" / "owl" / "4.MOV").write_bytes(b"ftypqt")
    (tmp_path / "birds" / "owl" / ".5.png").write_bytes(b"hidden")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "birds"


def names(photos: list[Photo]) -> list[str]:
    return [photo.name for photo in photos]


def test_files_folders_and_patterns(birds: Path) -> None:
    owls = ["birds/owl/1.png", "birds/owl/2.PNG", "birds/owl/night/3.jpg"]
    assert names(gather_photos("birds/owl")) == owls
    assert names(gather_photos(Path("birds/owl"))) == owls
    assert names(gather_photos("birds/owl/1.png")) == owls[:1]
    assert names(gather_photos("birds/*/1.*")) == ["birds/owl/1.png", "birds/wren/1.webp"]
    assert names(gather_photos("birds/**/*.jpg")) == owls[2:]
    assert names(gather_photos("birds/o*")) == owls
    assert names(gather_photos(["birds/wren", "birds/owl/1.png"])) == ["birds/wren/1.webp", "birds/owl/1.png"]
    assert len(gather_photos(birds)) == 4


def test_a_pattern_with_two_stars_counts_each_photo_once(birds: Path) -> None:
    found = names(gather_photos("birds/**"))
    assert sorted(found) == sorted(set(found))
    assert "birds/owl/night/3.jpg" in found


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(birds: Path) -> None:
    picture(BLUE).save(birds / "a[1].png")
    picture(RED).save(birds / "a1.png")
    (photo,) = gather_photos("birds/a[1].png")
    assert photo.image().getpixel((0, 0)) == BLUE


def test_a_link_in_a_circle_ends(birds: Path) -> None:
    (birds / "owl" / "again").symlink_to(birds / "owl")
    assert len(gather_photos("birds/owl")) == 3


def test_photos_in_an_archive(birds: Path) -> None:
    with zipfile.ZipFile("birds.zip", "w") as archive:
        for file in ("owl/1.png", "owl/2.PNG", "wren/1.webp"):
            archive.write(birds / file, file)
    assert names(gather_photos("birds.zip")) == [
        "birds.zip/owl/1.png",
        "birds.zip/owl/2.PNG",
        "birds.zip/wren/1.webp",
    ]
    found = find_classes("birds.zip").classes
    assert {name: len(photos) for name, photos in found.items()} == {"owl": 2, "wren": 1}
    assert found["wren"][0].image().size == (30, 20)


def test_bytes_open_files_and_pictures(birds: Path) -> None:
    data = (birds / "owl" / "1.png").read_bytes()
    with (birds / "owl" / "1.png").open("rb") as file:
        photos = gather_photos([data, bytearray(data), memoryview(data), io.BytesIO(data), file, picture(BLUE)])
    assert names(photos) == ["photo 1", "photo 2", "photo 3", "photo 4", str(birds / "owl" / "1.png"), "photo 6"]
    assert {photo.sha256 for photo in photos[:5]} == {hashlib.sha256(data).hexdigest()}
    assert photos[5].image().getpixel((0, 0)) == BLUE
    assert names(gather_photos(data)) == ["photo 1"]
    assert gather_photos(photos[0]) == [photos[0]]


def test_standard_input_is_one_photo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(encoded(picture(BLUE)))))
    (photo,) = gather_photos("-")
    assert photo.name == "standard input"
    assert photo.image().getpixel((3, 3)) == BLUE


FILLS: dict[str, object] = {
    "RGB": RED,
    "L": 7,
    "RGBA": (255, 0, 0, 128),
    "LA": (9, 200),
    "P": 3,
    "1": 1,
    "CMYK": (0, 9, 9, 0),
    "HSV": (9, 99, 99),
    "I": 40_000,
    "I;16": 500,
    "F": 0.5,
}


@pytest.mark.parametrize(("mode", "fill"), FILLS.items())
def test_a_picture_in_memory_is_seen_as_its_file_would_be(mode: str, fill: object) -> None:
    image = Image.new(mode, (4, 3), fill)
    (photo,) = gather_photos(image)
    if mode in ("RGB", "L", "RGBA", "LA", "P", "1"):
        (stored,) = gather_photos(encoded(image))
        assert np.array_equal(np.asarray(photo.image()), np.asarray(stored.image()))
    assert photo.image().mode == "RGB"
    assert photo.sha256 == gather_photos(image.copy())[0].sha256


def test_the_orientation_of_a_picture_in_memory_is_applied() -> None:
    image = picture(size=(30, 20))
    exif = image.getexif()
    exif[0x0112] = 6
    data = encoded(image, "JPEG", exif=exif)
    for given in (data, Image.open(io.BytesIO(data))):
        assert gather_photos(given)[0].image().size == (20, 30)


def test_the_digest_and_the_picture_come_from_one_reading(birds: Path) -> None:
    path = birds / "owl" / "1.png"
    loaded = gather_photos(path)[0].loaded()
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_bytes(encoded(picture(BLUE)))
    assert loaded.sha256 == before
    assert loaded.image().getpixel((0, 0)) == RED


def test_what_is_no_photo_is_named(birds: Path) -> None:
    (birds / "empty.jpg").write_bytes(b"")
    (birds / "text.jpg").write_text("not a photo at all")
    (birds / "half.png").write_bytes(encoded(picture(size=(300, 300)))[:200])
    for name, reason in (("empty.jpg", "empty"), ("text.jpg", "not a photo"), ("half.png", "damaged")):
        with pytest.raises(ImageError, match=f"birds/{name}.*{reason}"):
            gather_photos(f"birds/{name}")[0].image()


def bitmap_header(width: int, height: int) -> bytes:
    """Return a BMP that says how large it is, and has no pixels."""
    return struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)


def test_enormous_photos_are_refused_before_they_are_decoded(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 50,000 x 50,000 pixels in a header of a few bytes.
    (birds / "bomb.bmp").write_bytes(bitmap_header(50_000, 50_000))
    with pytest.raises(ImageError, match=r"bomb\.bmp: too large"):
        gather_photos("birds/bomb.bmp")[0].image()
    huge = birds / "huge.jpg"
    huge.touch()
    os.truncate(huge, MAX_PHOTO_BYTES + 1)  # sparse: it takes no space
    with pytest.raises(ImageError, match=r"huge\.jpg: too large: 268,435,457 bytes"):
        gather_photos("birds/huge.jpg")[0].image()
    monkeypatch.setattr(inputs_module, "MAX_PIXELS", 99)
    with pytest.raises(ImageError, match="too large: 10 x 10"):
        gather_photos(picture(size=(10, 10)))
    with pytest.raises(ImageError, match="empty: 0 x 5"):
        gather_photos(Image.new("RGB", (0, 5)))


def test_a_device_is_not_read(birds: Path) -> None:
    os.mkfifo(birds / "pipe.jpg")
    with pytest.raises(ImageError, match="it is a pipe, not a file"):
        gather_photos("birds/pipe.jpg")[0].image()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("nowhere.jpg", "no such file or folder: nowhere.jpg"),
        ("birds/*.gif", r"nothing matches the pattern birds/\*.gif"),
        ("", "'' is not a path"),
        ("a\0b", "is not a path"),
        ("x" * 10_000, "no such file"),
        ("void", "no photos in void; photos are files that end in"),
        ([], "no photos were given"),
        (None, "cannot take a photo from None"),
        ([3], r"cannot take a photo from 3 \(int\)"),
        ([{"photo": "x" * 500}], r"cannot take a photo from .{80} \(dict\); give"),
        (
            np.zeros((4, 6, 3), np.uint8),
            r"an array of shape \(4, 6, 3\) \(ndarray\); convert it with PIL",
        ),
        ([np.zeros((4, 6, 3), np.uint8)], r"from an array of shape \(4, 6, 3\)"),
        (io.StringIO("text"), "open it with mode 'rb'"),
    ],
)
def test_wrong_inputs_say_what_is_wrong(birds: Path, given: object, message: str) -> None:
    Path("void").mkdir()
    with pytest.raises(InputError, match=message):
        gather_photos(given)  # type: ignore[arg-type]


def test_a_broken_link_is_named(birds: Path) -> None:
    (birds / "gone.jpg").symlink_to(birds / "nothing.jpg")
    with pytest.raises(InputError, match=r"birds/gone\.jpg"):
        gather_photos("birds/gone.jpg")[0].image()


def test_files_that_are_no_photos_by_name_are_counted(birds: Path) -> None:
    assert find_photos(["birds", b"..."]).others == {".txt": 1, ".mov": 1}


def test_class_folders(birds: Path) -> None:
    found = find_classes("birds").classes
    assert list(found) == ["owl", "wren"]
    assert names(found["owl"]) == ["birds/owl/1.png", "birds/owl/2.PNG", "birds/owl/night/3.jpg"]


def test_class_folders_with_one_name_in_two_spellings(birds: Path) -> None:
    for folder in ("caf\u00e9", "cafe\u0301"):
        (birds / folder).mkdir()
        picture().save(birds / folder / "1.png")
    with pytest.raises(InputError, match="two folders of birds give the class name 'café'"):
        find_classes("birds")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ([], "has no class folders"),
        (
            ["1.png"],
            "has no class folders, but 1 photo of its own; .*as one class: fiveshot learn MODEL NAME data",
        ),
        (["owl/1.png", "wren/"], "no photos in data/wren"),
        (["owl/1.png", "wren/notes.txt"], "no photos in data/wren"),
        (["train/owl/1.png", "test/owl/1.png"], "split into test and train; choose data/train"),
    ],
)
def test_folders_that_are_no_class_folders(birds: Path, make: list[str], message: str) -> None:
    Path("data").mkdir()
    for name in make:
        path = Path("data") / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if name.endswith(".png"):
            picture().save(path)
        elif not name.endswith("/"):
            path.write_text("text")
    with pytest.raises(InputError, match=message):
        find_classes("data")


def place(*files: str) -> None:
    for file in files:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        picture().save(file)


def test_photos_beside_the_class_folders_are_found(birds: Path) -> None:
    assert find_classes("birds").loose == []
    place("birds/loose.png", "birds/more.jpg")
    (birds / "notes.txt").write_text("no photo")
    assert find_classes("birds").loose == ["loose.png", "more.jpg"]
    assert list(find_classes("birds").classes) == ["owl", "wren"]


def test_folders_of_the_system_are_no_classes(birds: Path) -> None:
    place("birds/@eaDir/owl/1.png", "birds/owl/@eaDir/1.png/SMALL.jpg", "birds/#recycle/9.png")
    for name in ("__MACOSX/owl", ".git/objects", ".DS_Store", "Thumbs", "lost+found"):
        (birds / name).mkdir(parents=True)
    (birds / "__MACOSX" / "owl" / "._1.png").write_bytes(b"...")
    (birds / "Thumbs" / "Thumbs.db").write_bytes(b"...")
    found = find_classes("birds").classes
    assert {name: len(photos) for name, photos in found.items()} == {"owl": 3, "wren": 1}
    assert len(gather_photos("birds/owl")) == 3
    place("birds/Thumbs/1.png")  # photos of thumbs
    assert list(find_classes("birds").classes) == ["Thumbs", "owl", "wren"]
    (birds / "kite").mkdir()
    with pytest.raises(InputError, match=r"no photos in birds/kite; .*add photos, or remove the folder"):
        find_classes("birds")


def test_a_folder_of_classes_is_not_one_class(birds: Path) -> None:
    place("all/owl/1.png", "all/wren/1.png", "all/wren/old/2.png")
    with pytest.raises(InputError, match=r"2 subfolders \(owl, wren\).*fiveshot learn MODEL all\);.*'all/\*/'"):
        class_photos("all")
    Path("wrapped").mkdir()
    Path("all").rename("wrapped/all")
    with pytest.raises(InputError, match="fiveshot learn MODEL wrapped/all"):
        class_photos(["birds/wren", Path("wrapped")])
    assert len(class_photos("wrapped/all/*/")) == 3  # the way out that the refusal names
    assert len(class_photos("birds/owl")) == 3  # a folder with photos of its own may have more below
    assert len(class_photos("wrapped/all/wren/old")) == 1
    assert len(class_photos([b"...", "birds/**/*.jpg"])) == 2
    assert len(gather_photos("wrapped")) == 3  # to recognise, any folder will do


def test_class_folders_that_hold_only_folders_are_refused(birds: Path) -> None:
    place("samples/learn/owl/1.png", "samples/learn/wren/1.png", "samples/strange/1.png")
    with pytest.raises(InputError) as refused:
        find_classes("samples")
    assert refused.value.code == "nested_classes"
    assert "samples/learn" in refused.value.hint
    assert list(find_classes("samples/learn").classes) == ["owl", "wren"]
    place("camera/owl/DCIM/1.png", "camera/wren/1.png")
    assert list(find_classes("camera").classes) == ["owl", "wren"]  # one folder below is no choice of classes


def test_nested_folders_are_classes_by_their_paths(birds: Path) -> None:
    place("all/owl/barn owl/1.png", "all/owl/tawny/old/2.png", "all/owl/3.png", "all/wren/1.png", "all/loose.png")
    found = find_classes("all", nested=True)
    assert {name: len(photos) for name, photos in found.classes.items()} == {
        "owl": 1,
        "owl/barn owl": 1,
        "owl/tawny/old": 1,
        "wren": 1,
    }
    assert found.loose == ["loose.png"]
    Path("all/kite").mkdir()
    with pytest.raises(InputError, match="no photos in all/kite"):
        find_classes("all", nested=True)


def test_a_folder_of_other_files_says_what_it_saw(birds: Path) -> None:
    for file in ("phone/owl/1.MOV", "phone/owl/2.mov", "phone/owl/notes"):
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(b"ftypqt")
    told = r"no photos in {} \(seen: 2 \.mov, 1 no suffix\); photos"
    with pytest.raises(InputError, match=told.format("phone")):
        gather_photos("phone")
    with pytest.raises(InputError, match=told.format("phone/owl")):
        find_classes("phone")


def test_a_live_photo_is_its_picture(tmp_path: Path) -> None:
    """A phone stores a picture and a clip of one name."""
    for name in ("IMG_1.HEIC", "IMG_1.MOV"):
        (tmp_path / name).write_bytes(b"...")
    found = find_photos(tmp_path)
    assert names(found.photos) == [str(tmp_path / "IMG_1.HEIC")]
    assert found.others == {".mov": 1}


def test_a_missing_folder_of_classes(birds: Path) -> None:
    with pytest.raises(InputError, match="no such folder or archive: nowhere"):
        find_classes("nowhere")


def test_a_thumbnail_is_small_upright_and_tells_nothing_else() -> None:
    image = Image.new("RGB", (600, 300), RED)
    image.paste(BLUE, (0, 0, 300, 300))
    exif = image.getexif()
    exif[0x0112] = 6  # to be turned right: what is left is then at the top
    exif[0x010F] = "SECRETCAMERA"
    exif.get_ifd(0x8825)[1] = "N"
    data = encoded(image, "JPEG", exif=exif, comment=b"SECRETCOMMENT", icc_profile=b"SECRETPROFILE", dpi=(72, 72))
    assert b"SECRETCAMERA" in data
    small = thumbnail(Image.open(io.BytesIO(data)))
    assert b"SECRET" not in small
    shown = Image.open(io.BytesIO(small))
    assert (shown.size, shown.format, dict(shown.getexif())) == ((64, 128), "JPEG", {})
    top, bottom = shown.getpixel((32, 20)), shown.getpixel((32, 108))
    assert top[2] > 200 > 60 > top[0]
    assert bottom[0] > 200 > 60 > bottom[2]
    assert len(small) < 5000


def test_a_small_photo_stays_as_small_as_it_is() -> None:
    assert Image.open(io.BytesIO(thumbnail(picture(size=(9, 5)), size=64))).size == (9, 5)
