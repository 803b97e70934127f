"""Requests a second of servers as bars on a logarithmic scale, as an SVG without any library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

_ROW, _LEFT, _WIDTH, _TOP = 13, 270, 460, 34
_COLOURS = ("#9cc4b2", "#5a9e80", "#2a7f4f")


def svg(title: str, bars: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """The picture of `rows`: of each name one number for each of the `bars`, which the legend names."""
    most = max((value for values in rows.values() for value in values), default=1.0)
    decades = max(1, math.ceil(math.log10(max(most, 10.0))))
    step = _ROW * len(bars) + 8
    height = _TOP + step * len(rows) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 80}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="18" font-size="14">{escape(title)}</text>',
    ]
    for decade in range(decades + 1):
        x = _LEFT + _WIDTH * decade / decades
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{height - 20}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{10**decade:,}</text>')
    for index, (name, values) in enumerate(rows.items()):
        top = _TOP + step * index
        parts.append(f'<text x="{_LEFT - 8}" y="{top + step / 2:.1f}" text-anchor="end">{escape(name)}</text>')
        for number, (bar, value) in enumerate(zip(bars, values, strict=True)):
            y = top + _ROW * number
            length = _WIDTH * math.log10(max(value, 1.0)) / decades
            colour = _COLOURS[number % len(_COLOURS)]
            parts.append(f'<rect x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_ROW - 2}" fill="{colour}"/>')
            parts.append(f'<text x="{_LEFT + length + 5:.1f}" y="{y + 9}">{value:,.0f} ({escape(bar)})</text>')
    return "\n".join([*parts, "</svg>", ""])
