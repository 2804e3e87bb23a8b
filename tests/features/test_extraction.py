from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from extracting import extracted, run_extraction

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")

from fiveshot.backbones import BackboneSpec, Embedder, load_backbone, load_embedder
from fiveshot.backbones.embedder import Network, Vectors
from fiveshot.backbones.preprocessing import Pixels
from fiveshot.data import ArraySource, Decoders, ImageDataset, ImageSplit, Photo, decode, open_images
from fiveshot.errors import InputError, StorageError
from fiveshot.features import (
    ExtractionSettings,
    FeatureSet,
    bare_rate,
    extracted_features,
    see_batches,
    seeing,
)
from fiveshot.features.job import FeatureCache


@pytest.fixture
def birds(photographs: Path) -> ImageDataset:
    return open_images(photographs, seed=0)


def spelled_out(split: ImageSplit, embedder: Embedder) -> np.ndarray:
    """The definition: decode, prepare and pass each image by itself, with torch."""
    backbone = load_backbone(embedder.spec)
    prepared = (embedder.preprocessing.normalize(embedder.pixels(decode(image))) for image in split.images)
    return torch.stack([backbone.features(torch.from_numpy(views)).mean(dim=0) for views in prepared]).numpy()


def on(tiny: Embedder, runtime: str) -> Embedder:
    return load_embedder(tiny.spec.replace(runtime=runtime))


def test_vectors_are_those_of_the_images_one_by_one_in_dataset_order(birds: ImageDataset, tiny: Embedder) -> None:
    found = extracted(birds, tiny, dtype="float32", batch_size=4)
    np.testing.assert_allclose(found.train_x, spelled_out(birds.train, tiny), atol=1e-5)
    np.testing.assert_allclose(found.test_x, spelled_out(birds.test, tiny), atol=1e-5)
    assert found.train_names == birds.train.names
    assert found.test_names == birds.test.names
    assert found.class_names == birds.class_names
    np.testing.assert_array_equal(found.train_y, birds.train.labels)
    np.testing.assert_array_equal(found.test_y, birds.test.labels)


def test_provenance_says_how_they_were_made(birds: ImageDataset, tiny: Embedder) -> None:
    made = extracted(birds, tiny).provenance
    assert (made.dataset, made.backbone, made.adapter, made.readout) == ("birds", tiny.name, None, "own")
    assert made.weights_hash == tiny.weights_hash
    assert made.preprocessing["resize"] == tiny.preprocessing.resize
    assert made.note == f"float16 vectors; {tiny.runtime}"


def test_provenance_names_a_longer_readout(birds: ImageDataset, tiny_file: Path, tiny: Embedder) -> None:
    wide = load_embedder(
        BackboneSpec(tiny.name, weights=tiny_file, tokens="cls+mean", last_blocks=2, device="cpu", runtime="torch")
    )
    found = extracted(birds, wide)
    assert found.provenance.readout == "cls+mean, last 2 blocks"
    assert found.n_features == 3 * tiny.width


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_workers_change_no_bit(birds: ImageDataset, tiny: Embedder, runtime: str) -> None:
    runner = on(tiny, runtime)
    alone, many = (extracted(birds, runner, dtype="float32", batch_size=2, workers=n) for n in (1, 5))
    np.testing.assert_array_equal(alone.train_x, many.train_x)
    np.testing.assert_array_equal(alone.test_x, many.test_x)


def test_both_runtimes_agree_and_say_their_names(birds: ImageDataset, tiny: Embedder) -> None:
    torch_run, onnx_run, chosen = (
        run_extraction(birds, on(tiny, runtime), dtype="float32") for runtime in ("torch", "onnx", "auto")
    )
    np.testing.assert_allclose(torch_run.features.train_x, onnx_run.features.train_x, atol=1e-4)
    assert torch_run.runtime == f"PyTorch {torch.__version__} on cpu, float32"
    assert onnx_run.runtime.startswith("ONNX Runtime ")
    assert chosen.runtime == onnx_run.runtime, "installed, so it is chosen by itself"


def test_features_say_their_precision(birds: ImageDataset, tiny: Embedder) -> None:
    assert run_extraction(birds, tiny).features.provenance.precision == "float32"


def test_threads_of_pytorch_are_as_before(birds: ImageDataset, tiny: Embedder) -> None:
    torch.set_num_threads(2)
    try:
        extracted(birds, tiny)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_the_report_counts_and_times(birds: ImageDataset, tiny: Embedder) -> None:
    seen: list[tuple[int, int]] = []
    report = run_extraction(birds, tiny, batch_size=4, workers=2, progress=lambda *now: seen.append(now))
    assert (report.images, report.computed, report.bad, report.streams) == (15, 15, (), 2)
    assert seen == [(0, 15), (4, 15), (8, 15), (12, 15), (15, 15)]
    assert report.rate == pytest.approx(15 / report.seconds)
    assert report.forward_rate == pytest.approx(15 * 2 / report.stages.forward)
    assert 0 < report.rate < report.forward_rate
    assert report.stages.decode > 0


def test_without_cache_or_file_the_vectors_are_in_memory(birds: ImageDataset, tiny: Embedder) -> None:
    report = run_extraction(birds, tiny)
    assert report.path is None
    assert report.features.train_x.flags.owndata
    with pytest.raises(StorageError, match="only in memory"):
        _ = report.kept_path


@pytest.mark.parametrize("kind", ["tar", "gztar", "zip"])
def test_an_archive_gives_the_vectors_of_the_folder(
    photographs: Path, tiny: Embedder, tmp_path: Path, kind: str
) -> None:
    archive = Path(shutil.make_archive(str(tmp_path / "packed"), kind, photographs.parent, photographs.name))
    folder, packed = (
        extracted(open_images(path, seed=0), tiny, batch_size=1, workers=4) for path in (photographs, archive)
    )
    np.testing.assert_array_equal(folder.train_x, packed.train_x)
    assert folder.train_names == packed.train_names


def test_images_in_memory_and_no_test_images(tiny: Embedder) -> None:
    rng = np.random.default_rng(1)
    images = tuple(ArraySource(rng.integers(0, 256, (32, 32, 3), np.uint8), f"train/{i}") for i in range(5))
    train = ImageSplit(images, np.array([0, 0, 1, 1, 1]))
    found = extracted(ImageDataset("small", ("a", "b"), train, ImageSplit((), np.zeros(0, np.int64))), tiny)
    assert found.train_x.shape == (5, tiny.width)
    assert found.test_x.shape == (0, tiny.width)


def test_half_precision_is_the_rounded_single_one(birds: ImageDataset, tiny: Embedder) -> None:
    half, single = (extracted(birds, tiny, dtype=dtype) for dtype in ("float16", "float32"))
    assert half.train_x.dtype == np.float16
    np.testing.assert_array_equal(half.train_x, single.train_x.astype(np.float16))


@dataclass(frozen=True)
class Scaled:
    """A network of the user's own: the features of another one times a number."""

    network: Network
    factor: float
    name: str = "scaled"
    device: str = "cpu"
    precision: str = "float32"
    weights_hash: str = "none"
    adapter_hash: None = None

    @property
    def width(self) -> int:
        return self.network.width

    def ready(self) -> str:
        return self.network.ready()

    def forward(self, images: Pixels) -> Vectors:
        return self.network.forward(images) * np.float32(self.factor)


def scaled(tiny: Embedder, factor: float) -> Embedder:
    return Embedder(tiny.spec, tiny.preprocessing, Scaled(tiny.network, factor))


def test_vectors_too_large_for_half_precision_are_refused(birds: ImageDataset, tiny: Embedder) -> None:
    with pytest.raises(
        InputError, match=r"vector of .*ani/0\.jpg has values up to \d+, too large for float16; st"
    ):
        extracted(birds, scaled(tiny, 1e6))
    assert np.isfinite(extracted(birds, scaled(tiny, 1e6), dtype="float32").train_x).all()


def test_vectors_that_are_no_numbers_are_refused(birds: ImageDataset, tiny: Embedder) -> None:
    with pytest.raises(InputError, match=r"ani/0\.jpg holds NaN or infinity"):
        extracted(birds, scaled(tiny, float("nan")), dtype="float32")


def test_a_file_is_what_the_set_itself_would_write(birds: ImageDataset, tiny: Embedder, tmp_path: Path) -> None:
    found = extracted(birds, tiny, out=tmp_path / "ours.safetensors")
    found.save(tmp_path / "plain.safetensors")
    assert (tmp_path / "ours.safetensors").read_bytes() == (tmp_path / "plain.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["birds", "ours.safetensors", "plain.safetensors"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; choose 1 or more"),
        ({"workers": -1}, "workers is -1; choose 1 or more"),
        ({"dtype": "float64"}, "no type of vectors 'float64'; .* choose from float16, float32"),
    ],
)
def test_bad_options_are_named(birds: ImageDataset, tiny: Embedder, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        extracted(birds, tiny, **options)


def test_runtimes_and_precisions_that_do_not_fit_are_refused(tiny: Embedder) -> None:
    with pytest.raises(InputError, match="no runtime 'tensorrt'; choose from auto, compiled, onnx, torch"):
        BackboneSpec(runtime="tensorrt")
    with pytest.raises(InputError, match="precision 'bf16' is for CUDA devices; on cpu use 'float32'"):
        load_embedder(tiny.spec.replace(precision="bf16"))


def test_what_cannot_be_exported_runs_on_pytorch(birds: ImageDataset, tiny_file: Path, tiny: Embedder) -> None:
    # At another size than its own, this network resamples its positions in a way that ONNX does not know.
    paper = BackboneSpec(tiny.name, weights=tiny_file, preprocessing="paper", device="cpu")
    assert run_extraction(birds, load_embedder(paper)).runtime.startswith("PyTorch ")
    with pytest.raises(
        InputError, match=r"test_vit.* with 224 px images cannot be exported to ONNX .*use the run"
    ):
        run_extraction(birds, load_embedder(paper.replace(runtime="onnx")))


def test_features_by_path_are_made_once(photographs: Path, tiny_file: Path, tmp_path: Path) -> None:
    options = {
        "seed": 0,
        "spec": BackboneSpec("test_vit.r160_in1k", weights=tiny_file, device="cpu"),
        "cache": FeatureCache(tmp_path / "cache"),
    }
    first = extracted_features(photographs, **options)
    made = first.stat().st_mtime_ns
    assert extracted_features(str(photographs), **options) == first
    assert first.stat().st_mtime_ns == made
    assert FeatureSet.load(first).provenance.dataset == "birds"
    other = extracted_features(photographs, settings=ExtractionSettings(dtype="float32"), **options)
    assert other != first


def test_processes_decode_what_this_one_decodes(birds: ImageDataset, tiny: Embedder, monkeypatch) -> None:
    photos = [Photo(image) for image in birds.train.images]
    found = []
    for workers in (0, 2):
        with Decoders(workers) as pool:
            monkeypatch.setattr(seeing, "decoders", lambda pool=pool: pool)
            batches = list(see_batches(tiny, [photos[:3], photos[3:6], photos[6:]], workers=2))
            found.append([one for batch in batches for one in batch.found])
    for here, processes in zip(*found, strict=True):
        np.testing.assert_array_equal(here.vector, processes.vector)
        assert here.sha256 == processes.sha256


def test_the_forward_pass_alone_is_measured(tiny: Embedder) -> None:
    assert bare_rate(tiny, batch_size=2, workers=2, seconds=0.1) > 0


def test_the_embedded_vit_is_the_default(birds: ImageDataset) -> None:
    embedder = load_embedder(BackboneSpec(device="cpu", views=1))
    found = extracted(birds, embedder, dtype="float32")
    np.testing.assert_allclose(found.test_x, spelled_out(birds.test, embedder), atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_in_bf16_is_near_the_cpu_and_kept_apart_from_it(birds: ImageDataset, tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path / "cache")
    on_cpu, on_cuda = (
        run_extraction(birds, load_embedder(BackboneSpec(device=device)), cache=cache, dtype="float32")
        for device in ("cpu", "cuda")
    )
    assert on_cuda.computed == 15, "other vectors than those in the cache"
    assert on_cuda.runtime.endswith("on cuda:0, bf16")
    a, b = on_cpu.features.train_x, on_cuda.features.train_x
    cosines = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert (cosines > 0.95).all(), "bf16 keeps eight bits, and drawn pictures are unlike what the network knows"
