"""How methods are drawn in charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Style:
    """How a method is drawn: a look that differs in color, marker and dash.

    Parameters
    ----------
    color : str
        On white. Color-blind readers must tell it from the others.
    night_color : str
        On a dark screen.
    marker : str
        As matplotlib names them.
    dashed : bool
        Calibrated methods have a solid line, so that print without color works as well.

    Examples
    --------
    >>> STYLES["ncm"]
    Style(color='#6b6b6b', night_color='#a8a8a8', marker='o', dashed=True)
    """

    color: str
    night_color: str
    marker: str
    dashed: bool


STYLES = {
    "ncm": Style("#6b6b6b", "#a8a8a8", "o", True),
    "teen": Style("#009e73", "#2fc99b", "s", False),
    "fecam": Style("#56b4e9", "#8fd0f5", "^", True),
    "c-fecam": Style("#0072b2", "#3f9fe0", "v", False),
    "ranpac": Style("#e69f00", "#f2bd4b", "D", True),
    "ranpac*": Style("#cc79a7", "#e3a3c5", "P", True),
    "c-ranpac": Style("#d55e00", "#f08a3c", "X", False),
    "unbiased-lda": Style("#000000", "#f5f5f5", "*", False),
}
SPARE = (  # for methods without their own style
    Style("#332288", "#9a8cf0", "<", True),
    Style("#882255", "#d97aa8", ">", True),
    Style("#117733", "#5cbf7c", "h", True),
    Style("#999933", "#cfcf6b", "p", True),
)


def styles(methods: Sequence[str]) -> list[Style]:
    """Return one style per entry; a further variant of a method gets a spare style.

    >>> [style.color for style in styles(["ncm", "mine", "ncm"])]
    ['#6b6b6b', '#332288', '#882255']
    """
    found: list[Style] = []
    spare = 0
    for method in methods:
        style = STYLES.get(method)
        if style is None or style in found:
            round_, place = divmod(spare, len(SPARE))  # after each round, other markers and the other kind of line
            marker = SPARE[(place + round_) % len(SPARE)].marker
            style = replace(SPARE[place], marker=marker, dashed=round_ % 2 == 0)
            spare += 1
        found.append(style)
    return found
