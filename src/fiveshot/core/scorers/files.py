"""Save and load a learned scorer: one safetensors file, no pickle; scores after loading are bit-identical.

For a scorer of torch tensors they are equal up to rounding, because its arrays are loaded as NumPy arrays.
"""

from __future__ import annotations

import os
from typing import Any

from fiveshot import __version__
from fiveshot.core.arrays import Array, as_numpy
from fiveshot.core.labels import python_labels
from fiveshot.core.memory import Memory
from fiveshot.core.scorers.inputs import on_device
from fiveshot.core.scorers.parameters import own_parameters, plain_parameters, read_parameters
from fiveshot.core.scorers.recipes import scorer_class
from fiveshot.core.scorers.scorer import Scorer
from fiveshot.core.statistics import ClassStatistics, statistics_arrays, statistics_from_arrays
from fiveshot.errors import InputError, StorageError
from fiveshot.extras import import_extra
from fiveshot.plugins import same_origin
from fiveshot.storage import read_tensors, write_tensors

KIND, VERSION = "head", 2


def save_scorer(
    scorer: Scorer, path: str | os.PathLike[str], *, beside: dict[str, Any] | None = None, any_class: bool = False
) -> None:
    """Write a learned scorer to one file, atomically.

    Parameters
    ----------
    scorer : Scorer
        A learned scorer of this package, or of a registered class.
    path : str or path
        The file.
    beside : dict, optional
        Further JSON values for the file.
    any_class : bool
        Also write a scorer whose class is not registered. Reading it needs ``kind``.

    Raises
    ------
    InputError
        A scorer that has learned nothing, or whose class is not registered.
    StorageError
        A file that cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.core.scorers import load_scorer, make_scorer, save_scorer
    >>> scorer = make_scorer("ncm").learn(np.eye(2), ["owl", "wren"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_scorer(scorer, f"{folder}/birds.safetensors")
    ...     load_scorer(f"{folder}/birds.safetensors")[0].classes.tolist()
    ['owl', 'wren']
    """
    kind = type(scorer)
    known = scorer_class(kind.__name__)
    if not any_class and (known is None or not same_origin(known, kind)):
        raise InputError(
            f"{kind.__name__} of {kind.__module__} is not registered, and a file of it could not be read "
            "again; call fiveshot.core.scorers.register_head first"
        )
    if not scorer.learned:
        raise InputError(f"{kind.__name__} has learned nothing yet; fit it before saving")
    arrays: dict[str, Array] = {}
    labels = {}
    for part in ("base", "new"):
        statistics: ClassStatistics = getattr(scorer.memory, part)
        arrays.update({f"{part}.{name}": array for name, array in statistics_arrays(statistics).items()})
        labels[part] = python_labels(statistics.labels)
    more, values = scorer.state_to_save()
    arrays.update({name: as_numpy(array) for name, array in more.items()})
    meta = {
        "fiveshot": __version__,
        "scorer": kind.__name__,
        "parameters": plain_parameters(own_parameters(scorer)),
        "features": scorer.n_features,
        "labels": labels,
        "values": values,
        "beside": beside or {},
    }
    write_tensors(path, arrays, kind=KIND, version=VERSION, meta=meta)


def load_scorer(
    path: str | os.PathLike[str], *, device: Any = None, kind: type[Scorer] | None = None
) -> tuple[Scorer, dict[str, Any]]:
    """Load a scorer that :func:`save_scorer` wrote, and the values of ``beside``.

    Parameters
    ----------
    path : str or path
        The file.
    device : str, optional
        The device to load it to; the one it was saved from unless given. On the CPU it has NumPy arrays.
    kind : type, optional
        The class of the scorer; the one that the file names unless given.

    Returns
    -------
    Scorer, dict

    Raises
    ------
    InputError
        A device that this machine does not have.
    StorageError
        A file that is missing, damaged, or of a class that is not known.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fiveshot.core.scorers import load_scorer, make_scorer, save_scorer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_scorer(make_scorer("ncm").learn(np.eye(2), ["owl", "wren"]), f"{folder}/birds", beside={"n": 3})
    ...     load_scorer(f"{folder}/birds", device="cpu")[1]
    {'n': 3}
    """
    file = read_tensors(path, kind=KIND, version=VERSION)
    try:
        return _read(kind, file.tensors, file.meta, device), dict(file.meta["beside"])
    except _UnknownClassError as error:
        raise StorageError(
            f"{path} does not hold a complete head of a known class: {str(error)!r} is not one; name the file "
            "that defines it with --plugin or FIVESHOT_PLUGINS, or get a fresh copy of it"
        ) from error
    except (InputError, StorageError):
        raise
    except (KeyError, IndexError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        raise StorageError(f"{path} does not hold a complete head ({error!r}); get a fresh copy of it") from error


class _UnknownClassError(Exception):
    """A file names an unknown class of scorers."""


def _read(kind: type[Scorer] | None, arrays: dict[str, Array], meta: dict[str, Any], device: Any) -> Scorer:
    kind = kind or scorer_class(meta["scorer"])
    if kind is None:
        raise _UnknownClassError(meta["scorer"])
    scorer = kind(**read_parameters(meta["parameters"]))
    if device is not None:
        scorer.device = device
    _refuse_absent(scorer.device)
    arrays = {name: on_device(array, scorer.device) for name, array in arrays.items()}
    memory = Memory(
        *(statistics_from_arrays(meta["labels"][part], arrays, f"{part}.") for part in ("base", "new"))
    )
    scorer.n_features = int(meta["features"])
    return scorer.restored(memory, arrays, meta["values"])


def _refuse_absent(device: Any) -> None:
    """Raise an error for a device that this machine does not have."""
    if not str(device).startswith("cuda") or import_extra("torch", extra="torch").cuda.is_available():
        return
    raise InputError(
        f"the head was saved with device={str(device)!r}, which this machine does not have",
        hint='load it with load_head(path, device="cpu")',
    )
