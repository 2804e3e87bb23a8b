from __future__ import annotations

import json
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from fiveshot.benchmark import (
    Job,
    Protocol,
    RunRecord,
    get_protocol,
    open_features,
    run,
    run_job,
    sessions,
    summarize_all,
    summarize_runs,
)
from fiveshot.benchmark.job import features_fingerprint, head_config
from fiveshot.benchmark.record import is_finished
from fiveshot.core.scorers import RECIPES, parameter_names
from fiveshot.errors import InputError, StorageError
from fiveshot.features import FeatureSet, embedded_features
from fiveshot.heads import make_head

PROTOCOL = Protocol("small", "gaussian", n_classes=12, base_classes=6, increment=2, shots=3)


TOGETHER = "unbiased-lda, together"


def small_head(name: str):
    if name == TOGETHER:
        return make_head("unbiased-lda", together=2)
    head = make_head(name)
    return (
        head.set_params(n_projections=40) if "n_projections" in parameter_names(head.unlearned_scorer()) else head
    )


@pytest.mark.parametrize("name", [*RECIPES, TOGETHER])
def test_predictions_are_those_of_a_fresh_head_taught_by_hand(name: str, small_features: FeatureSet) -> None:
    record = run(PROTOCOL, small_features, small_head(name))
    steps = sessions(PROTOCOL, small_features.train_y, small_features.test_y, small_features.class_names)
    head = small_head(name)
    for step in steps:
        head.partial_fit(small_features.train_x[step.train_indices], small_features.train_y[step.train_indices])
        expected = head.predict(small_features.test_x[step.test_indices])
        np.testing.assert_array_equal(record.predictions[step.number, step.test_indices], expected)
        unseen = np.setdiff1d(np.arange(len(small_features.test_y)), step.test_indices)
        assert (record.predictions[step.number, unseen] == -1).all()


def test_measures_follow_from_the_raw_predictions(small_features: FeatureSet) -> None:
    record = run(PROTOCOL, small_features, "ncm")
    last, truth = record.predictions[-1], small_features.test_y
    assert record.metrics.a_last == (last == truth).mean()
    new = np.isin(truth, record.session_classes[-1])
    old_accuracy, new_accuracy = (last == truth)[~new].mean(), (last == truth)[new].mean()
    expected = 2 * old_accuracy * new_accuracy / (old_accuracy + new_accuracy)
    assert record.metrics.sessions[-1].a_hm == pytest.approx(expected, rel=1e-12)


def test_the_same_job_gives_the_same_numbers_and_another_seed_other_shots(small_file: Path) -> None:
    first, again, other = (
        run_job(
            Job(PROTOCOL.replace(shot_seed=seed), "c-ranpac", str(small_file), parameters={"n_projections": 50})
        )
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.predictions, again.predictions)
    assert (first.predictions != other.predictions).any()


def test_identity_names_everything_that_decides_the_numbers(small_file: Path, tmp_path: Path) -> None:
    job = Job(PROTOCOL, "fecam", str(small_file))
    changed = [
        Job(PROTOCOL.replace(shot_seed=1), "fecam", str(small_file)),
        Job(PROTOCOL, "c-fecam", str(small_file)),
        Job(PROTOCOL, "fecam", str(small_file), flavor="published"),
        Job(PROTOCOL, "fecam", str(small_file), parameters={"gamma": 1.0}),
    ]
    assert len({job.identity, *(other.identity for other in changed)}) == 5
    copy = tmp_path / "elsewhere.npz"
    copy.write_bytes(small_file.read_bytes())
    assert Job(PROTOCOL, "fecam", str(copy)).identity == job.identity


def write_features(file: Path, features: FeatureSet) -> None:
    replace(features, train_names=tuple(f"{n:03}.jpg" for n in range(len(features.train_y)))).save(file)


def test_a_file_that_is_overwritten_is_another(small_features: FeatureSet, tmp_path: Path) -> None:
    file = tmp_path / "features.safetensors"
    job = Job(PROTOCOL, "ncm", str(file))
    write_features(file, small_features)
    before = job.identity, run_job(job).config["features"]
    write_features(file, replace(small_features, train_x=-small_features.train_x))
    np.testing.assert_array_equal(open_features(str(file)).train_x, -small_features.train_x)
    assert job.identity != before[0]
    assert run_job(job).config["features"] != before[1]


def test_edited_session_lists_are_other_runs_and_moved_ones_are_not(
    small_features: FeatureSet, tmp_path: Path
) -> None:
    file, lists = tmp_path / "features.safetensors", tmp_path / "lists"
    write_features(file, small_features)
    lists.mkdir()
    for session in (1, 2):
        rows = np.flatnonzero(np.isin(small_features.train_y, (2 * session, 2 * session + 1)))
        (lists / f"session_{session}.txt").write_text("\n".join(f"{row:03}.jpg" for row in rows))
    job = Job(PROTOCOL, "ncm", str(file), sessions=str(lists))
    record, before = run_job(job), job.identity
    assert record.session_classes == ((2, 3), (4, 5))
    moved = lists.rename(tmp_path / "elsewhere")
    assert Job(PROTOCOL, "ncm", str(file), sessions=str(moved)).identity == before
    (moved / "session_2.txt").write_text((moved / "session_2.txt").read_text().rpartition("\n")[0])
    edited = Job(PROTOCOL, "ncm", str(file), sessions=str(moved))
    assert len({before, edited.identity, Job(PROTOCOL, "ncm", str(file)).identity}) == 3
    assert run_job(edited).config != record.config


def test_without_session_lists_a_run_has_the_name_that_earlier_releases_gave_it(small_file: Path) -> None:
    """One more hashed entry would run everything again."""
    job = Job(PROTOCOL, "fecam", str(small_file))
    described = {
        "protocol": asdict(PROTOCOL),
        "sessions": None,
        "method": "fecam",
        "flavor": "paper",
        "head": head_config(job.head()),
        "features": features_fingerprint(str(small_file)),
    }
    assert job.identity == sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:12]


def test_a_head_by_name_gives_the_numbers_of_a_job(small_file: Path, small_features: FeatureSet) -> None:
    protocol = PROTOCOL.replace(shot_seed=5)
    alone, job = run(protocol, small_features, "unbiased-lda"), Job(protocol, "unbiased-lda", str(small_file))
    assert alone.config == job.config()
    np.testing.assert_array_equal(alone.predictions, run_job(job).predictions)
    fixed = run(protocol, small_features, make_head("unbiased-lda", random_state=2))
    assert fixed.config["head"]["parameters"]["random_state"] == 2


def test_runs_on_two_feature_sets_are_two_summaries(small_features: FeatureSet) -> None:
    other = replace(small_features, test_x=small_features.test_x[::-1].copy())
    records = [run(PROTOCOL, features, "ncm") for features in (small_features, other)]
    assert [summary.seeds for summary in summarize_all(records)] == [(0,), (0,)]


def test_what_a_head_has_chosen_is_kept(small_features: FeatureSet, tmp_path: Path) -> None:
    head = make_head("teen", bias="auto", alpha=0.5)
    record = run(PROTOCOL, small_features, head)
    assert record.chosen == head.chosen_ != {}
    record.save(tmp_path / "run")
    assert RunRecord.load(tmp_path / "run").chosen == record.chosen
    assert summarize_runs([record]).alpha == 0.5


def test_a_head_of_ones_own_may_mean_something_else_by_calibration(small_features: FeatureSet) -> None:
    record = run(PROTOCOL, small_features, "ncm")
    parameters = {**record.config["head"]["parameters"], "calibration": True}
    config = {**record.config, "head": {**record.config["head"], "parameters": parameters}}
    assert summarize_runs([replace(record, config=config)]).alpha is None


def test_what_one_session_cannot_measure_is_none(small_features: FeatureSet) -> None:
    whole = run(PROTOCOL.replace(base_classes=12), small_features, "ncm")
    summary = summarize_runs([whole])
    assert (summary.a_hm, summary.a_hm_mean, summary.a_old) == ((), None, None)
    assert summary.a_new is not None
    assert summary.a_new.mean == whole.metrics.a_last


def test_a_stopped_rewrite_is_not_finished(small_features: FeatureSet, tmp_path: Path) -> None:
    run(PROTOCOL, small_features, "ncm").save(tmp_path)
    (tmp_path / "predictions.npz").unlink()
    (tmp_path / "predictions.npz").mkdir()  # so that it cannot be written
    with pytest.raises(StorageError):
        run(PROTOCOL, small_features, "teen").save(tmp_path)
    assert not is_finished(tmp_path)


def test_a_record_survives_its_folder(small_features: FeatureSet, tmp_path: Path) -> None:
    record = run(PROTOCOL, small_features, "teen")
    record.save(tmp_path / "run")
    loaded = RunRecord.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.predictions, record.predictions)
    assert loaded.metrics == record.metrics
    assert loaded.versions["numpy"]
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "metrics.json",
        "predictions.npz",
        "run.json",
    ]


def test_a_damaged_or_unfinished_run_is_refused(small_features: FeatureSet, tmp_path: Path) -> None:
    run(PROTOCOL, small_features, "ncm").save(tmp_path)
    (tmp_path / "predictions.npz").write_bytes(b"PK\x03\x04")
    with pytest.raises(StorageError, match=r"is damaged .* remove it and run again"):
        RunRecord.load(tmp_path)
    (tmp_path / "metrics.json").unlink()
    with pytest.raises(StorageError, match="no finished run; start it again"):
        RunRecord.load(tmp_path)


def test_too_few_images_for_the_shots_names_the_class(small_features: FeatureSet) -> None:
    with pytest.raises(InputError, match=r"class 'class \d\d' has 8 training images of 9 needed.*--shots"):
        run(PROTOCOL.replace(shots=9), small_features, "ncm")


def test_official_session_lists_need_image_names(small_file: Path, tmp_path: Path) -> None:
    job = Job(PROTOCOL, "ncm", str(small_file), sessions=str(tmp_path))
    with pytest.raises(InputError, match="have no image names"):
        run_job(job)


@pytest.mark.real
def test_the_communitys_session_lists_run_on_the_embedded_features() -> None:
    lists = Path(__file__).parents[3] / "shared" / "data" / "cub200" / "sessions"
    if not lists.is_dir():
        pytest.skip("the official session lists are not beside the checkout")
    record = run_job(Job(get_protocol("cub200/big"), "ncm", "embedded:cub200", sessions=str(lists)))
    assert [len(classes) for classes in record.session_classes] == [100] + [10] * 10
    assert record.session_classes[0] == tuple(range(100))
    assert 0.6 < record.metrics.a_last < 0.8


def test_calibration_helps_on_the_embedded_photographs() -> None:
    """A smaller copy of what the benchmark shows, with few random features, to be fast."""
    features = embedded_features("cub200")
    birds = features.restrict(features.class_names[:60])
    protocol = Protocol("birds", "cub200", n_classes=60, base_classes=30, increment=10)
    gains = {}
    for plain, calibrated in (("fecam", "c-fecam"), ("ranpac", "c-ranpac")):
        width = {"n_projections": 500} if "ranpac" in plain else {}
        for seed in range(3):
            with_seed = protocol.replace(shot_seed=seed)
            before = run(with_seed, birds, make_head(plain, **width)).metrics
            after = run(with_seed, birds, make_head(calibrated, **width)).metrics
            gains.setdefault(calibrated, []).append(after.sessions[-1].a_hm - before.sessions[-1].a_hm)
    assert np.mean(gains["c-fecam"]) > 0.005
    assert np.mean(gains["c-ranpac"]) > 0.03
