"""Lines of text whose parts have a meaning: the small alphabet that all views draw with.

A :class:`Span` is text with a *role* (what it means, never a colour); a line is a
tuple of spans. Owns cell widths, fitting, the textures of the ledger's terms and
the one-to-one translation to ASCII. Refuses colours and control characters.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple


class Span(NamedTuple):
    """A piece of one line: its text, and what it means."""

    text: str
    role: str = "text"
    """A key of a palette (``allocated``, ``dim`` …), or ``a/b``: drawn in ``a`` on ``b``."""


Line = tuple[Span, ...]

LONG_FOLDER_CELLS = 12
"""A path's folder up to this length is shown in a row."""

TERMS = ("allocated", "cached", "outside", "others", "driver", "unattributed", "free")
"""The ledger's terms in the order in which every view shows them; each is a role too."""

TEXTURE = {
    "allocated": "█",
    "cached": "▓",
    "outside": "▒",
    "others": "╳",
    "driver": "┃",
    "unattributed": "?",
    "free": "·",
    "used": "░",
    "opaque": "▩",
    "parameters": "▦",
    "gradients": "▧",
    "optimizer": "▤",
    "buffers": "▥",
    "caches": "▨",
    "live": "▫",
}
"""One glyph for each term, and for what allocated is made of, so that a bar reads without colour.

All are one cell wide."""

SWATCH = {**TEXTURE, "allocated": "▅"}
"""The same beside a name: a full cell would join the bar above it, or the row of its like."""

EIGHTHS = " ▁▂▃▄▅▆▇█"

_ASCII = dict(
    zip(
        "█▓▒░╳┃·▩▦▧▤▥▨▫—−–─│┤└┴┄▸▲↑↓≥≤×µΣ›…°●‖▁▂▃▄▅▆▇▔←→≈┆“”├═÷",
        '#=%:+|.@PGOBKo----||++->^^v><xuS>~ *=_,_##&#-<>~[""|=/',
        strict=True,
    )
)
"""One ASCII character for each of our glyphs."""


def width(text: str) -> int:
    """Cells that a terminal uses for this text."""
    return len(text) if text.isascii() else _width(text)


@lru_cache(maxsize=16384)
def _width(text: str) -> int:
    """Much of a picture stands on the next one too."""
    return sum(_cells(char) for char in text)


@lru_cache(maxsize=4096)
def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clean(text: str) -> str:
    """Text of other people (names, commands, messages) without control or direction characters."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_harmless(char) for char in text)


def _harmless(char: str) -> str:
    if char in "\t\n\r":
        return " "
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(char)[0] == "C" else char


def brief_command(text: str) -> str:
    """A command line, cleaned, for a row of a table: long paths by the last name, which tells them apart."""
    program, *words = clean(text).split(" ")
    named = program.rpartition("/")[2] if program.startswith("/") else program
    return " ".join([named or program, *(map(_brief_word, words))])


def _brief_word(word: str) -> str:
    folder, _, name = word.rpartition("/")
    return f"…/{name}" if word.startswith("/") and name and len(folder) > LONG_FOLDER_CELLS else word


def cut(text: str, cells: int) -> str:
    """Text in at most ``cells`` cells; what was cut is told by an ellipsis."""
    if cells <= 0:
        return ""
    if width(text) <= cells:
        return text
    return _shorten(text, cells)


def _shorten(text: str, cells: int) -> str:
    kept, used = [], 0
    for char in text:
        used += _cells(char)
        if used > cells - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def left(text: str, cells: int) -> str:
    """Text cut or padded to ``cells`` cells, on the left of them."""
    text = cut(text, cells)
    return text + " " * (cells - width(text))


def right(text: str, cells: int) -> str:
    """Text cut or padded to ``cells`` cells, on the right of them."""
    text = cut(text, cells)
    return " " * (cells - width(text)) + text


def line_width(line: Line) -> int:
    """Cells of a whole line."""
    return sum(width(span.text) for span in line)


def fit(line: Iterable[Span], cells: int) -> Line:
    """A line of exactly ``cells`` cells: padded with spaces, or cut with an ellipsis."""
    spans = tuple(line)
    rest = cells - line_width(spans)
    if rest >= 0:
        return (*spans, Span(" " * rest)) if rest else spans
    fitted: list[Span] = []
    rest = cells
    for span in spans:
        size = width(span.text)
        if size >= rest:
            short = _shorten(span.text, rest) if rest else ""
            return (*fitted, Span(short + " " * (rest - width(short)), span.role))
        fitted.append(span)
        rest -= size
    return tuple(fitted)


def ends(
    start: Iterable[Span], end: Iterable[Span], cells: int, filler: str = " ", role: str = "rule"
) -> Line:
    """One part at the left, the other at the right, a filler between; the left part gives way."""
    start, end = tuple(start), tuple(end)
    room = cells - line_width(end)
    if room < 1:
        return fit(start, cells)
    gap = room - line_width(start)
    if gap < 0:
        return fit((*fit(start, room), *end), cells)
    return fit((*start, Span(filler * gap, role), *end), cells)


def plain(line: Iterable[Span]) -> str:
    """The line's text alone."""
    return "".join(span.text for span in line)


def to_ascii(text: str) -> str:
    """The same text in ASCII, cell by cell, so that nothing moves."""
    if text.isascii():
        return text
    return "".join(char if char.isascii() else _ASCII.get(char, "?" * _cells(char)) for char in text)


def ascii_line(line: Line) -> Line:
    """The same line in ASCII, cell by cell."""
    return tuple(Span(to_ascii(span.text), span.role) for span in line)


def speaks_utf8(environ: Mapping[str, str]) -> bool:
    """Whether the locale's terminal takes more than ASCII; views draw in ASCII where it does not."""
    locale = next((environ[n] for n in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(n)), "")
    return "utf" in locale.lower()
