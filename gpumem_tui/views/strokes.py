"""The plot of a chart as cells: blocks, braille lines or textures; the limit and the cursor over them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from gpumem_tui.views.text import EIGHTHS, TEXTURE, Span

if TYPE_CHECKING:
    from gpumem_tui.views.chart import Plot

Column = Sequence[Span]
"""Cells from the bottom up."""

_DOTS = ((0x40, 0x80), (0x04, 0x20), (0x02, 0x10), (0x01, 0x08))
"""Bits of a braille character: rows from the bottom up, left and right."""


def blocks(drawing: "Plot", height: int, style: str) -> list[Column]:
    """Filled levels: cells split in eighths by colour, or whole cells in the textures of the terms."""
    nothing, gap = (Span(" "),) * height, (Span("┄", "dim"), *[Span(" ")] * (height - 1))
    top, textured = drawing.top_bytes, style == "texture"
    drawn: list[Column] = [nothing] * drawing.view.columns
    for column in range(drawing.unread, drawing.until):
        used, reserved, allocated = (
            values[column] for values in (drawing.used, drawing.reserved, drawing.allocated)
        )
        if used is reserved is allocated is None:
            drawn[column] = gap
            continue
        drawn[column] = _stack(
            None if used is None else used[1],
            None if reserved is None else reserved[1],
            None if allocated is None else allocated[:2],
            top,
            height,
            textured,
        )
    return drawn


@lru_cache(maxsize=4096)
def _stack(
    used: int | None,
    reserved: int | None,
    allocated: tuple[int, int] | None,
    top: int,
    height: int,
    textured: bool,
) -> tuple[Span, ...]:
    """One column from the bottom up: highs of the levels, and least and most of allocated."""
    slots = ["text"] * (height * 8)
    if used is not None:
        _fill(slots, used, top, "used")
    if reserved is not None:
        _fill(slots, reserved, top, "cached")
    if allocated is not None:
        _fill(slots, allocated[1], top, "swing")
        _fill(slots, allocated[0], top, "allocated")
    if textured:
        _stand(slots)
    return tuple(_cell(slots[row * 8 : row * 8 + 8], textured) for row in range(height))


def _fill(slots: list[str], size: int, top: int, role: str) -> None:
    filled = min(len(slots), round(max(0, size) * len(slots) / top))
    if size > 0 and filled == 0:
        filled = 1
    slots[:filled] = [role] * filled


def _stand(slots: list[str]) -> None:
    """Levels too low for a cell of their own fill the lowest one: a texture has no eighths."""
    if "text" in slots[:8]:
        slots[:8] = [max(slots[:8], key=lambda role: (role != "text", slots[:8].count(role)))] * 8


def _cell(slots: list[str], textured: bool) -> Span:
    roles = list(dict.fromkeys(slots))
    if textured:
        # What fills most of a cell decides.
        role = max(roles, key=slots.count)
        role = "allocated" if role == "swing" else role
        return Span(" " if role == "text" else TEXTURE[role], role)
    if len(roles) > 2:  # a cell has two colours: those of the two levels that fill most of it
        thinnest = sorted(roles, key=slots.count)[: len(roles) - 2]
        roles = [role for role in roles if role not in thinnest]
    if len(roles) == 1:
        return Span(" ") if roles[0] == "text" else Span("█", roles[0])
    bottom, top = roles
    return Span(EIGHTHS[slots.index(top)], bottom if top == "text" else f"{bottom}/{top}")


def braille(drawing: "Plot", height: int) -> list[Column]:
    """Levels as lines of dots, two columns and four rows to a cell; the foremost level colours the cell."""
    dots = [[0] * drawing.view.columns for _ in range(height)]
    roles = [["text"] * drawing.view.columns for _ in range(height)]
    levels = ((drawing.used, "used"), (drawing.reserved, "cached"), (drawing.allocated, "allocated"))
    for values, role in levels:
        for place, value in enumerate(values):
            if value is None:
                continue
            low, high = (_dot(size, drawing.top_bytes, height * 4) for size in value[:2])
            for dot in range(low, high + 1):
                row, column = dot // 4, place // 2
                dots[row][column] |= _DOTS[dot % 4][place % 2]
                roles[row][column] = role
    grid = [
        [
            Span(chr(0x2800 + bits), role) if bits else Span(" ")
            for bits, role in zip(dots[row], roles[row], strict=True)
        ]
        for row in range(height)
    ]
    for column in range(drawing.unread, drawing.until):
        pair = slice(2 * column, 2 * column + 2)
        if all(v is None for values, _ in levels for v in values[pair]):
            grid[0][column] = Span("┄", "dim")
    return [*zip(*grid, strict=True)]


def _dot(size: int, top: int, count: int) -> int:
    return max(0, min(count - 1, size * count // top))


def limit(row: list[Span], until: int) -> None:
    """The upper edge, where no level reaches it: the card has no more than that."""
    for column in range(until):
        if row[column].text == " ":
            row[column] = Span("▔", "rule")


def say(columns: list[Column], room: int, words: str) -> None:
    """A remark in the lowest cells of the first columns, if there is room for it."""
    if room > len(words):
        for number, char in enumerate(words):
            columns[number] = (Span(char, "remark"), *columns[number][1:])


def cross(columns: list[Column], number: int) -> None:
    """A line over one column, which leaves the levels below it visible."""
    columns[number] = [_crossed(cell) for cell in columns[number]]


def _crossed(cell: Span) -> Span:
    role = cell.role.partition("/")[0]
    filled = cell.text not in (" ", "▔", "┄")
    return Span("│", f"focus/{role}" if filled and role != "text" else "focus")


class Rows:
    """The columns of a plot as rows, from the bottom up; what has stood for two pictures is joined once."""

    def __init__(self) -> None:
        self._columns: Sequence[Column] = ()
        self._joined: list[list[Span]] = []
        """Rows of the first columns."""
        self._count = 0
        """How many columns those are."""

    def joined(self, columns: Sequence[Column], until: int) -> list[list[Span]]:
        """The rows of these columns; all are blank from ``until`` on."""
        before, self._columns = self._columns, columns
        pairs = enumerate(zip(before, columns, strict=False))
        same = next((n for n, (old, new) in pairs if old is not new and old != new), len(before))
        same = min(same, until) if len(before) == len(columns) else 0
        if same < self._count or len(self._joined) != len(columns[0]):
            self._joined, self._count = [[] for _ in columns[0]], 0
        for row, known in enumerate(self._joined):
            known[:] = runs([*known, *(column[row] for column in columns[self._count : same])])
        self._count = same
        rest = columns[same:until]
        blank = [Span(" " * (len(columns) - until))] if until < len(columns) else []
        return [
            runs([*known, *(column[row] for column in rest), *blank])
            for row, known in enumerate(self._joined)
        ]


def runs(cells: Sequence[Span]) -> list[Span]:
    """Neighbours of one role joined."""
    joined: list[Span] = []
    for cell in cells:
        if joined and joined[-1].role == cell.role:
            joined[-1] = Span(joined[-1].text + cell.text, cell.role)
        else:
            joined.append(cell)
    return joined
