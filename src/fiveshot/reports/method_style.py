"""How each method is called and drawn, the same in every table and figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MethodStyle:
    """A name as the paper spells it, and a look that differs in colour, marker and dash.

    The colours are told apart by colour-blind readers too; a calibrated method has the
    darker colour of a pair and a whole line, so that print without colour works as well.
    """

    name: str
    colour: str  # on white
    night_colour: str  # on a dark screen
    marker: str  # as matplotlib names them
    dashed: bool


METHODS = {
    "ncm": MethodStyle("NCM", "#6b6b6b", "#a8a8a8", "o", True),
    "teen": MethodStyle("TEEN", "#009e73", "#2fc99b", "s", False),
    "fecam": MethodStyle("FeCAM", "#56b4e9", "#8fd0f5", "^", True),
    "c-fecam": MethodStyle("C-FeCAM", "#0072b2", "#3f9fe0", "v", False),
    "ranpac": MethodStyle("RanPAC", "#e69f00", "#f2bd4b", "D", True),
    "ranpac*": MethodStyle("RanPAC*", "#cc79a7", "#e3a3c5", "P", True),
    "c-ranpac": MethodStyle("C-RanPAC", "#d55e00", "#f08a3c", "X", False),
    "ulda": MethodStyle("UnbiasedLDA", "#000000", "#f5f5f5", "*", False),
}
OTHERS = (
    MethodStyle("", "#332288", "#9a8cf0", "<", True),
    MethodStyle("", "#882255", "#d97aa8", ">", True),
    MethodStyle("", "#117733", "#5cbf7c", "h", True),
    MethodStyle("", "#999933", "#cfcf6b", "p", True),
)


def method_label(method: str, flavour: str = "paper") -> str:
    """Return the name of a method as a reader knows it.

    >>> method_label("c-ranpac"), method_label("teen", "published"), method_label("mine")
    ('C-RanPAC', 'TEEN (published)', 'mine')
    """
    name = METHODS[method].name if method in METHODS else method
    return name if flavour == "paper" else f"{name} ({flavour})"


def styles(methods: Sequence[str]) -> list[MethodStyle]:
    """Return one look per entry; a method that comes again, in another variant, gets one of the spare looks.

    >>> [style.colour for style in styles(["ncm", "mine", "ncm"])]
    ['#6b6b6b', '#332288', '#882255']
    """
    found: list[MethodStyle] = []
    spare = 0
    for method in methods:
        style = METHODS.get(method)
        if style is None or style in found:
            style = OTHERS[spare % len(OTHERS)]
            spare += 1
        found.append(style)
    return found
