"""Bundles of ONNX files, beside the torch networks that they were written from."""

from __future__ import annotations

import json
import math
import os
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("transformers", reason="the extra 'dev' is not installed")
onnx = pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

from bundles import PROJECTED, WIDTH, Made, make_bundles, single_file

from fiveshot.backbones import BackboneSpec, Preprocessing, load_embedder
from fiveshot.backbones.bundles import files
from fiveshot.backbones.bundles.processor import read_processor
from fiveshot.backbones.embedder import needs_torch
from fiveshot.errors import FiveshotError, InputError, StorageError


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    return make_bundles(tmp_path_factory.mktemp("bundles"))


@pytest.fixture
def folder(bundles: dict[str, Made], tmp_path: Path) -> Path:
    """A copy of a ViT's bundle, to be changed."""
    return shutil.copytree(bundles["vit"].folder, tmp_path / "vit")


def prepared(made: Made, drawings: list[Image.Image]) -> np.ndarray:
    config = json.loads((made.folder / "preprocessor_config.json").read_text())
    own = read_processor(config)
    return np.concatenate([own.normalize(own.pixels(drawing)) for drawing in drawings])


def features(place: object, drawings: list[Image.Image], **given: object) -> np.ndarray:
    embedder = load_embedder(BackboneSpec(str(place), **given))
    return embedder.features(np.stack([embedder.pixels(drawing) for drawing in drawings]))


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.dtype == np.float32 and np.abs(ours - theirs).max() <= 1e-3 * max(1, np.abs(theirs).max())


READ = {  # what the networks' own heads read
    "vit": lambda given: given["last_hidden_state"][:, 0],
    "dinov2": lambda given: given["last_hidden_state"][:, 0],
    "clip": lambda given: given["image_embeds"],
    "siglip": lambda given: given["pooler_output"],
    "dinov3": lambda given: given["last_hidden_state"][:, 0],
    "swin": lambda given: given["pooler_output"],
    "convnext": lambda given: given["pooler_output"],
}


@pytest.mark.parametrize("name", READ)
def test_features_equal_those_of_torch(name, bundles, drawings):
    made = bundles[name]
    theirs = READ[name](made.torch_outputs(prepared(made, drawings)))
    assert close(features(made.folder, drawings), theirs)
    embedder = load_embedder(BackboneSpec(str(made.folder)))
    assert embedder.width == theirs.shape[1] == {"clip": PROJECTED, "swin": 2 * WIDTH}.get(name, WIDTH)
    assert not needs_torch(embedder.spec)
    assert embedder.preprocessing.views == 1
    assert "ONNX Runtime" in embedder.runtime


@pytest.mark.parametrize(
    ("name", "tokens", "expected"),
    [
        ("dinov2", "mean", lambda tokens: tokens[:, 1:].mean(1)),
        ("dinov2", "cls+mean", lambda tokens: np.concatenate([tokens[:, 0], tokens[:, 1:].mean(1)], 1)),
        ("clip", "cls", lambda tokens: tokens[:, 0]),
        ("siglip", "mean", lambda tokens: tokens.mean(1)),
        ("dinov3", "mean", lambda tokens: tokens[:, 5:].mean(1)),  # after the class token and four registers
        ("swin", "mean", lambda tokens: tokens.mean(1)),
        ("convnext", "mean", lambda grid: grid.mean((2, 3))),
    ],
)
def test_other_tokens_can_be_read(name, tokens, expected, bundles, drawings):
    made = bundles[name]
    theirs = expected(made.torch_outputs(prepared(made, drawings))["last_hidden_state"])
    assert close(features(made.folder, drawings, tokens=tokens), theirs)


def test_tokens_that_a_network_does_not_have_are_refused(bundles):
    with pytest.raises(InputError, match="'siglip_vision_model'") as caught:
        load_embedder(BackboneSpec(str(bundles["siglip"].folder), tokens="cls"))
    assert "--tokens own" in caught.value.hint


def test_a_single_file_needs_nothing_beside_it(bundles, drawings, tmp_path):
    made = bundles["siglip"]
    preprocessing = Preprocessing(size=224, resize=224, squash=224, views=2, name="weights", rounding="down")
    file = tmp_path / "alone.onnx"
    single_file(made, file, output="pooler_output", preprocessing=preprocessing.to_json(), name="vit_x.ours")
    embedder = load_embedder(BackboneSpec(str(file)))
    assert (embedder.name, embedder.preprocessing, embedder.width) == ("vit_x.ours.onnx", preprocessing, WIDTH)
    assert embedder.weights_hash == sha256(file.read_bytes()).hexdigest()
    assert embedder.network.bundle.license == "apache-2.0"
    # This network squeezes photos, so that both views of a photo differ only in their frame.
    assert close(features(file, drawings, views=1), features(made.folder, drawings))
    renamed = tmp_path / "other.onnx"
    file.rename(renamed)
    assert load_embedder(BackboneSpec(embedder.name, weights=renamed)).fingerprint == embedder.fingerprint


def test_a_file_in_a_folder_can_be_named(bundles, drawings, tmp_path):
    made = bundles["dinov2"]
    copy = shutil.copytree(made.folder, tmp_path / "dinov2")
    shutil.copyfile(copy / "onnx/model.onnx", copy / "model_fp16.onnx")
    ours = features(made.folder, drawings)
    assert np.array_equal(ours, features(copy / "onnx" / "model.onnx", drawings))
    assert np.array_equal(ours, features(copy / "model_fp16.onnx", drawings))


def test_half_precision_is_near(bundles, drawings, tmp_path):
    made = bundles["convnext"]
    copy = shutil.copytree(made.folder, tmp_path / "half")
    half_precision(copy / "onnx" / "model.onnx", copy / "onnx" / "model_fp16.onnx")
    (copy / "onnx" / "model.onnx").unlink()
    assert load_embedder(BackboneSpec(str(copy))).network.bundle.facts.half
    ours, theirs = features(copy, drawings), features(made.folder, drawings)
    assert np.abs(ours - theirs).max() < 0.02 * np.abs(theirs).max()


def test_vectors_of_a_quantized_graph_do_not_depend_on_the_photos_beside_them(bundles, drawings, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    made = bundles["vit"]
    copy = shutil.copytree(made.folder, tmp_path / "quantized")
    plain = copy / "onnx" / "model.onnx"
    quantization.quantize_dynamic(plain, plain.with_name("model_quantized.onnx"))
    plain.unlink()
    drawings = [drawings[0], drawings[1].point(lambda level: level // 8)]  # a bright and a dark one
    ours, exact = features(copy, drawings), features(made.folder, drawings)
    assert np.abs(ours - exact).max() < 0.1 * np.abs(exact).max()
    assert np.array_equal(ours, np.concatenate([features(copy, [one]) for one in drawings]))


def half_precision(source: Path, target: Path) -> None:
    """Write a graph whose input and output are float16; inside it computes as before."""
    model = onnx.load(source)
    types, helper = onnx.TensorProto, onnx.helper
    (image,) = model.graph.input
    model.graph.node.insert(0, helper.make_node("Cast", ["half"], [image.name], to=types.FLOAT))
    image.name, image.type.tensor_type.elem_type = "half", types.FLOAT16
    for output in model.graph.output:
        full = f"{output.name}.full"
        for node in model.graph.node:
            for names in (node.input, node.output):
                names[:] = [full if name == output.name else name for name in names]
        model.graph.node.append(helper.make_node("Cast", [full], [output.name], to=types.FLOAT16))
        output.type.tensor_type.elem_type = types.FLOAT16
    onnx.save(model, target)


def test_weights_beside_the_graph_are_read_from_the_bundle(folder, bundles, drawings, monkeypatch, tmp_path):
    with_files_beside(folder)
    monkeypatch.chdir(tmp_path)
    assert np.array_equal(features(folder, drawings), features(bundles["vit"].folder, drawings))
    first = load_embedder(BackboneSpec(str(folder))).weights_hash
    data = folder / "onnx" / "model.onnx_data"
    data.write_bytes(data.read_bytes()[:-4] + b"\0\0\0\1")
    assert load_embedder(BackboneSpec(str(folder))).weights_hash != first


def with_files_beside(folder: Path, location: str = "model.onnx_data") -> None:
    file = folder / "onnx" / "model.onnx"
    model = onnx.load(file)
    onnx.save(model, file, save_as_external_data=True, location="model.onnx_data", size_threshold=100)
    if location != "model.onnx_data":
        model = onnx.load(file, load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location
        file.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("location", ["../../secret", "/etc/passwd", "a/../../secret", "C:\\x", "link"])
def test_files_outside_of_the_bundle_are_refused(location, folder, tmp_path):
    with_files_beside(folder, location)
    (tmp_path / "secret").write_bytes(bytes(1 << 20))
    (folder / "onnx" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(InputError, match="outside of its bundle"):
        load_embedder(BackboneSpec(str(folder)))


def test_a_commit_in_the_hubs_cache_is_a_folder_like_any_other(folder, drawings, tmp_path):
    with_files_beside(folder)
    expected = features(folder, drawings)
    snapshot, blobs = tmp_path / "models--me--vit" / "snapshots" / "abc", tmp_path / "models--me--vit" / "blobs"
    blobs.mkdir(parents=True)
    for number, file in enumerate(sorted(path for path in folder.rglob("*") if path.is_file())):
        link = snapshot / file.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(shutil.move(file, blobs / str(number)))
    assert np.array_equal(features(snapshot, drawings), expected)
    graph = snapshot / "onnx" / "model.onnx"
    elsewhere = shutil.move(graph.resolve(), tmp_path / "elsewhere")
    graph.unlink()
    graph.symlink_to(elsewhere)
    with pytest.raises(InputError, match=r"'onnx/model\.onnx' is outside of its bundle"):
        load_embedder(BackboneSpec(str(snapshot)))


def test_weights_that_share_their_bytes_cannot_fill_the_memory(folder, monkeypatch):
    with_files_beside(folder)
    size = sum(path.stat().st_size for path in (folder / "onnx").iterdir())
    monkeypatch.setattr(files, "MAX_GRAPH", 2 * size)

    def share(model) -> None:
        largest = max(model.graph.initializer, key=lambda one: math.prod(one.dims))
        for number in range(100):
            model.graph.initializer.add().CopyFrom(largest)
            model.graph.initializer[-1].name = f"copy {number}"

    changed(folder, share)
    embedder = load_embedder(BackboneSpec(str(folder)))
    with pytest.raises(InputError, match="the most for a graph with its weights"):
        embedder.runtime  # noqa: B018  # loads the graph


def changed(folder: Path, change) -> None:
    file = folder / "onnx" / "model.onnx"
    model = onnx.load(file, load_external_data=False)
    change(model)
    file.write_bytes(model.SerializeToString())


def custom_operator(model) -> None:
    model.graph.node[3].domain = "com.stranger"


def custom_operator_inside(model) -> None:
    helper = onnx.helper
    inner = helper.make_node("Anything", [], ["inner"], domain="com.stranger")
    branch = helper.make_graph([inner], "branch", [], [helper.make_empty_tensor_value_info("inner")])
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(True), "always"))
    model.graph.node.append(helper.make_node("If", ["always"], ["out"], then_branch=branch, else_branch=branch))


def file_in_a_constant(model) -> None:
    tensor = onnx.TensorProto(name="x", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../../../secret")
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["x"], value=tensor))


def text_input(model) -> None:
    extra = onnx.helper.make_tensor_value_info("input_ids", onnx.TensorProto.INT64, ["n", "tokens"])
    model.graph.input.append(extra)


def second_input(model) -> None:
    model.graph.input.append(onnx.helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, ["n"]))


def fixed_batch(model) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def not_square(model) -> None:
    for place, side in ((2, 224), (3, 112)):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_value = side


def other_size(model) -> None:
    for place in (2, 3):
        model.graph.input[0].type.tensor_type.shape.dim[place].dim_value = 384


def channels_last(model) -> None:
    shape = model.graph.input[0].type.tensor_type.shape
    shape.dim[1].dim_param, shape.dim[3].dim_value = "height", 3


def bytes_as_images(model) -> None:
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8


def renamed_output(name: str):
    def change(model) -> None:
        for node in model.graph.node:
            node.output[:] = [name if one == "last_hidden_state" else one for one in node.output]
        model.graph.output[0].name = name

    return change


@pytest.mark.parametrize(
    ("change", "words", "way_out"),
    [
        (custom_operator, r"com\.stranger", "another file"),
        (custom_operator_inside, r"com\.stranger\.Anything", "another file"),
        (file_in_a_constant, "outside of its bundle", "published"),
        (text_input, "takes text", "vision_model.onnx"),
        (second_input, "it has 2: pixel_values, mask", "photos"),
        (fixed_batch, "exactly 1 photo at a time", "free batch size"),
        (channels_last, r"\(n, n, n, 3\), not photos", "photos"),
        (not_square, "224 x 112", "another network"),
        (other_size, "takes 384 px images; its preprocessing gives 224", "size 384"),
        (bytes_as_images, "not photos", "photos"),
        (renamed_output("logits"), "classes that it was trained on", "backbone export"),
        (renamed_output("reconstruction"), r"no feature vector.*reconstruction \(n, n, n\)", "DINOv2"),
    ],
)
def test_a_graph_that_cannot_be_used_is_refused_with_a_way_out(change, words, way_out, folder):
    changed(folder, change)
    with pytest.raises(InputError, match=words) as caught:
        load_embedder(BackboneSpec(str(folder)))
    assert way_out in caught.value.hint


def test_a_graph_that_gives_pictures_is_refused_when_it_runs(folder, drawings):
    """Its output has the name of a vector, and its shape is not told."""
    nodes = [onnx.helper.make_node("Relu", ["pixel_values"], ["pooler_output"])]

    def pictures(model) -> None:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        (given,) = model.graph.output
        given.CopyFrom(model.graph.input[0])
        given.name = "pooler_output"
        del given.type.tensor_type.shape.dim[1:]
        for _ in range(3):
            given.type.tensor_type.shape.dim.add()

    changed(folder, pictures)
    (folder / "config.json").write_text('{"model_type": "swin"}')
    with pytest.raises(InputError, match=r"no feature vector.*pooler_output of shape \(4, 3") as caught:
        features(folder, drawings)
    assert "DINOv2" in caught.value.hint


def test_a_truncated_graph_is_refused(folder):
    file = folder / "onnx" / "model.onnx"
    whole = file.read_bytes()
    for content in (b"", b"version https://git-lfs.github.com/spec/v1", whole[: len(whole) // 2]):
        file.write_bytes(content)
        with pytest.raises(InputError, match="truncated"):
            load_embedder(BackboneSpec(str(folder)))


def test_sizes_that_do_not_fit_are_refused_when_the_graph_runs(folder, drawings):
    """This graph says that its sides are free, and its positions are for 224 pixels."""
    spec = BackboneSpec(str(folder), preprocessing=Preprocessing(size=160, resize=160))
    embedder = load_embedder(spec)
    with pytest.raises(InputError, match="cannot give 160 px images to vit") as caught:
        embedder.features(embedder.pixels(drawings[0])[None])
    assert "another size" in caught.value.hint


def test_the_runtimes_reason_and_a_way_out_are_told(folder):
    def from_the_future(model) -> None:
        model.ir_version = 99

    changed(folder, from_the_future)
    embedder = load_embedder(BackboneSpec(str(folder)))
    with pytest.raises(InputError, match="IR version: 99") as caught:
        embedder.runtime  # noqa: B018  # loads the graph
    assert "update onnxruntime" in caught.value.hint


def test_vectors_that_are_not_one_for_each_photo_are_refused(folder, drawings):
    def twice(model) -> None:
        renamed_output("once")(model)
        model.graph.node.append(onnx.helper.make_node("Concat", ["once", "once"], ["last_hidden_state"], axis=0))
        model.graph.output[0].name = "last_hidden_state"

    changed(folder, twice)
    embedder = load_embedder(BackboneSpec(str(folder)))
    with pytest.raises(InputError, match=r"vectors of shape \(2, 32\), and its graph promises \(1, 32\)"):
        embedder.features(embedder.pixels(drawings[0])[None])


def test_a_file_that_changed_in_between_is_refused(folder):
    embedder = load_embedder(BackboneSpec(str(folder)))
    changed(
        folder,
        lambda model: model.graph.initializer[0].ClearField("doc_string") or model.ClearField("producer_name"),
    )
    with pytest.raises(StorageError, match="changed while it was in use"):
        embedder.runtime  # noqa: B018  # loads the graph


@pytest.mark.parametrize(
    ("lacking", "words"),
    [("onnx/model.onnx", "no ONNX file"), ("preprocessor_config.json", "no preprocessor_config.json")],
)
def test_what_is_missing_is_named(lacking, words, folder):
    (folder / lacking).unlink()
    with pytest.raises(StorageError, match=words) as caught:
        load_embedder(BackboneSpec(str(folder)))
    assert caught.value.hint


def test_files_of_other_names_are_listed(folder):
    (folder / "onnx" / "model.onnx").rename(folder / "onnx" / "model_int8.onnx")
    with pytest.raises(StorageError, match=r"of a known name, but onnx/model_int8\.onnx") as caught:
        load_embedder(BackboneSpec(str(folder)))
    assert f"{folder}/onnx/model_int8.onnx" in caught.value.hint


def test_a_config_outside_of_the_bundle_is_refused(folder, tmp_path):
    (folder / "config.json").rename(tmp_path / "config.json")
    (folder / "config.json").symlink_to(tmp_path / "config.json")
    with pytest.raises(InputError, match=r"'config\.json' is outside of its bundle"):
        load_embedder(BackboneSpec(str(folder)))


def test_a_pipe_is_no_bundle(tmp_path):
    os.mkfifo(tmp_path / "net.onnx")
    with pytest.raises(StorageError, match="no such file"):
        load_embedder(BackboneSpec(str(tmp_path / "net.onnx")))


def test_without_a_config_a_pooled_output_is_read_and_tokens_must_be_chosen(folder, bundles, drawings):
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match="not known what to read") as caught:
        load_embedder(BackboneSpec(f"{folder}/"))
    assert "--tokens cls" in caught.value.hint
    assert np.array_equal(
        features(f"{folder}/", drawings, tokens="cls"), features(bundles["vit"].folder, drawings)
    )


@pytest.mark.parametrize(
    "given",
    [
        {"adapter": "cub200-big"}, {"tokens": "cls", "last_blocks": 2}, {"runtime": "torch"}, {"device": "cuda"},
        {"precision": "bf16"},
    ],
)  # fmt: skip
def test_what_needs_torch_is_refused(given, bundles):
    with pytest.raises(InputError) as caught:
        load_embedder(BackboneSpec(str(bundles["vit"].folder), **given))
    assert caught.value.hint


def test_a_place_where_nothing_is_is_refused(tmp_path):
    with pytest.raises(FiveshotError, match="no such file or folder"):
        load_embedder(BackboneSpec(str(tmp_path / "nothing.onnx")))


def test_nothing_is_printed_about_a_graph_of_others(folder, drawings, capfd):
    def with_unused_weights(model) -> None:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "unused"))

    changed(folder, with_unused_weights)
    features(folder, drawings)
    assert capfd.readouterr() == ("", "")
