"""scikit-learn's protocol of estimators without scikit-learn: parameters, also by short names, cloning, checks.

scikit-learn asks for methods, not for its base classes. It is imported where one of its own values is handed out,
and for data that are rarer than arrays and lists.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from array_api_compat import is_numpy_array, is_torch_array
from numpy.typing import NDArray

from fiveshot.core.arrays import Array, as_numpy, namespace
from fiveshot.core.labels import Labels, as_labels, python_labels, refuse_other_kind
from fiveshot.errors import InputError, is_number

if TYPE_CHECKING:
    from fiveshot.heads.head import FewShotHead


class Estimator:
    """A constructor that stores its parameters, and what follows from that."""

    # What a parameter that is None stands for, and fields of dataclasses that this estimator does not read.
    stands_for: ClassVar[Mapping[str, Any]] = {}
    unused_fields: ClassVar[tuple[str, ...]] = ()

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Add those of parameters that are estimators or dataclasses themselves, as ``name__parameter``.

        Returns
        -------
        dict
            Each parameter as the constructor stored it.

        Examples
        --------
        >>> from fiveshot.heads import FeCAM, make_head
        >>> FeCAM(gamma=10.0).get_params()["gamma"]
        10.0
        >>> make_head("teen").get_params()["calibration__alpha"]
        0.9
        """
        own = {name: getattr(self, name) for name in sorted(_defaults(type(self)))}
        return own | _inner_params(self, own) if deep else own

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Parameters
        ----------
        **params
            New values. ``name__parameter`` sets one of a parameter that is an estimator or a dataclass itself; a
            field of a dataclass is also known by its name alone, as in ``make_head``.

        Returns
        -------
        self

        Raises
        ------
        InputError
            A parameter that the estimator does not have, or a value that a dataclass refuses. Nothing is set then.

        Examples
        --------
        >>> from fiveshot.heads import FeCAM, make_head
        >>> FeCAM().set_params(gamma=10.0).gamma
        10.0
        >>> make_head("teen").set_params(calibration__alpha=0.5, tau=8.0).calibration
        Calibration(alpha=0.5, beta=1.0, tau=8.0, similarity='cosine', prototypes='raw')
        """
        before = self.get_params(deep=False)
        try:
            self._set(params, before)
        except BaseException:
            vars(self).update(before)
            raise
        return self

    def _set(self, params: Mapping[str, Any], own: Mapping[str, Any]) -> None:
        for name in params.keys() & own.keys():
            setattr(self, name, params[name])
        short = _fields(self)  # of the values that may just have been set
        inner: dict[str, dict[str, Any]] = {}
        for key in (key for key in params if key not in own):
            name, nested, rest = key.partition("__")
            owner, field = (name, rest) if nested else (short.get(name, ""), name)
            if owner not in own:
                known = sorted({*own, *short})
                raise InputError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {known!r}."
                )
            inner.setdefault(owner, {})[field] = params[key]
        for owner, values in inner.items():
            self._set_inner(owner, values)

    def _set_inner(self, owner: str, values: Mapping[str, Any]) -> None:
        """Set parameters of an estimator, or fields of a dataclass: another one takes its place."""
        value = _value(self, owner)
        if _is_estimator(value):
            value.set_params(**values)
            return
        known = _field_names(self, value)
        if not values.keys() <= set(known):
            wrong = min(values.keys() - set(known))
            raise InputError(
                f"Invalid parameter {wrong!r} for {owner}={value!r} of estimator {self}. "
                f"Valid parameters are: {known!r}.",
                hint="" if known else f"give {owner} a value first",
            )
        setattr(self, owner, dataclasses.replace(value, **values))

    def describe_but(self, name: str) -> str:
        """Return all parameters but one as a text; the same text means the same values."""
        return repr(sorted((key, value) for key, value in self.get_params(deep=False).items() if key != name))

    def __repr__(self) -> str:
        """Return the constructor's call, with the values that are not its defaults."""
        defaults = _defaults(type(self))
        changed = {k: getattr(self, k) for k in defaults if not _same(getattr(self, k), defaults[k])}
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in changed.items())})"

    def _repr_html_(self) -> str:
        from sklearn.utils import estimator_html_repr

        html: str = estimator_html_repr(self)
        return html

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn must know of a classifier."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(),
        )


def clone(head: Any) -> Any:
    """Return an unfitted copy of an estimator with the same parameters.

    A parameter that the constructor does not store as given is a RuntimeError, as in scikit-learn.
    """
    given = {name: _cloned(value) for name, value in head.get_params(deep=False).items()}
    made = type(head)(**given)
    kept = made.get_params(deep=False)
    changed = [name for name, value in given.items() if kept[name] is not value]
    if changed:
        raise RuntimeError(f"the constructor of {type(head).__name__} changes its parameter {changed[0]!r}")
    return made


def not_fitted(head: Any) -> Exception:
    """Return scikit-learn's error for an estimator that is asked before it has learned."""
    from sklearn.exceptions import NotFittedError

    error: Exception = NotFittedError(
        f"This {type(head).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before "
        "using this estimator."
    )
    return error


def dispatches() -> bool:
    """Tell whether scikit-learn was told to answer in the library of the input (``array_api_dispatch``)."""
    library = sys.modules.get("sklearn")
    return library is not None and bool(library.get_config()["array_api_dispatch"])


def _defaults(kind: Any) -> Mapping[str, Any]:
    """Return the parameters of a constructor in their order, each with its default."""
    return _read_defaults(kind.__init__)


@cache
def _read_defaults(constructor: Any) -> Mapping[str, Any]:
    parameters = inspect.signature(constructor).parameters.values()
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {p.name: p.default for p in parameters if p.name != "self" and p.kind not in kinds}


def _cloned(value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_cloned(item) for item in value)
    return clone(value) if isinstance(value, Estimator) else value


def _inner_params(head: Estimator, own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of estimators and dataclasses among the parameters, as ``name__parameter``."""
    inner: dict[str, Any] = {}
    for name, value in own.items():
        if _is_estimator(value):
            inner |= {f"{name}__{key}": item for key, item in value.get_params().items()}
        inner |= {f"{name}__{key}": getattr(value, key) for key in _field_names(head, value)}
    return inner


def _is_estimator(value: Any) -> bool:
    return hasattr(value, "get_params") and not isinstance(value, type)


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and repr(value) == repr(default))


def as_features(head: Any, X: Any, *, reset: bool) -> Array:
    """Return X as a finite float32 or float64 matrix: half precision becomes float32, lists and integers float64.

    Tensors of torch stay where they are, everything else becomes an array of NumPy. With ``reset`` the head learns
    the number of features; without it X must have that number.
    """
    if is_torch_array(X):
        return _checked_tensor(head, X, reset)
    if isinstance(X, list | tuple):
        X = _as_matrix(X)
    named = hasattr(head, "feature_names_in_")
    simple = is_numpy_array(X) and X.dtype.kind in "fiub" and X.ndim == 2 and X.size and not named
    array = _checked_array(head, X, reset) if simple else _checked_by_sklearn(head, X, reset)
    return np.ascontiguousarray(array)


def _as_matrix(X: Any) -> Any:
    """Return nested lists of numbers as a matrix, and anything else as it is."""
    try:
        array = np.asarray(X)
    except (TypeError, ValueError):
        return X
    return array if array.dtype.kind in "fiub" else X


def _checked_array(head: Any, X: NDArray[Any], reset: bool) -> NDArray[Any]:
    """Check the usual case by ourselves: a matrix of numbers."""
    array = np.asarray(X, dtype=_precision(X.dtype))
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        what = "NaN" if np.isnan(array).any() else f"infinity or a value too large for {array.dtype!r}"
        raise InputError(
            f"Input X contains {what}, first in row {row}",
            hint="leave that row out or extract its features again",
        )
    _count_features(head, array, reset)
    return array


def _precision(dtype: Any) -> Any:
    return np.float32 if dtype in (np.float16, np.float32) else np.float64


def _checked_by_sklearn(head: Any, X: Any, reset: bool) -> NDArray[Any]:
    """Check what is rarer with scikit-learn: data frames and their column names, objects, wrong shapes."""
    from sklearn.utils.validation import validate_data

    if is_numpy_array(X) and X.dtype == np.float16:
        X = X.astype(np.float32)
    try:
        found = validate_data(head, X, reset=reset, dtype=[np.float64, np.float32], order="C")
    except ValueError as error:
        raise InputError(str(error)) from error
    return as_numpy(found)


def _checked_tensor(head: Any, X: Array, reset: bool) -> Array:
    xp = namespace(X)
    if X.ndim != 2 or 0 in X.shape:
        raise InputError(
            f"expected features of shape (n_samples, n_features), got {tuple(X.shape)}",
            hint="reshape a single vector with x[None]",
        )
    if not X.is_floating_point():
        raise InputError(f"expected floating-point features, got {X.dtype}", hint="convert them with X.float()")
    X = X.detach()
    if X.dtype not in (xp.float32, xp.float64):
        X = X.float()
    _count_features(head, X, reset)
    finite = xp.all(xp.isfinite(X), axis=1)
    if not xp.all(finite):
        row = int(np.flatnonzero(~as_numpy(finite))[0])
        raise InputError(f"Input X contains NaN or infinity, first in row {row}", hint="leave that row out")
    return X.contiguous()


def _count_features(head: Any, X: Array, reset: bool) -> None:
    if reset:
        head.n_features_in_ = int(X.shape[1])
        head.__dict__.pop("feature_names_in_", None)
    elif X.shape[1] != head.n_features_in_:
        raise InputError(
            f"X has {X.shape[1]} features, but {type(head).__name__} is expecting "
            f"{head.n_features_in_} features as input",
            hint="extract them with the same backbone",
        )


def as_session_labels(head: Any, y: Any, *, n_samples: int, known: Labels, classes: Any) -> Labels:
    """Return the labels of a session, one per sample, of the type of the classes known so far.

    ``classes`` may announce all that will ever come; a label that is not among them is an error.
    """
    if y is None:
        raise InputError(f"{type(head).__name__} requires y to be passed, but the target y is None")
    labels = as_labels(flat_labels(y))
    if len(labels) != n_samples:
        raise InputError(f"X has {n_samples} rows, but y has {len(labels)} labels", hint="give one label per row")
    refuse_other_kind(known, labels)
    if classes is not None:
        announced = as_labels(classes)
        refuse_other_kind(announced, labels)
        unexpected = python_labels(np.setdiff1d(labels, announced))
        if unexpected:
            raise InputError(f"label {unexpected[0]!r} is not among the announced classes=", hint="add it there")
    return labels


def flat_labels(y: Any) -> Any:
    """Return labels that came as a column in one dimension, with scikit-learn's warning."""
    if getattr(y, "ndim", 1) != 2 or y.shape[1] != 1:
        return y
    from sklearn.exceptions import DataConversionWarning

    warnings.warn(
        "A column-vector y was passed when a 1d array was expected. Please change the shape of y to "
        "(n_samples,), for example using ravel().",
        DataConversionWarning,
        stacklevel=2,
    )
    return as_numpy(y).reshape(-1)


def parameter_names(head: FewShotHead) -> list[str]:
    """Return what :func:`with_parameters` can set: a head's own parameters, and the fields of their values.

    >>> from fiveshot.heads import make_head
    >>> sorted(set(parameter_names(make_head("teen"))) - set(parameter_names(make_head("ncm"))))
    ['alpha', 'prototypes', 'similarity', 'tau']
    """
    return sorted({*head.get_params(deep=False), *_fields(head)})


def parameter(head: FewShotHead, name: str) -> Any:
    """Return one parameter.

    >>> from fiveshot.heads import make_head
    >>> parameter(make_head("c-fecam"), "alpha"), parameter(make_head("c-fecam"), "gamma")
    (0.9, 100.0)
    """
    own = head.get_params(deep=False)
    if name in own:
        return own[name]
    fields = _fields(head)
    if name not in fields:
        raise InputError(
            f"{type(head).__name__} as given has no parameter {name!r}",
            hint=f"it has {', '.join(parameter_names(head))}",
            code="unknown_name",
        )
    return getattr(_value(head, fields[name]), name)


def with_parameters(head: FewShotHead, values: Mapping[str, Any]) -> FewShotHead:
    """Return an unfitted copy of the head with other values.

    >>> from fiveshot.heads import make_head
    >>> with_parameters(make_head("teen"), {"alpha": 0.5, "bias": 1.0}).calibration.alpha
    0.5
    """
    changed: FewShotHead = clone(head)
    own = changed.get_params(deep=False)
    changed.set_params(**{name: value for name, value in values.items() if name in own})
    fields = {name: value for name, value in values.items() if name not in own}  # of what may just have been set
    for name in fields:
        parameter(changed, name)  # refuses one that it does not have
    return changed.set_params(**fields)


def values_to_try(head: FewShotHead, name: str) -> list[float]:
    """Return the values of one parameter that episodes try beside the head's own.

    >>> from fiveshot.heads import make_head
    >>> values_to_try(make_head("c-fecam"), "alpha"), values_to_try(make_head("c-fecam"), "gamma")
    ([0.5, 0.75, 1.0], [10.0, 1000.0])
    """
    own = parameter(head, name)
    tried = head.tried[name].beside(own) if name in head.tried else []
    if tried:
        return tried
    known = [
        one for one in parameter_names(head) if one in head.tried and head.tried[one].beside(parameter(head, one))
    ]
    raise InputError(
        f"{name!r} of {type(head).__name__} cannot be chosen by episodes",
        hint=f"give it a value; what can be chosen: {', '.join(known) or 'nothing'}",
    )


def is_auto(head: FewShotHead, name: str, value: object) -> bool:
    """Tell whether a value asks for a choice by episodes; where a word can be a value, ``"auto"`` is one.

    >>> from fiveshot.heads import NCM, UnbiasedLDA
    >>> is_auto(NCM(), "bias", "auto"), is_auto(UnbiasedLDA(), "offset", "auto"), is_auto(NCM(), "bias", 0.5)
    (True, False, False)
    """
    asked = isinstance(value, str) and value == "auto"
    return asked and (name in head.tried or is_number(parameter(head, name)))


def _value(head: Estimator, name: str) -> Any:
    value = getattr(head, name)
    return head.stands_for.get(name) if value is None else value


def _field_names(head: Estimator, value: Any) -> list[str]:
    """Return the fields of a dataclass that the head reads; none of any other value."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return []
    return [field.name for field in dataclasses.fields(value) if field.name not in head.unused_fields]


def _fields(head: Estimator) -> dict[str, str]:
    """Return for each field of a parameter that is a dataclass the name of that parameter."""
    own = head.get_params(deep=False)
    return {field: name for name in own for field in _field_names(head, _value(head, name))}
