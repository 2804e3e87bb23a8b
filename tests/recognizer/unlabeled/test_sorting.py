"""Photos without labels: groups are those that were drawn, whatever is known besides, and folders may change."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from models import new_model, photos
from PIL import Image
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score as ami

from fiveshot.data import FileSource, Photo
from fiveshot.errors import InputError
from fiveshot.features import embedded_features
from fiveshot.recognizer import Recognizer, learn_sorted, place_sorted, sort_features, sort_photos
from fiveshot.recognizer.answers.folders import put_back
from fiveshot.recognizer.unlabeled import folders
from fiveshot.recognizer.unlabeled.folders import KeptVectors
from fiveshot.recognizer.unlabeled.sorting import group_rows, neighbors
from fiveshot.values import to_json

WIDTH = 48
BIRDS = ("crow", "owl", "swift", "wren", "kite", "heron")


def mixed(names: tuple[str, ...], count: int, *, seed: int = 0) -> np.ndarray:
    return np.concatenate([photos(name, count, width=WIDTH, seed=seed) for name in names])


def sets(groups: object) -> set[frozenset[int]]:
    return {frozenset(group.photos) for group in groups}


def blocks(count: int, size: int, first: int = 0) -> set[frozenset[int]]:
    return {frozenset(range(first + size * n, first + size * (n + 1))) for n in range(count)}


def test_a_first_folder_is_grouped_without_being_told_how_many(tmp_path: Path) -> None:
    with new_model(tmp_path / "model", head="unbiased-lda", width=WIDTH) as model:
        found = sort_features(model, mixed(BIRDS, 7))
        assert found.known == ()
        assert sets(found.groups) == blocks(6, 7)
        assert {group.id for group in found.groups} == {f"g{7 * n}" for n in range(6)}
        asked = [number for one in found.queue for number in (one.photo, *one.companions)]
        assert sorted(asked) == list(range(42))
        assert all(one.guess is None for one in found.queue)
        json.dumps(to_json(found), allow_nan=False)


def test_what_is_known_is_told_and_the_rest_is_grouped(tmp_path: Path) -> None:
    with new_model(tmp_path / "model", head="unbiased-lda", width=WIDTH) as model:
        for name in BIRDS[:4]:
            model.learn_features(name, photos(name, 5, width=WIDTH))
        found = sort_features(model, np.concatenate([mixed(BIRDS[:2], 3, seed=1), mixed(BIRDS[4:], 6)]))
        right = [one for one in found.known if one.photo < 6 and one.label == BIRDS[one.photo // 3]]
        assert len(right) >= 5  # one in twenty may be called unknown
        assert sets(found.groups) >= blocks(2, 6, first=6)
        first = found.queue[0]
        assert first.photo >= 6  # what is unknown and unlike everything known teaches most
        known = {one.photo: one.label for one in found.known}
        assert all(one.guess == known.get(one.photo) for one in found.queue)  # no class is named for strangers
        assert [one.value for one in found.queue] == sorted((one.value for one in found.queue), reverse=True)


@pytest.mark.parametrize("head", ["ncm", "c-fecam"])
def test_heads_without_a_metric_sort_as_well(tmp_path: Path, head: str) -> None:
    with new_model(tmp_path / "model", head=head, width=WIDTH) as model:
        model.learn_features("owl", photos("owl", 5, width=WIDTH))
        found = sort_features(model, mixed(("owl", "wren", "kite"), 6, seed=2))
        assert {number for group in found.groups for number in group.photos} >= set(range(6, 18))


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_few_photos_are_sorted(tmp_path: Path, count: int) -> None:
    with new_model(tmp_path / "model", head="unbiased-lda", width=WIDTH) as model:
        if count:
            found = sort_features(model, mixed(BIRDS[:count], 1))
            assert sorted(number for group in found.groups for number in group.photos) == list(range(count))
        assert group_rows(np.zeros((count, 4), np.float32)).shape == (count,)


def test_copies_of_one_photo_are_one_group() -> None:
    rows = np.repeat(np.eye(3, 8, dtype=np.float32), 20, axis=0)
    assert len(set(group_rows(rows).tolist())) == 3


def test_neighbors_are_those_of_all_products() -> None:
    rng = np.random.default_rng(0)
    V = rng.normal(size=(2100, 6)).astype(np.float32)  # more than are compared at a time
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    places, likeness = neighbors(V, 4)
    products = V @ V.T
    np.fill_diagonal(products, -np.inf)
    np.testing.assert_allclose(likeness, -np.sort(-products, axis=1)[:, :4], rtol=1e-5)
    assert not (places == np.arange(len(V))[:, None]).any()


def test_groups_do_not_depend_on_the_order_of_photos() -> None:
    V = mixed(BIRDS, 9)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    order = np.random.default_rng(0).permutation(len(V))
    one, other = group_rows(V), group_rows(V[order])
    assert sets_of(one) == {frozenset(order[list(group)].tolist()) for group in sets_of(other)}


@pytest.mark.parametrize(("classes", "photos"), [(20, 20), (60, 8)])
def test_groups_of_real_photos_are_better_than_those_of_k_means_that_knows_how_many(
    classes: int, photos: int
) -> None:
    features = embedded_features("cub200")
    truth, found = np.repeat(np.arange(classes), photos), []
    for seed in (11, 12, 13):
        chosen = np.random.default_rng(seed).permutation(len(features.class_names))[:classes]
        rows = np.concatenate([np.flatnonzero(features.train_y == label)[:photos] for label in chosen])
        X = np.asarray(features.train_x[rows], np.float32)
        ours = group_rows(X / np.linalg.norm(X, axis=1, keepdims=True))
        theirs = KMeans(classes, n_init=1, random_state=0).fit_predict(X)
        found.append([measure(truth, groups) for groups in (ours, theirs) for measure in (ami, purity, count)])
    (our_ami, our_purity, our_count), (their_ami, their_purity, _) = np.mean(found, axis=0).reshape(2, 3)
    assert our_ami > their_ami - 0.02
    assert our_purity > their_purity - 0.02
    assert 0.6 * classes < our_count < 1.6 * classes  # many small groups would be pure


def count(_truth: np.ndarray, groups: np.ndarray) -> int:
    return len(np.unique(groups))


def purity(truth: np.ndarray, groups: np.ndarray) -> float:
    return sum(np.bincount(truth[groups == group]).max() for group in np.unique(groups)) / len(truth)


def sets_of(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FIVESHOT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def draw(path: Path, color: tuple[int, int, int], seed: int) -> None:
    noise = np.random.default_rng(seed).integers(-30, 30, (8, 8, 3)) + np.array(color)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise.clip(0, 255).astype(np.uint8)).resize((96, 96)).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        draw(tmp_path / "mixed" / f"red {number}.png", (220, 30, 30), number)
        draw(tmp_path / "mixed" / "more" / f"blue {number}.png", (20, 30, 220), 50 + number)
    (tmp_path / "mixed" / "broken.jpg").write_bytes(b"nothing")
    return tmp_path / "mixed"


@pytest.fixture
def model(tmp_path: Path, cache: Path) -> Recognizer:
    with Recognizer.create(tmp_path / "model", views=1) as made:
        yield made


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by the number of photos of each look."""
    looks: list[int] = []
    whole = folders.records_or_bad

    def look(embedder: object, photos: list[object], **more: object) -> object:
        looks.append(len(photos))
        return whole(embedder, photos, **more)

    monkeypatch.setattr(folders, "records_or_bad", look)
    return looks


def test_a_folder_is_sorted_once_and_named(
    model: Recognizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, told = counted_looks(monkeypatch), list[tuple[int, int]]()
    found = sort_photos(model, folder, progress=lambda done, total: told.append((done, total)))
    assert [Path(one.name).name for one in found.bad] == ["broken.jpg"]
    assert told[-1] == (9, 9)
    assert (found.since, found.meanwhile, found.copies) == (None, (), 0)
    assert sum(looks) == 9
    again = sort_photos(model, folder)
    assert (again.groups, sum(looks)) == (found.groups, 10)  # the broken one is tried again
    assert (again.since.new, again.since.gone, again.since.changed) == (0, 0, 0)
    draw(folder / "red 0.png", (200, 60, 30), 99)
    (folder / "red 1.png").unlink()
    shutil.copy(folder / "red 2.png", folder / "copy of red 2.png")
    changed = sort_photos(model, folder)
    assert (changed.since.new, changed.since.gone, changed.since.changed, changed.copies) == (1, 1, 1, 1)
    assert len(changed.photos) == 7
    reports = learn_sorted(model, changed, {"0": "red", "1": "red"})
    assert [(one.name, one.photos) for one in reports] == [("red", 2)]
    assert model.undo().action == "learn"


def test_sorted_photos_are_put_into_folders_and_back(model: Recognizer, folder: Path, tmp_path: Path) -> None:
    found, into = sort_photos(model, folder), tmp_path / "sorted"
    before = {path.name for path in folder.rglob("*.*")}
    red = str(found.photos.index(str(folder / "red 3.png")))
    expected = Counter(
        f"_unknown/{group.id}" for group in found.groups for photo in group.photos if str(photo) != red
    )
    told = place_sorted(found, into, "move", names={red: "red"}, dry_run=True)
    assert (told.folders, into.exists()) == (expected + Counter(red=1), False)
    assert place_sorted(found, into, "move", names={red: "red"}).folders == told.folders
    assert [path.name for path in (into / "red").iterdir()] == ["red 3.png"]
    assert {path.name for path in folder.rglob("*.*")} == {"broken.jpg"}
    assert put_back(into).undone == 8
    assert {path.name for path in folder.rglob("*.*")} == before
    with pytest.raises(InputError) as refused:
        place_sorted(found, into, names={"g99": "red"})
    assert (refused.value.code, into.exists()) == ("no_group", False)


def test_an_unsure_photo_is_not_put_into_the_folder_of_a_class(tmp_path: Path, folder: Path) -> None:
    twin = photos("owl", 20, width=WIDTH)
    with new_model(tmp_path / "birds", head="unbiased-lda", width=WIDTH) as model:
        model.learn_features("barn owl", twin[:5])
        model.learn_features("tawny owl", twin[5:10])
        model.learn_features("wren", photos("wren", 5, width=WIDTH))
        X = np.concatenate([twin[10:], photos("wren", 3, width=WIDTH, seed=2)])
        found, seen = sort_features(model, X), model.predict_features(X)
    assert all(one.between == seen[one.photo].between for one in found.known)
    unsure = [one for one in found.known if one.between]
    assert unsure
    assert len(unsure) < len(found.known)
    files = [Photo(FileSource(path, path.name)) for path in sorted(folder.rglob("*.png"))[: len(X)]]
    known = tuple(one for one in found.known if one.photo < len(files))
    told = place_sorted(replace(found, known=known, groups=(), sources=tuple(files)), tmp_path / "placed")
    expected = Counter("_unknown" if one.between else one.label for one in known)
    assert told.folders == expected + Counter({"_unknown": len(files) - len(known)})


def test_what_changed_since_is_not_learned(model: Recognizer, folder: Path) -> None:
    found = sort_photos(model, folder)
    number = found.photos.index(str(folder / "red 3.png"))
    draw(folder / "red 3.png", (20, 220, 20), 7)
    with pytest.raises(InputError) as changed:
        learn_sorted(model, found, {str(number): "red"})
    assert changed.value.code == "photo_changed"
    for names, code in (({"g99": "red"}, "no_group"), ({}, "no_names"), ({"0": "red", "g0": "blue"}, "two_names")):
        with pytest.raises(InputError) as refused:
            learn_sorted(model, found, names)
        assert refused.value.code == code
    assert model.snapshot.classes == ()


def test_a_folder_may_change_while_it_is_sorted(
    model: Recognizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = folders.records_or_bad

    def look(*given: object, **more: object) -> object:
        (folder / "red 0.png").unlink(missing_ok=True)
        draw(folder / "late.png", (0, 0, 0), 1)
        return whole(*given, **more)

    monkeypatch.setattr(folders, "records_or_bad", look)
    found = sort_photos(model, folder)
    assert {Path(one.name).name for one in found.bad} == {"broken.jpg", "red 0.png"}
    assert [Path(name).name for name in found.meanwhile] == ["late.png"]
    assert len(found.photos) == 7


def test_stopped_sorting_goes_on_where_it_was(
    model: Recognizer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PART", 3)
    looks = counted_looks(monkeypatch)

    def stop(done: int, total: int) -> None:
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sort_photos(model, folder, progress=stop)
    before = sum(looks)
    sort_photos(model, folder)
    assert sum(looks) - before == 7  # of the first part only the broken one is tried again


def test_kept_vectors_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fiveshot.recognizer import PhotoRecord

    monkeypatch.setattr(folders, "MOST_KEPT", 5)
    kept = KeptVectors(tmp_path / "kept.sqlite", 4)
    for number in range(9):
        kept.keep([PhotoRecord(f"{number:064}", np.full(4, number, np.float32))])
    known = kept.vectors(f"{number:064}" for number in range(9))
    assert sorted(int(vector[0]) for vector in known.values()) == [4, 5, 6, 7, 8]
    kept.close()
    with pytest.raises(Exception, match="cannot store the vectors") as failed:
        KeptVectors(tmp_path / "kept.sqlite" / "below", 4)
    assert failed.value.code == "not_kept"
