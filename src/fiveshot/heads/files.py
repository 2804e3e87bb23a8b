"""Save and load a fitted head: one safetensors file, no pickle; predictions after loading are the same bits.

Of a head of tensors they are the same up to rounding: its arrays come back as NumPy's.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from fiveshot import __version__
from fiveshot.core import Calibration, ClassStatistics, Memory
from fiveshot.core.arrays import Array, as_numpy
from fiveshot.core.draws import Sampling
from fiveshot.core.labels import python_labels
from fiveshot.core.lda import Prior
from fiveshot.core.statistics import statistics_arrays, statistics_from_arrays
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.heads.head import FewShotHead, on_device
from fiveshot.heads.registry import head_class
from fiveshot.heads.tuned import plain_head
from fiveshot.plugins import same_origin
from fiveshot.storage import read_tensors, write_tensors

KIND, VERSION = "head", 1
VALUES: dict[str, Any] = {"Calibration": Calibration, "Prior": Prior, "Sampling": Sampling}


class _UnknownHeadError(KeyError):
    """A file names a class of heads that is not known here."""

    def __str__(self) -> str:
        return str(self.args[0])


def save_head(head: FewShotHead, path: str | os.PathLike[str]) -> None:
    """Write a fitted head to one file, atomically.

    Parameters
    ----------
    head : FewShotHead
        Of this package, or registered.
    path : str or path
        The file.

    Raises
    ------
    InputError
        A head that has learned nothing, or whose class is not registered.
    StorageError
        A file that cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.heads import load_head, make_head, save_head
    >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_head(head, f"{folder}/birds.safetensors")
    ...     load_head(f"{folder}/birds.safetensors").classes_.tolist()
    ['owl', 'wren']
    """
    for kind in {type(head), type(plain_head(head))}:
        known = head_class(kind.__name__)
        if known is None or not same_origin(known, kind):
            raise InputError(
                f"{kind.__name__} of {kind.__module__} is not registered, and a file of it could not be read "
                "again; call fiveshot.heads.register_head first"
            )
    write_head(head, path)


def write_head(head: FewShotHead, path: str | os.PathLike[str]) -> None:
    """Write a fitted head of any class; only :func:`read_head`, which is told the class, reads all of them."""
    if not hasattr(head, "memory_"):
        raise InputError(f"{type(head).__name__} has learned nothing yet; fit it before saving")
    arrays: dict[str, Array] = {}
    memory = {}
    for part in ("base", "new"):
        statistics: ClassStatistics = getattr(head.memory_, part)
        arrays.update({f"{part}.{name}": array for name, array in statistics_arrays(statistics).items()})
        memory[part] = python_labels(statistics.labels)
    more, extra = head.extra_state()
    arrays.update({name: as_numpy(array) for name, array in more.items()})
    meta = {
        "fiveshot": __version__,
        "head": type(head).__name__,
        "parameters": plain_parameters(head),
        "features": {
            "count": int(head.n_features_in_),
            "names": [str(name) for name in getattr(head, "feature_names_in_", ())],
        },
        "labels": memory,
        "extra": extra,
    }
    write_tensors(path, arrays, kind=KIND, version=VERSION, meta=meta)


def plain_parameters(head: FewShotHead) -> dict[str, Any]:
    """Return the parameters of a head as JSON values."""
    return {key: _plain(value) for key, value in head.get_params(deep=False).items()}


def revived_parameters(plain: dict[str, Any]) -> dict[str, Any]:
    """Return parameters as they were before :func:`plain_parameters`; arrays and lists become tuples."""
    return {key: _revived(value) for key, value in plain.items()}


def load_head(path: str | os.PathLike[str], *, device: Any = None) -> FewShotHead:
    """Read a head that ``save_head`` wrote.

    Parameters
    ----------
    path : str or path
        The file.
    device : str, optional
        Places it elsewhere than it was saved from. On the CPU its arrays are NumPy's.

    Returns
    -------
    FewShotHead

    Raises
    ------
    InputError
        A device that this machine does not have.
    StorageError
        A file that is missing, damaged, or of a head that is not known.

    Examples
    --------
    >>> import tempfile
    >>> from fiveshot.heads import load_head, make_head, save_head
    >>> head = make_head("ncm").fit([[1.0, 0.0], [0.0, 1.0]], ["owl", "wren"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_head(head, f"{folder}/birds.safetensors")
    ...     same = load_head(f"{folder}/birds.safetensors", device="cpu")
    >>> same.predict([[0.9, 0.1]]).tolist()
    ['owl']
    """
    return read_head(path, device=device)


def read_head(
    path: str | os.PathLike[str],
    *,
    kind: type[FewShotHead] | None = None,
    device: Any = None,
) -> FewShotHead:
    """Read a head of a given class, or of the class that the file names."""
    file = read_tensors(path, kind=KIND, version=VERSION)
    try:
        return _restored(kind or _named_class(file.meta["head"]), file.tensors, file.meta, device)
    except _UnknownHeadError as error:
        raise StorageError(
            f"{path} does not hold a complete head of a known class: {str(error)!r} is not one; name the file "
            "that defines it with --plugin or FIVESHOT_PLUGINS, or get a fresh copy of it"
        ) from error
    except (InputError, StorageError):
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise StorageError(f"{path} does not hold a complete head ({error!r}); get a fresh copy of it") from error


def _named_class(name: str) -> type[FewShotHead]:
    known = head_class(name)
    if known is None:
        raise _UnknownHeadError(name)
    return known


def _restored(kind: type[FewShotHead], arrays: dict[str, Array], meta: dict[str, Any], device: Any) -> FewShotHead:
    head = kind(**revived_parameters(meta["parameters"]))
    if device is not None:
        head.set_params(device=device)
    _refuse_absent(head.device)
    arrays = {name: on_device(array, head.device) for name, array in arrays.items()}
    memory = Memory(
        *(statistics_from_arrays(meta["labels"][part], arrays, f"{part}.") for part in ("base", "new"))
    )
    head.n_features_in_ = int(meta["features"]["count"])
    if meta["features"]["names"]:
        head.feature_names_in_ = np.array(meta["features"]["names"], dtype=object)
    head.restore(memory, arrays, meta["extra"])
    return head


def _refuse_absent(device: Any) -> None:
    """Refuse a device that this machine does not have."""
    if not str(device).startswith("cuda") or import_extra("torch", extra="torch").cuda.is_available():
        return
    raise InputError(
        f"the head was saved with device={str(device)!r}, which this machine does not have",
        hint='load it with load_head(path, device="cpu")',
    )


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.asdict(value).items()
        return {"type": type(value).__name__, **{key: _plain(item) for key, item in fields}}
    if isinstance(value, FewShotHead):
        return {"type": type(value).__name__, **plain_parameters(value)}
    if type(value).__module__ == "torch":  # a device
        return str(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _revived(value: Any) -> Any:
    if isinstance(value, dict):
        fields = dict(value)
        kind = fields.pop("type")
        return VALUES[kind](**fields) if kind in VALUES else _named_class(kind)(**revived_parameters(fields))
    return tuple(value) if isinstance(value, list) else value
