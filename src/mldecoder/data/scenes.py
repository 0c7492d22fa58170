"""``scenes``: drawn pictures with exact labels, the dataset that needs no download.

Small coloured shapes on a noisy ground, where averaging over the picture hurts and attention helps. Every picture
has its own seed, and only numpy draws, so the set is the same on every machine; a test holds its hash.

Shapes: s side of the picture, w side of an object's window.
"""

import math
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLOURS", "LABELS", "SEEN", "SHAPES", "SIDE", "SIZES", "UNSEEN", "draw"]

Split = Literal["train", "val"]

COLOURS = {
    "red": (1.0, 0.0, 0.0),
    "green": (0.0, 1.0, 0.0),
    "blue": (0.0, 0.0, 1.0),
    "yellow": (1.0, 1.0, 0.0),
    "orange": (1.0, 0.5, 0.0),
    "purple": (0.6, 0.0, 0.8),
}
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
LABELS = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)

# Nine pairs that zero-shot training never sees; every colour and every shape is seen in other pairs.
_UNSEEN = [(i, i) for i in range(6)] + [(i, i + 3) for i in range(3)]
UNSEEN = tuple(LABELS[colour * 6 + shape] for colour, shape in sorted(_UNSEEN))
SEEN = tuple(label for label in LABELS if label not in UNSEEN)

SIDE = 64
SIZES: dict[Split, int] = {"train": 10_000, "val": 2_000}
_SEEDS: dict[Split, int] = {"train": 2111_12933, "val": 2111_12934}  # after the paper, arXiv:2111.12933

_Array = NDArray[np.float64]


def draw(index: int, split: Split) -> tuple[NDArray[np.uint8], set[str]]:
    """Draw one picture: uint8 ``(s, s, 3)``, and the labels of the objects that stay at least half visible."""
    rng = np.random.default_rng([_SEEDS[split], index])
    canvas = _ground(rng)
    shown: list[tuple[int, float, slice, slice, _Array]] = []  # label, own area, place, what is still visible
    for _ in range(rng.integers(2, 7)):
        colour, shape = int(rng.integers(6)), int(rng.integers(6))
        rows, columns, cover, paint = _object(rng, colour, shape)
        for _, _, other_rows, other_columns, visible in shown:
            _hide(visible, (other_rows, other_columns), cover, (rows, columns))
        window = canvas[rows, columns]
        window += cover[..., None] * (paint - window)
        shown.append((colour * 6 + shape, float(cover.sum()), rows, columns, cover.copy()))
    np.clip(canvas, 0.0, 1.0, out=canvas)
    labels = {LABELS[label] for label, area, _, _, visible in shown if visible.sum() >= 0.5 * area}
    return np.rint(canvas * 255.0).astype(np.uint8), labels


def _ground(rng: np.random.Generator) -> _Array:
    """One colour, smooth coloured noise in two octaves, and noise in every pixel: ``(s, s, 3)``."""
    ground = np.broadcast_to(rng.uniform(0.25, 0.75, 3), (SIDE, SIDE, 3))
    for cells, amplitude in ((4, 0.075), (12, 0.05)):
        coarse = rng.normal(0.0, amplitude, (3, cells, cells))
        stretch = _stretch(cells)
        ground = ground + (stretch @ coarse @ stretch.T).transpose(1, 2, 0)
    return ground + 0.05 * rng.standard_normal((SIDE, SIDE, 3), dtype=np.float32)


@cache
def _stretch(cells: int) -> _Array:
    """Linear interpolation from cell centres to pixel centres: ``(s, cells)``."""
    at = np.clip((np.arange(SIDE) + 0.5) * cells / SIDE - 0.5, 0.0, cells - 1.0)
    return np.clip(1.0 - np.abs(at[:, None] - np.arange(cells)), 0.0, 1.0)


def _object(rng: np.random.Generator, colour: int, shape: int) -> tuple[slice, slice, _Array, NDArray[np.float64]]:
    """One object in its own window: where, how much of each pixel it covers ``(w, w)``, its paint ``(w, w, 3)``."""
    radius = rng.uniform(5.0, 9.0)
    cy, cx = rng.uniform(radius, SIDE - radius, 2)  # anywhere, wholly inside
    turn = rng.uniform(-math.pi / 4, math.pi / 4)
    top, left = max(0, int(cy - radius - 1)), max(0, int(cx - radius - 1))
    bottom, right = min(SIDE, int(cy + radius + 2)), min(SIDE, int(cx + radius + 2))
    y = (np.arange(top, bottom) + 0.5 - cy)[:, None]
    x = (np.arange(left, right) + 0.5 - cx)[None, :]
    cos, sin = math.cos(turn), math.sin(turn)
    u, v = cos * x + sin * y, cos * y - sin * x  # (w, w), in the object's own directions
    cover = np.clip(0.5 - _DISTANCES[shape](u, v, radius), 0.0, 1.0)  # smooth edges, one pixel wide

    flat = np.array(list(COLOURS.values())[colour]) * rng.uniform(0.8, 1.2) + rng.normal(0.0, 0.08, 3)
    shade = 1.0 + rng.uniform(-0.15, 0.15) * u / radius
    return slice(top, bottom), slice(left, right), cover, flat * shade[..., None]


def _hide(visible: _Array, at: tuple[slice, slice], cover: _Array, by: tuple[slice, slice]) -> None:
    """Take from an object's visible part what a later one covers."""
    (rows, columns), (by_rows, by_columns) = at, by
    top, bottom = max(rows.start, by_rows.start), min(rows.stop, by_rows.stop)
    left, right = max(columns.start, by_columns.start), min(columns.stop, by_columns.stop)
    if top < bottom and left < right:
        below = visible[top - rows.start : bottom - rows.start, left - columns.start : right - columns.start]
        row, column = by_rows.start, by_columns.start
        below *= 1.0 - cover[top - row : bottom - row, left - column : right - column]


# Normals of the star's mirrors at 108, 72 and 36 degrees from its tip.
_MIRRORS = [(math.cos(math.radians(a)), math.sin(math.radians(a))) for a in (108.0, 72.0, 36.0)]

# Signed distances in pixels, negative inside; every shape fits into a circle of radius r.


def _circle(u: _Array, v: _Array, r: float) -> _Array:
    return np.sqrt(u * u + v * v) - r


def _square(u: _Array, v: _Array, r: float) -> _Array:
    return np.maximum(np.abs(u), np.abs(v)) - r * math.sqrt(0.5)


def _triangle(u: _Array, v: _Array, r: float) -> _Array:
    return np.maximum(v, math.sqrt(0.75) * np.abs(u) - 0.5 * v) - 0.5 * r  # the tip points up


def _star(u: _Array, v: _Array, r: float) -> _Array:
    # Fold the plane at the star's mirrors until one half of one point is left, then measure from its edge.
    u = np.abs(u)
    for nu, nv in _MIRRORS:
        beyond = np.maximum(nu * u + nv * v, 0.0)
        u, v = u - 2.0 * nu * beyond, v - 2.0 * nv * beyond
    along, across = 0.45 * _MIRRORS[2][1], 1.0 - 0.45 * _MIRRORS[2][0]  # from the tip (0, -r) to the notch, over r
    return (across * u - along * (v + r)) / math.hypot(along, across)


def _cross(u: _Array, v: _Array, r: float) -> _Array:
    u, v = np.abs(u), np.abs(v)
    return np.maximum(np.maximum(u, v) - 0.95 * r, np.minimum(u, v) - 0.3 * r)


def _ring(u: _Array, v: _Array, r: float) -> _Array:
    return np.abs(np.sqrt(u * u + v * v) - 0.775 * r) - 0.225 * r


_DISTANCES = (_circle, _square, _triangle, _star, _cross, _ring)
