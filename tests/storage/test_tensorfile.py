from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fiveshot.errors import FiveshotError, StorageError
from fiveshot.storage import read_tensors, write_tensors
from fiveshot.storage.tensorfile import HEADER, begins_as_ours, file_kind

TENSORS = {
    "means": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "counts": torch.tensor([5, 1, 30]),
    "factors": torch.empty(0, 4, dtype=torch.float64),
    "half": torch.tensor([0.5, float("inf")], dtype=torch.float16),
}
NOBODY = 65534
META = {"labels": ["ara", "Ω-owl"], "nested": {"tau": 16.0, "beta": None}}

# Writes 4 MB over an existing file, then to a new one, and may write 100 kB per file: a full disk ends it so.
FULL_DISK = """
import resource, sys, torch
from fiveshot.errors import StorageError
from fiveshot.storage import write_tensors
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for path in sys.argv[1:]:
    try:
        write_tensors(path, {"x": torch.zeros(1_000_000)}, kind="head", version=1, meta={})
    except StorageError as error:
        print("refused:", error)
"""


def write(path: Path, **changes: object) -> Path:
    arguments = {"kind": "head", "version": 3, "meta": META} | changes
    write_tensors(path, TENSORS, **arguments)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = read_tensors(write(tmp_path / "x.safetensors"), kind="head", version=3)
    assert file.meta == META
    assert file.tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert file.tensors[name].dtype == tensor.dtype
        assert torch.equal(file.tensors[name], tensor)


def test_views_strides_and_gradients_are_written_as_values(tmp_path: Path) -> None:
    whole = torch.arange(24.0).reshape(4, 6)
    odd = {"t": whole.T, "rows": whole[1:3], "column": whole[:, 2], "leaf": torch.ones(3, requires_grad=True)}
    write_tensors(tmp_path / "x", odd, kind="k", version=1, meta={})
    read = read_tensors(tmp_path / "x", kind="k", version=1).tensors
    assert all(torch.equal(read[name], value) for name, value in odd.items())
    assert not read["leaf"].requires_grad


def test_an_older_version_is_read(tmp_path: Path) -> None:
    assert read_tensors(write(tmp_path / "x", version=1), kind="head", version=3).meta == META


def test_a_newer_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"format version 4, this release reads up to 3; upgrade with: pip"):
        read_tensors(write(tmp_path / "x", version=4), kind="head", version=3)


def test_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="holds a fiveshot adapter, not a head"):
        read_tensors(write(tmp_path / "x", kind="adapter"), kind="head", version=3)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(StorageError, match=f"no such file: {path}"):
            read_tensors(path, kind="head", version=3)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user is needed, and only root can become one")
def test_a_file_that_may_not_be_read_is_there() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = write(Path(folder) / "x")
        path.chmod(0o600)
        os.seteuid(NOBODY)
        try:
            with pytest.raises(StorageError, match=rf"cannot read {path}: Permission denied"):
                read_tensors(path, kind="head", version=3)
        finally:
            os.seteuid(0)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"format": "pt"},
        {HEADER: "not json"},
        {HEADER: "[]"},
        {HEADER: "7"},
        {HEADER: json.dumps({"kind": "head", "version": 1})},
    ],
)
def test_a_foreign_safetensors_file_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    save_file(TENSORS, tmp_path / "x", metadata=metadata)
    with pytest.raises(StorageError, match="not a fiveshot head: it was written by another program"):
        read_tensors(tmp_path / "x", kind="head", version=3)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"kind": "head", "version": 1, "meta": ' + '{"a": ' * 200_000,
        '{"kind": "head", "version": ' + "9" * 5_000 + ', "meta": {}}',  # more digits than Python converts
    ],
)
def test_a_header_made_to_exhaust_the_reader_is_refused(tmp_path: Path, text: str) -> None:
    save_file({"x": torch.zeros(1)}, tmp_path / "x", metadata={HEADER: text})
    with pytest.raises(StorageError, match="not a fiveshot head"):
        read_tensors(tmp_path / "x", kind="head", version=1)


def test_damaged_metadata_is_refused(tmp_path: Path) -> None:
    for header in ({"kind": "head", "version": "1", "meta": {}}, {"kind": "head", "version": 1, "meta": []}):
        save_file(TENSORS, tmp_path / "x", metadata={HEADER: json.dumps(header)})
        with pytest.raises(StorageError):
            read_tensors(tmp_path / "x", kind="head", version=3)


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"PK\x03\x04" + b"x" * 500, b"a photo, not tensors" * 9])
def test_a_foreign_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(
        StorageError, match=r"x is not a fiveshot head file, or it is truncated; get a fresh copy of it$"
    ):
        read_tensors(tmp_path / "x", kind="head", version=3)
    assert file_kind(tmp_path / "x") is None
    assert begins_as_ours(tmp_path / "x") == (content == b"")  # of which nothing can be said


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "whole").read_bytes()
    part = tmp_path / "part"
    for size in range(len(whole)):
        part.write_bytes(whole[:size])
        with pytest.raises(StorageError, match="get a fresh copy"):
            read_tensors(part, kind="head", version=3)
    part.write_bytes(whole)
    assert read_tensors(part, kind="head", version=3).meta == META


def test_a_full_disk_keeps_the_old_file_and_leaves_no_part(tmp_path: Path) -> None:
    old = write(tmp_path / "x").read_bytes()
    paths = [str(tmp_path / "x"), str(tmp_path / "fresh")]
    done = subprocess.run([sys.executable, "-c", FULL_DISK, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        assert line.startswith(f"refused: cannot write {path}: ")
        assert line.endswith("; nothing was left behind")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == old


def test_metadata_that_is_no_json_keeps_the_old_file(tmp_path: Path) -> None:
    old = write(tmp_path / "x").read_bytes()
    for meta in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises((TypeError, ValueError)):
            write(tmp_path / "x", meta=meta)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == old


def test_a_missing_folder_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(FiveshotError, match="create it first"):
        write(tmp_path / "absent" / "x")


def test_writing_over_the_file_it_was_read_from_keeps_the_values(tmp_path: Path) -> None:
    path = write(tmp_path / "x")
    file = read_tensors(path, kind="head", version=3)  # mapped: the old file must stay readable meanwhile
    write_tensors(path, file.tensors, kind="head", version=3, meta={"second": True})
    again = read_tensors(path, kind="head", version=3)
    assert again.meta == {"second": True}
    for name, tensor in TENSORS.items():
        assert torch.equal(file.tensors[name], tensor)
        assert torch.equal(again.tensors[name], tensor)
