from __future__ import annotations

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from browser import Browser
from PIL import Image
from toys import base_session_only

from fiveshot import Recognizer
from fiveshot.benchmark import Job, RunRecord, get_protocol, run_job
from fiveshot.errors import StorageError
from fiveshot.features import UNRECORDED
from fiveshot.recognizer import export_onnx
from fiveshot.reports import write_report
from fiveshot.reports.page import report_page

HOSTILE = '<script>alert("1")</script><img src=http://example.org/x onerror=alert(2)>&\udcff'
TAB, ENTER = 9, 13
VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """Reads a page, requires every element to be closed, and collects what tests ask about."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]


@pytest.fixture(scope="module")
def report(bird_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(bird_folder, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def text(report: Path) -> str:
    return report.read_text(encoding="utf-8")


def test_the_page_is_complete_in_itself(text: str) -> None:
    page = Page(text)
    for attributes in (attributes for _, attributes in page.elements):
        assert "src" not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")


def test_the_page_can_be_read_without_seeing_it(text: str) -> None:
    page = Page(text)
    assert page.all("html") == [{"lang": "en"}]
    headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
    assert headings[:3] == [1, 2, 3]
    assert all(b - a <= 1 for a, b in pairwise(headings))
    for picture in page.all("svg"):
        assert picture.get("aria-hidden") == "true" or (
            picture["role"] == "img" and len(picture["aria-label"]) > 30
        )
    assert len(page.all("figcaption")) == len(page.all("figure"))
    for frame in (a for a in page.all("div") if a.get("role") == "region"):
        assert frame["tabindex"] == "0"
        assert frame["aria-label"]
    targets = {a["id"] for _, a in page.elements if "id" in a}
    assert {a["href"][1:] for a in page.all("a")} <= targets


def test_the_page_says_what_was_measured(text: str, bird_records: list[RunRecord]) -> None:
    words = " ".join(" ".join(Page(text).words).split())
    for method in ("ncm", "c-fecam", "ranpac"):
        runs = [r.metrics.a_last for r in bird_records if r.method == method]
        assert f"{100 * np.mean(runs):.1f} ± {100 * np.std(runs, ddof=1):.1f}" in words
    for name in bird_records[0].class_names:
        assert name in words
    for said in ("tiny_vit_5m_224.dist_in22k", "n_projections 64", "seeds 0, 1", "numpy"):
        assert said in words


def test_the_page_says_how_sure_how_balanced_and_of_how_many_images(
    text: str, bird_records: list[RunRecord]
) -> None:
    captions = re.findall(r"<caption><span>(.*?)</span>", text)
    assert "birds: how sure, and how balanced" in captions
    assert "Expected calibration error in % after each session" in captions
    (table,) = re.findall(r"<table><caption><span>Images of each session.*?</table>", text, re.DOTALL)
    rows = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", table)]
    images = bird_records[0].images
    expected = [
        [str(number) if number else "base", f"{counts.train}", f"{counts.test}"]
        for number, counts in enumerate(images)
    ]
    assert [[row[0], *row[2:]] for row in rows[1:]] == expected


def test_accuracy_per_class_is_the_mean_over_seeds(text: str, bird_records: list[RunRecord]) -> None:
    name = bird_records[0].class_names[3]
    row = text[text.index(f'<th scope="row">{name}</th>') :]
    row = row[: row.index("</tr>")]
    found = [float(value) for value in re.findall(r'data-value="([^"]+)"', row)][1:]
    expected = [
        np.mean([dict(r.metrics.per_class)[3] for r in bird_records if r.method == method])
        for method in ("ncm", "c-fecam", "ranpac")
    ]
    assert found == pytest.approx(expected)


def test_the_same_runs_give_the_same_page(text: str, bird_records: list[RunRecord]) -> None:
    assert report_page(bird_records) == text


def test_names_cannot_break_the_page(bird_records: list[RunRecord], tmp_path: Path) -> None:
    record = bird_records[0]
    protocol = {**record.config["protocol"], "name": HOSTILE}
    evil = replace(
        record,
        class_names=(HOSTILE, *record.class_names[1:]),
        config={**record.config, "method": HOSTILE, "protocol": protocol},
        provenance={**record.provenance, "backbone": HOSTILE, HOSTILE: HOSTILE},
    )
    evil.save(tmp_path / "run")
    written = write_report(tmp_path, tmp_path / "evil.html").read_text(encoding="utf-8")
    page = Page(written)
    assert len(page.all("script")) == 1
    assert not page.all("img")
    assert not any(key.startswith("on") for _, attributes in page.elements for key in attributes)
    assert "\\udcff" in written


def test_a_backbone_that_is_not_recorded_has_no_name(bird_records: list[RunRecord]) -> None:
    assert "Features of " in report_page(bird_records)
    records = [replace(one, provenance={**one.provenance, "backbone": UNRECORDED}) for one in bird_records]
    page = report_page(records)
    assert "Features of " not in page
    assert "The backbone of these features is not recorded." in page


def test_several_protocols_are_listed_and_told_apart(bird_records, paper_records) -> None:
    fewer = [
        replace(r, config={**r.config, "protocol": {**r.config["protocol"], "shots": 2}}) for r in bird_records
    ]
    page = Page(report_page([*bird_records, *paper_records, *fewer]))
    links = [a["href"] for a in page.all("a") if a["href"].startswith("#experiment")]
    assert links == ["#experiment-1", "#experiment-2", "#experiment-3"]
    titles = [word for word in page.words if word.startswith(("birds, ", "cars/small"))]
    assert "birds, 6 base classes, then 3 sessions of 2 with 5 images each" in titles
    assert "birds, 6 base classes, then 3 sessions of 2 with 2 images each" in titles


def test_a_run_of_one_session_has_a_page(bird_records: list[RunRecord]) -> None:
    first = bird_records[0]
    protocol = {**first.config["protocol"], "n_classes": 6}
    only = replace(base_session_only(first), config={**first.config, "protocol": protocol})
    page = report_page([only])
    Page(page)
    table, *_ = re.findall(r"<table.*?</table>", page, re.DOTALL)
    headings, cells = (
        [re.sub(r"<.*?>", "", cell) for cell in re.findall(rf"<{tag}\b.*?</{tag}>", table, re.DOTALL)]
        for tag in ("th", "td")
    )
    assert headings == ["method", "mean A_HM", "A_last", "A_inc", "ECE", "time (s)", "NCM"]
    assert cells[:2] == ["", f"{100 * only.metrics.a_last:.1f}"], "no A_HM, rather than one of 0"


def test_nothing_is_left_where_nothing_can_be_written(bird_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        write_report(bird_folder, tmp_path / "no" / "report.html")
    with pytest.raises(StorageError, match="no finished run"):
        write_report(tmp_path, tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def luminance(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)).convert("L"), dtype=float)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [375, 1200])
def test_a_browser_shows_it(page: Browser, report: Path, width: int, dark: bool) -> None:
    page.open(report, width=width, dark=dark)
    pixels = luminance(page.screenshot())
    assert pixels.shape[1] == width
    assert (np.median(pixels) < 60) if dark else (np.median(pixels) > 230)
    assert pixels.std() > 10  # neither blank nor a flat color
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.requests == [report.as_uri()]
    assert page.complaints == []


def test_no_column_is_cut_off_on_a_laptop(page: Browser, toy_folder: Path, tmp_path: Path) -> None:
    """Also of a protocol with many sessions, whose classes are numbers."""
    features = str(toy_folder / "cub200.safetensors")
    draws = [get_protocol("cub200/small").replace(shot_seed=seed) for seed in (0, 1)]
    records = [run_job(Job(draw, name, features)) for name in ("ncm", "unbiased-lda") for draw in draws]
    numbered = [replace(r, class_names=tuple(map(str, range(len(r.class_names))))) for r in records]
    (tmp_path / "report.html").write_text(report_page(numbered), encoding="utf-8")
    page.open(tmp_path / "report.html", width=1280)
    tables = "Array.from(document.querySelectorAll('table')).filter(one => one.checkVisibility())"
    assert page.evaluate(f"{tables}.length") >= 3
    assert page.evaluate(f"{tables}.every(one => one.scrollWidth <= one.parentElement.clientWidth)")
    words = page.evaluate("document.body.textContent.replace(/\\s+/g, ' ')")
    assert "95 % interval of A_last" in words
    assert "Not in this table: A_HM after sessions 2, 4, 6 and 8." in words
    assert "class 0" in words


def test_the_browser_would_tell_of_requests_and_errors(page: Browser, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text("<img src='other.png'><script>console.error('one'); missing()</script>")
    page.open(file)
    assert (tmp_path / "other.png").as_uri() in page.requests
    assert any("one" in complaint for complaint in page.complaints)
    assert any("missing is not defined" in complaint for complaint in page.complaints)


def test_a_hostile_name_does_nothing_in_a_browser(page: Browser, bird_records, tmp_path: Path) -> None:
    names = (HOSTILE, "</script><script>hurt()</script>", "\u202egnp.txt\u2067", "w" * 200)
    evil = [replace(record, class_names=(*names, *record.class_names[4:])) for record in bird_records]
    file = tmp_path / "evil.html"
    file.write_text(report_page(evil), encoding="utf-8", errors="backslashreplace")
    page.open(file)
    assert page.requests == [file.as_uri()]
    assert page.complaints == []
    said = page.evaluate("document.body.innerText")
    assert "\\u202egnp.txt\\u2067" in said
    assert not {"\u202e", "\u2067"} & set(said)
    assert "w" * 200 in said


def test_an_onnx_file_of_hostile_names_does_nothing_in_a_browser(page: Browser, tmp_path: Path) -> None:
    """Neither the JSON file nor the same text inside a script; the graph is not shown."""
    pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
    names = ["</script><script>hurt()</script>", "<img src=x onerror=hurt()>", "<!--<script>", "\u200fw" * 100]
    with Recognizer.create(tmp_path / "model", views=1) as model:
        for seed, name in enumerate(names):
            model.learn_features(name, np.random.default_rng(seed).normal(size=(3, model.snapshot.contents.width)))
        _, sidecar, _ = export_onnx(model, tmp_path / "evil.onnx")
    file = tmp_path / "page.html"
    text = sidecar.read_text(encoding="utf-8")
    file.write_text(f"<meta charset=utf-8><script>var said = {text}</script>", encoding="utf-8")
    for path in (sidecar, file):
        before = len(page.requests), len(page.complaints)
        page.open(path)
        assert page.requests[before[0] :] == [path.as_uri()]
        assert page.complaints[before[1] :] == []
    assert page.evaluate("said.classes") == sorted(names)


def test_classes_are_sorted_with_the_keyboard(page: Browser, report: Path) -> None:
    page.open(report)
    column = "[...document.querySelectorAll('#classes-1 tbody tr')].map(r => Number(r.cells[2].dataset.value))"
    state = "document.querySelectorAll('#classes-1 thead th')[2].getAttribute('aria-sort')"
    before = page.evaluate(column)
    assert page.evaluate(state) is None
    page.evaluate("document.querySelectorAll('#classes-1 thead button')[1].focus()")
    page.press("Tab", TAB)
    page.press("Enter", ENTER)
    assert page.evaluate(state) == "ascending"
    assert page.evaluate(column) == sorted(before)
    page.press("Enter", ENTER)
    assert page.evaluate(state) == "descending"
    assert page.evaluate(column) == sorted(before, reverse=True)
    assert page.complaints == []


def test_classes_are_filtered(page: Browser, report: Path, bird_records: list[RunRecord]) -> None:
    page.open(report)
    page.evaluate(
        "field = document.querySelector('input'); field.value = 'ALBATROSS';"
        "field.dispatchEvent(new Event('input'))"
    )
    visible = page.evaluate("[...document.querySelectorAll('#classes-1 tbody tr')].filter(r => !r.hidden).length")
    assert visible == sum("albatross" in name.lower() for name in bird_records[0].class_names) > 0
