"""Charts as inline SVG for the HTML page: they take its colours, so that they follow a dark screen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fiveshot.metrics import Spread
from fiveshot.reports.markers import line_class, marker, tones, variant_styles
from fiveshot.reports.markup import Html, element, joined
from fiveshot.reports.method_style import MethodStyle
from fiveshot.reports.variants import Variant

WIDTH, HEIGHT = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 38, 12, 12, 38
BAR, PAIR = 13, 40  # heights of a bar, and of a method's two with what is between


def session_chart(variants: Sequence[Variant]) -> Html:
    """Return accuracy after each session as one line per variant, with bands for the spread over seeds."""
    low, high = _range([spread for variant in variants for spread in variant.summary.accuracy])
    last = len(variants[0].summary.accuracy) - 1

    def x(session: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (session / last if last else 0.5)

    def y(percent: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (percent - low) / (high - low)

    return element(
        "svg",
        *_percent_axis(low, high, y),
        *(
            element("text", session, x=x(session), y=HEIGHT - BOTTOM + 16, class_="middle")
            for session in range(0, last + 1, max(1, math.ceil((last + 1) / 12)))
        ),
        element("text", "session", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 6, class_="middle"),
        *(_line(variant, style, x, y) for variant, style in zip(variants, variant_styles(variants), strict=True)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=_curves_in_words(variants),
    )


def base_new_chart(variants: Sequence[Variant]) -> Html:
    """Return a pair of bars per variant: accuracy after the last session on base and on new classes."""
    label = 16 + max(len(variant.label) for variant in variants) * 7
    left = min(170, label)
    height = len(variants) * PAIR + 26
    full = WIDTH - left - 62

    def x(percent: float) -> float:
        return left + full * percent / 100

    rows = []
    for place, (variant, style) in enumerate(zip(variants, variant_styles(variants), strict=True)):
        top = place * PAIR + 6
        rows.append(element("text", _cut(variant.label, left), x=left - 8, y=top + BAR + 4, class_="end"))
        for shift, spread, kind in ((0, variant.base_new[0], "base"), (BAR + 2, variant.base_new[1], "new")):
            if spread is not None:
                rows.append(_bar(x, top + shift, spread, kind, style, variant.label))
    ticks = [
        joined(
            element("line", x1=x(percent), x2=x(percent), y1=2, y2=height - 22, class_="grid"),
            element("text", percent, x=x(percent), y=height - 6, class_="middle"),
        )
        for percent in range(0, 101, 25)
    ]
    words = "; ".join(f"{v.label}: base {percent(v.base_new[0])}, new {percent(v.base_new[1])}" for v in variants)
    return element(
        "svg",
        *ticks,
        *rows,
        viewBox=f"0 0 {WIDTH} {height}",
        role="img",
        aria_label=f"Accuracy after the last session on base and on new classes. {words}.",
    )


def percent(spread: Spread | None) -> str:
    """Return a fraction with its spread in words.

    >>> percent(Spread(0.5, 0.012, 3)), percent(None)
    ('50.0 ± 1.2 %', 'none')
    """
    if spread is None:
        return "none"
    return f"{100 * spread.mean:.1f}" + ("" if spread.std is None else f" ± {100 * spread.std:.1f}") + " %"


def _line(variant: Variant, style: MethodStyle, x: Callable[[float], float], y: Callable[[float], float]) -> Html:
    points = [(number, 100 * s.mean, 100 * (s.std or 0)) for number, s in enumerate(variant.summary.accuracy)]
    upper = [f"{x(n):.1f},{y(mean + std):.1f}" for n, mean, std in points]
    lower = [f"{x(n):.1f},{y(mean - std):.1f}" for n, mean, std in reversed(points)]
    band = any(std for *_, std in points)
    return element(
        "g",
        element("polygon", points=" ".join(upper + lower), class_="band") if band else None,
        element(
            "polyline", points=" ".join(f"{x(n):.1f},{y(m):.1f}" for n, m, _ in points), class_=line_class(style)
        ),
        *(
            element(
                "path",
                element("title", f"{variant.label}, session {number}: {percent(spread)}"),
                d=marker(style.marker, x(number), y(100 * spread.mean)),
                class_="marker",
            )
            for number, spread in enumerate(variant.summary.accuracy)
        ),
        class_="series",
        style=tones(style),
    )


def _bar(
    x: Callable[[float], float], top: float, spread: Spread, kind: str, style: MethodStyle, label: str
) -> Html:
    value, std = 100 * spread.mean, 100 * (spread.std or 0)
    middle = top + BAR / 2
    return element(
        "g",
        element("title", f"{label}, {kind} classes: {percent(spread)}"),
        element("rect", x=x(0), y=top, width=x(value) - x(0), height=BAR, class_=f"bar {kind}"),
        element("line", x1=x(value - std), x2=x(value + std), y1=middle, y2=middle, class_="whisker")
        if std
        else None,
        element("text", f"{value:.1f}", x=x(value + std) + 5, y=top + BAR - 2.5),
        class_="series",
        style=tones(style),
    )


def _percent_axis(low: float, high: float, y: Callable[[float], float]) -> list[Html]:
    step = 10 if high - low <= 60 else 20
    ticks = range(math.ceil(low / step) * step, int(high) + 1, step)
    return [
        joined(
            element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(tick), y2=y(tick), class_="grid"),
            element("text", f"{tick}", x=LEFT - 6, y=y(tick) + 4, class_="end"),
        )
        for tick in ticks
    ]


def _range(spreads: Sequence[Spread]) -> tuple[float, float]:
    """Return whole tens of percent below and above all values and their spread."""
    lows = [100 * (s.mean - (s.std or 0)) for s in spreads]
    highs = [100 * (s.mean + (s.std or 0)) for s in spreads]
    low, high = max(0, math.floor(min(lows) / 10) * 10), min(100, math.ceil(max(highs) / 10) * 10)
    return (low, high) if high > low else (max(0, high - 10), max(10, high))


def _curves_in_words(variants: Sequence[Variant]) -> str:
    ends = [
        f"{v.label} from {percent(v.summary.accuracy[0])} to {percent(v.summary.accuracy[-1])}" for v in variants
    ]
    return f"Accuracy on all classes seen so far, from the base session to the last: {'; '.join(ends)}."


def _cut(label: str, width: float) -> str:
    most = int((width - 10) / 6.6)
    return label if len(label) <= most else label[: most - 1] + "…"
