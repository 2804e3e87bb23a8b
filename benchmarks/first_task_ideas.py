"""Score ideas for first-task tuning on small starts drawn from the base classes of cub200/big.

    python benchmarks/first_task_ideas.py --data DIR    # one GPU

DIR holds train.tar of CUB-200 (short side 160 px), and general-photos.tar for the ideas that need general
photographs. In each split 20 (``--base``) of the 100 base classes play the base of a small start, and the others
are learned from 5 shots each, in two draws. Five photos of each base class are held out of tuning. The default
head predicts these and all photos of new classes that are not shots, with two views. No test photo is read. The
table has the change against the network without an adapter, in points: the harmonic mean of the accuracies on
base and new classes with its standard error over splits, and the accuracy on new classes; with the adapter's
output as trained, and halved. The last column has the difference from today's recipe on the same splits.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import math
import os
import tarfile
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import torch
from adapter_search import merge
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from fiveshot.backbones import (
    Backbone,
    BackboneSpec,
    Preprocessing,
    adapter_state,
    adapters,
    attach_adapters,
    detach_adapters,
    load_backbone,
)
from fiveshot.backbones.backbone import normalize_tensor, read_features
from fiveshot.benchmark import get_protocol
from fiveshot.heads import make_head
from fiveshot.tuning import few_shot_score
from fiveshot.tuning.material import class_folds

SIDE = 256  # pixels of the squeezed photos that are cropped
HELD_OUT, SHOTS, DRAWS = 5, 5, 2


@dataclass(frozen=True)
class Idea:
    """How to train; the defaults are the recipe `ours` before its classifier started from the class means."""

    lr: float = 1e-3
    epochs: int = 20
    margin: float = 0.1
    scale: float = 16.0
    dropout: float = 0.1
    crop: float = 0.08  # least share of the area
    whole: float = 0.25
    start: str = "random"  # of the classifier: or "means", of each class
    centered: bool = False  # subtract the mean of the features before training
    whitened: bool = False  # whiten by the covariance within classes of the plain network
    frozen: bool = False  # the classifier is not trained
    near_plain: float = 0.0  # weight of 1 - cos(feature, feature of the plain network)
    near_relations: float = 0.0  # weight of changes in the cosines between the images of a batch
    mix: float = 0.0  # of mixup's beta distribution
    cut: float = 0.0  # of CutMix's
    contrast: float = 0.0  # share of the supervised contrastive loss
    turned: bool = False  # photos turned by a quarter are other classes
    merged: int = 1  # adapters trained from the same first weights, in other orders, and averaged
    crops: int = 1  # of each photo, whose features are averaged before the loss
    near_views: float = 0.0  # of 1 - cos(feature, feature of the plain network over both views of the photo)
    near_general: float = 0.0  # the same for general photographs and the same crop
    last: int | None = None  # only these last adapters are trained
    bottleneck: int = 64
    decay: float = 0.01  # of the weights
    batch: int = 64
    stop: tuple[int, ...] = ()  # epochs to choose from, by left-out base classes


_CROP = Idea(crop=0.35)
_MEANS = replace(_CROP, start="means", centered=True)
IDEAS = {
    "ours": Idea(),
    "crops of 25 % or more": Idea(crop=0.25),
    "crops of 50 % or more": Idea(crop=0.5),
    "class means": Idea(start="means"),
    "class means, centered": Idea(start="means", centered=True),
    "class means, centered, crops of 35 %": _MEANS,
    "class means, centered, kept, crops of 35 %": replace(_MEANS, frozen=True),
    "class means, whitened, crops of 35 %": replace(_MEANS, centered=False, whitened=True, margin=0),
    "class means, whitened, kept, crops of 35 %": replace(
        _MEANS, centered=False, whitened=True, frozen=True, margin=0
    ),
    "no margin, crops of 35 %": replace(_CROP, margin=0),
    "margin 0.2, crops of 35 %": replace(_CROP, margin=0.2),
    "rate 0.0005, crops of 35 %": replace(_CROP, lr=5e-4),
    "rate 0.002, crops of 35 %": replace(_CROP, lr=2e-3),
    "near the plain features, 1": replace(_CROP, near_plain=1),
    "near the plain features, 5": replace(_CROP, near_plain=5),
    "near the plain features, 20": replace(_CROP, near_plain=20),
    "near the plain relations, 5": replace(_CROP, near_relations=5),
    "near the plain relations, 30": replace(_CROP, near_relations=30),
    "mixup": replace(_CROP, mix=0.4),
    "CutMix": replace(_CROP, cut=1),
    "half contrastive": replace(_CROP, contrast=0.5),
    "contrastive": replace(_CROP, contrast=1),
    "quarter turns as classes": replace(_CROP, turned=True),
    "dropout 0.5": replace(_CROP, dropout=0.5),
    "40 epochs": replace(_CROP, epochs=40),
    "10 epochs": replace(_CROP, epochs=10),
    "half of the views whole": replace(_CROP, whole=0.5),
    "cosine scale 32": replace(_CROP, scale=32),
    "cosine scale 8": replace(_CROP, scale=8),
    "class means, centered, near the plain features": replace(_MEANS, near_plain=5),
    "half contrastive, near the plain features": replace(_CROP, contrast=0.5, near_plain=5),
    "class means, centered, mixup": replace(_MEANS, mix=0.4),
    "class means, centered, half contrastive": replace(_MEANS, contrast=0.5),
}
NOW = "now"  # the recipe `ours`
_NOW = Idea(start="means")
IDEAS |= {
    NOW: _NOW,
    "now, two merged": replace(_NOW, merged=2),
    "now, four merged": replace(_NOW, merged=4),
    "now, rate 0.002, four merged": replace(_NOW, lr=2e-3, merged=4),
    "now, mixup": replace(_NOW, mix=0.4),
    "now, mixup, four merged": replace(_NOW, mix=0.4, merged=4),
    "now, two crops averaged": replace(_NOW, crops=2),
    "now, two crops averaged, four merged": replace(_NOW, crops=2, merged=4),
    "now, near the views, 1": replace(_NOW, near_views=1),
    "now, near general photos, 5": replace(_NOW, near_general=5),
    "now, near general photos, 30": replace(_NOW, near_general=30),
    "now, last four adapters": replace(_NOW, last=4),
    "now, bottleneck 16": replace(_NOW, bottleneck=16),
    "now, bottleneck 256": replace(_NOW, bottleneck=256),
    "now, decay 0.1": replace(_NOW, decay=0.1),
    "now, cosine scale 32": replace(_NOW, scale=32),
    "now, half of the views whole": replace(_NOW, whole=0.5),
    "now, batches of 32": replace(_NOW, batch=32),
    "now, epochs by left-out classes": replace(_NOW, stop=(5, 10, 20, 40)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", default="0,1,2,3,4,5")
    parser.add_argument("--base", type=int, default=20, help="classes that play the base")
    parser.add_argument("--ideas", default=";".join(IDEAS), help="names, separated by ';'")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--log", type=Path, default=Path("first_task_ideas.jsonl"), help="append every gain to it")
    given = parser.parse_args()
    backbone = load_backbone(BackboneSpec(device=given.device, views=2))
    photos = load_photos(given.data, backbone.preprocessing)
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        for split in map(int, given.splits.split(",")):
            for gain in play(backbone, photos, given.ideas.split(";"), split, given.base, pool):
                with given.log.open("a") as log:
                    log.write(json.dumps(gain) + "\n")
    print(table([json.loads(line) for line in given.log.read_text().splitlines()]))


def table(found: list[dict[str, Any]]) -> str:
    """Return the mean gain of each idea over the splits, and how much more that is than today's recipe gains."""
    gains: dict[tuple[int, str, float], dict[int, Any]] = {}
    for one in found:
        own = gains.setdefault((one["base"], one["idea"], one["output"]), {})
        own[one["split"]] = 100 * np.array([one["hm"], one["new"]])
    lines = ["| base | idea | output | splits | harmonic mean | new classes | more than now |", "|---" * 7 + "|"]
    for (base, name, output), own in gains.items():
        now = gains.get((base, NOW, 1.0), {})
        more = [own[split][0] - now[split][0] for split in own.keys() & now.keys()]
        hm, new = np.array(list(own.values())).T
        cells = [str(base), name, f"x {output:g}", str(len(own)), spread(hm), f"{new.mean():+.2f}", spread(more)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: Any) -> str:
    """Return the mean and its standard error."""
    if not len(values):
        return ""
    return f"{np.mean(values):+.2f} ± {np.std(values) / math.sqrt(max(1, len(values) - 1)):.2f}"


@dataclass(frozen=True, eq=False)
class Photos:
    squeezed: np.ndarray  # (n, 3, SIDE, SIDE)
    ratios: np.ndarray  # (n,) width / height
    views: np.ndarray  # (n, 2, 3, size, size)
    labels: np.ndarray  # (n,) of folder names
    general: np.ndarray  # (m, 3, SIDE, SIDE) of general photographs, squeezed
    general_ratios: np.ndarray  # (m,)


def load_photos(folder: Path, preprocessing: Preprocessing) -> Photos:
    """Read all training photographs of the base classes of the big start, and general photographs if present."""
    named = read_tar(folder / "train.tar")
    folders = sorted({Path(name).parent.name for name in named})
    base = {folders[index] for index in get_protocol("cub200/big").session_classes[0]}
    named = {name: data for name, data in named.items() if Path(name).parent.name in base}
    others = read_tar(folder / "general-photos.tar") if (folder / "general-photos.tar").is_file() else {}
    with ProcessPoolExecutor() as pool:
        data = [*named.values(), *others.values()]
        made = list(pool.map(load_photo, data, [preprocessing] * len(data), chunksize=64))
    squeezed, ratios, views = (np.stack(values) for values in zip(*made, strict=True))
    labels = np.array([Path(name).parent.name for name in named])
    n = len(labels)
    return Photos(squeezed[:n], ratios[:n], views[:n], labels, general=squeezed[n:], general_ratios=ratios[n:])


def read_tar(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


def load_photo(data: bytes, preprocessing: Preprocessing) -> tuple[np.ndarray, np.float32, np.ndarray]:
    image = PIL.Image.open(io.BytesIO(data)).convert("RGB")
    squeezed = np.asarray(image.resize((SIDE, SIDE), PIL.Image.Resampling.BICUBIC)).transpose(2, 0, 1)
    return squeezed, np.float32(image.width / image.height), preprocessing.pixels(image)


def play(
    backbone: Backbone, photos: Photos, names: list[str], split: int, n_base: int, pool: ProcessPoolExecutor
) -> Iterator[dict[str, Any]]:
    """Yield the gain of each idea on one small start: harmonic mean, and accuracy on new classes."""
    rng = np.random.default_rng([7, split])
    base = rng.permutation(np.unique(photos.labels))[:n_base]
    rows = {name: rng.permutation(np.flatnonzero(photos.labels == name)) for name in base}
    held = np.concatenate([some[:HELD_OUT] for some in rows.values()])
    train = np.concatenate([some[HELD_OUT:] for some in rows.values()])
    plain = features_of(backbone, photos.views)

    def asked(features: np.ndarray) -> list[Future[tuple[float, float]]]:
        known = (features, photos.labels, train, held)
        return [pool.submit(accuracies, *known, seed=(split, draw)) for draw in range(DRAWS)]

    hm, new = summary(asked(plain))
    for name in names:
        idea = IDEAS[name]
        if idea.stop:
            idea = replace(idea, epochs=best_epochs(backbone, photos, train, plain, idea, seed=split))
        tune_merged(backbone, photos, train, plain, idea, seed=split)
        after = {}
        for output in (0.5, 1.0):
            for adapter in adapters(backbone.model):
                adapter.scale = 0.1 * output
            after[output] = asked(features_of(backbone, photos.views))
        detach_adapters(backbone.model)
        for output, jobs in after.items():
            now_hm, now_new = summary(jobs)
            found = {"hm": now_hm - hm, "new": now_new - new, "epochs": idea.epochs}
            yield {"idea": name, "output": output, "base": n_base, "split": split} | found


def best_epochs(
    backbone: Backbone, photos: Photos, rows: np.ndarray, plain: np.ndarray, idea: Idea, *, seed: int
) -> int:
    """Return the number of epochs whose adapters are best for base classes that are left out of tuning."""
    labels = np.unique(photos.labels[rows], return_inverse=True)[1]
    scores = dict.fromkeys(idea.stop, 0.0)
    for left in class_folds(labels, share=0.25, folds=2, least_images=6, seed=seed):
        is_new = np.isin(labels, left)
        for epochs in idea.stop:
            tune(backbone, photos, rows[~is_new], plain, replace(idea, epochs=epochs), seed=seed)
            features = torch.from_numpy(features_of(backbone, photos.views[rows]))
            detach_adapters(backbone.model)
            old, new = (torch.from_numpy(np.flatnonzero(some)) for some in (~is_new, is_new))
            scores[epochs] += few_shot_score(
                features[old],
                labels[~is_new],
                features[new],
                labels[is_new],
                features[:0],
                labels[:0],
                rng=np.random.default_rng(seed),
            ).new
    return max(scores, key=lambda epochs: scores[epochs])


def tune_merged(
    backbone: Backbone, photos: Photos, rows: np.ndarray, plain: np.ndarray, idea: Idea, *, seed: int
) -> None:
    """Train adapters once or several times from the same first weights, and keep their mean."""
    states = []
    for run in range(idea.merged):
        detach_adapters(backbone.model)
        tune(backbone, photos, rows, plain, idea, seed=seed, order=run)
        states.append(adapter_state(backbone.model))
    backbone.model.load_state_dict(merge(states), strict=False)


def summary(jobs: list[Future[tuple[float, float]]]) -> tuple[float, float]:
    old, new = np.mean([job.result() for job in jobs], axis=0)
    return 2 * old * new / (old + new), new


def accuracies(
    features: np.ndarray, labels: np.ndarray, train: np.ndarray, held: np.ndarray, *, seed: tuple[int, int]
) -> tuple[float, float]:
    """Return the accuracy of the default head on held-out photographs of base classes, and on new classes."""
    rng = np.random.default_rng(seed)
    new = [rng.permutation(np.flatnonzero(labels == name)) for name in np.setdiff1d(labels, labels[train])]
    shots = np.concatenate([rows[:SHOTS] for rows in new])
    queries = np.concatenate([rows[SHOTS:] for rows in new])
    head = make_head().fit(features[train], labels[train]).partial_fit(features[shots], labels[shots])
    return float(head.score(features[held], labels[held])), float(head.score(features[queries], labels[queries]))


@torch.no_grad()
def features_of(backbone: Backbone, views: np.ndarray) -> np.ndarray:
    """Return the mean over the views of each photograph, (n, width)."""
    found = []
    for start in range(0, len(views), 512):
        pixels = torch.from_numpy(views[start : start + 512]).to(backbone.device)
        images = normalize_tensor(pixels.flatten(0, 1), backbone.preprocessing)
        with torch.autocast("cuda", torch.float16, enabled=backbone.device.type == "cuda"):
            vectors = read_features(backbone.model, images, backbone.readout)
        found.append(vectors.float().view(len(pixels), views.shape[1], -1).mean(dim=1).cpu())
    return torch.cat(found).numpy()


def tune(
    backbone: Backbone,
    photos: Photos,
    rows: np.ndarray,
    plain: np.ndarray,
    idea: Idea,
    *,
    seed: int,
    order: int = 0,
) -> None:
    """Train fresh adapters on some rows; ``plain`` are the features of all photos before, over both views."""
    model, device = backbone.model, backbone.device
    wants_reference = idea.near_plain or idea.near_relations or idea.near_general
    reference = copy.deepcopy(model).eval() if wants_reference else None
    attach_adapters(model, idea.bottleneck, 0.1, idea.dropout, seed=seed)
    torch.manual_seed(1000 * order + seed)
    drawn = torch.Generator(device).manual_seed(1000 * order + seed)
    labels = torch.from_numpy(np.unique(photos.labels[rows], return_inverse=True)[1]).to(device)
    squeezed, ratios = (torch.from_numpy(values[rows]).to(device) for values in (photos.squeezed, photos.ratios))
    general, general_ratios = (
        torch.from_numpy(values).to(device) for values in (photos.general, photos.general_ratios)
    )
    n_classes = int(labels.max()) + 1
    before_training = torch.from_numpy(plain[rows]).to(device)
    space = Space(before_training, labels, idea, drawn)
    used = adapters(model) if idea.last is None else adapters(model)[-idea.last :]
    trained = [parameter for adapter in used for parameter in adapter.parameters()]
    trained += [] if idea.frozen else [space.classifier]
    optimizer = torch.optim.AdamW(trained, idea.lr, weight_decay=idea.decay)
    for adapter in used:
        adapter.train()

    def seen(network: torch.nn.Module, images: Tensor) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
            return read_features(network, images, backbone.readout).float()

    step, steps = 0, idea.epochs * math.ceil(len(rows) / idea.batch)
    for _ in range(idea.epochs):
        for some in torch.randperm(len(rows), generator=drawn, device=device).split(idea.batch):
            optimizer.param_groups[0]["lr"] = idea.lr * (1 + math.cos(math.pi * step / steps)) / 2
            images, target = views_of(squeezed[some], ratios[some], labels[some], n_classes, idea, backbone, drawn)
            images, other, share = mixed(images, target, idea, (seed, step), drawn)
            found = seen(model, images)
            if idea.crops > 1:
                found = found.view(idea.crops, len(some), -1).mean(dim=0)
            loss = space.loss(found, target, other, share)
            if idea.near_views:
                loss = loss + idea.near_views * (1 - F.cosine_similarity(found, before_training[some])).mean()
            if reference is not None:
                if idea.near_general:
                    few = torch.randint(len(general), (len(some),), generator=drawn, device=device)
                    images = crops(general[few], general_ratios[few], idea, backbone, drawn)
                    found = seen(model, images)
                with torch.no_grad():
                    before = seen(reference, images)
                loss = loss + change(found, before, idea)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            step += 1
    model.requires_grad_(False).eval()


class Space:
    """The space in which features and the weights of the temporary classifier are compared."""

    def __init__(self, plain: Tensor, labels: Tensor, idea: Idea, drawn: torch.Generator) -> None:
        self.idea = idea
        width, members = plain.shape[1], F.one_hot(labels).float()
        means = members.T @ plain / members.sum(dim=0)[:, None]
        unit = torch.eye(width, device=plain.device)
        self.origin = plain.mean(dim=0) if idea.centered or idea.whitened else torch.zeros_like(plain[0])
        self.map = unit
        if idea.whitened:
            rest = (plain - means[labels]).double()
            covariance = rest.T @ rest / len(rest)
            shrunk = 0.7 * covariance + 0.3 * covariance.diagonal().mean() * unit.double()
            self.map = torch.linalg.inv(torch.linalg.cholesky(shrunk)).T.float()
        turns = 4 if idea.turned else 1
        bound = 1 / math.sqrt(width)
        weights = torch.empty(turns * len(means), width, device=plain.device).uniform_(
            -bound, bound, generator=drawn
        )
        if idea.start == "means":
            weights = F.normalize((means - self.origin) @ self.map)
        self.classifier = nn.Parameter(weights, requires_grad=not idea.frozen)

    def loss(self, found: Tensor, target: Tensor, other: Tensor, share: float) -> Tensor:
        idea, unit = self.idea, F.normalize((found - self.origin) @ self.map)
        cosines = unit @ F.normalize(self.classifier).T

        def entropy(labels: Tensor) -> Tensor:
            lead = idea.margin * F.one_hot(labels, cosines.shape[1])
            return F.cross_entropy(idea.scale * (cosines - lead), labels)

        loss = share * entropy(target) + ((1 - share) * entropy(other) if share < 1 else 0)
        if idea.contrast:
            itself = torch.eye(len(unit), device=unit.device)
            alike = unit @ unit.T / 0.1 - 1e9 * itself
            same = (target[:, None] == target).float() - itself
            each = -(same * (alike - alike.logsumexp(1, keepdim=True))).sum(1) / same.sum(1).clamp(min=1)
            loss = (1 - idea.contrast) * loss + idea.contrast * each.mean()
        return loss


def change(found: Tensor, before: Tensor, idea: Idea) -> Tensor:
    """Return the penalty on features that differ from those of the plain network."""
    loss = (idea.near_plain + idea.near_general) * (1 - F.cosine_similarity(found, before)).mean()
    if idea.near_relations:
        now, then = (F.normalize(values - values.mean(dim=0)) for values in (found, before))
        loss = loss + idea.near_relations * ((now @ now.T - then @ then.T) ** 2).mean()
    return loss


def views_of(
    squeezed: Tensor,
    ratios: Tensor,
    labels: Tensor,
    n_classes: int,
    idea: Idea,
    backbone: Backbone,
    drawn: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """Return random views for training and their labels; two of each photograph for the contrastive loss."""
    count = 2 if idea.contrast else idea.crops
    views = [crops(squeezed, ratios, idea, backbone, drawn) for _ in range(count)]
    images, labels = torch.cat(views), labels.repeat(2 if idea.contrast else 1)
    if idea.turned:
        turns = torch.randint(0, 4, (len(images),), generator=drawn, device=images.device)
        images = torch.stack([torch.rot90(one, int(k), (1, 2)) for one, k in zip(images, turns, strict=True)])
        labels = labels + n_classes * turns
    return images.contiguous(memory_format=torch.channels_last), labels


def crops(squeezed: Tensor, ratios: Tensor, idea: Idea, backbone: Backbone, drawn: torch.Generator) -> Tensor:
    """Return random crops of photographs whose true width is ``ratio`` times their height."""
    n, size = len(squeezed), backbone.preprocessing.size

    def uniform() -> Tensor:
        return torch.rand(n, device=squeezed.device, generator=drawn)

    area = idea.crop + (1 - idea.crop) * uniform()
    shape = torch.exp(math.log(3 / 4) + math.log(16 / 9) * uniform())
    wide = torch.sqrt(area * ratios * shape).minimum(ratios) / ratios
    tall = torch.sqrt(area * ratios / shape).clamp(max=1)
    left, top = uniform() * (1 - wide), uniform() * (1 - tall)
    whole = uniform() < idea.whole
    wide, tall = torch.where(whole, 1.0, wide), torch.where(whole, 1.0, tall)
    left, top = torch.where(whole, 0.0, left), torch.where(whole, 0.0, top)
    theta = torch.zeros(n, 2, 3, device=squeezed.device)
    theta[:, 0, 0] = wide * torch.where(uniform() < 0.5, -1.0, 1.0)
    theta[:, 0, 2], theta[:, 1, 1], theta[:, 1, 2] = 2 * left + wide - 1, tall, 2 * top + tall - 1
    grid = F.affine_grid(theta, [n, 3, size, size], align_corners=False)
    images = normalize_tensor(squeezed, backbone.preprocessing)
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def mixed(
    images: Tensor, labels: Tensor, idea: Idea, seed: tuple[int, int], drawn: torch.Generator
) -> tuple[Tensor, Tensor, float]:
    """Return images mixed with others of the batch, the labels of the others, and the share of the first."""
    if not idea.mix and not idea.cut:
        return images, labels, 1.0
    order = torch.randperm(len(images), generator=drawn, device=images.device)
    rng: Any = np.random.default_rng(seed)
    share = float(rng.beta(idea.mix or idea.cut, idea.mix or idea.cut))
    if idea.mix:
        return share * images + (1 - share) * images[order], labels[order], share
    side = images.shape[-1]
    hole = int(side * math.sqrt(1 - share))
    top, left = rng.integers(0, side - hole + 1, 2)
    part = (slice(None), slice(None), slice(top, top + hole), slice(left, left + hole))
    images = images.clone()
    images[part] = images[order][part]
    return images, labels[order], 1 - hole * hole / side**2


if __name__ == "__main__":
    main()
