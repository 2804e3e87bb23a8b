"""The page that an export writes, in a real browser: it answers as the model does, also with the network cut."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from chromium import PROGRAM, Watched, chromium, with_camera
from local_server import listening
from PIL import Image
from tiny_vit import TINY

from fiveshot.errors import InputError, StorageError
from fiveshot.recognizer import Recognizer, export_web
from fiveshot.recognizer.shipping._web import BESIDE, HEADERS, POLICY, pack_weights
from fiveshot.values import Prediction

pytest.importorskip("torch", reason="the extra 'torch' is not installed")
onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

CUB = Path(__file__).parents[4] / "shared" / "data" / "cub200" / "test.tar"
LIMIT = 25_000_000  # bytes that a browser loads the first time
CLOSE = 0.02
WAIT = 60_000  # milliseconds
needs_browser = pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed")


def drawing(kind: int, number: int, size: tuple[int, int] = (320, 240)) -> Image.Image:
    """Return a pattern of one kind: stripes of some width and color, shifted, with noise."""
    rng = np.random.default_rng([kind, number])
    across, down = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    wave = np.sin((across * np.cos(kind) + down * np.sin(kind)) / (4 + 3 * kind) + rng.uniform(0, 6))
    color = np.random.default_rng(kind).uniform(0.2, 1, 3)
    pixels = 128 + 100 * wave[..., None] * color + rng.normal(0, 12, (size[1], size[0], 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def encoded(image: Image.Image, kind: str, **given: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **given)
    return buffer.getvalue()


@cache
def odd_photos() -> dict[str, bytes]:
    """Return photos of all kinds that a browser has to see as the Python code does."""
    exif = Image.Exif()
    exif[274] = 6  # lies on its side
    clear = drawing(1, 70).convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size))
    return {
        "plain.jpg": encoded(drawing(0, 60), "JPEG", quality=92),
        "sideways.jpg": encoded(drawing(1, 61), "JPEG", quality=92, exif=exif),
        "long.png": encoded(drawing(2, 62, (900, 130)), "PNG"),
        "large.jpg": encoded(drawing(0, 63, (2400, 1801)), "JPEG", quality=85),
        "small.webp": encoded(drawing(2, 64, (90, 60)), "WEBP", lossless=True),
        "clear.png": encoded(clear, "PNG"),
        "gray.png": encoded(drawing(1, 65).convert("L"), "PNG"),
        "other.png": encoded(Image.effect_mandelbrot((300, 300), (-2, -1.5, 1, 1.5), 100).convert("RGB"), "PNG"),
    }


@pytest.fixture(scope="module")
def birds() -> dict[str, list[bytes]]:
    """Three real photos of each of two birds; empty if the photos are missing."""
    if not CUB.is_file():
        return {}
    with tarfile.open(CUB) as archive:
        found: dict[str, list[Any]] = {}
        for member in filter(tarfile.TarInfo.isfile, archive):
            found.setdefault(Path(member.name).parent.name, []).append(member)
        return {
            name: [archive.extractfile(member).read() for member in found[name][:3]]
            for name in sorted(found)[::100]
        }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, birds: dict[str, list[bytes]]) -> Iterator[Recognizer]:
    """A model with two views of each photo, as models have unless told otherwise."""
    folder = tmp_path_factory.mktemp("web")
    with Recognizer.create(folder / "stripes", device="cpu") as recognizer:
        learn_stripes(recognizer, folder)
        for name, photos in birds.items():
            paths = [folder / f"{name} {number}.webp" for number in range(2)]
            for path, photo in zip(paths, photos[:2], strict=True):
                path.write_bytes(photo)
            recognizer.learn(name, paths)
        yield recognizer


def learn_stripes(recognizer: Recognizer, folder: Path) -> None:
    """Teach three kinds of stripes, two of them in a group, and some of none of the classes."""
    for kind, name in enumerate(("wide/red <b>", "wide/blue", "narrow")):
        photos = [folder / f"{kind} {number}.png" for number in range(2)]
        for number, photo in enumerate(photos):
            drawing(kind, number).save(photo)
        recognizer.learn(name, photos)
    strange = [folder / f"none {number}.png" for number in range(2)]
    for number, photo in enumerate(strange):
        drawing(9 + number, number).save(photo)
    recognizer.correct(strange, "none of these")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, tiny_file: Path) -> Iterator[Recognizer]:
    """A model of a tiny network and one view, for what the embedded network has nothing to do with."""
    folder = tmp_path_factory.mktemp("small")
    with Recognizer.create(
        folder / "stripes", backbone=TINY, weights=tiny_file, device="cpu", views=1
    ) as recognizer:
        learn_stripes(recognizer, folder)
        yield recognizer


@pytest.fixture(scope="module")
def small_site(small: Recognizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "small"
    export_web(small, folder)
    return folder


@pytest.fixture(scope="module")
def site(model: Recognizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "stripes"
    exported = export_web(model, folder, title="Stripes & <more>")
    loaded = [name for name in exported.files if name not in BESIDE]
    assert exported.size == sum((folder / name).stat().st_size for name in loaded) < LIMIT
    return folder


class _Files(SimpleHTTPRequestHandler):
    policy = ""
    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript"}

    def end_headers(self) -> None:
        if self.policy:
            self.send_header("Content-Security-Policy", self.policy)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def hosted(folder: Path, policy: str = "") -> Iterator[str]:
    """Serve a folder as any host does; with a policy, as one that sends headers."""
    handler = type("Files", (_Files,), {"policy": policy})
    with listening(partial(handler, directory=str(folder))) as address:
        yield f"http://{address}/"


def ask(page: Any, photos: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    """Give photos to the page and return its answers by name."""
    files = [{"name": name, "mimeType": "image/*", "buffer": data} for name, data in photos.items()]
    page.set_input_files("#files", [{**file, "mimeType": "image/png"} for file in files])
    found = {}
    for name in photos:
        said = page.locator(f'li[data-name="{name}"] .said[data-probability]')
        said.wait_for(timeout=WAIT)
        found[name] = said.evaluate("(one) => ({...one.dataset, shown: one.textContent})")
    return found


def agrees(found: dict[str, Any], wanted: Prediction) -> None:
    assert (found["label"] or None) == wanted.label, wanted
    assert (found["unknown"] == "true") == wanted.unknown
    probability = float(found["probability"])
    assert abs(probability - wanted.probability) < CLOSE, wanted
    if wanted.label is not None:
        assert found["shown"].startswith(f"{wanted.label} {in_words(probability)}")


def in_words(probability: float) -> str:
    """A share as the page of ``serve`` shows it."""
    if 0.99 < probability < 1:
        return "over 99 %"
    return "under 1 %" if 0 < probability < 0.01 else f"{math.floor(100 * probability + 0.5)} %"


def predicted(model: Recognizer, photos: dict[str, bytes], folder: Path) -> dict[str, Prediction]:
    for name, data in photos.items():
        (folder / name).write_bytes(data)
    found = model.predict([folder / name for name in photos])
    return dict(zip(photos, found, strict=True))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the odd photos."""
    return tmp_path_factory.mktemp("odd")


@pytest.fixture(scope="module")
def answers(model: Recognizer, odd: Path) -> dict[str, Prediction]:
    """What the model says about the odd photos, which then are in their folder."""
    return predicted(model, odd_photos(), odd)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as started:
        yield started


@dataclass
class Visit:
    """The page of the model in a browser, ready; ``host`` closes what serves it."""

    watched: Watched
    url: str
    host: ExitStack


@pytest.fixture(scope="module")
def visit(browser: Any, site: Path) -> Iterator[Visit]:
    with ExitStack() as host:
        url, watched = host.enter_context(hosted(site)), Watched(browser)
        watched.page.goto(url)
        watched.page.locator("body[data-ready]").wait_for(timeout=WAIT)
        yield Visit(watched, url, host)
        watched.close()


def installable(watched: Watched) -> None:
    session = watched.context.new_cdp_session(watched.page)
    manifest = session.send("Page.getAppManifest")
    assert (manifest["errors"], json.loads(manifest["data"])["name"]) == ([], "Stripes & <more>")
    faults = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
    assert [one["errorId"] for one in faults if one["errorId"] != "in-incognito"] == []


@needs_browser
@pytest.mark.real
@pytest.mark.skipif(not CUB.is_file(), reason="CUB-200 is not on this machine")
def test_birds_are_the_same_in_the_browser(
    visit: Visit, model: Recognizer, birds: dict[str, list[bytes]], tmp_path: Path
) -> None:
    photos = {f"{name}.webp": new for name, (*_, new) in birds.items()}
    wanted = predicted(model, photos, tmp_path)
    for name, found in ask(visit.watched.page, photos).items():
        agrees(found, wanted[name])


@needs_browser
def test_the_page_answers_as_the_model_does_can_be_installed_and_needs_no_network(
    visit: Visit, answers: dict[str, Prediction]
) -> None:
    photos, wanted, watched = odd_photos(), answers, visit.watched
    assert len({one.label for one in wanted.values()}) > 2  # two classes, unknown
    page = watched.page
    for name, found in ask(page, photos).items():
        agrees(found, wanted[name])
    assert page.title() == "Stripes & <more>"
    installable(watched)
    assert all(asked.startswith((visit.url, "blob:")) for asked in watched.requests)
    watched.context.set_offline(True)
    visit.host.close()  # and the server is gone, too
    page.goto(visit.url)
    page.locator("body[data-ready]").wait_for(timeout=WAIT)
    assert "without a network" in page.text_content("#status")
    for name, found in ask(page, dict(list(photos.items())[:1])).items():
        agrees(found, wanted[name])
    assert watched.complaints == []


def test_shares_are_shown_as_the_page_of_the_service_shows_them() -> None:
    pages = files("fiveshot")
    texts = [
        (pages / place).read_text() for place in ("recognizer/shipping/page/page.js", "service/page/elements.js")
    ]
    exported, served = (re.search(r"const percent = .*?\n};", text, re.DOTALL) for text in texts)
    assert exported[0] == served[0]


@needs_browser
def test_a_single_class_has_no_percentage(browser: Any, tiny_file: Path, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(encoded(drawing(0, number), "PNG"))
    given = {"backbone": TINY, "weights": tiny_file, "device": "cpu", "views": 1}
    with Recognizer.create(tmp_path / "model", **given) as alone:
        alone.learn("stripes", [tmp_path / f"{number}.png" for number in range(3)])
        export_web(alone, tmp_path / "site")
    with hosted(tmp_path / "site") as url:
        watched = Watched(browser)
        watched.page.goto(url)
        watched.page.locator("body[data-ready]").wait_for(timeout=WAIT)
        (found,) = ask(watched.page, {"new.png": encoded(drawing(1, 9), "PNG")}).values()
        watched.close()
    assert found["shown"].startswith("stripesNothing can be called unknown yet")


@needs_browser
@pytest.mark.parametrize("name", ["dinov2", "vit"], ids=["cropped", "squeezed"])
def test_a_bundle_answers_the_same_in_the_browser(name: str, browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra 'dev' is not installed")
    from bundles import make_bundles

    bundle = make_bundles(tmp_path / "bundles", name)[name].folder
    photos = {f"{width}.png": encoded(drawing(1, width, (width, 300)), "PNG") for width in (347, 389, 420)}
    with Recognizer.create(tmp_path / "model", backbone=str(bundle)) as model:
        learn_stripes(model, tmp_path)
        export_web(model, tmp_path / "site")
        wanted = predicted(model, photos, tmp_path)
    said = json.loads((tmp_path / "site" / "model.json").read_text())["input"]
    assert said["squash_both_sides_to"] == (224 if name == "vit" else None)
    with hosted(tmp_path / "site") as url:
        watched = Watched(browser)
        watched.page.goto(url)
        watched.page.locator("body[data-ready]").wait_for(timeout=WAIT)
        for photo, found in ask(watched.page, photos).items():
            agrees(found, wanted[photo])
        placed = """async ([view, rounding]) => {
            const { place } = await import("./pixels.js");
            return [347, 389, 420].map((width) => place(view, 224, width, 300, rounding).left);
        }"""
        lefts = watched.page.evaluate(placed, [said["views"][0], said["rounding"]])
        watched.close()
    # transformers scales the short side to this length and begins at the pixel below the exact corner
    short = 256 if name == "dinov2" else 224
    assert lefts == [(short * width // 300 - 224) // 2 for width in (347, 389, 420)]


@needs_browser
def test_the_camera_and_a_phone_under_the_policy_as_a_header(
    browser: Any, small: Recognizer, small_site: Path, tmp_path: Path
) -> None:
    strict = f"{POLICY}; frame-ancestors 'none'"
    assert strict in HEADERS
    photos = {"plain.jpg": odd_photos()["plain.jpg"]}
    wanted = predicted(small, photos, tmp_path)
    with hosted(small_site, strict) as url, with_camera(browser) as whole:
        watched = Watched(whole, viewport={"width": 360, "height": 640}, permissions=["camera"], has_touch=True)
        page = watched.page
        page.goto(url)
        page.locator("body[data-ready]").wait_for(timeout=WAIT)
        agrees(ask(page, photos)["plain.jpg"], wanted["plain.jpg"])  # by one view
        page.click("#start")
        page.locator("#seen[data-probability]").wait_for(timeout=WAIT)
        page.click("#stop")
        assert page.evaluate("document.querySelector('video').srcObject") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("fetch('https://example.org/').then(() => true, () => false)") is False
        assert [said for said in watched.complaints if "example.org" not in said] == []
        watched.close()


def test_the_graph_has_weights_of_eight_bits_and_answers_as_the_model(
    model: Recognizer, site: Path, odd: Path, answers: dict[str, Prediction]
) -> None:
    graph = gzip.decompress((site / "model.onnx.gz").read_bytes())
    stored = onnx.load_model_from_string(graph).graph.initializer
    kinds = (onnx.TensorProto.INT8, onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT)
    bytes_, halves, floats = (sum(np.prod(one.dims) for one in stored if one.data_type == kind) for kind in kinds)
    assert bytes_ > 2_000_000
    assert bytes_ + halves > 100 * floats
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    said = json.loads((site / "model.json").read_text(encoding="utf-8"))
    embedder = model.embedder
    for name, wanted in answers.items():
        if name in ("sideways.jpg", "clear.png"):
            continue  # are prepared by the browser, and looked at there
        pixels = embedder.preprocessing.normalize(embedder.pixels(Image.open(odd / name).convert("RGB")))
        probabilities, familiarity = session.run(["probabilities", "familiarity"], {"images": pixels[None]})
        best = said["classes"][probabilities[0].argmax()]
        assert best == wanted.candidates[0].label
        assert abs(probabilities[0].max() - wanted.candidates[0].probability) < CLOSE
        assert familiarity[0] == pytest.approx(wanted.familiarity, abs=0.1)


def unpacked(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what a graph gives that only shows its own arrays, once these are packed."""
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [helper.make_node("Identity", [name], [f"{name} again"]) for name in arrays]
    outputs = [
        helper.make_tensor_value_info(f"{name} again", floats, array.shape) for name, array in arrays.items()
    ]
    values = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "toy", [], outputs, values)
    toy = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    pack_weights(toy)
    assert toy.ByteSize() < 1.2 * sum(array.size for array in arrays.values()) + 10_000
    session = onnxruntime.InferenceSession(toy.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip(arrays, session.run(None, {}), strict=True))


def test_weights_are_rounded_to_a_step_of_their_row_or_block() -> None:
    rng = np.random.default_rng(0)
    spread = np.logspace(-2, 2, 512)[:, None]
    matrix = (rng.normal(size=(512, 300)) * spread).astype(np.float32)
    kernel = (rng.normal(size=(512, 32, 3, 3)) * spread[..., None, None]).astype(np.float32)
    few = rng.normal(size=(20, 40)).astype(np.float32)
    found = unpacked({"matrix": matrix, "kernel": kernel, "few": few, "bias": few[0]})
    step = np.abs(matrix).max(axis=1, keepdims=True) / 127
    assert (np.abs(found["matrix"] - matrix) <= 0.501 * step + 1e-3 * np.abs(matrix)).all()
    blocks = kernel.reshape(512, -1, 16)
    step = np.abs(blocks).max(axis=2, keepdims=True) / 127
    error = np.abs(found["kernel"].reshape(blocks.shape) - blocks)
    assert (error <= 0.501 * step + 1e-3 * np.abs(blocks)).all()
    assert (found["few"] == few.astype(np.float16)).all()
    assert (found["bias"] == few[0]).all()  # not worth it


def test_a_graph_too_large_for_a_page_is_refused(
    small: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fiveshot.recognizer.shipping._web.MOST_BYTES", 1000)
    with pytest.raises(InputError, match="too much for a web page"):
        export_web(small, tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_a_folder_with_other_files_is_left_alone(model: Recognizer, tmp_path: Path) -> None:
    (tmp_path / "diary.txt").write_text("mine")
    with pytest.raises(StorageError) as caught:
        export_web(model, tmp_path)
    assert caught.value.code == "exists"
    with pytest.raises(InputError, match="lies inside the model"):
        export_web(model, model.path / "site")
    assert [file.name for file in tmp_path.iterdir()] == ["diary.txt"]


def test_an_export_is_replaced_and_what_lies_beside_it_stays(small: Recognizer, small_site: Path) -> None:
    (small_site / "CNAME").write_text("stripes.example")
    before = {file.name: file.read_bytes() for file in small_site.iterdir()}
    export_web(small, small_site)
    assert {file.name: file.read_bytes() for file in small_site.iterdir()} == before  # the same bytes each time
