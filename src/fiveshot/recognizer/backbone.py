"""The backbone of a model: loaded when photos come, and only if it is the one the model was made with."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from fiveshot.backbones import Preprocessing
from fiveshot.errors import InputError, StorageError
from fiveshot.features import Runner, load_runner
from fiveshot.recognizer.base_file import file_sha256
from fiveshot.recognizer.manifest import BackboneRecord
from fiveshot.storage import FilePath


def backbone_record(runner: Runner, *, weights: FilePath | None = None) -> BackboneRecord:
    """Return what names this backbone; its adapter is added when its file has a place."""
    own = runner.backbone
    readout = asdict(own.readout)
    return BackboneRecord(
        own.name,
        own.width,
        runner.fingerprint,
        own.preprocessing.to_json(),
        readout["tokens"],
        readout["last_blocks"],
        own.weights_hash,
        "" if weights is None else str(Path(weights).absolute()),
    )


def open_backbone(
    record: BackboneRecord,
    folder: Path,
    *,
    weights: FilePath | None = None,
    device: str = "auto",
    runtime: str = "auto",
) -> Runner:
    """Load the backbone a model was made with; another one, or another adapter, is refused.

    Features are computed in float32 on every device, so that a model may move between machines.
    """
    adapter = None
    if record.adapter:
        adapter = folder / record.adapter
        if not adapter.is_file() or file_sha256(adapter) != record.adapter_sha256:
            raise StorageError(f"{adapter} is missing or damaged; restore the model from a copy")
    file = weights or record.weights or None
    if file is not None and not Path(file).is_file():
        raise StorageError(
            f"the weights of {record.name} are not at {file}; "
            "say where they are with weights=FILE (--weights FILE)"
        )
    runner = load_runner(
        record.name,
        weights=file,
        adapter=adapter,
        preprocessing=Preprocessing.from_json(record.preprocessing),
        tokens=record.tokens,
        last_blocks=record.last_blocks,
        device=device,
        runtime=runtime,
        precision="float32",
    )
    if runner.fingerprint != record.fingerprint:
        raise different_backbone(runner, record)
    return runner


def different_backbone(runner: Runner, record: BackboneRecord) -> InputError:
    """Return the error for a backbone that makes other features than those the model has learned."""
    own = runner.backbone
    if own.weights_hash != record.weights_hash:
        found = f"weights {own.weights_hash[:12]}, not {record.weights_hash[:12]}"
        return InputError(
            f"this is not the {record.name} that the model was made with ({found}); "
            "name the right file with weights=FILE (--weights FILE), or make a new model with this backbone"
        )
    return InputError(
        f"{own.name} does not make the features that the model was made with (fingerprint "
        f"{runner.fingerprint[:12]}, not {record.fingerprint[:12]}); use the release that made it, "
        "or make the model anew"
    )
