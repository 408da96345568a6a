"""Drawings of the demo's page: the map, the singular values, small pictures, and what each pixel said.

All are written by hand: a numeral is its own mark, and a class is one element however many digits it has.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markupsafe import Markup

    from fastgrl.checks import Array

_SHADES = 16
# The middle of a numeral is this share of its size above its line.
_MIDDLE = 0.36
_STEPS = (1, 2, 5)
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True)
class Paper:
    """How wide a drawing is, the size of its marks and of its words, all in units of its own."""

    name: str
    width: int
    mark: float
    words: float


WIDE, COLUMN = Paper("wide", 900, 8.5, 13), Paper("column", 390, 6.0, 11)


def picture(pixels: Array) -> str:
    """An address that holds the picture itself: ink of 8×8 shades on nothing, as PNG."""
    alpha = np.clip(np.asarray(pixels) * 255 // _SHADES, 0, 255).astype(np.uint8)
    rows = b"".join(b"\0" + bytes(byte for value in row for byte in (0, value)) for row in alpha.tolist())
    height, width = alpha.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 4, 0, 0, 0)  # 8 bits each of grey and of cover
    parts = _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(rows, 9)) + _chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(_SIGNATURE + parts).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def drawn_map(places: Array, numerals: Array, paper: Paper, text: str) -> Markup:
    """Every digit at its place as the numeral that it shows, with a large one in the middle of each class."""
    x, y, height = _fitted(places, paper)
    marks, labels = [], []
    for numeral in np.unique(numerals).tolist():
        mine = numerals == numeral
        across = " ".join(f"{value:.0f}" for value in x[mine])
        down = " ".join(f"{value + _MIDDLE * paper.mark:.0f}" for value in y[mine])
        marks.append(
            f'<text class="digit-{numeral}" x="{across}" y="{down}">{str(numeral) * int(mine.sum())}</text>'
        )
        size = 2.2 * paper.words
        middle, line = np.median(x[mine]), np.median(y[mine]) + _MIDDLE * size
        labels.append(
            f'<text class="digit-{numeral} name" x="{middle:.0f}" y="{line:.0f}"'
            f' font-size="{size:g}">{numeral}</text>'
        )
    style = f'font-size="{paper.mark:g}" text-anchor="middle"'
    body = f'<g class="marks" {style}>{"".join(marks)}</g><g text-anchor="middle">{"".join(labels)}</g>'
    return _svg("map", paper.width, height, text, body)


def _fitted(places: Array, paper: Paper) -> tuple[Array, Array, int]:
    """Places in units of the drawing, at one scale both ways, y downwards."""
    low, high = places.min(axis=0), places.max(axis=0)
    margin = 1.2 * paper.mark
    scale = (paper.width - 2 * margin) / max(float(high[0] - low[0]), 1e-9)
    height = math.ceil(float(high[1] - low[1]) * scale + 2 * margin)
    return margin + (places[:, 0] - low[0]) * scale, margin + (high[1] - places[:, 1]) * scale, height


@dataclass(frozen=True)
class Series:
    """Falling positive numbers with a name."""

    name: str
    values: Sequence[float]


def drawn_values(series: Sequence[Series], paper: Paper, text: str) -> Markup:
    """Singular values by their place on a log scale, with the name of each series beside its line."""
    values = [value for one in series for value in one.values if value > 0]
    top, bottom = math.log10(max(values)) + 0.06, math.log10(min(values)) - 0.06
    most = max(len(one.values) for one in series)
    left, foot, height = 3.4 * paper.words, 3.2 * paper.words, round(0.42 * paper.width + 60)
    width = paper.width - left - paper.words

    def across(place: float) -> float:
        return left + width * (place - 0.5) / most

    def down(value: float) -> float:
        return 6 + (height - foot - 6) * (top - math.log10(value)) / max(top - bottom, 1e-9)

    parts = [_rule(left, paper.width, down(tick), f"{tick:g}") for tick in _ticks(10**bottom, 10**top)]
    places = [1, *range(10, most + 1, 10)]
    parts += [
        f'<text class="tick" x="{across(place):.0f}" y="{height - foot + 1.5 * paper.words:.0f}"'
        f' text-anchor="middle">{place}</text>'
        for place in places
    ]
    parts.append(
        f'<text class="tick" x="{left + width / 2:.0f}" y="{height - 4}" text-anchor="middle">'
        "place of the singular value</text>"
    )
    for number, one in enumerate(series):
        points = [(across(place), down(value)) for place, value in enumerate(one.values, 1) if value > 0]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dots = "".join(_dot(x, y, number) for x, y in points)
        x, y = points[min(len(points) - 1, 1 + len(points) // 6)]
        parts.append(
            f'<g class="series-{number}"><polyline points="{line}"/>{dots}'
            f'<text x="{x + 4:.0f}" y="{y - 0.9 * paper.words:.0f}">{_escaped(one.name)}</text></g>'
        )
    return _svg("values", paper.width, height, text, f'<g font-size="{paper.words:g}">{"".join(parts)}</g>')


def _dot(x: float, y: float, number: int) -> str:
    """Round in the first series, square in the second: told apart without colour."""
    if number % 2 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    return f'<rect x="{x - 2.6:.1f}" y="{y - 2.6:.1f}" width="5.2" height="5.2"/>'


def _rule(left: float, right: float, y: float, label: str) -> str:
    return (
        f'<path class="rule" d="M{left:.0f} {y:.1f}H{right:.0f}"/>'
        f'<text class="tick" x="{left - 6:.0f}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    )


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two numbers.

    >>> _ticks(10.5, 300)
    [20, 50, 100, 200]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10**power for power in powers for step in _STEPS if low <= step * 10**power <= high]


def drawn_shares(shares: Sequence[Sequence[float]], text: str) -> Markup:
    """What each pixel contributed: for in one colour and against in another, the deeper the more."""
    most = max(abs(share) for row in shares for share in row) or 1.0
    cells = [
        f'<rect class="{"for" if share > 0 else "against"}" x="{column}" y="{row}" width="1" height="1"'
        f' fill-opacity="{abs(share) / most:.2f}"/>'
        for row, line in enumerate(shares)
        for column, share in enumerate(line)
        if abs(share) >= 0.005 * most
    ]
    return _svg("shares", len(shares[0]), len(shares), text, "".join(cells))


def _svg(kind: str, width: int, height: int, text: str, body: str) -> Markup:
    from markupsafe import Markup

    box = f'class="{kind}" viewBox="0 0 {width} {height}"'
    return Markup(f'<svg {box} role="img" aria-label="{_escaped(text)}">{body}</svg>')


def _escaped(text: str) -> str:
    from markupsafe import escape

    return str(escape(text))
