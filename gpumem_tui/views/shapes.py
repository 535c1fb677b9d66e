"""The shapes of glyphs that must meet their neighbours: boxes, blocks, shades, textures and braille.

Fonts draw them with seams and in widths of their own, so pictures do not leave them to a
font, as good terminals do not. Owns the size of a cell and which fonts write the letters;
refuses colours and file formats.
"""

from functools import lru_cache

WIDTH, HEIGHT = 12, 24
"""Of a cell, in pixels."""

_FONTS = (
    "Fira Code", "JetBrains Mono", "Cascadia Mono", "SF Mono", "Menlo", "DejaVu Sans Mono", "Consolas",
    "Noto Sans Mono", "Ubuntu Mono", "Liberation Mono", "Courier New", "monospace",
)  # fmt: skip
"""The first that a reader has is taken. Words are set to the width of their cells in any of them."""

FAMILIES = ",".join(f"'{name}'" if " " in name else name for name in _FONTS)
"""The same as SVG and CSS name them."""

Polygon = tuple[tuple[float, float], ...]
"""Corners, in pixels from the upper left corner of a cell."""

SHADES = {"░": ((0, 0),), "▒": ((0, 0), (2, 2)), "▓": ((0, 0), (2, 2), (2, 0))}
"""Glyphs that are filled with a tile of 4 × 4 pixels: where its squares of 2 × 2 pixels lie."""

STRETCHED = frozenset("─━█▔▀▁▂▃▄▅▆▇")
"""Glyphs of which several in a row are one longer shape."""

_LIGHT, _HEAVY = 2, 4
_ARMS = {
    # thickness of each arm: left, right, up, down
    "─": (_LIGHT, _LIGHT, 0, 0),
    "━": (_HEAVY, _HEAVY, 0, 0),
    "│": (0, 0, _LIGHT, _LIGHT),
    "┃": (0, 0, _HEAVY, _HEAVY),
    "┌": (0, _LIGHT, 0, _LIGHT),
    "┐": (_LIGHT, 0, 0, _LIGHT),
    "└": (0, _LIGHT, _LIGHT, 0),
    "┘": (_LIGHT, 0, _LIGHT, 0),
    "├": (0, _LIGHT, _LIGHT, _LIGHT),
    "┤": (_LIGHT, 0, _LIGHT, _LIGHT),
    "┬": (_LIGHT, _LIGHT, 0, _LIGHT),
    "┴": (_LIGHT, _LIGHT, _LIGHT, 0),
    "┼": (_LIGHT, _LIGHT, _LIGHT, _LIGHT),
}
_FILLS = {
    # left, top, right, bottom; in eighths of a cell
    "█": (0, 0, 8, 8),
    "▔": (0, 0, 8, 1),
    "▀": (0, 0, 8, 4),
    "▐": (4, 0, 8, 8),
    **{char: (0, 7 - place, 8, 8) for place, char in enumerate("▁▂▃▄▅▆▇")},
    **{char: (0, 0, 7 - place, 8) for place, char in enumerate("▉▊▋▌▍▎▏")},
}
_DOTS = ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3))
"""Column and row of each bit of a braille character."""


def _box(left: float, top: float, right: float, bottom: float) -> Polygon:
    return (left, top), (right, top), (right, bottom), (left, bottom)


_RULES = tuple(_box(0, y, WIDTH, y + 2) for y in (2, 8, 14, 20))
_POSTS = tuple(_box(x, 0, x + 2, HEIGHT) for x in (2, 8))
_FALLING = (
    ((0, 0), (3, 0), (12, 18), (12, 24), (0, 0)),
    ((0, 12), (0, 18), (3, 24), (6, 24)),
    ((9, 0), (12, 6), (12, 0)),
)
_RISING = tuple(tuple((WIDTH - x, y) for x, y in polygon) for polygon in _FALLING)
_OTHERS: dict[str, tuple[Polygon, ...]] = {
    "╳": (
        ((0, 0), (1.6, 0), (12, 20.8), (12, 24), (10.4, 24), (0, 3.2)),
        ((12, 0), (10.4, 0), (0, 20.8), (0, 24), (1.6, 24), (12, 3.2)),
    ),
    "▤": _RULES,
    "▥": _POSTS,
    "▦": (*_RULES, *_POSTS),
    "▧": _FALLING,
    "▨": _RISING,
    "▩": (*_FALLING, *_RISING),
    "▫": (_box(3, 9, 9, 11), _box(3, 13, 9, 15), _box(3, 11, 5, 13), _box(7, 11, 9, 13)),
    "▲": (((6, 5), (11.5, 18), (0.5, 18)),),
    "▸": (((3, 7), (10, 12), (3, 17)),),
    "┄": (_box(1, 11, 3, 13), _box(5, 11, 7, 13), _box(9, 11, 11, 13)),
    "┆": (_box(5, 2, 7, 6), _box(5, 10, 7, 14), _box(5, 18, 7, 22)),
}


@lru_cache(maxsize=1024)
def shape(char: str, count: int = 1) -> tuple[Polygon, ...]:
    """A glyph in its cell, or ``count`` of :data:`STRETCHED` as one; empty where it is left to a font."""
    further = (count - 1) * WIDTH
    if char in _ARMS:
        return _arms(*_ARMS[char], further)
    if char in _FILLS:
        left, top, right, bottom = _FILLS[char]
        return (_box(left * WIDTH / 8, top * HEIGHT / 8, right * WIDTH / 8 + further, bottom * HEIGHT / 8),)
    bits = ord(char) - 0x2800
    if 0 < bits < 256:
        places = (place for bit, place in enumerate(_DOTS) if bits >> bit & 1)
        return tuple(_box(6 * x + 2, 6 * y + 2, 6 * x + 5, 6 * y + 5) for x, y in places)
    return _OTHERS.get(char, ())


def _arms(left: float, right: float, up: float, down: float, further: int) -> tuple[Polygon, ...]:
    """Lines from the middle of a cell to its edges; they meet without a notch."""
    x, y = WIDTH / 2, HEIGHT / 2
    thick, across = max(up, down) / 2, max(left, right) / 2
    parts = []
    if left or right:
        start, end = 0 if left else x - thick, WIDTH + further if right else x + thick
        parts.append(_box(start, y - across, end, y + across))
    if up or down:
        parts.append(_box(x - thick, 0 if up else y - across, x + thick, HEIGHT if down else y + across))
    return tuple(parts)
