from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import WIDTH, held, new_model, photos, picture, with_place
from safetensors import safe_open
from safetensors.numpy import save_file

from fiveshot.backbones import Preprocessing
from fiveshot.backbones import _adapter as adapter_file
from fiveshot.backbones._adapter import adapter_shapes
from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer, check_model, import_file, thumbnails
from fiveshot.recognizer.recognition.snapshot import head_record
from fiveshot.recognizer.store.folder import create_model
from fiveshot.recognizer.store.manifest import BackboneRecord, Manifest, Options
from fiveshot.storage import write_tensors

NAMES = ("ani", "owl")
NOBODY = 65534
Edit = Callable[[dict[str, np.ndarray], dict[str, Any]], None]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with new_model(tmp_path / "origin", base=NAMES, options=Options(keep_photos=True)) as model:
        large = [bytes([number]) * 50 for number in range(5)]
        digests = [sha256(data).hexdigest() for data in large]
        small = [picture(), None, picture(), None, picture()]
        model.learn_features("wren", photos("wren"), sha256s=digests, thumbnails=small, originals=large)
        model.learn_features("🦉/x", photos("🦉/x", 3))
        model.learn_features("owl", photos("owl", 2, seed=1), add=True)
        return model.export(tmp_path / "model.fiveshot", photos=True)


def test_a_model_survives_the_journey(exported: Path, tmp_path: Path, reopen: Callable[..., Recognizer]) -> None:
    origin = reopen(tmp_path / "origin")
    X = np.concatenate([photos(name, 4, seed=5) for name in ("ani", "owl", "wren", "🦉/x")])
    with import_file(exported, tmp_path / "there") as there:
        assert held(there)["classes"] == held(origin)["classes"]
        assert there.predict_features(X) == origin.predict_features(X)
        assert thumbnails(there, "wren") == thumbnails(origin, "wren")
        assert there.check() == []
        assert [entry.action for entry in there.history()] == ["import"]
        again = there.export(tmp_path / "again", photos=True)
    assert again.read_bytes() == exported.read_bytes()


def test_kept_photos_stay_at_home_unless_asked_for(
    exported: Path, tmp_path: Path, reopen: Callable[..., Recognizer]
) -> None:
    origin = reopen(tmp_path / "origin")
    light = origin.export(tmp_path / "light")
    assert b"\x03" * 50 in exported.read_bytes()
    assert b"\x03" * 50 not in light.read_bytes()
    with import_file(light, tmp_path / "there") as there:
        assert held(there)["classes"] == held(origin)["classes"]


def copies_kept(path: Path) -> tuple[list[bytes], list[str]]:
    """Make a model that keeps copies of what it was taught, as the service does; return them and the digests."""
    with new_model(path, options=Options(keep_photos=True)) as model:
        copies = [picture(40 + number) for number in range(5)]
        given = [sha256(b"as it came" + data).hexdigest() for data in copies]
        model.learn_features("wren", photos("wren"), sha256s=given, originals=copies)
        model.export(path.parent / "copies", photos=True)
    return copies, given


def originals_in(model: Recognizer) -> list[bytes]:
    with model.live.folder.reading() as connection:
        return [data for (data,) in connection.execute("SELECT original FROM images ORDER BY photo_id")]


def test_a_kept_copy_need_not_be_the_file_that_was_given(tmp_path: Path) -> None:
    copies, given = copies_kept(tmp_path / "origin")
    with import_file(tmp_path / "copies", tmp_path / "there") as there:
        assert originals_in(there) == copies
        assert [photo.sha256 for photo in there.photos("wren")] == given
        assert there.check() == []
        assert there.export(tmp_path / "again", photos=True).read_bytes() == (tmp_path / "copies").read_bytes()


def test_the_same_model_gives_the_same_bytes(
    exported: Path, tmp_path: Path, reopen: Callable[..., Recognizer]
) -> None:
    twice = reopen(tmp_path / "origin", readonly=True).export(tmp_path / "twice", photos=True)
    assert twice.read_bytes() == exported.read_bytes()


def test_no_history_and_no_weights_path_travel(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    model = make()
    model.learn_features("secret", photos("secret"))
    model.forget("secret")
    model.learn_features("wren", photos("wren"))
    data = model.export(tmp_path / "file").read_bytes()
    assert b"secret" not in data
    assert photos("secret")[0].tobytes() not in data


def rewritten(exported: Path, target: Path, edit: Edit) -> Path:
    """Return the file with its tensors and its metadata changed by somebody who means harm, and seals it again."""
    with safe_open(exported, "np") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        header = json.loads(file.metadata()["fiveshot"])
    edit(tensors, header["meta"])
    write_tensors(target, tensors, **header, seal=True)
    return target


def manifest(old: str, new: str) -> Edit:
    def edit(_: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        assert old in meta["manifest"]
        meta["manifest"] = meta["manifest"].replace(old, new)

    return edit


def entry(key: str, position: int, value: Any) -> Edit:
    def edit(_: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        meta[key][position] = value

    return edit


def tensor(key: str, change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    def edit(tensors: dict[str, np.ndarray], _: dict[str, Any]) -> None:
        tensors[key] = change(tensors[key])

    return edit


def with_value(index: Any, value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        values[index] = value
        return values

    return change


def thumbnail(data: bytes) -> Edit:
    """Put another picture in the place of the first."""

    def edit(tensors: dict[str, np.ndarray], _: dict[str, Any]) -> None:
        lengths, content = tensors["thumbnail.lengths"].copy(), tensors["thumbnail.bytes"].tobytes()
        first = int(np.flatnonzero(lengths)[0])
        rest, lengths[first] = content[lengths[first] :], len(data)
        tensors["thumbnail.lengths"] = lengths
        tensors["thumbnail.bytes"] = np.frombuffer(data + rest, np.uint8)

    return edit


def prepared(**changed: Any) -> Edit:
    values = Preprocessing(size=8, resize=9).to_json() | changed
    return manifest('preprocessing = "{}"', f"preprocessing = {json.dumps(json.dumps(values))}")


def rejection(**changed: Any) -> Edit:
    def edit(_: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        (line,) = [line for line in meta["manifest"].splitlines() if line.startswith("rejection = ")]
        values = json.loads(json.loads(line.removeprefix("rejection = "))) | changed
        meta["manifest"] = meta["manifest"].replace(line, f"rejection = {json.dumps(json.dumps(values))}")

    return edit


ATTACKS: dict[str, Edit] = {
    "a thumbnail with a place": thumbnail(with_place()),
    "a thumbnail with a comment": thumbnail(picture(comment="by me")),
    "a thumbnail with a profile": thumbnail(picture(icc_profile=b"p" * 99)),
    "a thumbnail with bytes behind it": thumbnail(picture() + b"more"),
    "a thumbnail of 129 pixels": thumbnail(picture(129)),
    "a thumbnail in WebP": thumbnail(picture(kind="WEBP")),
    "a thumbnail in progressive JPEG": thumbnail(picture(progressive=True)),
    "a backbone's name of a megabyte": manifest('name = "none"', f'name = "{"x" * 1_000_000}"'),
    "a backbone's name that is a path": manifest('name = "none"', 'name = "../../weights"'),
    "a backbone's name from a hub": manifest('name = "none"', 'name = "hf-hub:somebody/something"'),
    "a backbone without a name": manifest('name = "none"', 'name = ""'),
    "a value that no backbone has": manifest("[backbone]", '[backbone]\nruntime = "evil"'),
    "an unknown readout": manifest('tokens = "own"', 'tokens = "evil"'),
    "no last block": manifest("last_blocks = 1", "last_blocks = 0"),
    "more blocks than numbers": manifest(
        'tokens = "own"\nlast_blocks = 1', 'tokens = "cls"\nlast_blocks = 1000000000'
    ),
    "an invalid fingerprint": manifest('fingerprint = "aaaa', 'fingerprint = "zzzz'),
    "a fingerprint of a megabyte": manifest('fingerprint = "', f'fingerprint = "{"a" * 1_000_000}'),
    "no fingerprint": manifest(f'fingerprint = "{"a" * 64}"', 'fingerprint = ""'),
    "an invalid hash of weights": manifest('weights_hash = ""', 'weights_hash = "../../x"'),
    "an invalid origin": manifest('origin = "', 'origin = "x'),
    "an unknown entry of the backbone": manifest("[head]", 'run = "rm -rf /"\n[head]'),
    "a release that breaks a terminal": manifest('made_with = "fiveshot', 'made_with = "\\u001b[2Jfiveshot'),
    "a release of a megabyte": manifest('made_with = "', f'made_with = "{"x" * 1_000_000}'),
    "a manifest of 5 MB": manifest("# A fiveshot model.", "#" * 5_000_000),
    "images of half a pixel": prepared(size=7.5),
    "images squeezed to nothing": prepared(squash=0),
    "a mean of two numbers": prepared(mean=[0.5, 0.5]),
    "a mean that is no number": prepared(mean=["0.5", 0.5, 0.5]),
    "a mean that is NaN": prepared(mean=[float("nan"), 0.5, 0.5]),
    "a division by zero": prepared(std=[0.0, 0.5, 0.5]),
    "a crop of more than everything": prepared(train_scale=[0.5, 2.0]),
    "a preprocessing's name of a megabyte": prepared(name="x" * 1_000_000),
    "a preprocessing's name that is no text": prepared(name=7),
    "half a preprocessing": manifest('preprocessing = "{}"', 'preprocessing = "{\\"size\\": 8, \\"resize\\": 9}"'),
    "an unknown key of the rejection": rejection(run="rm -rf /"),
    "a note that breaks a terminal": rejection(note="\x1b[2J"),
    "a note that is no text": rejection(note=7),
    "a note of a megabyte": rejection(note="x" * 1_000_000),
    "a threshold that is NaN": rejection(counts=[1], thresholds=[float("nan")], table=[]),
    "half a count": rejection(counts=[1.5], thresholds=[0.5], table=[]),
    "an impossible rate of a table": rejection(counts=[1], thresholds=[0.5], table=[[2.0, [0.5]]]),
    "dates as a mapping": lambda tensors, meta: meta.update(created=dict.fromkeys(meta["created"], 1)),
    "a date without a time": entry("created", 0, "2026-01-01"),
    "a date without a zone": entry("created", 0, "2026-01-01T00:00:00.000"),
    "a date in another zone": entry("photos", 0, ["0" * 64, "2026-01-01T00:00:00.000+01:00"]),
    "a name that leads elsewhere": entry("names", 0, "../../etc/passwd"),
    "unchanged tensors, other name": entry("names", 1, "../../etc/passwd\n"),
    "a name twice": entry("names", 1, "owl"),
    "a name out of order": entry("names", 1, "aaa"),
    "a name that is no text": entry("names", 1, 7),
    "a name of 10,000 characters": entry("names", 1, "x" * 10_000),
    "a name that is not normal": entry("names", 1, " wren"),
    "an unknown base class": entry("names", 0, "oww"),
    "a mark that is no truth value": entry("base", 0, 1),
    "an invalid digest": entry("photos", 0, ["../x", "2026-01-01T00:00:00+00:00"]),
    "an invalid date": entry("photos", 0, ["0" * 64, "yesterday"]),
    "a date of a megabyte": entry("created", 0, "2" * 1_000_000),
    "a photo entry of three": entry("photos", 0, ["0" * 64, "2026-01-01", "x"]),
    "one name less": lambda tensors, meta: meta["names"].pop(),
    "one photo less": lambda tensors, meta: meta["photos"].pop(),
    "an unknown entry": lambda tensors, meta: meta.update(run="rm -rf /"),
    "a missing entry": lambda tensors, meta: meta.pop("created"),
    "no list of names": lambda tensors, meta: meta.update(names="owl"),
    "an unknown tensor": lambda tensors, meta: tensors.update(more=np.zeros(1, np.float32)),
    "a missing tensor": lambda tensors, meta: tensors.pop("features"),
    "no base file": lambda tensors, meta: tensors.pop("file.base"),
    "a damaged base file": tensor("file.base", with_value(-1, 77)),
    "an adapter nobody names": lambda tensors, meta: tensors.update({"file.adapter": np.zeros(9, np.uint8)}),
    "half precision": tensor("features", lambda values: values.astype(np.float16)),
    "another width": tensor("means", lambda values: np.ascontiguousarray(values[:, :-1])),
    "NaN": tensor("means", with_value((0, 0), float("nan"))),
    "infinity": tensor("factors", with_value((0, 0), float("inf"))),
    "a mean that is not the photos'": tensor("means", lambda values: values + 1),
    "a factor that is not the photos'": tensor("factors", lambda values: values * 2),
    "a count of zero": tensor("counts", with_value(0, 0)),
    "a negative count": tensor("counts", with_value(0, -2)),
    "an enormous count": tensor("counts", with_value(0, 2**62)),
    "a negative rank": tensor("ranks", with_value(0, -1)),
    "an enormous rank": tensor("ranks", with_value(0, 2**40)),
    "a negative length": tensor("thumbnail.lengths", with_value(0, -5)),
    "an enormous length": tensor("thumbnail.lengths", with_value(0, 2**60)),
    "a thumbnail that is a script": tensor(
        "thumbnail.bytes",
        lambda values: np.frombuffer(b"<script>" + bytes(len(values) - 8), np.uint8),
    ),
    "an original that is another one": tensor("original.bytes", with_value(3, 99)),
    "an original of another digest": tensor("original.sha256", with_value((3, 3), 99)),
    "no digests": lambda tensors, meta: tensors.pop("original.sha256"),
    "digests that are too short": tensor("original.sha256", lambda values: np.ascontiguousarray(values[:, :-1])),
    "one digest less": tensor("original.sha256", lambda values: values[:-1]),
    "an original that is another one, and no digests": lambda tensors, meta: (
        tensor("original.bytes", with_value(3, 99))(tensors, meta),
        tensors.pop("original.sha256"),
    ),
    "digests without originals": lambda tensors, meta: [
        tensors.pop(f"original.{part}") for part in ("bytes", "lengths")
    ],
    "a manifest that is no text": lambda tensors, meta: meta.update(manifest=[1]),
    "a manifest of a newer format": manifest("format = 1", "format = 2"),
    "a base file elsewhere": manifest('file = "base-', 'file = "../base-'),
    "a base file of another name": manifest('file = "base-', 'file = "model-'),
    "another head's parameters": manifest("temperature", "temperatur"),
    "an unknown head": manifest('[head]\nname = "', '[head]\nname = "x'),
    "settings the head does not take": manifest('settings = "{', 'settings = "{\\"run\\": 1, '),
    "features of no width": manifest(f"width = {WIDTH}", "width = 0"),
    "features of enormous width": manifest(f"width = {WIDTH}", "width = 1000000000000"),
    "enormous images": manifest('preprocessing = "{}"', 'preprocessing = "{\\"size\\": 9, \\"resize\\": 99999}"'),
    "unknown preprocessing": manifest('preprocessing = "{}"', 'preprocessing = "{\\"exec\\": 9}"'),
    "an impossible rate": manifest("false_rejection = 0.05", "false_rejection = 5.0"),
    "an invalid rejection": manifest('rejection = "{\\"counts', 'rejection = "{\\"count'),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_made_up_is_taken_in(exported: Path, tmp_path: Path, attack: str) -> None:
    bad = rewritten(exported, tmp_path / "bad", ATTACKS[attack])
    with pytest.raises(StorageError, match="refused to import"):
        import_file(bad, tmp_path / "there")
    assert {path.name for path in tmp_path.iterdir()} == {"origin", "model.fiveshot", "bad"}


@pytest.fixture(params=["base", "empty"])
def tied(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A model of the default head, which has settings, with classes or after it has forgotten them all."""
    with new_model(tmp_path / "origin", base=NAMES, head="unbiased-lda") as model:
        if request.param == "empty":
            for name in NAMES:
                model.forget(name, for_good=True)
        return model.export(tmp_path / "model.fiveshot")


def head_settings(**changed: Any) -> Edit:
    def edit(_: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        lines = meta["manifest"].splitlines()
        (place,) = [i for i, line in enumerate(lines) if line.startswith("settings = ")]
        settings = json.loads(json.loads(lines[place].removeprefix("settings = ")))
        choice = settings["choice"] | changed.pop("choice", {})
        forged = json.dumps(settings | {"choice": choice} | changed)
        meta["manifest"] = "\n".join([*lines[:place], f"settings = {json.dumps(forged)}", *lines[place + 1 :]])

    return edit


SETTINGS: dict[str, dict[str, Any]] = {
    "a center of one number": {"center": [0.5]},
    "a center of 5,000 numbers": {"center": [0.5] * 5000},
    "a center of 5,000 numbers and as many projections as features may have": {
        "center": [0.5] * 5000,
        "n_random": 1 << 14,
    },
    "a center that is no list": {"center": 0.5},
    "a center of texts": {"center": ["0.5"] * WIDTH},
    "a center with NaN": {"center": [float("nan")] * WIDTH},
    "a center with infinity": {"center": [1e400] * WIDTH},
    "a center beyond 32 bits": {"center": [1e300] * WIDTH},
    "another number of projections": {"n_random": 999},
    "a truth value for projections": {"n_random": True},
    "a negative number of projections": {"n_random": -1},
    "an invalid seed": {"seed": "0"},
    "an offset that is a text": {"choice": {"offset": "a"}},
    "an offset that is NaN": {"choice": {"offset": float("nan")}},
    "a negative sharpness": {"choice": {"sharpness": -1.0}},
    "an infinite sharpness": {"choice": {"sharpness": float("inf")}},
    "a sharpness that no score survives": {"choice": {"sharpness": 1e300}},
    "a spread that is a list": {"choice": {"offset_spread": []}},
    "half an episode": {"choice": {"episodes": 0.5}},
    "an unknown choice": {"choice": {"run": 1}},
    "an unknown setting": {"run": 1},
}


@pytest.mark.parametrize("attack", SETTINGS)
def test_no_made_up_settings_are_taken_in(tied: Path, tmp_path: Path, attack: str) -> None:
    bad = rewritten(tied, tmp_path / "bad", head_settings(**SETTINGS[attack]))
    with pytest.raises(StorageError, match="refused to import"):
        import_file(bad, tmp_path / "there")
    assert {path.name for path in tmp_path.iterdir()} == {"origin", "model.fiveshot", "bad"}


def test_untouched_settings_are_taken_in(tied: Path, tmp_path: Path) -> None:
    same = rewritten(tied, tmp_path / "same", head_settings())
    with import_file(same, tmp_path / "there") as there:
        there.learn_features("wren", photos("wren"))
        assert there.predict_features(photos("wren", 1))[0].candidates[0].label == "wren"


PEAK = """
import sys
from pathlib import Path
from fiveshot.errors import StorageError
from fiveshot.recognizer import Recognizer, import_file, thumbnails
from fiveshot.recognizer import import_file, thumbnails

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024

good, bad, folder = sys.argv[1:]
import_file(good, f"{folder}/good").close()
before = peak()
try:
    import_file(bad, f"{folder}/bad")
except StorageError as error:
    print(peak() - before, "refused to import" in str(error))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux's /proc")
def test_settings_ask_for_no_memory_before_they_are_checked(tmp_path: Path) -> None:
    """A center of 300,000 numbers in a file of a megabyte would ask for 1.2 GB of random features."""
    with new_model(tmp_path / "origin", head="unbiased-lda", base=NAMES) as model:
        file = model.export(tmp_path / "model.fiveshot")
    bad = rewritten(file, tmp_path / "bad", head_settings(center=[0.5] * 300_000, n_random=1000))
    (tmp_path / "made").mkdir()
    command = [sys.executable, "-c", PEAK, str(file), str(bad), str(tmp_path / "made")]
    grown, refused = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert (int(grown) < 200 * 1024**2, refused) == (True, "True")


def test_an_untouched_copy_is_taken_in(exported: Path, tmp_path: Path) -> None:
    """Otherwise the refusals above would show nothing."""
    same = rewritten(exported, tmp_path / "same", lambda tensors, meta: None)
    import_file(same, tmp_path / "there").close()


def test_changes_that_are_allowed_are_taken_in(exported: Path, tmp_path: Path) -> None:
    """The same ways of changing a file: otherwise the refusals above might be of the way, not of what it does."""
    for number, edit in enumerate(
        (
            thumbnail(picture(128)),
            prepared(),
            prepared(squash=9, views=2),
            rejection(),
            rejection(note="another"),
            manifest('name = "none"', 'name = "vit_base_patch16_224.augreg_in21k"'),
            entry("photos", 0, ["0" * 64, "2026-01-01T00:00:00.000+00:00"]),
        )
    ):
        allowed = rewritten(exported, tmp_path / "allowed", edit)
        with import_file(allowed, tmp_path / f"there-{number}") as there:
            assert there.check() == []


def adapted(folder: Path, **changed: Any) -> Path:
    """Export a model that has an adapter with some of its metadata changed."""
    known = {"backbone": "none", "weights_hash": "b" * 64, "bottleneck": 2, "scale": 0.1, "dropout": 0.0}
    tensors = {name: np.zeros(shape, np.float32) for name, shape in adapter_shapes({"blocks.0": 4}, 2).items()}
    file = folder / "adapter.safetensors"
    write_tensors(file, tensors, kind=adapter_file.KIND, version=adapter_file.VERSION, meta=known | changed)
    backbone = BackboneRecord("none", WIDTH, "a" * 64, weights_hash="b" * 64)
    create_model(folder / "adapted", Manifest(backbone, head_record("c-fecam")), adapter=file)
    with Recognizer.open(folder / "adapted") as model:
        return model.export(folder / "adapted.fiveshot")


def test_an_adapter_travels(tmp_path: Path) -> None:
    with import_file(adapted(tmp_path), tmp_path / "there") as there:
        (adapter,) = there.path.glob("adapter-*")
        assert adapter.read_bytes() == (tmp_path / "adapter.safetensors").read_bytes()
        assert there.check() == []


@pytest.mark.parametrize(
    "changed",
    [{"weights_hash": "c" * 64}, {"scale": "x"}, {"dropout": True}, {"bottleneck": 3}, {"run": "rm -rf /"}],
    ids=lambda changed: next(iter(changed)),
)
def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(StorageError, match="refused to import"):
        import_file(adapted(tmp_path, **changed), tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_path_of_weights_is_not_believed(exported: Path, tmp_path: Path) -> None:
    bad = rewritten(exported, tmp_path / "bad", manifest('weights = ""', 'weights = "/etc/passwd"'))
    with import_file(bad, tmp_path / "there") as model:
        assert model.snapshot.manifest.backbone.weights == ""


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_truncated_file(exported: Path, tmp_path: Path, share: float) -> None:
    data = exported.read_bytes()
    (tmp_path / "cut").write_bytes(data[: int(share * len(data))])
    with pytest.raises(StorageError, match="truncated"):
        import_file(tmp_path / "cut", tmp_path / "there")


def test_no_flipped_bit_is_taken_in(exported: Path, tmp_path: Path) -> None:
    data = exported.read_bytes()
    rng = np.random.default_rng(0)
    for position in [*range(120), *rng.integers(120, len(data), 200).tolist()]:
        damaged = bytearray(data)
        damaged[position] ^= 1 << int(rng.integers(8))
        (tmp_path / "damaged").write_bytes(damaged)
        with pytest.raises(StorageError, match=r"damaged|truncated|another program"):
            import_file(tmp_path / "damaged", tmp_path / "there")
        assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("more", [b"\0", b"{}", b"\0" * 4096])
def test_appended_bytes_are_refused(exported: Path, tmp_path: Path, more: bytes) -> None:
    (tmp_path / "longer").write_bytes(exported.read_bytes() + more)
    with pytest.raises(StorageError, match="damaged or truncated"):
        import_file(tmp_path / "longer", tmp_path / "there")


def test_a_damaged_file_is_not_merged(exported: Path, tmp_path: Path, make: Callable[..., Recognizer]) -> None:
    data = bytearray(exported.read_bytes())
    data[-1] ^= 1
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(StorageError, match="damaged or truncated"):
        make().merge(tmp_path / "damaged")


def test_other_files(exported: Path, tmp_path: Path) -> None:
    origin = tmp_path / "origin"
    for file, said in (
        (next(origin.glob("base-*")), "is a fiveshot recognizer base file, not a recognizer file"),
        (origin / "classes.sqlite", "classes.sqlite is not an export of fiveshot, or .*; give a file that .*"),
        (tmp_path / "nothing", "no such file"),
    ):
        with pytest.raises(StorageError, match=said):
            import_file(file, tmp_path / "there")
    with pytest.raises(StorageError, match="exists already"):
        import_file(exported, origin)


def test_a_newer_file_says_how_to_upgrade(exported: Path, tmp_path: Path) -> None:
    with safe_open(exported, "np") as file:
        header = json.loads(file.metadata()["fiveshot"])
    header["version"] = 9
    save_file({"x": np.zeros(1, np.float32)}, tmp_path / "newer", metadata={"fiveshot": json.dumps(header)})
    with pytest.raises(StorageError, match="pip install --upgrade fiveshot"):
        import_file(tmp_path / "newer", tmp_path / "there")


def test_an_empty_model_travels_too(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    file = make().export(tmp_path / "file")
    with import_file(file, tmp_path / "there") as there:
        assert there.snapshot.classes == ()
        there.learn_features("wren", photos("wren"))


def test_an_import_that_the_disk_does_not_confirm_is_there(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def fails_on_the_folder(descriptor: int) -> None:
        if os.path.samestat(os.fstat(descriptor), tmp_path.stat()):
            raise OSError(5, "Input/output error")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fails_on_the_folder)
    with pytest.raises(StorageError, match=rf"^{tmp_path / 'there'} is in place, but the disk did not confirm it"):
        import_file(exported, tmp_path / "there")
    assert check_model(tmp_path / "there") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, and only root can become one")
def test_a_file_that_may_not_be_read(exported: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        file = Path(shutil.move(exported, Path(folder) / "model.fiveshot"))
        file.chmod(0o600)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(StorageError, match=r"cannot import .*\.fiveshot: Permission denied; nothing was"):
                import_file(file, Path(folder) / "there")
        finally:
            os.seteuid(0)
        assert list(Path(folder).iterdir()) == [file]


def test_a_full_disk_for_temporary_files_is_told(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageError, match=r"cannot import .*fiveshot: No such file or dir.*; nothing was left"):
        import_file(exported, tmp_path / "there")
    assert not (tmp_path / "there").exists()
