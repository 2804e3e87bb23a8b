"""Photos as a camera at a bird feeder takes them, drawn: nobody's rights, the same bytes for the same seed.

python docs/images/garden.py FOLDER draws eight photos of each of five birds, and of a cat that nobody teaches.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter

SIZE = (640, 480)
LAYER = 900  # a bird is drawn on a square of so many pixels, then made smaller
Color = tuple[int, int, int]


@dataclass(frozen=True)
class Bird:
    """What tells one bird from another: colors, and a few shapes."""

    back: Color
    belly: Color
    breast: Color
    wing: Color
    cap: Color
    cheek: Color
    beak: Color
    tail: float = 0.0  # degrees that it is raised by
    beak_size: tuple[float, float] = (0.2, 0.07)  # length, half of the height
    face: bool = False  # whether the breast's color reaches over the face
    stripe: bool = False  # a dark stripe through the eye
    bars: bool = False  # bars on wing and tail
    scale: float = 1.0


BIRDS = {
    "robin": Bird((118, 98, 76), (222, 214, 200), (214, 98, 38), (104, 86, 66), (118, 98, 76), (214, 98, 38), (60, 50, 46), face=True),
    "blackbird": Bird((34, 33, 36), (40, 39, 42), (36, 35, 38), (26, 26, 28), (34, 33, 36), (34, 33, 36), (240, 170, 32), beak_size=(0.26, 0.06), scale=1.15),
    "blue tit": Bird((126, 146, 84), (236, 206, 74), (236, 206, 74), (70, 112, 178), (64, 112, 196), (244, 244, 240), (52, 52, 58), beak_size=(0.12, 0.06), stripe=True, scale=0.88),
    "wren": Bird((134, 94, 58), (190, 156, 116), (176, 140, 100), (112, 76, 46), (126, 88, 56), (206, 176, 138), (78, 60, 46), tail=62, bars=True, scale=0.74),
    "bullfinch": Bird((130, 136, 146), (214, 104, 92), (216, 98, 88), (44, 44, 50), (26, 26, 30), (216, 98, 88), (34, 34, 38), beak_size=(0.14, 0.11), scale=1.05),
}  # fmt: skip
SCENES = {
    "leaves": [(52, 92, 44), (88, 128, 60), (122, 156, 82), (36, 66, 36), (168, 184, 112)],
    "sky": [(176, 204, 228), (206, 222, 236), (148, 186, 218), (226, 230, 226), (120, 150, 110)],
    "autumn": [(168, 112, 48), (198, 146, 66), (122, 78, 40), (216, 182, 108), (96, 84, 52)],
    "wall": [(150, 138, 126), (172, 160, 148), (128, 116, 106), (186, 176, 160), (104, 100, 92)],
    "snow": [(226, 230, 238), (204, 212, 224), (238, 240, 244), (180, 190, 204), (140, 144, 140)],
}


def scene(rng: np.random.Generator) -> Image.Image:
    """Draw what is far behind: blurred patches of a few colors, lighter above."""
    colors = SCENES[str(rng.choice(sorted(SCENES)))]
    image = Image.new("RGB", SIZE, colors[0])
    draw = ImageDraw.Draw(image)
    for _ in range(70):
        x, y = rng.integers(-80, SIZE[0]), rng.integers(-80, SIZE[1])
        width, height = rng.integers(40, 220, 2)
        draw.ellipse(
            (int(x), int(y), int(x + width), int(y + height)), fill=colors[int(rng.integers(len(colors)))]
        )
    return image.filter(ImageFilter.GaussianBlur(float(rng.uniform(14, 26))))


def perch(image: Image.Image, top: int, rng: np.random.Generator) -> None:
    """Draw a branch, a post or the rim of a feeder under the bird's feet."""
    draw = ImageDraw.Draw(image)
    kind, tilt = str(rng.choice(["branch", "post", "feeder"])), int(rng.integers(-30, 30))
    wood = tuple(int(part) for part in rng.integers(60, 120) * np.array([1.0, 0.8, 0.6]))
    dark = tuple(int(0.7 * part) for part in wood)
    if kind == "branch":
        draw.line([(-20, top + tilt), (SIZE[0] + 20, top - tilt)], fill=wood, width=26)
        draw.line([(-20, top + tilt + 9), (SIZE[0] + 20, top - tilt + 9)], fill=dark, width=7)
    elif kind == "post":
        draw.rectangle((150, top - 10, SIZE[0] - 150, SIZE[1] + 20), fill=wood)
        for x in range(165, SIZE[0] - 160, 34):
            draw.line([(x, top - 8), (x + 6, SIZE[1])], fill=dark, width=3)
    else:
        draw.rectangle((-10, top - 8, SIZE[0] + 10, top + 22), fill=wood)
        draw.rectangle((-10, top + 22, SIZE[0] + 10, top + 34), fill=dark)
        for _ in range(60):
            x, y = int(rng.integers(0, SIZE[0])), int(top - 8 - abs(rng.normal(0, 5)))
            draw.ellipse((x, y, x + 9, y + 6), fill=(196, 164, 104))


def _at(x: float, y: float) -> tuple[float, float]:
    return LAYER * (0.5 + 0.36 * x), LAYER * (0.5 + 0.36 * y)


def _oval(x: float, y: float, rx: float, ry: float, turn: float = 0.0) -> Image.Image:
    """Return a mask of an ellipse, turned."""
    mask = Image.new("L", (LAYER, LAYER))
    (left, top), (right, bottom) = _at(x - rx, y - ry), _at(x + rx, y + ry)
    ImageDraw.Draw(mask).ellipse((left, top, right, bottom), fill=255)
    return mask.rotate(turn, center=_at(x, y), resample=Image.Resampling.BICUBIC)


def bird_layer(bird: Bird, rng: np.random.Generator) -> Image.Image:
    """Draw a bird that looks to the right, on nothing."""
    layer = Image.new("RGBA", (LAYER, LAYER))
    draw = ImageDraw.Draw(layer)
    swell = float(rng.uniform(0.94, 1.1))  # birds are rounder when it is cold

    def fill(mask: Image.Image, color: Color) -> None:
        shade = int(rng.integers(-8, 9))
        toned = tuple(min(255, max(0, part + shade)) for part in color)
        layer.paste(Image.new("RGBA", layer.size, (*toned, 255)), mask=mask)

    lift = np.deg2rad(bird.tail + rng.uniform(-6, 6))
    end = np.array([-0.5 - 0.62 * np.cos(lift), 0.1 - 0.62 * np.sin(lift)])
    across = 0.09 * np.array([np.sin(lift), -np.cos(lift)])
    tail = [_at(-0.38, 0.0), _at(*(end + across)), _at(*(end - across)), _at(-0.34, 0.2)]
    draw.polygon(tail, fill=(*bird.wing, 255))
    for x in (0.02, 0.18):
        draw.line([_at(x, 0.3), _at(x + 0.05, 0.66)], fill=(70, 56, 48, 255), width=11)
        draw.line([_at(x - 0.04, 0.66), _at(x + 0.16, 0.67)], fill=(70, 56, 48, 255), width=9)
    body = _oval(0, 0.05, 0.56, 0.38 * swell, 18)
    head = _oval(0.42, -0.36, 0.27, 0.25)
    fill(body, bird.back)
    fill(ImageChops.multiply(body, _oval(0.12, 0.3, 0.5, 0.3, 18)), bird.belly)
    fill(ImageChops.multiply(body, _oval(0.42, 0.06, 0.3, 0.34, 18)), bird.breast)
    fill(head, bird.cap)
    if bird.face:
        fill(ImageChops.multiply(head, _oval(0.6, -0.28, 0.26, 0.26)), bird.breast)
    else:
        fill(ImageChops.multiply(head, _oval(0.5, -0.22, 0.24, 0.18)), bird.cheek)
    if bird.stripe:
        draw.line([_at(0.2, -0.34), _at(0.68, -0.37)], fill=(30, 38, 60, 255), width=16)
    fill(_oval(-0.14, 0.04, 0.4, 0.19, 14), bird.wing)
    for step in range(4):
        tone = tuple(int(part * (1.25 if bird.bars else 0.82)) for part in bird.wing)
        draw.line(
            [_at(-0.42 + 0.13 * step, 0.1 - 0.02 * step), _at(-0.2 + 0.13 * step, 0.16 - 0.05 * step)],
            fill=(*tone, 255),
            width=8,
        )
    length, half = bird.beak_size
    draw.polygon(
        [_at(0.64, -0.36 - half), _at(0.66 + length, -0.33), _at(0.64, -0.36 + half)], fill=(*bird.beak, 255)
    )
    x, y = _at(0.54, -0.41)
    draw.ellipse((x - 17, y - 17, x + 17, y + 17), fill=(18, 16, 18, 255))
    draw.ellipse((x + 2, y - 11, x + 10, y - 3), fill=(250, 250, 250, 255))
    return layer


def cat_layer(rng: np.random.Generator) -> Image.Image:
    """Draw a cat's head and shoulders, on nothing."""
    layer = Image.new("RGBA", (LAYER, LAYER))
    draw = ImageDraw.Draw(layer)
    fur = tuple(int(part) for part in rng.integers(110, 190) * np.array([1.0, 0.86, 0.7]))
    dark = tuple(int(0.7 * part) for part in fur)
    for mask in (_oval(0, 0.62, 0.62, 0.6), _oval(0, -0.1, 0.46, 0.4)):
        layer.paste(Image.new("RGBA", layer.size, (*fur, 255)), mask=mask)
    for side in (-1, 1):
        draw.polygon([_at(side * 0.4, -0.2), _at(side * 0.42, -0.76), _at(side * 0.08, -0.42)], fill=(*fur, 255))
        draw.polygon(
            [_at(side * 0.34, -0.32), _at(side * 0.37, -0.6), _at(side * 0.17, -0.42)], fill=(206, 150, 140, 255)
        )
        x, y = _at(side * 0.18, -0.14)
        draw.ellipse((x - 32, y - 26, x + 32, y + 26), fill=(156, 178, 84, 255))
        draw.ellipse((x - 9, y - 24, x + 9, y + 24), fill=(16, 16, 16, 255))
        for step in (-1, 0, 1):
            draw.line(
                [_at(side * 0.1, 0.06), _at(side * 0.66, 0.02 + 0.09 * step)], fill=(236, 232, 226, 255), width=4
            )
    for x in (-0.16, 0, 0.16):
        draw.line([_at(x, -0.47), _at(x * 0.7, -0.3)], fill=(*dark, 255), width=18)
    draw.polygon([_at(-0.06, 0.0), _at(0.06, 0.0), _at(0, 0.07)], fill=(190, 110, 110, 255))
    return layer


def photo(name: str, rng: np.random.Generator) -> Image.Image:
    """Draw one photo: something at a feeder, with the light and the noise of a camera."""
    image = scene(rng)
    top = int(rng.integers(320, 380))
    bird = BIRDS.get(name)
    if bird:
        perch(image, top, rng)
    layer = bird_layer(bird, rng) if bird else cat_layer(rng)
    side = int(LAYER * 0.5 * (bird.scale if bird else 1.1) * rng.uniform(0.82, 1.2))
    layer = layer.rotate(float(rng.uniform(-9, 9)), resample=Image.Resampling.BICUBIC)
    if rng.random() < 0.5:
        layer = layer.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    layer = layer.resize((side, side), Image.Resampling.LANCZOS)
    feet = int(side * (0.5 + 0.36 * 0.67))
    place = (int(SIZE[0] / 2 - side / 2 + rng.integers(-110, 110)), top - 8 - feet)
    image.paste(layer, place, layer)
    if not bird:  # it looks over the rim
        perch(image, top, rng)
    image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.4, 1.3))))
    image = ImageEnhance.Brightness(image).enhance(float(rng.uniform(0.75, 1.2)))
    image = ImageEnhance.Color(image).enhance(float(rng.uniform(0.75, 1.15)))
    noise = rng.normal(0, 5, (SIZE[1], SIZE[0], 1)) + rng.normal(0, 3, (SIZE[1], SIZE[0], 3))
    return Image.fromarray((np.asarray(image, np.float64) + noise).clip(0, 255).astype(np.uint8))


def draw_garden(folder: Path, *, seed: int, photos: int = 8) -> None:
    """Draw photos of every bird and of a cat, a folder each."""
    for number, name in enumerate([*BIRDS, "cat"]):
        rng = np.random.default_rng([seed, number])
        (folder / name).mkdir(parents=True)
        for one in range(1, photos + 1):
            photo(name, rng).save(folder / name / f"{name} {one}.jpg", quality=88)


if __name__ == "__main__":
    draw_garden(Path(sys.argv[1]), seed=0)
