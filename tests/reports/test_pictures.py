"""Pages with photos: reviews and sorted photos as one file that looks like the service's page."""

from __future__ import annotations

import html
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fiveshot.data import FileSource, Photo
from fiveshot.recognizer import Evaluation
from fiveshot.recognizer.advice.evaluation import WrongPhoto
from fiveshot.reports import write_mistakes, write_review, write_sorting
from fiveshot.values import (
    ConfusedPair,
    KnownPhoto,
    PhotoGroup,
    Question,
    Review,
    Sorting,
    Suggestion,
    TellingPhoto,
)

EVIL = "<b>it's an owl"
MODEL = Path("-my models/birds")


def commands(page: str) -> list[list[str]]:
    """Return the commands of a page, as a shell would read them."""
    found = [re.sub("</?span>", "", one) for one in re.findall("<code>(.*?)</code>", page)]
    return [shlex.split(html.unescape(one)) for one in found]


@pytest.fixture
def review_page(tmp_path: Path) -> Path:
    mixed = Suggestion(
        "mixed-up", "p7", "wren", "move", EVIL, "p2", 0.98, "it fits better", True, f"{EVIL}.jpg", "tawny-2.jpg"
    )
    lonely = Suggestion("outliers", "p9", "wren", "remove", None, None, 0.9, "it is unlike the others")
    telling = TellingPhoto("p7", "wren", EVIL, 0.6, "p2", "long-name-" * 9 + ".jpg", "tawny-2.jpg")
    alike = ConfusedPair((EVIL, "wren"), 1, (telling,), alike=True, advice="join them")
    found = Review(3, 0.9, 20, (), (), (alike,), (mixed, lonely))
    small = tmp_path / "small.jpg"
    Image.new("RGB", (128, 96), "teal").save(small)
    pictures = {"p2": small.read_bytes(), "p7": small.read_bytes()}
    return write_review(tmp_path / "review.html", found, pictures.get, model=MODEL)


@pytest.fixture
def sorted_page(tmp_path: Path) -> Path:
    names = [f"photos/{EVIL.replace('/', '')} {number}.png" for number in range(40)]
    file = tmp_path / "one.png"
    Image.new("RGB", (200, 150), "olive").save(file)
    sources = tuple(Photo(FileSource(file, name)) for name in names)
    known = (KnownPhoto(0, "wren", 0.999), KnownPhoto(1, "wren", 0.7))
    groups = (PhotoGroup("g2", tuple(range(2, 32))), PhotoGroup("g32", (32, 33)))
    queue = (Question(34, (35,), 0.5, EVIL), Question(36, (), 0.4, None))
    found = Sorting(tuple(names), known, groups, queue, sources=sources)
    return write_sorting(tmp_path / "sorted.html", found, model=MODEL, folder=Path("my photos"))


def test_a_review_shows_file_names_beside_ids_and_what_to_type(review_page: Path) -> None:
    page = review_page.read_text(encoding="utf-8")
    assert "p7 (&lt;b&gt;it&#39;s an owl.jpg)" in page
    assert "p2 (tawny-2.jpg)" in page
    assert "<b>" not in page
    assert page.count('<img src="data:image/jpeg;base64,') == 4
    model = f"./{MODEL}"
    assert commands(page) == [
        ["fiveshot", "move", model, "p7", "--to", EVIL],
        ["fiveshot", "review", model, "--keep", "p7"],
        ["fiveshot", "remove", model, "p9"],
        ["fiveshot", "review", model, "--keep", "p9"],
        ["fiveshot", "move", model, "--all-of", EVIL, "--to", "wren"],
    ]
    assert "Look at this. Perhaps: remove it" in page


def test_sorted_photos_are_shown_with_the_commands_that_name_them(sorted_page: Path) -> None:
    page = sorted_page.read_text(encoding="utf-8")
    assert commands(page) == [
        ["fiveshot", "sort", f"./{MODEL}", "my photos", "--name", naming]
        for naming in ("q34=NAME", "q36=NAME", "g2=NAME", "g32=NAME")
    ]
    assert page.count('<img src="data:image/jpeg;base64,') == 2 + 1 + 24 + 2 + 2  # of many photos the first ones
    assert "And 6 photos more." in page
    assert "q34, 2 photos, may be &lt;b&gt;" in page
    assert "over 99 %" in page
    assert "<b>" not in page
    assert "40 photos in my photos: 2 of known classes, 32 unknown in 2 groups." in page


@pytest.mark.parametrize("which", ["review_page", "sorted_page"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_fit_the_screen_and_load_nothing(
    which: str, width: int, chromium: Any, request: pytest.FixtureRequest
) -> None:
    page = request.getfixturevalue(which)
    chromium.requests.clear()
    chromium.complaints.clear()
    for dark in (False, True):
        chromium.open(page, width=width, dark=dark)
        assert chromium.evaluate("document.documentElement.scrollWidth") <= width
    assert [one for one in chromium.requests if not one.startswith("data:")] == [page.as_uri()] * 2
    assert chromium.complaints == []


def test_the_path_of_a_photo_is_not_cut_off(tmp_path: Path, chromium: Any) -> None:
    wrong = WrongPhoto("long_folder_" * 6 + "/" + "long_name_" * 6 + ".jpg", "owl", "wren", "wren")
    measured = Evaluation(1, 0, 0.0, 0.0, 0.0, None, None, 0.0, (), (), (wrong,))
    chromium.open(write_mistakes(tmp_path / "mistakes.html", measured, [], lambda id: None), width=390)
    over = "[...document.querySelectorAll('.finding .grow')].map(one => one.scrollWidth - one.clientWidth)"
    assert chromium.evaluate(over) == [0]


def test_a_button_copies_a_command_or_selects_it(review_page: Path, chromium: Any) -> None:
    chromium.open(review_page)
    pressed = """
        (async () => {
            const code = document.querySelector(".command code"), button = code.nextElementSibling;
            await copy(code, button);
            return [code.textContent, button.textContent, getSelection().toString()];
        })()
    """
    reply = chromium.call("Runtime.evaluate", expression=pressed, awaitPromise=True, returnByValue=True)
    command, told, selected = reply["result"]["value"]
    assert shlex.split(command)[-1] == EVIL
    assert (told, selected) in (("Copied", ""), ("Selected: press Ctrl+C", command))


def test_the_page_looks_like_that_of_the_service(review_page: Path) -> None:
    sheet = Path(__file__).parents[2] / "src/fiveshot/service/page/page.css"
    assert sheet.read_text(encoding="utf-8") in review_page.read_text(encoding="utf-8")


def test_two_classes_that_look_like_one_are_counted_by_their_photos(tmp_path: Path) -> None:
    photos = tuple(TellingPhoto(f"p{n}", "owl", "wren", 0.9, None) for n in range(6))
    pair = ConfusedPair(("owl", "wren"), 7, photos, True, "these two are told apart no better than by chance")
    found = Review(3, 0.5, 20, (), (), (pair,), ())
    file = write_review(tmp_path / "review.html", found, lambda _: None, model="birds")
    page = file.read_text(encoding="utf-8")
    assert "Confused: owl and wren, 7 photos<" in page
    assert ["fiveshot", "move", "birds", "--all-of", "owl", "--to", "wren"] in commands(page)


def test_wrong_names_come_before_what_was_left_open(tmp_path: Path) -> None:
    unsure = [WrongPhoto(f"{n}.jpg", "owl", None, "owl", between=("owl", "wren")) for n in range(3)]
    unknown = [WrongPhoto(f"{n}.jpg", "owl", None, "owl") for n in range(3, 5)]
    wrong = (WrongPhoto("5.jpg", "owl", "wren", "wren"), *unknown, *unsure)
    measured = Evaluation(9, 0, 0.9, 0.9, 0.2, None, None, 0.0, (), (), wrong)
    page = write_mistakes(tmp_path / "mistakes.html", measured, [], lambda _: None).read_text(encoding="utf-8")
    titles = ["owl, shown as wren (1)", "owl, called unknown (2)", "owl, unsure: owl or wren (3)"]
    places = [page.index(title) for title in titles]
    assert places == sorted(places)
