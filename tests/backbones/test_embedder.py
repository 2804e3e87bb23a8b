from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from PIL import Image

from fiveshot.backbones import (
    EMBEDDED,
    Backbone,
    BackboneSpec,
    NotFiniteError,
    Preprocessing,
    Readout,
    adapters,
    attach_adapters,
    embedded,
    embedded_adapters,
    load_backbone,
    load_embedder,
    save_adapter,
    torch_embedder,
)
from fiveshot.backbones import embedder as embedder_module
from fiveshot.backbones.embedded import EMBEDDED_FILE, graph_file, open_session, read_weights
from fiveshot.backbones.embedder import hash_arrays
from fiveshot.backbones.export import embedded_graph
from fiveshot.errors import FiveshotError, InputError, StorageError

READOUTS = [("own", 1), ("cls", 1), ("cls", 3), ("mean", 1), ("cls+mean", 8)]


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (2, 2, 3, 14, 14), np.uint8).repeat(16, axis=3).repeat(16, axis=4)


@cache
def module(adapter: str | None) -> Backbone:
    return load_backbone(BackboneSpec(adapter=adapter, device="cpu"))


def of_torch(backbone: Backbone, pixels: np.ndarray) -> np.ndarray:
    """The torch module itself: no embedder and no ONNX."""
    views = np.moveaxis(pixels, 1, 0)
    normal = [torch.from_numpy(backbone.preprocessing.normalize(view)) for view in views]
    return sum(backbone.features(view).numpy() for view in normal) / len(views)


def assert_near(found: np.ndarray, expected: np.ndarray, share: float = 1e-5) -> None:
    assert np.abs(found - expected).max() < share * np.abs(expected).max()


@pytest.mark.parametrize(("tokens", "last_blocks"), READOUTS)
@pytest.mark.parametrize("adapter", [None, "cub200-big"])
def test_the_embedded_backbone_equals_its_torch_module(
    adapter: str | None, tokens: str, last_blocks: int, pixels: np.ndarray
) -> None:
    embedder = load_embedder(
        BackboneSpec(adapter=adapter, tokens=tokens, last_blocks=last_blocks, views=1, device="cpu")
    )
    assert embedder.runtime.startswith("ONNX Runtime ")
    read = replace(module(adapter), readout=Readout(tokens, last_blocks))
    assert_near(embedder.features(pixels[:, :1]), of_torch(read, pixels[:, :1]))
    assert embedder.width == (1664 if tokens == "own" else 384 * Readout(tokens, last_blocks).vectors)


def test_the_own_feature_is_the_class_token_and_the_pooled_map_each_by_its_spread(pixels: np.ndarray) -> None:
    """Spelled out with timm's own parts: the whole CNN on one side, the ViT of the other readouts on the other."""
    backbone = module(None)
    model, images = backbone.model, torch.from_numpy(backbone.preprocessing.normalize(pixels[:, 0]))
    with torch.no_grad():
        pooled = model.tail(model.patch_embed.backbone(images)[-1]).mean((2, 3))
        token = model.forward_features(images)[:, 0]
    expected = np.concatenate([token / 17.269714, pooled / 15.178811], axis=1)
    found = load_embedder(BackboneSpec(device="cpu", views=1)).features(pixels[:, :1])
    assert_near(found, expected)
    assert found.shape == (2, 384 + 1280)
    assert (pooled >= 0).all(), "the CNN's last activation"


@pytest.mark.parametrize("views", [1, 2, 4])
def test_features_are_the_mean_over_the_views(views: int) -> None:
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)).resize((300, 200))
    embedder, one = (load_embedder(BackboneSpec(device="cpu", views=n)) for n in (views, 1))
    pixels = embedder.pixels(photo)
    assert pixels.shape == (views, 3, 224, 224)
    each = one.features(pixels[:, None])  # every view as if it were a photo
    assert_near(embedder.features(pixels[None]), each.mean(axis=0, keepdims=True))
    assert (embedder.fingerprint == one.fingerprint) == (views == 1)


@pytest.mark.parametrize("adapter", embedded_adapters())
def test_every_embedded_adapter_equals_its_torch_module(adapter: str, pixels: np.ndarray) -> None:
    embedder, backbone = load_embedder(BackboneSpec(adapter=adapter, device="cpu")), module(adapter)
    assert_near(embedder.features(pixels), of_torch(backbone, pixels))
    assert embedder.identity()["adapter_hash"] == backbone.adapter_hash


@pytest.mark.parametrize(("bottleneck", "scale"), [(1, 1.0), (200, 4.0)])
def test_an_adapter_of_any_width_runs_without_torch(
    bottleneck: int, scale: float, pixels: np.ndarray, tmp_path: Path
) -> None:
    backbone = load_backbone(BackboneSpec(device="cpu"))
    attach_adapters(backbone.model, bottleneck=bottleneck, scale=scale, seed=3)
    with torch.no_grad():
        for number, adapter in enumerate(adapters(backbone.model)):
            generator = torch.Generator().manual_seed(number)
            for tensor in (adapter.up.weight, adapter.up.bias, adapter.down.bias):
                tensor.copy_(0.02 * torch.randn(tensor.shape, generator=generator))
    save_adapter(tmp_path / "mine.safetensors", backbone)
    spec = BackboneSpec(adapter=tmp_path / "mine.safetensors", views=1, device="cpu")
    expected, plain = (of_torch(one, pixels[:, :1]) for one in (load_backbone(spec), module(None)))
    assert_near(load_embedder(spec).features(pixels[:, :1]), expected)
    assert np.abs(plain - expected).max() > 0.001, "the adapter does something"


@pytest.mark.parametrize("adapted", [False, True])
def test_the_stored_graphs_are_what_the_torch_module_gives(adapted: bool, pixels: np.ndarray) -> None:
    stored, made = graph_file(adapted=adapted, int8=False).read_bytes(), embedded_graph(adapted=adapted)
    if onnx.load_model_from_string(stored).producer_version == onnx.load_model_from_string(made).producer_version:
        assert made == stored, "run python -m fiveshot.backbones.export"
    given = {"images": load_embedder().preprocessing.normalize(pixels[:, 0])}
    if adapted:
        rng = np.random.default_rng(1)
        for name, shape in {
            "down": (8, 384, 5),
            "down_bias": (8, 5),
            "up": (8, 5, 384),
            "up_bias": (8, 384),
        }.items():
            given[name] = rng.normal(scale=0.02, size=shape).astype(np.float32)
    weights = read_weights(EMBEDDED_FILE)
    for found, expected in zip(
        *(open_session(graph, weights).run(None, given) for graph in (stored, made)), strict=True
    ):
        assert_near(found, expected)


@pytest.mark.parametrize("adapted", [False, True])
def test_the_stored_graphs_hold_no_weights(adapted: bool) -> None:
    file = graph_file(adapted=adapted, int8=False)
    graph = onnx.load_model_from_string(file.read_bytes()).graph
    assert file.stat().st_size < 200_000
    given, constants = [], []
    for tensor in graph.initializer:
        (given if tensor.data_location == onnx.TensorProto.EXTERNAL else constants).append(tensor)
    assert {tensor.name: tuple(tensor.dims) for tensor in given} == {
        name: array.shape for name, array in read_weights(EMBEDDED_FILE).items()
    }
    assert sum(onnx.numpy_helper.to_array(tensor).nbytes for tensor in constants) < 10_000


@pytest.mark.parametrize("adapted", [False, True])
def test_the_stored_graphs_compute_no_constants(adapted: bool) -> None:
    """Every node costs time whenever a session is opened."""
    graph = onnx.load_model_from_string(graph_file(adapted=adapted, int8=False).read_bytes()).graph
    assert len(graph.node) < (700 if adapted else 600)
    assert "Constant" not in {node.op_type for node in graph.node}


@pytest.mark.parametrize("adapter", [None, "cub200-small"])
def test_fingerprints_are_the_same_on_every_runtime(adapter: str | None) -> None:
    spec = BackboneSpec(adapter=adapter, device="cpu")
    onnx_run, torch_run = load_embedder(spec), load_embedder(spec.replace(runtime="torch"))
    assert onnx_run.identity() == torch_run.identity()
    assert onnx_run.fingerprint == torch_run.fingerprint
    assert torch_run.runtime.startswith("PyTorch ")


EVERYDAY = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "timm", "torchvision"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Absent())
import numpy as np
from PIL import Image
from fiveshot.backbones import BackboneSpec, load_embedder
for adapter in (None, "cub200-big"):
    embedder = load_embedder(BackboneSpec(adapter=adapter))
    pixels = embedder.pixels(Image.new("RGB", (300, 200), "red"))
    assert embedder.features(pixels[None]).shape == (1, 1664)
    assert len(embedder.fingerprint) == 64
"""


def test_the_embedded_backbone_needs_no_torch() -> None:
    subprocess.run([sys.executable, "-c", EVERYDAY], check=True)


MISSING = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "timm", "torchvision"):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Absent())
import fiveshot.backbones as backbones
from fiveshot.errors import InputError
for wanted in (
    lambda: backbones.load_embedder(backbones.BackboneSpec("vit_base_patch16_224")),
    lambda: backbones.load_embedder(backbones.BackboneSpec(runtime="torch")),
    lambda: backbones.load_embedder(backbones.BackboneSpec(device="cuda")),
    lambda: backbones.load_backbone,
    lambda: backbones.list_backbones,
):
    try:
        wanted()
    except InputError as error:
        print(error.code, error.hint)
print([name for name in ("onnxruntime", "PIL", "safetensors.numpy") if name in sys.modules])
"""


def test_what_needs_torch_says_the_one_line_before_anything_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", MISSING], check=True, capture_output=True, text=True)
    line = "missing_library install it with: pip install 'fiveshot[torch]'"
    assert done.stdout.splitlines() == [line] * 5 + ["[]"]


def test_importing_the_package_loads_no_library_of_images() -> None:
    script = (
        "import sys, fiveshot.backbones; "
        "print([m for m in ('torch', 'timm', 'torchvision', 'PIL', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pixels_of_another_type_or_shape_are_refused() -> None:
    embedder = load_embedder(BackboneSpec(device="cpu"))
    for wrong in (np.zeros((1, 2, 3, 224, 224), np.float32), np.zeros((1, 3, 224, 224), np.uint8)):
        with pytest.raises(InputError, match=r"must be uint8 of shape \(n, 2, 3, 224, 224\)"):
            embedder.features(wrong)
    assert embedder.features(np.zeros((0, 2, 3, 224, 224), np.uint8)).shape == (0, 1664)


def test_damaged_weights_are_noticed(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    state = load_file(EMBEDDED_FILE)
    state["norm.bias"] = np.full_like(state["norm.bias"], np.nan)
    save_file(state, tmp_path / "nan.safetensors")
    broken = load_embedder(BackboneSpec(weights=tmp_path / "nan.safetensors", device="cpu"))
    with pytest.raises(NotFiniteError) as caught:
        broken.features(np.zeros((2, 2, 3, 224, 224), np.uint8))
    assert (caught.value.row, caught.value.code) == (0, "not_finite")
    del state["norm.bias"]
    save_file(state, tmp_path / "less.safetensors")
    less = load_embedder(BackboneSpec(weights=tmp_path / "less.safetensors", device="cpu"))
    with pytest.raises(InputError, match="1 tensors missing or of another shape"):
        less.features(np.zeros((1, 2, 3, 224, 224), np.uint8))
    (tmp_path / "cut.safetensors").write_bytes(EMBEDDED_FILE.read_bytes()[:1000])
    cut = load_embedder(BackboneSpec(weights=tmp_path / "cut.safetensors", device="cpu"))
    with pytest.raises(StorageError, match="truncated"):
        _ = cut.fingerprint


def test_an_adapter_of_other_weights_is_refused(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    state = load_file(EMBEDDED_FILE)
    state["norm.bias"] = state["norm.bias"] + np.float16(1)
    save_file(state, tmp_path / "other.safetensors")
    with pytest.raises(InputError) as caught:
        load_embedder(BackboneSpec(weights=tmp_path / "other.safetensors", adapter="cub200-big", device="cpu"))
    assert caught.value.code == "other_backbone"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preprocessing": Preprocessing(size=160, resize=160)}, "takes 224 px images"),
        ({"tokens": "cls", "last_blocks": 9}, "has 8 blocks; last_blocks is 9"),
        ({"weights": "nowhere.safetensors"}, "no such file"),
        ({"adapter": "cub200-bag"}, "did you mean 'cub200-big'"),
        ({"precision": "bf16"}, "is for CUDA devices; on cpu use 'float32'"),
    ],
)
def test_what_the_embedded_backbone_cannot_do_is_said_at_once(changes: dict, message: str) -> None:
    with pytest.raises(FiveshotError, match=message):
        load_embedder(BackboneSpec(device="cpu", **changes))


def test_a_spec_survives_json_and_refuses_what_it_does_not_know() -> None:
    spec = BackboneSpec(
        "vit", weights=Path("w.safetensors"), preprocessing=Preprocessing(160, 180), tokens="cls", last_blocks=2
    )
    assert BackboneSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.weights == "w.safetensors"
    with pytest.raises(InputError) as caught:
        BackboneSpec.from_json({"nam": "vit"})
    assert caught.value.code == "unknown_name"
    for wrong in (
        {"name": 3},
        {"weights": 3},
        {"preprocessing": 3},
        {"preprocessing": "papr"},
        {"tokens": "clas"},
        {"runtime": "tensorrt"},
        {"precision": "bf17"},
        {"last_blocks": 1.5},
        {"last_blocks": 2},  # of the class tokens, which must be asked for
        {"views": 3},
    ):
        with pytest.raises(InputError):
            BackboneSpec(**wrong)


def test_a_bare_architecture_is_the_embedded_backbone() -> None:
    assert load_embedder(BackboneSpec(EMBEDDED.partition(".")[0], device="cpu")).name == EMBEDDED


def test_a_machine_without_a_driver_asks_torch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedder_module, "_may_have_gpu", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("torch was asked"))
    assert load_embedder().device == "cpu"


def test_weights_that_were_read_ahead_are_read_once_and_for_one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    files, read = [], embedded.read_weights
    monkeypatch.setattr(embedded, "read_weights", lambda path: files.append(path) or read(path))
    plain = load_embedder(BackboneSpec(device="cpu")).weights_hash
    embedded.AHEAD.begin()
    assert load_embedder(BackboneSpec(device="cpu")).weights_hash == plain
    assert files == [EMBEDDED_FILE] * 2
    assert load_embedder(BackboneSpec(device="cpu")).weights_hash == plain
    assert files == [EMBEDDED_FILE] * 3


def test_weights_of_another_file_are_not_those_that_were_read_ahead(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    arrays = {name: array * 2 for name, array in read_weights(EMBEDDED_FILE).items()}
    save_file(arrays, tmp_path / "other.safetensors")
    embedded.AHEAD.begin()
    other = load_embedder(BackboneSpec(weights=tmp_path / "other.safetensors", device="cpu"))
    assert other.weights_hash == hash_arrays(arrays) != load_embedder(BackboneSpec(device="cpu")).weights_hash


def test_threads_may_share_an_embedder(pixels: np.ndarray) -> None:
    from concurrent.futures import ThreadPoolExecutor

    embedder = load_embedder(BackboneSpec(device="cpu"))
    with ThreadPoolExecutor(4) as pool:
        alike = list(pool.map(lambda _: embedder.features(pixels[:1]), range(8)))
    assert all(np.array_equal(alike[0], other) for other in alike)


def test_a_backbone_of_your_own_is_an_embedder_too(tiny, images) -> None:
    embedder = torch_embedder(tiny, BackboneSpec(runtime="torch"))
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (170, 200, 3), np.uint8))
    pixels = embedder.pixels(photo)
    expected = tiny.features(torch.from_numpy(tiny.preprocessing.normalize(pixels))).numpy()
    np.testing.assert_allclose(embedder.features(pixels[None])[0], expected.mean(axis=0), rtol=1e-6)
    assert embedder.weights_hash == tiny.weights_hash


def test_what_is_for_another_device_is_refused() -> None:
    with pytest.raises(InputError, match="compiled") as refused:
        load_embedder(BackboneSpec(device="cpu", runtime="compiled"))
    assert refused.value.hint
    embedder_module.check_place(BackboneSpec(runtime="compiled"), "cuda:0")
    for runtime in ("onnx", "int8"):
        with pytest.raises(InputError, match="for the CPU"):
            embedder_module.check_place(BackboneSpec(runtime=runtime), "cuda")
