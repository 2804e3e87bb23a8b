from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from fiveshot.errors import FiveshotError, InputError, StorageError
from fiveshot.storage import HEADER, Blocks, begins_as_ours, file_kind, read_tensors, write_tensors

TENSORS = {
    "means": np.arange(12, dtype=np.float32).reshape(3, 4),
    "counts": np.array([5, 1, 30]),
    "factors": np.empty((0, 4)),
    "half": np.array([0.5, np.inf], np.float16),
    "scalar": np.array(2.5),
    "mask": np.array([True, False, True]),
    "bytes": np.arange(3, dtype=np.uint8),
    "seeds": np.array([2**64 - 1], np.uint64),
}
NOBODY = 65534
META = {"labels": ["ara", "Ω-owl"], "nested": {"tau": 16.0, "beta": None}}

# Writes 4 MB over an existing file, then to a new one, and may write 100 kB per file: a full disk ends it so.
FULL_DISK = """
import resource, sys
import numpy as np
from fiveshot.errors import StorageError
from fiveshot.storage import write_tensors
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for path in sys.argv[1:]:
    try:
        write_tensors(path, {"x": np.zeros(1_000_000)}, kind="head", version=1, meta={})
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
        assert file.tensors[name].shape == tensor.shape
        np.testing.assert_array_equal(file.tensors[name], tensor)


def test_the_library_reads_what_was_written(tmp_path: Path) -> None:
    with safe_open(write(tmp_path / "x"), framework="numpy") as file:
        assert json.loads(file.metadata()[HEADER]) == {"kind": "head", "version": 3, "meta": META}
        for name, tensor in TENSORS.items():
            np.testing.assert_array_equal(file.get_tensor(name), tensor)


def test_a_file_of_the_library_is_read(tmp_path: Path) -> None:
    header = json.dumps({"kind": "head", "version": 3, "meta": META})
    save_file(TENSORS, tmp_path / "x", metadata={HEADER: header, "a": "b"})
    file = read_tensors(tmp_path / "x", kind="head", version=3)
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(file.tensors[name], tensor)


def test_views_strides_and_byte_orders_are_written_as_values(tmp_path: Path) -> None:
    whole = np.arange(24.0).reshape(4, 6)
    odd = {"t": whole.T, "rows": whole[1:3], "column": whole[:, 2], "big": whole.astype(">f4"), "same": whole}
    write_tensors(tmp_path / "x", odd, kind="k", version=1, meta={})
    read = read_tensors(tmp_path / "x", kind="k", version=1).tensors
    for name, value in odd.items():
        np.testing.assert_array_equal(read[name], value)


def test_tensors_of_torch_are_written_as_values(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    odd = {"t": torch.ones(2, 3).T, "leaf": torch.ones(3, requires_grad=True), "step": torch.tensor(4.0)}
    write_tensors(tmp_path / "x", odd, kind="k", version=1, meta={})
    read = read_tensors(tmp_path / "x", kind="k", version=1).tensors
    for name, value in odd.items():
        assert torch.equal(torch.from_numpy(read[name]), value.detach())


def test_blocks_are_written_one_by_one(tmp_path: Path) -> None:
    whole = np.arange(12.0).reshape(4, 3)
    blocks = Blocks(np.dtype(np.float32), (4, 3), (whole[i : i + 1] for i in range(4)))
    write_tensors(tmp_path / "x", {"rows": blocks, "y": whole}, kind="k", version=1, meta={})
    read = read_tensors(tmp_path / "x", kind="k", version=1).tensors["rows"]
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, whole)


def test_blocks_that_do_not_fill_their_shape_keep_the_old_file(tmp_path: Path) -> None:
    old = write(tmp_path / "x").read_bytes()
    blocks = Blocks(np.dtype(np.float32), (4, 3), (np.zeros((1, 3)) for _ in range(3)))
    with pytest.raises(StorageError, match=r"rows does not have the \(4, 3\) values expected"):
        write_tensors(tmp_path / "x", {"rows": blocks}, kind="k", version=1, meta={})
    assert (tmp_path / "x").read_bytes() == old


def test_arrays_are_mapped_and_changing_them_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "x")
    old = path.read_bytes()
    means = read_tensors(path, kind="head", version=3).tensors["means"]
    base = means
    while base.base is not None and isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base.base, mmap.mmap)
    means[:] = 7
    assert path.read_bytes() == old


@pytest.mark.parametrize("shift", range(8))
def test_arrays_at_odd_offsets_are_read(tmp_path: Path, shift: int) -> None:
    """Other programs need not pad the header, as long as it is valid JSON."""
    whole = write(tmp_path / "x").read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = whole[8 : 8 + length] + b" " * shift
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header + whole[8 + length :])
    file = read_tensors(tmp_path / "x", kind="head", version=3)
    for name, tensor in TENSORS.items():
        assert file.tensors[name].flags.aligned
        np.testing.assert_array_equal(file.tensors[name], tensor)


def test_element_types_that_numpy_lacks_are_refused(tmp_path: Path) -> None:
    whole = write(tmp_path / "x").read_bytes()
    (tmp_path / "x").write_bytes(whole.replace(b'"dtype":"F16"', b'"dtype":"BF16"', 1).replace(b"}  ", b"} ", 1))
    with pytest.raises(StorageError, match="half has elements of type BF16"):
        read_tensors(tmp_path / "x", kind="head", version=3)
    with pytest.raises(InputError, match="complex"):
        write_tensors(tmp_path / "x", {"x": np.zeros(1, complex)}, kind="k", version=1, meta={})


def test_neither_reading_nor_writing_imports_torch() -> None:
    code = "import sys, fiveshot.storage; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_older_version_is_read(tmp_path: Path) -> None:
    assert read_tensors(write(tmp_path / "x", version=1), kind="head", version=3).meta == META


def test_a_newer_version_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"format version 4, this release reads up to 3; upgrade with: pip"):
        read_tensors(write(tmp_path / "x", version=4), kind="head", version=3)


def test_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a fiveshot adapter file, not a head file; choose another file"):
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
    with pytest.raises(
        StorageError, match=r"holds no fiveshot head: .* another program; choose a file that fiveshot wrote"
    ):
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
    save_file({"x": np.zeros(1)}, tmp_path / "x", metadata={HEADER: text})
    with pytest.raises(StorageError, match="holds no fiveshot head"):
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
        np.testing.assert_array_equal(file.tensors[name], tensor)
        np.testing.assert_array_equal(again.tensors[name], tensor)


def sealed(path: Path) -> Path:
    write_tensors(path, TENSORS, kind="head", version=3, meta=META, seal=True)
    return path


def test_a_sealed_file_is_read_like_any_other(tmp_path: Path) -> None:
    path = sealed(tmp_path / "x.safetensors")
    for asked in (True, False):
        file = read_tensors(path, kind="head", version=3, sealed=asked)
        assert (file.meta, file.tensors.keys()) == (META, TENSORS.keys())
    with safe_open(path, "np") as file:
        np.testing.assert_array_equal(file.get_tensor("means"), TENSORS["means"])
    assert file_kind(path) == "head"
    assert begins_as_ours(path)


def test_every_flipped_bit_of_a_sealed_file_is_refused(tmp_path: Path) -> None:
    path = sealed(tmp_path / "x.safetensors")
    data = path.read_bytes()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(StorageError):
            read_tensors(path, kind="head", version=3, sealed=True)


def test_a_sealed_file_has_neither_less_nor_more_bytes(tmp_path: Path) -> None:
    path = sealed(tmp_path / "x.safetensors")
    data = path.read_bytes()
    for other in (*(data[:length] for length in range(0, len(data), 7)), data + b"\0", data + data):
        path.write_bytes(other)
        with pytest.raises(StorageError, match=r"truncated|no SHA-256"):
            read_tensors(path, kind="head", version=3, sealed=True)


def test_a_file_without_a_seal_is_refused_where_one_is_wanted(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not hold its SHA-256; get a fresh copy"):
        read_tensors(write(tmp_path / "x.safetensors"), kind="head", version=3, sealed=True)
