"""What stands on the app's screen as an SVG that looks the same everywhere.

Letters are text, each word in its place; whatever must meet its neighbours is a path
(:mod:`gpumem_tui.views.shapes`). Owns the frame and the file; refuses to know what is drawn.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME

from gpumem_tui.views.shapes import FAMILIES, HEIGHT, SHADES, STRETCHED, WIDTH, Polygon, shape

_MARGIN = 12
_BASELINE = 18
"""Of letters in their cell, in pixels from its top."""

_GROUND = SVG_EXPORT_THEME.background_color.hex
"""Where a terminal would show its own."""

_WORDS = re.compile(r"\S+(?: \S+)*")
"""Words with single spaces between them."""


class _Ink(NamedTuple):
    """How letters look."""

    colour: str
    bold: bool
    italic: bool
    underline: bool


class _Piece(NamedTuple):
    """Text of one look on one row."""

    text: str
    ink: _Ink
    ground: str


def paint(rows: Sequence[Iterable[Segment]], columns: int, *, title: str) -> str:
    """The rows of a screen as a picture. ``title`` is what readers that cannot see are told."""
    pieces = [[_looks(segment) for segment in row if segment.text and not segment.control] for row in rows]
    grounds: Counter[str] = Counter()
    for row in pieces:
        for piece in row:
            grounds[piece.ground] += cell_len(piece.text)
    ground = grounds.most_common(1)[0][0] if grounds else _GROUND
    page = _Page(ground)
    for number, row in enumerate(pieces):
        page.add_row(number * HEIGHT, row)
    width, height = columns * WIDTH + 2 * _MARGIN, len(pieces) * HEIGHT + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{page.rules()}</style>\n{page.tiles()}"
        f'<rect width="{width}" height="{height}" rx="10" fill="{ground}"/>\n'
        f'<g transform="translate({_MARGIN} {_MARGIN})">\n{page.body()}</g>\n</svg>'
    )


def _looks(segment: Segment) -> _Piece:
    style = segment.style or Style.null()
    front, behind = _colour(style, True), _colour(style, False)
    if style.reverse:
        front, behind = behind, front
    ink = _Ink(front, bool(style.bold), bool(style.italic), bool(style.underline))
    return _Piece(segment.text, ink, behind)


def _colour(style: Style, front: bool) -> str:
    colour = style.color if front else style.bgcolor
    if colour is None:
        return (SVG_EXPORT_THEME.foreground_color if front else SVG_EXPORT_THEME.background_color).hex
    return colour.get_truecolor(SVG_EXPORT_THEME, foreground=front).hex


class _Page:
    """The parts of a picture as they come."""

    def __init__(self, ground: str) -> None:
        self._ground = ground
        self._inks: dict[_Ink, str] = {}
        self._tiles: dict[tuple[str, str], str] = {}
        self._behind: dict[str, list[str]] = {}
        self._shapes: dict[str, list[str]] = {}
        self._words: list[str] = []

    def add_row(self, y: int, row: Iterable[_Piece]) -> None:
        """One row of the screen, from ``y`` on down."""
        x = 0
        for piece in row:
            end = x + cell_len(piece.text) * WIDTH
            if piece.ground != self._ground:
                self._behind.setdefault(piece.ground, []).append(_path(_block(end - x), x, y))
            letters = ""
            for char in piece.text:
                drawn = char in SHADES or shape(char)
                letters += "\n" if drawn else char  # words end there
            self._add_shapes(piece, x, y)
            self._add_words(letters, x, y, piece.ink)
            x = end

    def _add_shapes(self, piece: _Piece, x: int, y: int) -> None:
        for run in re.finditer(r"(.)\1*", piece.text):
            char, count = run[1], len(run[0])
            at = x + cell_len(piece.text[: run.start()]) * WIDTH
            if char in SHADES:
                tile = self._tiles.setdefault((char, piece.ink.colour), f"t{len(self._tiles)}")
                self._shapes.setdefault(f"url(#{tile})", []).append(_path(_block(count * WIDTH), at, y))
                continue
            longer = char in STRETCHED
            for place in range(1 if longer else count):
                for polygon in shape(char, count if longer else 1):
                    path = _path(polygon, at + place * WIDTH, y)
                    self._shapes.setdefault(piece.ink.colour, []).append(path)

    def _add_words(self, letters: str, x: int, y: int, ink: _Ink) -> None:
        for words in _WORDS.finditer(letters):
            name = self._inks.setdefault(ink, f"i{len(self._inks)}")
            at = x + cell_len(letters[: words.start()].replace("\n", " ")) * WIDTH
            self._words.append(
                f'<text class="{name}" x="{at}" y="{y + _BASELINE}"'
                f' textLength="{cell_len(words[0]) * WIDTH}">{escape(words[0], quote=False)}</text>\n'
            )

    def rules(self) -> str:
        """The style sheet."""
        rules = [f"text{{font-family:{FAMILIES};font-size:20px}}path{{shape-rendering:crispEdges}}"]
        for ink, name in self._inks.items():
            more = ";font-weight:bold" if ink.bold else ""
            more += ";font-style:italic" if ink.italic else ""
            more += ";text-decoration:underline" if ink.underline else ""
            rules.append(f".{name}{{fill:{ink.colour}{more}}}")
        return "".join(rules)

    def tiles(self) -> str:
        """The patterns of the shades."""
        drawn = []
        for (char, colour), name in self._tiles.items():
            squares = "".join(f"M{x} {y}h2v2h-2z" for x, y in SHADES[char])
            drawn.append(
                f'<pattern id="{name}" width="4" height="4" patternUnits="userSpaceOnUse">'
                f'<path d="{squares}" fill="{colour}"/></pattern>\n'
            )
        return f"<defs>\n{''.join(drawn)}</defs>\n" if drawn else ""

    def body(self) -> str:
        """Everything, from the back to the front; one path a colour, so that neighbours have no seam."""
        layers = (*self._behind.items(), *self._shapes.items())
        return "".join(f'<path fill="{fill}" d="{"".join(parts)}"/>\n' for fill, parts in layers) + "".join(
            self._words
        )


def _block(pixels: int) -> Polygon:
    return (0, 0), (pixels, 0), (pixels, HEIGHT), (0, HEIGHT)


def _path(polygon: Polygon, x: int, y: int) -> str:
    """Path data of a polygon that is moved to a place on the page."""
    corners = [(x + right, y + down) for right, down in polygon]
    (left, top), (right, _), (_, bottom), *_ = corners[:3] if len(corners) == 4 else (*corners, *corners)
    if corners == [(left, top), (right, top), (right, bottom), (left, bottom)]:
        return f"M{left:g} {top:g}H{right:g}V{bottom:g}H{left:g}z"
    return "M" + "L".join(f"{across:g} {down:g}" for across, down in corners) + "z"
