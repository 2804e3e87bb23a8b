"""The signs of a chart's lines, and the legend that explains them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fiveshot.reports.markup import Html, element
from fiveshot.reports.method_style import MethodStyle, styles
from fiveshot.reports.variants import Variant

# Matplotlib's markers as polygons: the radii of their corners, and the direction of the first in degrees.
SHAPES: dict[str, tuple[tuple[float, ...], float]] = {
    "s": ((1.25,) * 4, 45),
    "D": ((1.25,) * 4, 0),
    "^": ((1.25,) * 3, -90),
    "v": ((1.25,) * 3, 90),
    "<": ((1.25,) * 3, 180),
    ">": ((1.25,) * 3, 0),
    "p": ((1.25,) * 5, -90),
    "h": ((1.15,) * 6, 0),
    "P": ((1.4, 0.5) * 4, 0),
    "X": ((1.4, 0.5) * 4, 45),
    "*": ((1.5, 0.6) * 5, -90),
}


def legend(variants: Sequence[Variant]) -> Html:
    """Return which line is whose."""
    entries = []
    for variant, style in zip(variants, variant_styles(variants), strict=True):
        sample = element(
            "svg",
            element("line", x1=0, x2=28, y1=7, y2=7, class_=line_class(style)),
            element("path", d=marker(style.marker, 14, 7), class_="marker"),
            viewBox="0 0 28 14",
            width=28,
            height=14,
            aria_hidden="true",
            class_="series",
            style=tones(style),
        )
        entries.append(element("li", sample, variant.label))
    return element("ul", *entries, class_="legend")


def tones(style: MethodStyle) -> str:
    """Return a method's colours by day and by night, as the page's style sheet reads them."""
    return f"--day:{style.colour};--night:{style.night_colour}"


def marker(kind: str, x: float, y: float, size: float = 4) -> str:
    """Return the path of a marker around a point."""
    if kind == "o":
        return f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size} 0a{size} {size} 0 1 0 -{2 * size} 0z"
    radii, turn = SHAPES[kind]
    step = 360 / len(radii)
    angles = [math.radians(turn + step * number) for number in range(len(radii))]
    points = [(x + size * r * math.cos(a), y + size * r * math.sin(a)) for r, a in zip(radii, angles, strict=True)]
    return "M" + "L".join(f"{px:.1f} {py:.1f}" for px, py in points) + "z"


def line_class(style: MethodStyle) -> str:
    """Return the classes of a line in the page's style sheet."""
    return "line dashed" if style.dashed else "line"


def variant_styles(variants: Sequence[Variant]) -> list[MethodStyle]:
    """Return the look of each variant."""
    return styles([variant.summary.method for variant in variants])
