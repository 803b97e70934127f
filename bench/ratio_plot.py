"""A bar for each row of a benchmark: our time over the best peer's, as an SVG without any library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_ROW, _LEFT, _WIDTH, _TOP = 22, 270, 420, 44
# The largest ratio that is drawn to its end.
_MOST = 1.5


def svg(title: str, rows: Sequence[tuple[str, float]]) -> str:
    """The picture of `rows`, each a name and a ratio; below 1 we are faster."""
    height = _TOP + _ROW * len(rows) + 16
    one = _LEFT + _WIDTH / _MOST
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 70}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-size="14">{escape(title)}</text>',
    ]
    for index, (name, ratio) in enumerate(rows):
        y = _TOP + _ROW * index
        length = min(ratio, _MOST) / _MOST * _WIDTH
        colour = "#2a7f4f" if ratio <= 1 else "#b8433a"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{_LEFT}" y="{y + 3}" width="{length:.1f}" height="{_ROW - 8}" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + length + 6:.1f}" y="{y + 13}">{ratio:.2f}</text>')
    parts.append(f'<line x1="{one:.1f}" x2="{one:.1f}" y1="{_TOP - 8}" y2="{height - 10}" stroke="black"/>')
    parts.append(f'<text x="{one:.1f}" y="{_TOP - 12}" text-anchor="middle">1 = the best peer</text>')
    return "\n".join([*parts, "</svg>", ""])
