"""A reader sees what the facade sees, on a connection of its own, and a glance needs no open model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from models import photos, picture

from fiveshot.errors import InputError
from fiveshot.recognizer import (
    LostModelError,
    ModelReader,
    Recognizer,
    is_model,
    keep_photos,
    stored_names,
    stored_state,
    thumbnails,
)


@pytest.fixture
def birds(make: Callable[..., Recognizer]) -> Recognizer:
    model = make()
    model.learn_features("owl", photos("owl", 3), thumbnails=[picture(), None, picture(color="red")])
    model.learn_features("wren", photos("wren", 2))
    return model


@pytest.fixture
def reader(birds: Recognizer) -> Iterator[ModelReader]:
    opened = ModelReader.open(birds.path)
    yield opened
    opened.close()


def test_it_reads_what_the_facade_reads(birds: Recognizer, reader: ModelReader) -> None:
    snapshot = birds.snapshot
    assert reader.photos(snapshot, "owl") == birds.photos("owl")
    assert reader.info(snapshot) == birds.show()
    assert reader.history() == birds.history()
    assert reader.history(1)[0] == reader.next_to_undo()
    small = thumbnails(birds, "owl")
    assert small == [picture(), picture(color="red")]
    assert [reader.thumbnail(snapshot, "owl", number) for number in range(3)] == [*small, None]
    assert reader.count_thumbnails(snapshot, ["owl", "wren"]) == {"owl": 2, "wren": 0}
    assert [reader.picture(number) for number in (1, 2, 3, 99)] == [small[0], None, small[1], None]
    keep_photos(birds, "p2", "outliers")
    assert reader.kept() == {2}
    with pytest.raises(InputError, match="no class 'crow'"):
        reader.photos(snapshot, "crow")
    assert reader.photos(snapshot, "none of these") == []


def test_it_does_not_wait_for_a_change(birds: Recognizer, reader: ModelReader) -> None:
    snapshot = birds.snapshot
    with birds.live.change() as change:
        change.tables.rename_class(1, "barn owl")
        assert [photo.label for photo in reader.photos(snapshot, "owl")] == ["owl"] * 3
        assert reader.history() == ModelReader.open(birds.path).history()
        change.record("rename")
    assert reader.history(1)[0].action == "rename"


def test_a_model_that_is_gone_is_told(birds: Recognizer, reader: ModelReader) -> None:
    reader.require_model()
    shutil.rmtree(birds.path)
    with pytest.raises(LostModelError) as lost:
        reader.require_model()
    assert lost.value.is_gone


def test_a_glance_tells_names_and_state(birds: Recognizer, tmp_path: Path) -> None:
    assert is_model(birds.path)
    assert stored_names(birds.path) == ["owl", "wren"]
    assert stored_state(birds.path) == birds.snapshot.state
    (tmp_path / "empty").mkdir()
    for nothing in (tmp_path / "absent", tmp_path / "empty"):
        assert (is_model(nothing), stored_names(nothing), stored_state(nothing)) == (False, [], None)
    (birds.path / "classes.sqlite").write_bytes(b"damaged")
    assert stored_state(birds.path) is None


def test_a_glance_needs_no_numpy(birds: Recognizer) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom fiveshot.recognizer import stored_names\n"
        "print(stored_names(Path(sys.argv[1])), 'numpy' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program, birds.path], capture_output=True, text=True, check=True)
    assert told.stdout == "['owl', 'wren'] False\n"
