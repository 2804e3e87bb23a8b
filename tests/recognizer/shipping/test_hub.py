"""Models on a hub: a stand-in speaks as much of its HTTP API as the hub's own client uses, over real sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hub_stand_in import TOKEN, serving_hub
from models import held, photos, picture

from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.recognizer import Recognizer, from_pretrained, learn_seen, push_to_hub
from fiveshot.recognizer.advice.evaluation import evaluate_features
from fiveshot.recognizer.shipping._hub import Place
from fiveshot.recognizer.store.rows import PhotoRecord
from fiveshot.values import to_json

constants = pytest.importorskip("huggingface_hub.constants", reason="the extra 'hub' is not installed")
yaml = pytest.importorskip("yaml", reason="the extra 'hub' is not installed")

# The hub's client uploads with a call of its HTTP library that the latter deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    with serving_hub(monkeypatch, tmp_path) as handler:
        yield handler


@pytest.fixture
def model(make: Callable[..., Recognizer]) -> Recognizer:
    birds = make("birds")
    for name in ("owl | *", "wren"):
        records = [
            PhotoRecord(f"{number:064x}", features, picture(), None)
            for number, features in enumerate(photos(name), 100 * len(name))
        ]
        learn_seen(birds, name, records)
    return birds


def test_a_model_goes_to_the_hub_and_comes_back(hub: Any, model: Recognizer, tmp_path: Path) -> None:
    assert push_to_hub(model, "me/birds", private=True) == f"{hub.url}/me/birds"
    assert sorted(hub.repositories["me/birds"]) == [".private", "README.md", "model.fiveshot"]
    assert hub.repositories["me/birds"][".private"] == b"yes"
    model.learn_features("kite", photos("kite"))
    push_to_hub(model, "hf://me/birds")  # again, into the repository that is there
    with from_pretrained("me/birds", tmp_path / "mine") as mine:
        mine_held, theirs = held(mine), held(model)
        assert mine_held["classes"] == theirs["classes"]
        assert mine.check() == []
        mine.learn_features("stork", photos("stork"))
        assert "stork" in mine.snapshot.classes


def test_without_a_directory_it_is_read_from_the_cache(hub: Any, model: Recognizer) -> None:
    push_to_hub(model, "me/birds")
    with from_pretrained("me/birds") as first, from_pretrained("me/birds") as second:
        assert first.path == second.path
        assert first.predict_features(photos("wren", 1))[0].label == "wren"
        with pytest.raises(FiveshotError):
            first.learn_features("kite", photos("kite"))
    fetched = [asked for asked in hub.asked if asked.startswith("GET") and "model.fiveshot" in asked]
    assert len(fetched) == 1
    with pytest.raises(InputError, match="cached models are read-only"):
        from_pretrained("me/birds", readonly=False)


def test_small_copies_of_photos_stay_behind_unless_asked_for(hub: Any, model: Recognizer, tmp_path: Path) -> None:
    jpeg = picture()
    push_to_hub(model, "me/birds")
    assert jpeg not in hub.repositories["me/birds"]["model.fiveshot"]
    push_to_hub(model, "me/birds", photos=True)
    assert jpeg in hub.repositories["me/birds"]["model.fiveshot"]
    assert "10 small copies" in hub.repositories["me/birds"]["README.md"].decode()


def test_the_card_says_what_there_is_to_know(hub: Any, model: Recognizer) -> None:
    X = np.concatenate([photos("wren", 4, seed=1), photos("stork", 2)])
    measured = evaluate_features(model.snapshot, X, ["wren"] * 4 + ["stork"] * 2)
    push_to_hub(model, "me/birds", evaluation=measured, title="Birds <b>")
    card = hub.repositories["me/birds"]["README.md"].decode()
    front = yaml.safe_load(card.split("---")[1])
    assert (front["library_name"], front["pipeline_tag"]) == ("fiveshot", "image-classification")
    assert "license" not in front  # whose the classes are, we do not know
    for said in (
        "# Birds &lt;b&gt;", "| owl \\| \\* | 5 |", "| wren | 5 |", "c\\-fecam", 'from_pretrained("me/birds")',
        "4 photos of known classes and 2 of others", f"{100 * measured.accuracy:.1f} %", model.show().rejection,
        "Statistics of photos", "nor small copies", "Intended use and limits",
    ):  # fmt: skip
        assert said in card
    push_to_hub(model, "me/birds", evaluation=to_json(measured))
    assert "4 photos of known classes" in hub.repositories["me/birds"]["README.md"].decode()
    with pytest.raises(InputError):
        push_to_hub(model, "me/birds", evaluation={"accuracy": 1})


def test_the_license_of_a_backbone_is_the_one_it_has() -> None:
    from fiveshot.recognizer.shipping._hub import _license

    assert _license("tiny_vit_5m_224.dist_in22k") == "MIT"
    assert _license("vit_base_patch16_224.augreg_in21k") == "apache\\-2.0"
    assert _license("vit_base_patch14_dinov2.lvd142m") == "apache\\-2.0"
    assert _license("no_such_network") == "see where its weights come from"


def test_a_stranger_s_file_is_refused(hub: Any, model: Recognizer, tmp_path: Path) -> None:
    push_to_hub(model, "me/birds")
    whole = hub.repositories["me/birds"]["model.fiveshot"]
    for content in (b"", b"no model at all", whole[:-100], whole.replace(b"wren", b"wr/n")):
        hub.repositories["me/birds"]["model.fiveshot"] = content
        with pytest.raises(StorageError):
            from_pretrained("me/birds", tmp_path / "mine")
        assert not (tmp_path / "mine").exists()


def test_what_the_hub_refuses_has_a_way_out(hub: Any, model: Recognizer, monkeypatch: pytest.MonkeyPatch) -> None:
    def code_of(call: Callable[[], object]) -> str:
        with pytest.raises(FiveshotError) as caught:
            call()
        assert caught.value.hint
        return caught.value.code

    assert code_of(lambda: from_pretrained("me/nothing")) == "not_found"
    hub.repositories["me/empty"] = {}
    assert code_of(lambda: from_pretrained("me/empty")) == "not_found"
    assert code_of(lambda: push_to_hub(model, "me/birds", token="hf_of_somebody")) == "not_allowed"
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert code_of(lambda: push_to_hub(model, "me/birds")) == "no_connection"


@pytest.mark.parametrize(
    "wrong", ["birds", "a/b/c", "me/..", "me/bi rds", "hf://", "file://elsewhere/srv", "me/a--b"]
)
def test_what_is_no_place_is_refused(wrong: str) -> None:
    with pytest.raises(InputError):
        Place.of(wrong)


def test_a_folder_is_as_good_as_a_hub(model: Recognizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    for number, place in enumerate((tmp_path / "a b", (tmp_path / "c d").as_uri(), "./me/birds")):
        folder = push_to_hub(model, place)
        assert sorted(file.name for file in Path(folder).iterdir()) == ["README.md", "model.fiveshot"]
        with from_pretrained(place, tmp_path / f"copy {number}") as copy:
            assert held(copy)["classes"] == held(model)["classes"]
    with from_pretrained("me/birds") as local:  # the folder that is there goes before the hub
        assert local.snapshot.classes == model.snapshot.classes
    with pytest.raises(StorageError) as caught:
        from_pretrained(tmp_path / "nothing")
    assert caught.value.code == "not_found"


def test_a_model_without_classes_is_not_published(make: Callable[..., Recognizer], tmp_path: Path) -> None:
    with pytest.raises(FiveshotError) as caught:
        push_to_hub(make("empty"), tmp_path / "place")
    assert (caught.value.code, (tmp_path / "place").exists()) == ("no_classes", False)


def test_on_the_command_line(hub: Any, tmp_path: Path) -> None:
    with Recognizer.create(tmp_path / "birds") as birds:
        birds.learn_features("wren", photos("wren", width=320))
    environment = os.environ | {
        "HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": TOKEN,
    }  # fmt: skip
    (tmp_path / "found.json").write_text(json.dumps({"result": {"accuracy": 1}}))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "fiveshot", *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    done = run("export", "birds", "hf://me/birds", "--private", "--title", "Garden")
    assert (done.returncode, done.stdout) == (0, f"birds: published at {hub.url}/me/birds\n"), done.stderr
    assert "# Garden" in hub.repositories["me/birds"]["README.md"].decode()
    done = run("import", "hf://me/birds", "copy", "--json")
    assert [one["name"] for one in json.loads(done.stdout)["result"]["classes"]] == ["wren"]
    done = run("export", "birds", "hf://me/birds", "--evaluation", "found.json")
    assert (done.returncode, "not results of an evaluation" in done.stderr) == (1, True)
