"""Models whose backbone is an ONNX bundle: they remember it, and refuse another."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("transformers", reason="the extra 'dev' is not installed")
onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
from bundles import WIDTH, make_bundles

from fiveshot.data.synthetic import draw_samples
from fiveshot.errors import FiveshotError, InputError
from fiveshot.recognizer import Recognizer, export_onnx, import_file
from fiveshot.recognizer.store.manifest import Manifest
from fiveshot.tuning import create_tuned


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bundles(tmp_path_factory.mktemp("bundles"), "vit")["vit"].folder


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("drawn") / "samples"
    draw_samples(folder, seed=0)
    return folder


@pytest.fixture
def bundle(vit: Path, tmp_path: Path) -> Path:
    return shutil.copytree(vit, tmp_path / "vit")


def learned(path: Path, bundle: Path, samples: Path, **given: object) -> Recognizer:
    model = Recognizer.create(path, backbone=str(bundle), **given)
    for name in ("apple", "house"):
        model.learn(name, sorted((samples / "learn" / name).iterdir()))
    return model


def answers(model: Recognizer, samples: Path) -> list[str]:
    return [one.candidates[0].label for one in model.predict(sorted((samples / "test" / "house").iterdir()))]


def test_a_model_learns_and_answers_with_a_bundle(bundle, samples, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with learned(tmp_path / "things", Path("vit/"), samples) as model:  # a relative path
        info = model.show()
        assert (info.backbone, info.width, info.views) == ("vit.onnx", WIDTH, 1)
        expected = answers(model, samples)
    monkeypatch.chdir("/")
    record = Manifest.from_toml((tmp_path / "things" / "model.toml").read_text()).backbone
    assert (record.name, record.weights) == ("vit.onnx", str(bundle))
    with Recognizer.open(tmp_path / "things") as again:
        assert answers(again, samples) == expected
        assert again.embedder.weights_hash == record.weights_hash


def test_a_bundle_can_be_given_as_a_path(bundle, tmp_path):
    with Recognizer.create(tmp_path / "things", backbone=bundle) as model:
        assert model.show().backbone == "vit.onnx"


def test_a_changed_graph_is_refused(bundle, samples, tmp_path):
    learned(tmp_path / "things", bundle, samples).close()
    file = bundle / "onnx" / "model.onnx"
    model = onnx.load(file)
    weights = next(one for one in model.graph.initializer if len(one.raw_data) > 1000)
    weights.raw_data = weights.raw_data[:-4] + b"\0\0\0\0"
    onnx.save(model, file)
    with (
        Recognizer.open(tmp_path / "things") as things,
        pytest.raises(InputError, match=r"not the vit\.onnx that the model was made with") as caught,
    ):
        answers(things, samples)
    assert caught.value.code == "other_backbone"


def test_another_rule_of_reading_is_refused(bundle, samples, tmp_path):
    learned(tmp_path / "things", bundle, samples, tokens="mean").close()
    config = bundle / "config.json"
    config.write_text(config.read_text().replace('"vit"', '"swin"'))  # whose tokens are all of patches
    with Recognizer.open(tmp_path / "things") as things, pytest.raises(InputError, match="not the"):
        answers(things, samples)


def test_a_bundle_that_was_moved_is_given_again(bundle, samples, tmp_path):
    with learned(tmp_path / "things", bundle, samples) as model:
        expected = answers(model, samples)
    moved = bundle.rename(tmp_path / "elsewhere")
    with Recognizer.open(tmp_path / "things") as things:
        with pytest.raises(FiveshotError, match=r"vit\.onnx are not at") as caught:
            answers(things, samples)
        assert "--weights" in caught.value.hint
    with Recognizer.open(tmp_path / "things", weights=moved) as things:
        assert answers(things, samples) == expected


def test_a_bundle_that_takes_only_one_photo_at_a_time_leaves_no_model(bundle, tmp_path):
    """Its graph says that the number of photos is free, and inside it is one."""
    file = bundle / "onnx" / "model.onnx"
    model = onnx.load(file)
    graph, (given,) = model.graph, model.graph.output
    for node in graph.node:
        node.output[:] = ["any" if name == given.name else name for name in node.output]
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 50, WIDTH]), "one"))
    graph.node.append(onnx.helper.make_node("Reshape", ["any", "one"], [given.name]))
    onnx.save(model, file)
    with pytest.raises(InputError, match="ONNX Runtime cannot give"):
        Recognizer.create(tmp_path / "things", backbone=bundle)
    assert not (tmp_path / "things").exists()


def test_a_model_in_one_file_takes_its_bundle_elsewhere(bundle, samples, tmp_path):
    with learned(tmp_path / "things", bundle, samples) as model:
        expected = answers(model, samples)
        model.export(tmp_path / "things.fiveshot")
    import_file(tmp_path / "things.fiveshot", tmp_path / "copy").close()
    with Recognizer.open(tmp_path / "copy") as copy, pytest.raises(FiveshotError, match="no such file or folder"):
        answers(copy, samples)
    with Recognizer.open(tmp_path / "copy", weights=bundle) as copy:
        assert answers(copy, samples) == expected


def test_a_model_of_a_quantized_bundle_is_written_as_onnx(bundle, samples, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    plain = bundle / "onnx" / "model.onnx"
    quantization.quantize_dynamic(plain, plain.with_name("model_quantized.onnx"))
    plain.unlink()
    with learned(tmp_path / "things", bundle, samples) as model:
        export_onnx(model, tmp_path / "things.onnx")  # it compares the answers of both
    folder = tmp_path / "careful files"
    folder.mkdir()
    with learned(tmp_path / "careful", bundle, samples, views=4) as model, pytest.raises(InputError) as caught:
        export_onnx(model, folder / "things.onnx", all_views=True)  # all views of a photo in one pass
    assert "this graph is quantized" in caught.value.hint
    assert not list(folder.iterdir())


def test_a_bundle_cannot_be_tuned(bundle, samples, tmp_path):
    with pytest.raises(InputError, match="ONNX bundle") as caught:
        create_tuned(tmp_path / "things", samples / "learn", backbone=str(bundle))
    assert "timm name" in caught.value.hint
    assert not (tmp_path / "things").exists()


def test_a_refused_bundle_leaves_no_model(bundle, tmp_path):
    file, config = bundle / "onnx" / "model.onnx", bundle / "preprocessor_config.json"
    model = onnx.load(file)
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_value = WIDTH  # so no photo is needed to know it
    onnx.save(model, file)
    config.write_text(config.read_text().replace("224", "384"))  # the graph says that its sides are free
    with pytest.raises(InputError, match="cannot give 384 px images to vit"):
        Recognizer.create(tmp_path / "things", backbone=str(bundle))
    file.write_bytes(b"no graph")
    with pytest.raises(InputError, match="truncated"):
        Recognizer.create(tmp_path / "things", backbone=str(bundle))
    assert not (tmp_path / "things").exists()
