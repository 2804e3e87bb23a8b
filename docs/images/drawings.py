"""Draws calibration.svg and views.svg beside this file, from the embedded features and the model card.

python docs/images/drawings.py
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from garden import photo
from PIL import Image

from fiveshot.benchmark import get_protocol
from fiveshot.core import Calibration, calibrate_mean, class_statistics, summarize
from fiveshot.data.reduction import Squares
from fiveshot.features import embedded_features

HERE = Path(__file__).parent
CARD = HERE.parents[1] / "src" / "fiveshot" / "backbones" / "weights" / "MODEL_CARD.md"
TEAL, ORANGE, BLUE, DARK, GRAY = "#0f766e", "#c2410c", "#1d4ed8", "#0f172a", "#64748b"
DRAWS = 5


def text(x: float, y: float, said: str, color: str = DARK, **how: object) -> str:
    """Return a line of text."""
    given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in how.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}"{given}>{said}</text>'


def dots(points: Iterable[np.ndarray], color: str, radius: float, **how: object) -> str:
    """Return a filled circle for each point."""
    given = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in how.items())
    return "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{color}"{given}/>' for x, y in points)


def arrow(start: np.ndarray, end: np.ndarray, color: str, width: float) -> str:
    """Return a line with a tip."""
    along = (end - start) / np.linalg.norm(end - start)
    across = np.array([-along[1], along[0]])
    tip = " ".join(
        f"{x:.1f},{y:.1f}" for x, y in (end, end - 11 * along + 5 * across, end - 11 * along - 5 * across)
    )
    (x1, y1), (x2, y2) = start, end - 8 * along
    line = (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}" stroke-width="{width}"/>'
    )
    return f'{line}<polygon points="{tip}" fill="{color}"/>'


def drawing(width: int, height: int, label: str, parts: Iterable[str]) -> str:
    """Return a whole picture on white, so that it can be read on a dark page too."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif" '
        f'font-size="13" role="img" aria-label="{label}">'
    )
    return "\n".join(
        [head, f'<rect width="{width}" height="{height}" rx="12" fill="#ffffff"/>', *parts, "</svg>\n"]
    )


def calibration() -> str:
    """Draw how equation (3) moves the mean of five photographs of a bird, and what that is worth for a hundred."""
    pack = embedded_features("cub200")
    order = np.array(get_protocol("cub200/big").class_order)
    X, y = pack.train_x.astype(np.float32), pack.train_y
    base = class_statistics(X, y).restrict(order[:100].tolist())
    errors = np.zeros((11, DRAWS))
    alphas = np.linspace(0, 1, 11)
    shown = None
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        for label in order[100:].tolist():
            rows = rng.permutation(np.flatnonzero(y == label))
            few, truth = summarize(X[rows[:5]]), X[rows[5:]].mean(axis=0)
            borrowed, weights = calibrate_mean(few, base, Calibration(alpha=0.0))
            moved = alphas[:, None] * few.mean + (1 - alphas[:, None]) * borrowed
            errors[:, draw] += ((moved - truth) ** 2).sum(axis=1)
            if shown is None:
                shown = (pack.class_names[label], X[rows[:5]], few.mean, borrowed, truth, np.asarray(weights))
    assert shown is not None
    relative = (errors / errors[-1]).mean(axis=1)
    names = [pack.class_names[label] for label in base.labels]
    return drawing(
        960,
        400,
        "The mean of five photographs moves towards the base classes that are most like it, and comes nearer to the truth",
        [*_plane(*shown, np.asarray(base.means), names), *_curve(alphas, relative)],
    )


def _plane(name, shots, raw, borrowed, truth, weights, means, names) -> list[str]:
    """Draw the plane through the mean of five, what is borrowed, and the mean of the other photographs."""
    first = (borrowed - raw) / np.linalg.norm(borrowed - raw)
    second = truth - raw - ((truth - raw) @ first) * first
    plane = np.stack([first, second / np.linalg.norm(second)], axis=1)  # (d, 2)
    best = np.argsort(-weights)[:3]
    flat = {part: (points - raw) @ plane for part, points in (("shots", shots), ("base", means[best]))}
    ends = np.stack([(point - raw) @ plane for point in (raw, borrowed, truth, 0.5 * (raw + borrowed))])
    every = np.concatenate([*flat.values(), ends])
    scale = min(500 / np.ptp(every[:, 0]), 250 / np.ptp(every[:, 1]))
    center = (every.max(axis=0) + every.min(axis=0)) / 2

    def at(points: np.ndarray) -> np.ndarray:
        return np.array([300.0, 215.0]) + (points - center) * scale * [1, -1]

    start, end, true, half = at(ends)
    parts = [text(28, 36, f"A new class, {clean(name)}: five photographs", font_weight=600, font_size=15)]
    parts += [dots(at(flat["base"]), TEAL, 7), dots(at(flat["shots"]), ORANGE, 4, opacity=0.7)]
    for place, index in zip(at(flat["base"]), best, strict=True):
        parts.append(text(max(place[0], end[0]) + 14, place[1] + 4, clean(names[index]), TEAL, font_size=12))
    parts.append(
        f'<line x1="{half[0]:.1f}" y1="{half[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}" stroke="{GRAY}" stroke-dasharray="3 4"/>'
    )
    parts += [arrow(start, half, BLUE, 3), dots([start], ORANGE, 8), dots([end], GRAY, 4)]
    parts.append(
        f'<path d="M{true[0] - 9:.1f} {true[1]:.1f}h18M{true[0]:.1f} {true[1] - 9:.1f}v18" stroke="{DARK}" stroke-width="3"/>'
    )
    parts.append(text(start[0] - 4, start[1] + 26, "mean of the five", ORANGE, font_weight=600))
    parts.append(text(half[0], half[1] - 12, "calibrated, α = 0.5", BLUE, font_weight=600, text_anchor="middle"))
    below = max(end[1], at(flat["base"])[:, 1].max())  # all names of base classes
    parts.append(text(end[0], below + 26, "what similar classes say", GRAY, text_anchor="middle", font_size=12))
    parts.append(text(true[0] + 13, true[1] + 5, "mean of its other photographs", DARK, font_weight=600))
    return [
        *parts,
        text(
            28,
            380,
            "Green: the three base classes with the largest weights. A plane of the 320 dimensions, CUB-200.",
            GRAY,
            font_size=12,
        ),
    ]


def _curve(alphas: np.ndarray, relative: np.ndarray) -> list[str]:
    """Draw the error of the mean against α."""
    left, right, top, bottom = 716.0, 930.0, 90.0, 300.0
    high = max(1.3, float(relative.max()))
    points = [
        np.array([left + (1 - a) * (right - left), bottom - e / high * (bottom - top)])
        for a, e in zip(alphas, relative, strict=True)
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    level = bottom - (bottom - top) / high
    least = int(relative.argmin())
    return [
        '<path d="M690 20V390" stroke="#e2e8f0" stroke-width="2"/>',
        text(708, 36, "All 100 new classes", font_weight=600, font_size=15),
        text(708, 60, "squared error of the mean (five alone: 1)", GRAY, font_size=11.5),
        f'<path d="M{left} {top}V{bottom}H{right}" stroke="{GRAY}" fill="none"/>',
        f'<path d="M{left} {level:.1f}H{right}" stroke="{ORANGE}" stroke-dasharray="3 4"/>',
        f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2.5"/>',
        dots(points, BLUE, 3.5),
        text(
            points[least][0],
            points[least][1] + 24,
            f"{relative[least]:.2f} at α = {alphas[least]:.1f}",
            BLUE,
            text_anchor="middle",
        ),
        text(left, bottom + 20, "α = 1", GRAY, font_size=12),
        text(right, bottom + 20, "α = 0", GRAY, text_anchor="end", font_size=12),
        text((left + right) / 2, bottom + 40, "more is borrowed →", GRAY, text_anchor="middle", font_size=12),
    ]


def clean(name: str) -> str:
    """Return the name of a bird as people write it."""
    return re.sub(r"^\d+\.", "", name).replace("_", " ")


def embedded(image: Image.Image, x: float, y: float, width: float, height: float) -> str:
    """Return a photo as a part of a drawing."""
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=80)
    data = base64.b64encode(encoded.getvalue()).decode()
    return f'<image x="{x}" y="{y}" width="{width}" height="{height}" href="data:image/jpeg;base64,{data}"/>'


def views() -> str:
    """Draw what the network sees of a photo with two and four views, and what that brings."""
    picture = photo("blackbird", np.random.default_rng(11))
    four = Squares(size=224, resize=256, views=4)(picture)
    parts = [
        text(28, 36, "A photo", font_weight=600, font_size=15),
        embedded(picture.resize((400, 300)), 28, 52, 240, 180),
        text(300, 36, "What the network looks at", font_weight=600, font_size=15),
    ]
    named = ["the whole, squeezed", "the inner part", "the center", "its mirror image"]
    for number, (square, name) in enumerate(zip(four, named, strict=True)):
        x = 300 + 128 * number
        parts += [
            embedded(square.resize((180, 180)), x, 52, 116, 116),
            text(x + 58, 188, name, GRAY, text_anchor="middle", font_size=12),
        ]
    for x, width, said in ((300, 244, "two views, the default"), (300, 500, "four views, --careful")):
        y = 204 if width < 300 else 228
        parts.append(f'<path d="M{x} {y}v6h{width}v-6" fill="none" stroke="{TEAL}" stroke-width="2"/>')
        parts.append(text(x + width - 4, y + 20, said, TEAL, text_anchor="end", font_size=12))
    parts += [
        '<path d="M828 20V270" stroke="#e2e8f0" stroke-width="2"/>',
        text(844, 36, "Mean A_HM", font_weight=600, font_size=15),
    ]
    (row,) = (line for line in CARD.read_text(encoding="utf-8").splitlines() if "CUB-200, big start" in line)
    for number, (count, cell) in enumerate(zip((1, 2, 4), row.split("|")[2:5], strict=True)):
        value = cell.strip(" *").partition(" / ")[0]
        y, width = 62 + 56 * number, (float(value) - 75) * 14
        parts += [
            text(844, y, f"{count} view{'s' if count > 1 else ''}", GRAY, font_size=12),
            f'<rect x="844" y="{y + 7}" width="{width:.1f}" height="16" rx="3" fill="{TEAL}"/>',
            text(844 + width + 6, y + 20, value, font_weight=600),
        ]
    parts.append(text(844, 236, "CUB-200, 100 base", GRAY, font_size=11.5))
    parts.append(text(844, 252, "classes; bars from 75", GRAY, font_size=11.5))
    return drawing(
        1000,
        275,
        "A photo is looked at as a whole and closely; two views and four are more accurate than one",
        parts,
    )


if __name__ == "__main__":
    for name, make in (("calibration", calibration), ("views", views)):
        (HERE / f"{name}.svg").write_text(make(), encoding="utf-8")
