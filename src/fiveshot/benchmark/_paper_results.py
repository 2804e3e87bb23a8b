"""The paper's results, as its tables state them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fiveshot.benchmark.protocol import Protocol
from fiveshot.errors import InputError, unknown_name

TABLES = Path(__file__).with_name("paper_tables.json")


@dataclass(frozen=True)
class PaperResult:
    """The paper's result for one method under one protocol.

    Attributes
    ----------
    protocol, method : str
        The protocol, and the method in the paper's spelling.
    sessions : tuple of int
        Sessions with a reported A_HM.
    a_hm : tuple of float
        ``a_hm[i]`` is after ``sessions[i]``.
    a_last, a_inc : float
        Over the whole run.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_result
    >>> theirs = paper_result("cars/big", "c-fecam")
    >>> theirs.method, theirs.sessions, theirs.a_hm
    ('C-FeCAM', (1, 3, 5, 7), (0.5791, 0.5215, 0.5003, 0.4916))
    """

    protocol: str
    method: str
    sessions: tuple[int, ...]
    a_hm: tuple[float, ...]
    a_last: float
    a_inc: float


@dataclass(frozen=True)
class BetaAblation:
    """One row of the paper's ablation over beta on ``cars/small``; A_HM after the last session.

    Attributes
    ----------
    method : str
        As the paper spells it.
    beta : float
        The scale of the covariance.
    a_hm, a_last, a_inc : float
        What the paper reports.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_beta_ablation
    >>> max(paper_beta_ablation(), key=lambda row: row.a_hm)
    BetaAblation(method='C-RanPAC', beta=0.5, a_hm=0.3818, a_last=0.4073, a_inc=0.5605)
    """

    method: str
    beta: float
    a_hm: float
    a_last: float
    a_inc: float


@dataclass(frozen=True)
class PartsAblation:
    """One row of the paper's ablation over calibrated parts on ``cars/small``; A_HM after the last session.

    Attributes
    ----------
    method : str
        As the paper spells it.
    mean_calibrated, covariance_calibrated : bool
        Which statistics of new classes are calibrated.
    a_hm, a_last, a_inc : float
        What the paper reports.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_parts_ablation
    >>> row = paper_parts_ablation()[1]
    >>> row.method, row.mean_calibrated, row.covariance_calibrated, row.a_hm
    ('C-FeCAM', True, False, 0.2445)
    """

    method: str
    mean_calibrated: bool
    covariance_calibrated: bool
    a_hm: float
    a_last: float
    a_inc: float


def paper_protocols() -> tuple[str, ...]:
    """Return the names of the protocols with results in the paper.

    Returns
    -------
    tuple of str
        Such as ``"cub200/big"``.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_protocols
    >>> [name for name in paper_protocols() if name.endswith("/big")]
    ['cub200/big', 'aircraft/big', 'cars/big']
    """
    return tuple(_tables()["main"])


def paper_methods(protocol: str | Protocol) -> tuple[str, ...]:
    """Return the methods with results in the paper under a protocol, in the paper's spelling.

    Parameters
    ----------
    protocol : str or Protocol
        The setting.

    Returns
    -------
    tuple of str
        The methods.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_methods
    >>> paper_methods("cub200/big")
    ('NCM', 'TEEN', 'FeCAM', 'C-FeCAM', 'RanPAC', 'C-RanPAC')
    """
    return tuple(_setting(protocol)["methods"])


def paper_result(protocol: str | Protocol, method: str) -> PaperResult:
    """Return the paper's results for a method.

    Parameters
    ----------
    protocol : str or Protocol
        The setting.
    method : str
        The method; upper and lower case are the same.

    Returns
    -------
    PaperResult
        The figures.

    Raises
    ------
    InputError
        If the paper has no such method or protocol, or if more than the draw of the shots was changed in the
        protocol.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_result
    >>> paper_result("cub200/big", "c-ranpac").a_last
    0.8372
    """
    setting = _setting(protocol)
    spelled = {name.lower(): name for name in setting["methods"]}
    if method.lower() not in spelled:
        raise unknown_name("method in the paper", method, setting["methods"])
    name = spelled[method.lower()]
    row = setting["methods"][name]
    return PaperResult(
        protocol=protocol.name if isinstance(protocol, Protocol) else protocol,
        method=name,
        sessions=tuple(setting["hm_tasks"]),
        a_hm=tuple(_fraction(value) for value in row["a_hm"]),
        a_last=_fraction(row["a_last"]),
        a_inc=_fraction(row["a_inc"]),
    )


def paper_beta_ablation() -> tuple[BetaAblation, ...]:
    """Return the paper's ablation over beta.

    Returns
    -------
    tuple of BetaAblation
        Its rows.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_beta_ablation
    >>> [(row.beta, row.a_hm) for row in paper_beta_ablation() if row.method == "C-FeCAM"]
    [(0.5, 0.274), (1.0, 0.2886), (1.5, 0.2881)]
    """
    table = _tables()["ablation_beta (cars/small)"]
    return tuple(
        BetaAblation(method, float(beta), *(_fraction(value) for value in values))
        for method, rows in table.items()
        if method != "columns"
        for beta, values in rows.items()
    )


def paper_parts_ablation() -> tuple[PartsAblation, ...]:
    """Return the paper's ablation over calibrating the mean and the covariance.

    Returns
    -------
    tuple of PartsAblation
        Its rows.

    Examples
    --------
    >>> from fiveshot.benchmark import paper_parts_ablation
    >>> for row in paper_parts_ablation()[:3]:
    ...     print(row.method, row.mean_calibrated, row.covariance_calibrated, row.a_hm)
    FeCAM False False 0.234
    C-FeCAM True False 0.2445
    C-FeCAM True True 0.2886
    """
    rows = _tables()["ablation_parts (cars/small)"]["rows"]
    return tuple(
        PartsAblation(method, mean, covariance, *(_fraction(value) for value in values))
        for method, mean, covariance, *values in rows
    )


def _setting(protocol: str | Protocol) -> dict[str, Any]:
    """Return the paper's entry for a protocol."""
    if isinstance(protocol, Protocol):
        if not protocol.is_papers:
            raise InputError(
                f"the paper has no results for the changed protocol {protocol.name!r}",
                hint=f"it has results for {', '.join(paper_protocols())}",
            )
        protocol = protocol.name
    if protocol not in paper_protocols():
        raise unknown_name("protocol in the paper", protocol, paper_protocols())
    setting: dict[str, Any] = _tables()["main"][protocol]
    return setting


@cache
def _tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads(TABLES.read_text(encoding="utf-8"))
    return tables


def _fraction(percent: float) -> float:
    # Rounded, so that 88.48 % is exactly 0.8848.
    return round(percent / 100, 6)
