"""Boxes given by hand and by detectors; which photo each belongs to is worked out here by hand."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fiveshot import Recognizer, Region
from fiveshot.backbones import Preprocessing
from fiveshot.data import BadImage, Box, FileSource, ImageError, Photo
from fiveshot.errors import InputError
from fiveshot.features import Seen, decode_photos
from fiveshot.recognizer import evaluate, import_file
from fiveshot.recognizer.photos.boxes import read_boxes, regions_of
from fiveshot.recognizer.photos.inputs import find_photos
from fiveshot.values import to_json


@pytest.mark.parametrize(
    ("given", "pixels"),
    [
        ((10, 20, 30, 40), (10, 20, 40, 60)),
        ((0.1, 0.5, 0.5, 0.25), (20, 50, 120, 75)),
        ((0, 0, 1, 1), (0, 0, 200, 100)),  # all of it, not one pixel
        ((-0.001, 0, 0.5, 1.0005), (0, 0, 100, 100)),  # a detector that rounds
        ((150.4, 0, 50.2, 99.9), (150, 0, 200, 100)),
        ((np.float32(0.5), np.int64(0), 0.5, 1), (100, 0, 200, 100)),
    ],
)
def test_a_box_is_in_pixels_or_in_shares(given, pixels) -> None:
    box = Box.of(given)
    assert box.pixels((200, 100)) == pixels
    assert Box.parse(str(box)).pixels((200, 100)) == pixels
    json.dumps(box.values)


@pytest.mark.parametrize(
    "given",
    [
        (0, 0, 0, 5),
        (0, 0, 5, -1),
        (math.nan, 0, 5, 5),
        (0, math.inf, 5, 5),
        (0, 0, 5),
        "0,0,5,5",
        None,
        ("0", 0, 5, 5),
        (True, 0, 5, 5),
    ],
)
def test_what_is_not_a_box_is_refused(given: object) -> None:
    with pytest.raises(InputError) as caught:
        Region("photo.jpg", given)
    assert caught.value.code == "bad_box"


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,x", "1 2 3 4", "nan,0,1,1", "1,2,3,4,5", "0,0,inf,3"])
def test_what_is_not_the_text_of_a_box_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        Box.parse(text)
    assert caught.value.code == "bad_box"


@pytest.mark.parametrize("box", [(190, 0, 20, 20), (300, 300, 5, 5), (-20, 0, 50, 50), (0.9, 0.9, 0.5, 0.05)])
def test_a_box_outside_is_refused_with_the_name_of_its_photo(tmp_path: Path, box: tuple[float, ...]) -> None:
    Image.new("RGB", (200, 100)).save(tmp_path / "wide.png")
    photo = Photo(FileSource(tmp_path / "wide.png", "wide.png"), Box.of(box))
    (found,) = decode_photos([photo], Preprocessing(size=8, resize=8))
    assert isinstance(found, BadImage)
    assert found.name == "wide.png"
    assert re.search(r"the box .* lies outside .* 200 x 100", found.reason)
    assert found.code == "bad_box"
    with pytest.raises(ImageError, match=r"wide.png: the box"):
        photo.image()


def test_a_box_counts_from_the_corner_that_people_see(tmp_path: Path) -> None:
    """The camera was turned: the left side of the stored picture is shown on top."""
    stored = Image.new("RGB", (80, 40), "blue")
    stored.paste("red", (0, 0, 40, 40))
    exif = Image.Exif()
    exif[274] = 6  # the upper edge of the file is the right edge of the picture
    stored.save(tmp_path / "turned.png", exif=exif)
    photo = Photo(FileSource(tmp_path / "turned.png", "turned.png"), Box(0, 0, 40, 40))
    assert photo.image().getcolors() == [(1600, (255, 0, 0))]
    (found,) = decode_photos([replace(photo, box=Box(0, 40, 40, 40))], Preprocessing(size=8, resize=8))
    assert isinstance(found, Seen)
    assert found.pixels.tolist() == [[[[0] * 8] * 8, [[0] * 8] * 8, [[255] * 8] * 8]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Photos of two cameras that count from one, and a single one."""
    for name in ("north/IMG_1.png", "north/IMG_2.png", "south/IMG_1.png", "alone.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (100, 50)).save(tmp_path / "photos" / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(file: str, **options: float) -> tuple[dict[str, list[tuple[float, ...]]], list[str], dict[str, str]]:
    """Return the boxes by photo, the photos without boxes, and the codes of errors."""
    regions = regions_of(find_photos("photos").photos, read_boxes(file, **options))
    boxes: dict[str, list[tuple[float, ...]]] = {}
    for photo in regions.photos:
        assert photo.box is not None
        boxes.setdefault(photo.name, []).append(photo.box.values)
    return boxes, regions.without, {one.name: one.code for one in regions.bad}


def test_coco(place: Path) -> None:
    images = [
        {"id": 1, "file_name": "north/IMG_1.png"},
        {"id": 2, "file_name": "/data/of/others/photos/south/IMG_1.png"},
        {"id": 3, "file_name": "gone.png"},
        {"id": 4, "file_name": "alone.png"},
    ]
    annotations = [
        {"id": 1, "image_id": 1, "bbox": [10, 10, 20, 20], "category_id": 1},
        {"id": 2, "image_id": 1, "bbox": [50, 0, 50, 50], "category_id": 1},
        {"id": 3, "image_id": 2, "bbox": [0, 0, 5.5, 5]},
        {"id": 4, "image_id": 3, "bbox": [0, 0, 5, 5]},
        {"id": 5, "image_id": 2, "bbox": [0, 0, 5, 5], "score": 0.1},
        {"id": 6, "image_id": 77, "bbox": [0, 0, 5, 5]},
        {"id": 7, "image_id": 4, "bbox": [0, 0, 0.5, 0.5]},
    ]
    Path("coco.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    boxes, without, bad = found("coco.json")
    assert boxes == {
        "photos/north/IMG_1.png": [(10, 10, 20, 20), (50, 0, 50, 50)],
        "photos/south/IMG_1.png": [(0, 0, 5.5, 5)],
    }
    assert without == ["photos/alone.png", "photos/north/IMG_2.png"]
    assert bad == {"gone.png": "no_photo", "coco.json": "bad_box", "alone.png": "bad_box"}
    assert found("coco.json", confidence=0)[0]["photos/south/IMG_1.png"] == [(0, 0, 5.5, 5), (0, 0, 5, 5)]


def test_megadetector(place: Path) -> None:
    detections = [
        {"category": "1", "conf": 0.9, "bbox": [0.1, 0.2, 0.3, 0.4]},
        {"category": "1", "conf": 0.1, "bbox": [0, 0, 1, 1]},
        {"category": "2", "conf": 0.5, "bbox": [0.5, 0.5, math.nan, 0.4]},
    ]
    images = [
        {"file": "south\\\\IMG_1.png".replace("\\\\", "\\"), "detections": detections},
        {"file": "north/IMG_1.png", "detections": []},
        {"file": "north/IMG_2.png", "failure": "Failure image access", "detections": None},
    ]
    Path("md.json").write_text(json.dumps({"images": images, "detection_categories": {"1": "animal"}}))
    boxes, without, bad = found("md.json")
    assert boxes == {"photos/south/IMG_1.png": [(0.1, 0.2, 0.3, 0.4)]}
    assert without == ["photos/alone.png", "photos/north/IMG_1.png", "photos/north/IMG_2.png"]
    assert bad == {"south\\IMG_1.png": "bad_box"}


def test_yolo(place: Path) -> None:
    for name, text in {
        "north/IMG_1.txt": "0 0.5 0.5 0.2 0.4\n\n1 0.5 0.5 1 1 0.9\n1 0.5 0.5 1 1 0.1\n",
        "south/IMG_1.txt": "0 0.5 0.5 0.2\n0 0.1 0.1 0.2 0.2 0.9 4 5 6\n",
        "alone.txt": "",
    }.items():
        (place / "labels" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "labels" / name).write_text(text)
    boxes, without, bad = found("labels")
    assert list(boxes) == ["photos/north/IMG_1.png"]
    np.testing.assert_allclose(boxes["photos/north/IMG_1.png"], [(0.4, 0.3, 0.2, 0.4), (0, 0, 1, 1)])
    assert bad == {"south/IMG_1": "bad_box"}
    assert "photos/alone.png" in without
    (place / "IMG_2.txt").write_text("0 0.5 0.5 0.5 0.5")
    assert found("IMG_2.txt")[0] == {"photos/north/IMG_2.png": [(0.25, 0.25, 0.5, 0.5)]}


@pytest.mark.parametrize(
    "text",
    [
        "photo,x,y,width,height\nnorth/IMG_1.png,10,20,30,20\n",
        "Path;X;Y;W;H\nnorth/IMG_1.png;10;20;30,0;20\n",
        "filename,xmin,ymin,xmax,ymax,class\nnorth/IMG_1.png,10,20,40,40,owl\n",
        '\ufefffile,box,score\nnorth/IMG_1.png,"10,20,30,20",0.9\nalone.png,,0.9\nalone.png,"1,1,1,1",0.1\n',
    ],
)
def test_csv(place: Path, text: str) -> None:
    Path("boxes.csv").write_text(text, encoding="utf-8")
    boxes, without, bad = found("boxes.csv")
    assert (boxes, bad) == ({"photos/north/IMG_1.png": [(10, 20, 30, 20)]}, {})
    assert len(without) == 3


def test_a_name_that_two_photos_may_have_is_not_guessed(place: Path) -> None:
    Path("boxes.csv").write_text("photo,x,y,w,h\nIMG_1.png,1,1,5,5\nalone.png,1,1,5,5\n")
    boxes, _, bad = found("boxes.csv")
    assert list(boxes) == ["photos/alone.png"]
    assert bad == {"IMG_1.png": "ambiguous_box"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "[]"),
        ("a.json", '{"images": 3}'),
        ("a.json", '{"images": [], "annotations": 4}'),
        ("a.json", '{"images": [{"detections": []}]}'),
        ("a.json", "[" * 100_000),
        ("a.csv", "photo,x,y\n"),
        ("a.csv", ""),
        ("a.xml", "<boxes/>"),
        ("a.json", "\udcff"),
    ],
)
def test_what_is_not_a_file_of_boxes_is_refused(place: Path, name: str, text: str) -> None:
    Path(name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError) as caught:
        read_boxes(name)
    assert caught.value.code == "bad_boxes"


def test_files_that_are_not_there(place: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_boxes("nowhere.json")
    assert caught.value.code == "no_file"
    Path("empty").mkdir()
    with pytest.raises(InputError):
        read_boxes("empty")


def test_parts_are_learned_measured_and_kept(tmp_path: Path) -> None:
    """Two colors side by side: a model of the halves tells them apart, and two halves are two photos."""
    both = Image.new("RGB", (64, 32), "red")
    both.paste("blue", (32, 0, 64, 32))
    both.save(tmp_path / "both.png")
    left, right = Region(tmp_path / "both.png", (0, 0, 32, 32)), Region(both, (0.5, 0, 0.5, 1))
    with Recognizer.create(tmp_path / "model", keep_photos=True, views=1) as colors:
        report = colors.learn("red", [left])
        assert report.duplicates == ()
        assert colors.learn("blue", [Region(tmp_path / "both.png", (32, 0, 32, 32))]).duplicates == ()
        answers = colors.predict([left, right])
        assert [one.label for one in answers] == ["red", "blue"]
        assert [one.box for one in answers] == [(0, 0, 32, 32), (0.5, 0, 0.5, 1)]
        assert to_json(answers[0])["box"] == [0, 0, 32, 32]
        measured = evaluate(colors, {"red": [left], "blue": [right]})
        assert (measured.accuracy, measured.learned_photos) == (1.0, 1)
        colors.export(tmp_path / "out.fiveshot", photos=True)
    with import_file(tmp_path / "out.fiveshot", tmp_path / "again") as again:
        assert again.predict(left)[0].label == "red"
