"""scikit-learn's protocol of estimators, without importing scikit-learn: parameters, cloning, display, tags.

scikit-learn asks for methods, not for its base classes. It is imported where one of its own values is handed out.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any, Self

from fiveshot.errors import InputError


class Estimator:
    """A constructor that stores its parameters, and what follows from that."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name.

        Parameters
        ----------
        deep : bool
            Add those of parameters that are estimators themselves, as ``name__parameter``.

        Returns
        -------
        dict
            Each parameter as the constructor stored it.

        Examples
        --------
        >>> from fiveshot.heads import FeCAM
        >>> FeCAM(gamma=10.0).get_params()["gamma"]
        10.0
        """
        own = {name: getattr(self, name) for name in _defaults(type(self))}
        if not deep:
            return own
        inner = {
            f"{name}__{key}": item
            for name, value in own.items()
            if hasattr(value, "get_params") and not isinstance(value, type)
            for key, item in value.get_params().items()
        }
        return {**own, **inner}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name.

        Parameters
        ----------
        **params
            New values; ``name__parameter`` sets one of a parameter that is an estimator itself.

        Returns
        -------
        self

        Raises
        ------
        InputError
            A parameter that the constructor does not have.

        Examples
        --------
        >>> from fiveshot.heads import FeCAM
        >>> FeCAM().set_params(gamma=10.0).gamma
        10.0
        """
        own = self.get_params(deep=False)
        inner: dict[str, dict[str, Any]] = {}
        for key, value in params.items():
            name, nested, rest = key.partition("__")
            if name not in own:
                known = sorted(_defaults(type(self)))
                raise InputError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {known!r}."
                )
            if nested:
                inner.setdefault(name, {})[rest] = value
            else:
                setattr(self, name, value)
        for name, values in inner.items():
            getattr(self, name).set_params(**values)
        return self

    def __repr__(self) -> str:
        """Return the constructor's call, with the values that are not its defaults."""
        defaults = _defaults(type(self))
        changed = {k: v for k, v in self.get_params(deep=False).items() if not _same(v, defaults[k])}
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
    parameters = inspect.signature(kind.__init__).parameters.values()
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return {p.name: p.default for p in parameters if p.name != "self" and p.kind not in kinds}


def _cloned(value: Any) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        return type(value)(_cloned(item) for item in value)
    return clone(value) if isinstance(value, Estimator) else value


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and repr(value) == repr(default))
