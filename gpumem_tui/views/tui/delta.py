"""Between Textual and the line: sends only the cells that differ from what the terminal shows.

Textual repaints a row from the widget's edge for every change in it, and names every
colour again. ``Delta`` keeps a copy of the screen, follows what Textual writes, and
passes on changed cells, the cursor's moves between them and changes of style; the
screen is the same, the bytes are a tenth. What is painted over within the same data
is never sent. What it does not know goes through unchanged, in its place, and makes it
forget the screen if that may have moved anything.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from rich.cells import cell_len

_TOKEN = re.compile(
    r"\x1b\[(?P<args>[0-9;]*)(?P<final>[Hm])"
    r"|(?P<sync>\x1b\[\?2026[hl])"
    r"|(?P<other>\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_][^\x1b]*\x1b\\|\x1b[ -/]*[0-Z\\-~])"
    r"|(?P<newline>\r?\n)"
    r"|(?P<text>[^\x00-\x1f\x7f]+)"
    r"|(?P<control>[\x00-\x1f\x7f])"
)
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*)?\Z")
_HARMLESS = re.compile(
    r"\x1b(?:\[\?(?!1049|1047|47|3[hl])[0-9;]*(?:[hl]|\$p)|\[[<>=?]?[0-9;]*[uqc]|\[[0-9]* q|\].*)\Z"
)
"""Sequences that leave the cells as they are: modes, queries, keyboard protocol, titles, clipboard."""

_PART = 2000
"""Characters that are shown as one update: on a slow line more of them would be waited for."""

_ENDLESS = 1 << 16
"""Columns and rows of a terminal whose size is not known."""

_BRIDGE = 4
"""Unchanged cells between changed ones that are cheaper to send than to jump over."""

Cell = tuple[str, str]
"""(character, style); the character is empty in the second cell of a wide one."""


class _Pen(NamedTuple):
    marks: str
    front: str
    back: str


@lru_cache(maxsize=1024)
def _pen(style: str) -> _Pen:
    """A style's parameters, apart: attributes, foreground, background."""
    marks: list[str] = []
    front = back = ""
    numbers = style.split(";") if style else []
    while numbers:
        number = numbers.pop(0)
        if number in ("38", "48"):
            size = 4 if numbers[:1] == ["2"] else 2
            colour = ";".join([number, *numbers[:size]])
            del numbers[:size]
            front, back = (colour, back) if number == "38" else (front, colour)
        elif number in ("39", "49"):
            front, back = ("", back) if number == "39" else (front, "")
        elif len(number) >= 2 and number[:-1] in ("3", "9"):
            front = number
        elif len(number) >= 2 and number[:-1] in ("4", "10"):
            back = number
        else:
            marks.append(number)
    return _Pen(";".join(marks), front, back)


@lru_cache(maxsize=4096)
def _change(before: str | None, after: str) -> str:
    """The shortest sequence from one style to another; None is an unknown one."""
    if before is None:
        return f"\x1b[0;{after}m" if after else "\x1b[0m"
    old, new = _pen(before), _pen(after)
    parts = _marks(old.marks, new.marks)
    if parts is None:
        return f"\x1b[{';'.join(part for part in ('0', *new) if part)}m"
    if old.front != new.front:
        parts.append(new.front or "39")
    if old.back != new.back:
        parts.append(new.back or "49")
    return f"\x1b[{';'.join(parts)}m" if parts else ""


def _marks(before: str, after: str) -> list[str] | None:
    """What switches bold and italics on or off; None where other attributes change."""
    old, new = set(filter(None, before.split(";"))), set(filter(None, after.split(";")))
    changed = old ^ new
    if not changed <= _SWITCHED_OFF.keys():
        return None
    return [number if number in new else _SWITCHED_OFF[number] for number in sorted(changed)]


_SWITCHED_OFF = {"1": "22", "3": "23"}
"""Attributes that every terminal switches off alone; faint (2) is left out, for 22 is its end as well."""

_VISIBLE_ON_BLANKS = {"4", "7", "9", "21", "53"}
"""Attributes that show on a blank: lines, and reversed colours."""


@lru_cache(maxsize=1024)
def _of_blank(style: str) -> str:
    """What of a style shows on a blank: its ground, unless it is reversed or lined."""
    pen = _pen(style)
    return style if _VISIBLE_ON_BLANKS.intersection(pen.marks.split(";")) else pen.back


def _draws(pen: str | None, cell: Cell) -> bool:
    """Whether the terminal's style of the moment draws this cell as it should be."""
    if pen is None:
        return False
    return cell[1] == pen or (cell[0] == " " and cell[1] == _of_blank(pen))


class Delta:
    """What the terminal shows, and the way from there to what Textual wants shown."""

    def __init__(self) -> None:
        self._cells: dict[int, dict[int, Cell]] = {}
        self._wanted: dict[int, dict[int, Cell]] = {}
        """Cells that are to be sent, by row and column."""
        self._row = self._column = 0
        self._style = ""
        self._shown_at: tuple[int, int] | None = None
        """Where the terminal's cursor is, as far as known."""
        self._pen: str | None = None
        """The terminal's style; None if unknown."""
        self._rest = ""
        self._size: tuple[int, int] | None = None
        """(columns, rows) of the terminal; None if unknown."""
        self.synchronised = False
        """Whether the terminal takes updates as a whole."""
        self._out: list[str] = []

    def forget(self, size: tuple[int, int] | None = None) -> None:
        """The terminal may show anything now: everything that comes is sent.

        With its ``size`` (columns, rows), only what is within it: a terminal would draw the
        rest, which was meant for another size, over its last row.
        """
        self._size = size or self._size
        self._cells.clear()
        self._shown_at = self._pen = None

    def translate(self, data: str) -> str:
        """What to send for this; empty if the terminal shows it already."""
        data = self._rest + data
        unfinished = _UNFINISHED.search(data)
        end = unfinished.start() if unfinished else len(data)
        self._rest = data[end:]
        self._out = []
        for token in _TOKEN.finditer(data, 0, end):
            kind = token.lastgroup
            if kind == "text":
                self._write(token[0])
            elif kind == "final":
                self._sequence(token["final"], token["args"])
            elif kind == "sync":
                self.synchronised = True
            elif kind == "newline":
                self._row, self._column = self._row + 1, 0
            else:
                self._emit()
                self._pass(token[0])
        self._emit()
        return "".join(self._out)

    def _sequence(self, final: str, args: str) -> None:
        if final == "H":
            row, _, column = args.partition(";")
            self._row, self._column = int(row or 1) - 1, int(column or 1) - 1
        elif args in ("", "0"):
            self._style = ""
        else:
            self._style = f"{self._style};{args}" if self._style else args

    def _pass(self, sequence: str) -> None:
        if _HARMLESS.match(sequence) or sequence == "\x07":
            self._out.append(sequence)
            return
        self._out += ["\x1b[0m", sequence]
        self.forget()

    def _write(self, text: str) -> None:
        columns, rows = self._size or (_ENDLESS, _ENDLESS)
        if self._row >= rows:
            return
        shown = self._cells.setdefault(self._row, {})
        wanted = self._wanted.setdefault(self._row, {})
        style, blank = self._style, _of_blank(self._style)
        column = self._column
        for char in _split(text):
            if column >= columns - (cell_len(char) > 1 if column == columns - 1 else 0):
                break
            cell = (char, blank if char == " " else style)
            if shown.get(column) == cell:
                wanted.pop(column, None)
            else:
                wanted[column] = cell
            column += 1
        self._column = column

    # --- sending ----------------------------------------------------------------------------------

    def _emit(self) -> None:
        """Send the cells that differ, as one update where the terminal takes it as such, or as some.

        The last row comes first: a footer says at once that a key was heard.
        """
        changed = {row: cells for row, cells in sorted(self._wanted.items()) if cells}
        self._wanted = {}
        if not changed:
            return
        out, self._out = self._out, []
        parts = [self._out]
        for row, cells in [changed.popitem(), *changed.items()]:
            if sum(map(len, self._out)) > _PART:
                self._out = []
                parts.append(self._out)
            shown = self._cells.setdefault(row, {})
            shown.update(cells)
            self._send_row(row, shown, sorted(cells))
        begin, end_ = ("\x1b[?2026h", "\x1b[?2026l") if self.synchronised else ("", "")
        self._out = out + ["".join((begin, *part, end_)) for part in parts]

    def _send_row(self, row: int, shown: dict[int, Cell], columns: list[int]) -> None:
        """Send these cells of a row, from left to right or style by style, whichever takes less."""
        pieces = [piece for run in _runs(shown, columns) for piece in _pieces(shown, *run)]
        if len(pieces) > 2:
            ranks = {style: rank for rank, style in reversed([*enumerate(piece.style for piece in pieces)])}
            ranks[self._pen or ""] = -1
            by_style = sorted(pieces, key=lambda piece: ranks[piece.style])
            pieces = min(pieces, by_style, key=self._cost)
        for piece in pieces:
            place = (row, piece.start)
            if place != self._shown_at:
                same_row = self._shown_at is not None and self._shown_at[0] == row
                self._out.append(f"\x1b[{place[1] + 1}G" if same_row else f"\x1b[{row + 1};{place[1] + 1}H")
            if self._pen is None or not piece.looks_the_same(self._pen):
                self._out.append(_change(self._pen, piece.style))
                self._pen = piece.style
            self._out.append(piece.text)
            # Past a character of doubtful width, or at the margin, the cursor may be elsewhere.
            sure = piece.text.isascii() or _SURE.fullmatch(piece.text)
            self._shown_at = (row, piece.end) if sure else None

    def _cost(self, pieces: "Sequence[_Piece]") -> int:
        """About how many bytes it takes to send pieces of a row in this order, beyond their text."""
        cost, pen, at = 0, self._pen, pieces[0].start
        for piece in pieces:
            cost += _JUMP_BYTES if piece.start != at else 0
            if pen is None or not piece.looks_the_same(pen):
                cost, pen = cost + len(_change(pen, piece.style)), piece.style
            at = piece.end
        return cost


_SURE = re.compile("[ -~\u2500-\u259f]*")

_JUMP_BYTES = 5
"""Within a row."""


class _Piece(NamedTuple):
    """Neighbouring cells of one style, whole characters."""

    start: int
    end: int
    """The column behind it."""
    style: str
    text: str

    def looks_the_same(self, pen: str) -> bool:
        """Whether another style draws it alike."""
        return self.style == pen or (self.text.isspace() and self.style == _of_blank(pen))


def _pieces(shown: dict[int, Cell], start: int, end: int) -> list[_Piece]:
    """The cells of a run; blanks go with the style beside them."""
    pieces: list[_Piece] = []
    first, style, blank, chars = start, shown[start][1], True, list[str]()
    for column in range(start, end + 1):
        char, wanted = shown[column]
        if not _draws(style, (char, wanted)):
            if blank and style == _of_blank(wanted):
                pass
            else:
                pieces.append(_Piece(first, column, style, "".join(chars)))
                first, chars, blank = column, [], True
            style = wanted
        blank = blank and char == " "
        chars.append(char)
    pieces.append(_Piece(first, end + 1, style, "".join(chars)))
    return pieces


def _runs(shown: dict[int, Cell], columns: list[int]) -> list[tuple[int, int]]:
    """(first, last) column of what is sent together: whole characters, and short gaps of the same style."""
    runs: list[tuple[int, int]] = []
    for column in columns:
        start = end = column
        while not shown[start][0] and start - 1 in shown:
            start -= 1
        while not shown.get(end + 1, ("x", ""))[0]:
            end += 1
        if runs and start <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        elif runs and _bridged(shown, runs[-1][1], start):
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def _bridged(shown: dict[int, Cell], last: int, start: int) -> bool:
    """Whether the cells between two changes are known, few, and drawn as those around them."""
    if start - last - 1 > _BRIDGE:
        return False
    style = shown[last][1]
    between = (shown.get(column) for column in range(last + 1, start + 1))
    return all(cell is not None and _draws(style, cell) for cell in between)


def _split(text: str) -> list[str]:
    """One entry for each cell: its character, empty for the second half of a wide one."""
    if text.isascii():
        return list(text)
    cells: list[str] = []
    for char in text:
        size = cell_len(char)
        if size == 0 and cells:
            at = next((i for i in range(len(cells) - 1, -1, -1) if cells[i]), 0)
            cells[at] += char
        elif size:
            cells += [char] + [""] * (size - 1)
    return cells
