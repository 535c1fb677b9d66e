"""Ranks × GPUs as lines of given width: a head, a row for each process, a legend.

Owns columns, glyphs and how much of a cell fits; refuses what a cell means (``matrix``).
Sixteen cards fit into 80 cells: there a cell is a glyph and three characters of GiB.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpumem_tui import units
from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import present
from gpumem_tui.views.matrix import NEW_NS, Cell, Matrix, Stand
from gpumem_tui.views.prose import wrapped
from gpumem_tui.views.text import Line, Span, fit, left, right, width

LEAST = 4
"""Cells of the narrowest column: a glyph, and a figure of three characters."""

GLYPH = {
    Stand.HOME: ("█", "allocated"),
    Stand.SHARED: ("!", "warning"),
    Stand.STRAY: ("!", "warning"),
    Stand.CONTEXT: ("▒", "outside"),
    Stand.FOREIGN: ("╳", "others"),
}
"""(glyph, role) of each kind of cell; it reads without colour."""

_NAME = 10
"""Most cells of a row's title in a narrow terminal."""

_FIGURE, _PAIR, _FULL = 8, 17, 27
"""Widths of a column from which on it has a figure with two decimals, reserved beside it, and a time."""


class Grid(NamedTuple):
    """The matrix for one width."""

    head: Line
    rows: list[Line]
    first: int
    """Position of the first card that is shown."""
    shown: int
    """How many cards are shown."""
    name_cells: int
    column: int
    """Cells of one card's column."""

    def place_at(self, x: int) -> int | None:
        """The card's position at a cell of a row, for the mouse."""
        place = self.first + (x - self.name_cells) // self.column
        return place if x >= self.name_cells and place < self.first + self.shown else None


def grid(matrix: Matrix, state: RunState, cells: int, chosen: tuple[int, int] | None = None) -> Grid:
    """Rows and head; ``chosen`` is (row, card) of the cell that is marked, and is always in view."""
    names = max((width(row.title) for row in matrix.rows), default=6)
    name_cells = 2 + min(names, _NAME if cells < 100 else 20) + 1
    count = len(matrix.heads)
    room = max(LEAST, cells - name_cells)
    shown = max(1, min(count, room // LEAST))
    column = max(LEAST, min(_FULL, room // max(1, shown)))
    first = 0
    if chosen is not None and count > shown:
        first = max(0, min(chosen[1] - shown // 2, count - shown))
    places = range(first, min(count, first + shown))
    heads: list[Span] = [Span(left("", name_cells), "dim")]
    for place in places:
        mark = "strong" if chosen is not None and chosen[1] == place else "dim"
        text = str(matrix.heads[place]) if column < _FIGURE else f"GPU {matrix.heads[place]}"
        heads.append(Span(right(text, column - 1) + " " if column >= _FIGURE else right(text, column), mark))
    rows = []
    for number, row in enumerate(matrix.rows):
        is_chosen = chosen is not None and chosen[0] == number
        spans = [
            Span("▸ " if is_chosen else "  ", "focus"),
            Span(left(row.title, name_cells - 2), "strong" if row.ours else "others"),
        ]
        for place in places:
            marked = is_chosen and chosen is not None and chosen[1] == place
            spans += _cell(row.cells.get(place), state, column, marked)
        rows.append(fit(spans, cells))
    return Grid(fit(heads, cells), rows, first, len(places), name_cells, column)


def _cell(cell: Cell | None, state: RunState, column: int, marked: bool) -> list[Span]:
    if cell is None:
        gap = "·"
        text = right(gap, column - 1) + " " if column >= _FIGURE else right(gap, column)
        return [Span(text, "prompt" if marked else "rule")]
    glyph, role = GLYPH[cell.stand]
    figure_role = "prompt" if marked else _role(cell, state)
    if column < _FIGURE:
        figure = short_gib(cell.bytes)
        if column > LEAST:
            return [Span(" " * (column - 4)), Span(glyph, role), Span(right(figure, 3), figure_role)]
        return [Span(glyph, role), Span(right(figure, 3), figure_role)]
    figure = units.format_gib(cell.bytes)
    if cell.used_bytes is None and cell.bytes is not None:
        figure = f"≥{figure}"
    if column >= _PAIR:
        reserved = "" if cell.reserved_bytes is None else f"({units.format_gib(cell.reserved_bytes)})"
        figure = f"{right(figure, 6)} {left(reserved, 8)}"
    if column >= _FULL:
        when = "" if cell.since_ns is None else present.wall_clock(state.facts, cell.since_ns)
        figure = f"{figure} {right(when, 8)}"
    room = column - 3
    return [
        Span(" " * max(0, room - width(figure))),
        Span(f"{glyph} ", role),
        Span(right(figure, min(room, width(figure))), figure_role),
        Span(" "),
    ]


def _role(cell: Cell, state: RunState) -> str:
    if cell.bytes is None:
        return "missing"
    if cell.stand in (Stand.SHARED, Stand.STRAY):
        return "warning"
    if cell.since_ns is not None and state.facts.ended_ns is None and state.now_ns - cell.since_ns < NEW_NS:
        return "strong"
    return "text"


def short_gib(value: int | None) -> str:
    """GiB in at most three characters: ``.45``, ``9.5``, ``12``, ``140``."""
    if value is None:
        return units.MISSING
    gib = value / units.GIB
    if gib < 0 or gib >= 999.5:
        return "…"
    if gib < 0.995:
        return f"{gib:.2f}"[1:] if value else "0"
    return f"{gib:.1f}" if gib < 9.95 else f"{gib:.0f}"


_WORDS = (
    (Stand.HOME, "its card"),
    (Stand.CONTEXT, "context alone"),
    (Stand.FOREIGN, "others"),
    (Stand.SHARED, "shared"),
    (Stand.STRAY, "astray"),
)


def legend(matrix: Matrix, column: int) -> Line:
    """What the figures are, and what the glyphs mean that are there, in the colours of the cells."""
    there = {cell.stand for row in matrix.rows for cell in row.cells.values()}
    signs: dict[tuple[str, str], list[str]] = {}
    for stand, word in _WORDS:
        if stand in there:
            signs.setdefault(GLYPH[stand], []).append(word)
    figures = "GiB held (reserved)" if column >= _PAIR else "GiB held"
    spans = [Span(f"{figures}, since" if column >= _FULL else figures, "dim")]
    for (glyph, role), words in signs.items():
        spans += [Span("  "), Span(glyph, role), Span(f" {' or '.join(words)}", "dim")]
    return tuple(spans)


def matrix_lines(matrix: Matrix, state: RunState, cells: int) -> list[Line]:
    """All of it, for plain text and reports: head, rows, legend, remarks."""
    table = grid(matrix, state, cells)
    signs = fit((Span("   "), *legend(matrix, table.column)), cells)
    return [table.head, *table.rows, signs, *remark_lines(matrix.remarks, cells)]


def remark_lines(remarks: Sequence[tuple[str, str]], cells: int) -> list[Line]:
    """Each remark in as many lines as it needs."""
    return [line for role, text in remarks for line in wrapped(text, cells, role, first="   ")]
