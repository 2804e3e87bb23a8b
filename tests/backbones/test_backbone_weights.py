from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from tiny_vit import TINY

from fiveshot.backbones import EMBEDDED, BackboneSpec, load_backbone, resolve_name
from fiveshot.backbones.embedded import EMBEDDED_FILE
from fiveshot.errors import InputError, StorageError


@pytest.fixture
def state(tiny_file: Path) -> dict[str, torch.Tensor]:
    return load_file(tiny_file)


def google_layout(state: dict[str, torch.Tensor], *, depth: int, heads: int) -> dict[str, np.ndarray]:
    """The names and axes of Google's published ViT files, spelled out from their JAX modules."""
    a = {name: tensor.numpy() for name, tensor in state.items()}
    width = a["cls_token"].shape[-1]
    out = {
        "cls": a["cls_token"],
        "embedding/kernel": a["patch_embed.proj.weight"].transpose(2, 3, 1, 0),
        "embedding/bias": a["patch_embed.proj.bias"],
        "Transformer/posembed_input/pos_embedding": a["pos_embed"],
        "Transformer/encoder_norm/scale": a["norm.weight"],
        "Transformer/encoder_norm/bias": a["norm.bias"],
        "head/kernel": a["head.weight"].T,
        "head/bias": a["head.bias"],
    }
    for i in range(depth):
        here, there = f"blocks.{i}.", f"Transformer/encoderblock_{i}/"
        for norm, number in (("norm1", 0), ("norm2", 2)):
            out[f"{there}LayerNorm_{number}/scale"] = a[f"{here}{norm}.weight"]
            out[f"{there}LayerNorm_{number}/bias"] = a[f"{here}{norm}.bias"]
        attention = f"{there}MultiHeadDotProductAttention_1/"
        for part, weight, bias in zip(
            ("query", "key", "value"),
            np.split(a[f"{here}attn.qkv.weight"], 3),
            np.split(a[f"{here}attn.qkv.bias"], 3),
            strict=True,
        ):
            out[f"{attention}{part}/kernel"] = weight.T.reshape(width, heads, -1)
            out[f"{attention}{part}/bias"] = bias.reshape(heads, -1)
        out[f"{attention}out/kernel"] = a[f"{here}attn.proj.weight"].T.reshape(heads, -1, width)
        out[f"{attention}out/bias"] = a[f"{here}attn.proj.bias"]
        for layer in (0, 1):
            out[f"{there}MlpBlock_3/Dense_{layer}/kernel"] = a[f"{here}mlp.fc{layer + 1}.weight"].T
            out[f"{there}MlpBlock_3/Dense_{layer}/bias"] = a[f"{here}mlp.fc{layer + 1}.bias"]
    return out


def written(folder: Path, kind: str, state: dict[str, torch.Tensor]) -> Path:
    path = folder / f"weights{kind}"
    match kind:
        case ".npz":
            np.savez(path, **google_layout(state, depth=6, heads=2))
        case ".pth":
            torch.save(state, path)
        case ".pt":  # a training checkpoint, from several GPUs
            torch.save({"epoch": 3, "model": {f"module.{k}": v for k, v in state.items()}}, path)
    return path


@pytest.mark.parametrize("kind", [".pth", ".pt", ".npz"])
def test_all_file_kinds_give_the_same_backbone(kind, state, tiny, tmp_path, images):
    other = load_backbone(BackboneSpec(TINY, weights=written(tmp_path, kind, state)))
    assert other.weights_hash == tiny.weights_hash
    assert torch.equal(other.features(images), tiny.features(images))


def test_the_classifier_does_not_matter(state, tiny, tmp_path):
    more = {**state, "head.weight": torch.ones(7, 64), "head.bias": torch.ones(7)}
    none = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
    for number, changed in enumerate((more, none)):
        save_file(changed, tmp_path / f"{number}.safetensors")
        assert (
            load_backbone(BackboneSpec(TINY, weights=tmp_path / f"{number}.safetensors")).weights_hash
            == tiny.weights_hash
        )


def test_the_features_are_those_of_the_file(state, tiny, images):
    model = timm.create_model("test_vit").eval()
    model.load_state_dict(state)
    with torch.no_grad():
        torch.testing.assert_close(tiny.features(images), model.forward_features(images)[:, 0])


@pytest.mark.parametrize("kind", [".pth", ".npz"])
def test_a_file_with_a_part_missing_is_refused(kind, state, tmp_path):
    path = written(tmp_path, kind, state)
    if kind == ".npz":
        with np.load(path) as file:
            arrays = dict(file)
        del arrays["embedding/bias"]
        np.savez(path, **arrays)
    else:
        del state["patch_embed.proj.bias"]
        torch.save(state, path)
    with pytest.raises(InputError, match=r"does not fit test_vit\.r160_in1k.*bias") as caught:
        load_backbone(BackboneSpec(TINY, weights=path))
    assert len(str(caught.value)) < 350
    assert path.resolve() not in {link.resolve() for link in Path("/proc/self/fd").iterdir()}  # it is closed


def test_weights_of_another_architecture_are_refused_briefly(tmp_path, state):
    with pytest.raises(InputError, match=r"does not fit test_vit2.*; give weights of this network") as caught:
        load_backbone(BackboneSpec("test_vit2.r160_in1k", weights=written(tmp_path, ".pth", state)))
    assert len(str(caught.value)) < 350
    with pytest.raises(InputError, match="tensors missing or of another shape"):
        load_backbone(BackboneSpec(EMBEDDED, weights=tmp_path / "weights.pth"))
    with pytest.raises(InputError, match=r"does not fit test_vit\.r160_in1k"):
        load_backbone(BackboneSpec(TINY, weights=EMBEDDED_FILE))


class _Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


def test_pickled_code_never_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": _Bomb()}, "evil.pth")
    with pytest.raises(StorageError, match="could run code"):
        load_backbone(BackboneSpec(TINY, weights="evil.pth"))
    Path("old.pth").write_bytes(pickle.dumps(_Bomb(), protocol=2))
    with pytest.raises(StorageError, match="could run code"):
        load_backbone(BackboneSpec(TINY, weights="old.pth"))
    assert not Path("exploded").exists()


def test_unreadable_files_are_named(tmp_path, tiny_file):
    with pytest.raises(StorageError, match=r"no such file: .*absent\.safetensors"):
        load_backbone(BackboneSpec(TINY, weights=tmp_path / "absent.safetensors"))
    with pytest.raises(StorageError, match=r"no such file: .*absent\.npz"):
        load_backbone(BackboneSpec(TINY, weights=tmp_path / "absent.npz"))
    (tmp_path / "half.safetensors").write_bytes(tiny_file.read_bytes()[:5000])
    with pytest.raises(StorageError, match=r"truncated .*; get a fresh copy of it"):
        load_backbone(BackboneSpec(TINY, weights=tmp_path / "half.safetensors"))
    (tmp_path / "half.npz").write_bytes(b"PK not really")
    with pytest.raises(StorageError, match=r"half\.npz is not an \.npz file"):
        load_backbone(BackboneSpec(TINY, weights=tmp_path / "half.npz"))
    (tmp_path / "notes.txt").write_text("weights")
    with pytest.raises(InputError, match=r"give \.safetensors, \.pth"):
        load_backbone(BackboneSpec(TINY, weights=tmp_path / "notes.txt"))
    torch.save({"lr": 0.1}, tmp_path / "empty.pth")
    with pytest.raises(StorageError, match="holds no state dict"):
        load_backbone(BackboneSpec(TINY, weights=tmp_path / "empty.pth"))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_npz_is_an_error_of_ours(tmp_path, state, save):
    path = tmp_path / "weights.npz"
    save(path, **google_layout(state, depth=6, heads=2))
    data = path.read_bytes()
    for share in (0.0, 0.0001, 0.1, 0.5, 0.9, 0.9999):
        path.write_bytes(data[: int(share * len(data))])
        with pytest.raises(StorageError, match=r"weights\.npz is not an \.npz file, or it is truncated"):
            load_backbone(BackboneSpec(TINY, weights=path))
    middle = data.index(b"PK\x03\x04", len(data) // 2) + 300  # within the data of one array
    path.write_bytes(
        data[:middle] + bytes(byte ^ 255 for byte in data[middle : middle + 40]) + data[middle + 40 :]
    )
    with pytest.raises(StorageError, match="get a fresh copy"):
        load_backbone(BackboneSpec(TINY, weights=path))


def test_pickled_objects_in_an_npz_are_never_loaded(tmp_path, state, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arrays = google_layout(state, depth=6, heads=2)
    arrays["embedding/bias"] = np.array([_Bomb()], dtype=object)
    np.savez(tmp_path / "weights.npz", **arrays)
    with pytest.raises(InputError, match="allow_pickle=False"):
        load_backbone(BackboneSpec(TINY, weights=tmp_path / "weights.npz"))
    assert not (tmp_path / "exploded").exists()


def test_a_bare_architecture_gets_its_tag_and_says_so(caplog, tiny_file):
    assert load_backbone(BackboneSpec("test_vit", weights=tiny_file)).name == TINY
    assert "backbone test_vit means test_vit.r160_in1k" in caplog.text
    assert resolve_name("tiny_vit_5m_224") == EMBEDDED
    assert resolve_name("vit_tiny_patch16_224_in21k") == "vit_tiny_patch16_224.augreg_in21k"
    caplog.clear()
    assert resolve_name(TINY) == TINY
    assert not caplog.text


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(InputError, match=r"no backbone 'vit_bse_patch16_224'; nearest: vit_base_patch16_224"):
        load_backbone(BackboneSpec("vit_bse_patch16_224"))
    with pytest.raises(InputError, match=r"nearest: vit_base_patch16_224\.augreg_in21k_ft_in1k"):
        load_backbone(BackboneSpec("vit_base_patch16_224.augreg_in21k_ft_in2k"))
    with pytest.raises(InputError, match="the embedded one is tiny_vit_5m_224"):
        load_backbone(BackboneSpec("???"))


def test_an_architecture_without_weights_asks_for_a_file():
    with pytest.raises(
        InputError, match=r"no pre-trained weights for vit_base_patch16_xp_224.*; pass weights=FILE"
    ):
        load_backbone(BackboneSpec("vit_base_patch16_xp_224"))
