"""Publish and fetch models on the Hugging Face hub or in a folder: a portable file and a model card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from fiveshot import __version__
from fiveshot.backbones import EMBEDDED
from fiveshot.errors import InputError, StorageError, counted
from fiveshot.extras import import_extra, is_installed
from fiveshot.features import default_cache_folder
from fiveshot.hub import HUB, LIBRARY, hub_errors, repository_name
from fiveshot.recognizer.advice.evaluation import Evaluation
from fiveshot.recognizer.shipping._portable import import_model
from fiveshot.recognizer.store.contents import file_sha256
from fiveshot.storage import FilePath, atomic_path
from fiveshot.values import ModelInfo, to_json

MODEL_FILE, CARD = "model.fiveshot", "README.md"
LOCAL = "file://"
MOST_LISTED = 500  # classes in a card
HEADER = """---
library_name: fiveshot
pipeline_tag: image-classification
tags:
- fiveshot
- few-shot
- class-incremental
---
"""
USE = """# {title}

An image classifier of {classes}, made with fiveshot {release}: each class is learned from a few photos, and more
can be added without training.

## How to use it

```python
from fiveshot.recognizer import from_pretrained

model = from_pretrained("{source}")
print(model.predict("photo.jpg")[0].label)
```

The file is not trusted: it is checked when it is loaded, and no code in it is run.
"""
LIMITS = """## Intended use and limits

It tells the classes above apart in photos like those it was taught with, and was not tested for anything else.
Photos of other things are called unknown only as far as said above. It inherits what its backbone was trained on.
Do not use it to make decisions about people.
"""
_FIGURES = {
    "accuracy": "known photos whose best candidate is right",
    "accepted_accuracy": "the same among those not called unknown",
    "false_rejection": "known photos called unknown",
    "unsure": "known photos unsure between two classes",
    "unknown_rejection": "photos of other classes called unknown",
    "calibration_error": "expected calibration error of the probabilities",
}


@dataclass(frozen=True)
class Place:
    """Where a model is published: a repository on the hub or a folder; the other attribute is None.

    >>> Place.of("hf://me/birds").repository, Place.of("me/birds").repository, Place.of("file:///srv/birds").folder
    ('me/birds', 'me/birds', PosixPath('/srv/birds'))
    """

    repository: str | None
    folder: Path | None

    @classmethod
    def of(cls, source: FilePath, *, must_exist: bool = False) -> Place:
        """Read an address. With ``must_exist``, an existing folder is preferred to a repository."""
        text = str(source)
        if text.startswith(LOCAL):
            parts = urlsplit(text)
            if parts.netloc not in ("", "localhost"):
                raise InputError(f"{text} names another machine", hint="write file:///path/to/folder")
            return cls(None, Path(url2pathname(parts.path)))
        name = text.removeprefix(HUB)
        if name == text and (not isinstance(source, str) or text.startswith((".", "/", "~", "\\"))):
            return cls(None, Path(text).expanduser())
        if name == text and must_exist and (Path(text) / MODEL_FILE).is_file():
            return cls(None, Path(text))
        return cls(repository_name(text), None)

    def __str__(self) -> str:
        return f"{HUB}{self.repository}" if self.repository else str(self.folder)


def publish(
    place: Place, portable: Path, card: str, *, private: bool = False, token: str | None = None, message: str = ""
) -> str:
    """Publish a portable file and its model card; return their address."""
    if place.folder is not None:
        place.folder.mkdir(parents=True, exist_ok=True)
        with atomic_path(place.folder / MODEL_FILE) as temporary:
            temporary.write_bytes(portable.read_bytes())
        with atomic_path(place.folder / CARD) as temporary:
            temporary.write_text(card, encoding="utf-8")
        return str(place.folder)
    hub = import_extra("huggingface_hub", extra="hub")
    with _hub_errors(place):
        api = hub.HfApi(token=token, **LIBRARY)
        api.create_repo(place.repository, private=private, exist_ok=True)
        added = [hub.CommitOperationAdd(MODEL_FILE, str(portable)), hub.CommitOperationAdd(CARD, card.encode())]
        api.create_commit(place.repository, added, commit_message=message or "A model of fiveshot")
    return f"{api.endpoint}/{place.repository}"


def fetch(place: Place, *, revision: str | None = None, token: str | None = None) -> Path:
    """Return the portable file of a place; the hub's client caches it."""
    if place.folder is not None:
        if revision is not None:
            raise InputError("a folder has no revisions", hint="leave the revision out")
        file = place.folder / MODEL_FILE
        if not file.is_file():
            raise StorageError(f"there is no {MODEL_FILE} in {place.folder}", code="not_found")
        return file
    hub = import_extra("huggingface_hub", extra="hub")
    with _hub_errors(place):
        return Path(
            hub.hf_hub_download(
                place.repository,
                MODEL_FILE,
                revision=revision,
                token=token,
                **LIBRARY,
            )
        )


def kept_copy(file: Path) -> Path:
    """Return the model of a portable file in the user's cache, made on first use; it is read-only."""
    path = default_cache_folder().parent / "models" / file_sha256(file)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            import_model(file, path)
        except StorageError as error:
            if error.code != "exists":  # another process was faster
                raise
    return path


def _hub_errors(place: Place) -> AbstractContextManager[None]:
    return hub_errors(place, lacking=f"it holds no {MODEL_FILE}", hint="it was not made with push_to_hub")


def model_card(
    info: ModelInfo,
    place: Place,
    *,
    title: str,
    evaluation: Evaluation | Mapping[str, Any] | None = None,
    pictures: bool = False,
) -> str:
    """Return the model card: Markdown after a block of YAML, as the hub shows it."""
    parts = (
        HEADER,
        _about(info, place, title),
        _classes(info),
        _made_of(info),
        _unknown(info),
        _results(evaluation),
    )
    return "\n".join((*parts, LIMITS, _inside(info, pictures=pictures)))


def _about(info: ModelInfo, place: Place, title: str) -> str:
    source = place.repository or "./FOLDER"  # its folder may be private
    return USE.format(
        title=_plain(title), classes=counted(len(info.classes), "class"), release=__version__, source=source
    )


def _classes(info: ModelInfo) -> str:
    rows = [f"| {_plain(one.name)} | {one.photos:,} |" for one in info.classes[:MOST_LISTED]]
    more = len(info.classes) - len(rows)
    last = f"\nand {more:,} more.\n" if more else ""
    return "\n".join(["## Classes\n", "| class | photos |", "|---|---|", *rows, last])


def _made_of(info: ModelInfo) -> str:
    adapter = " with an adapter, which is inside" if info.adapter else ""
    rows = [
        ("backbone", f"{_plain(info.backbone)}{adapter}; its weights are not inside, and found by their name"),
        ("license of the backbone", _license(info.backbone)),
        ("views of a photo", str(info.views)),
        ("head", _plain(info.head)),
        ("base classes", f"{info.base_classes:,} of {len(info.classes):,}"),
    ]
    return "\n".join(["## What it is made of\n", "| | |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows), ""])


def _license(backbone: str) -> str:
    """Return the license of a backbone's weights, if it is known."""
    if backbone == EMBEDDED:
        return "MIT"
    if is_installed("timm"):
        config = import_extra("timm").get_pretrained_cfg(backbone, allow_unregistered=True)
        if config is not None and config.license:
            return _plain(str(config.license))
    return "see where its weights come from"


def _unknown(info: ModelInfo) -> str:
    against = f", {counted(info.negatives, 'photo')} of none of the classes among them" if info.negatives else ""
    return (
        '## When a photo is "unknown"\n\n'
        f"Where it is less familiar than a threshold, {_plain(info.rejection)}{against}. The rate asked for is "
        f"{100 * info.false_rejection:g} % of known photos called unknown.\n"
    )


def _results(evaluation: Evaluation | Mapping[str, Any] | None) -> str:
    if evaluation is None:
        return "## Results\n\nNot measured.\n"
    values = to_json(evaluation) if isinstance(evaluation, Evaluation) else evaluation
    try:
        photos, unknown, learned = (int(values[key]) for key in ("photos", "unknown_photos", "learned_photos"))
        rows = [
            f"| {what} | {100 * float(values[key]):.1f} % |"
            for key, what in _FIGURES.items()
            if values[key] is not None
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("these are not results of an evaluation", hint="give those of evaluate") from error
    note = f"{learned:,} of these photos were learned, so the figures promise too much.\n" if learned else ""
    of = f"Measured on {photos:,} photos of known classes and {unknown:,} of others. {note}"
    return "\n".join(["## Results\n", of, "", "| | |", "|---|---|", *rows, ""])


def _inside(info: ModelInfo, *, pictures: bool) -> str:
    learned = counted(sum(one.features for one in info.classes) + info.negatives, "photo")
    small, kept = (sum(getattr(one, kind) for one in info.classes) for kind in ("thumbnails", "kept_photos"))
    if pictures and (small or kept):
        said = f"{small:,} small copies of photos (128 pixels) and {kept:,} photos themselves are inside, too."
    else:
        said = "The photos themselves are not inside, nor small copies of them."
    return (
        "## What is inside\n\n"
        f"Statistics of photos: mean and factor of each class, and of {learned} the vector of features and the "
        "SHA-256 of the file. They tell whether somebody's photo was learned, and something of what it shows. "
        f"{said}\n"
    )


def _plain(text: str) -> str:
    """Escape a text for Markdown."""
    return re.sub(r"([\\`*_{}\[\]()#+!|~>-])", r"\\\1", escape(text, quote=False).replace("\n", " "))
