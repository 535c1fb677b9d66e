"""Between Textual and the line: sends only the cells that differ from what the terminal shows.

Textual repaints a row from the widget's edge for every change in it, and names every
colour again. ``Delta`` keeps a copy of the screen, follows what Textual writes, and
passes on changed cells, the cursor's moves between them and changes of style; the
screen is the same, the bytes are a tenth. What it does not know goes through
unchanged, and makes it forget the screen if that may have moved anything.
"""

import re
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
def _change(before: str, after: str) -> str:
    """The shortest sequence from one style to another."""
    old, new = _pen(before), _pen(after)
    if old.marks != new.marks:
        return f"\x1b[{';'.join(part for part in ('0', *new) if part)}m"
    parts = []
    if old.front != new.front:
        parts.append(new.front or "39")
    if old.back != new.back:
        parts.append(new.back or "49")
    return f"\x1b[{';'.join(parts)}m" if parts else ""


class Delta:
    """What the terminal shows, and the way from there to what Textual wants shown."""

    def __init__(self) -> None:
        self._cells: dict[int, dict[int, Cell]] = {}
        self._row = self._column = 0
        self._style = ""
        self._shown_at: tuple[int, int] | None = None
        """Where the terminal's cursor is, as far as known."""
        self._pen: str | None = None
        """The terminal's style; None if unknown."""
        self._rest = ""
        self._begin = ""
        """The beginning of a synchronised update, held back until there is something in it."""
        self._out: list[str] = []

    def forget(self) -> None:
        """The terminal may show anything now: everything that comes is sent."""
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
                self._synchronise(token[0])
            elif kind == "newline":
                self._row, self._column = self._row + 1, 0
            else:
                self._pass(token[0])
        return "".join(self._out)

    def _send(self, text: str) -> None:
        if self._begin:
            self._out.append(self._begin)
            self._begin = ""
        self._out.append(text)

    def _synchronise(self, sequence: str) -> None:
        if sequence.endswith("h"):
            self._begin = sequence
        elif self._begin:
            self._begin = ""
        else:
            self._send(sequence)

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
            self._send(sequence)
            return
        self._send("\x1b[0m")
        self._send(sequence)
        self.forget()

    def _write(self, text: str) -> None:
        line = self._cells.setdefault(self._row, {})
        cells = _split(text)
        start = None
        for offset, char in enumerate(cells):
            cell = (char, self._style)
            if line.get(self._column + offset) == cell:
                continue
            line[self._column + offset] = cell
            if start is None:
                start = end = offset
            elif offset - end > _BRIDGE:
                self._run(cells, start, end)
                start = offset
            end = offset
        if start is not None:
            self._run(cells, start, end)
        self._column += len(cells)

    def _run(self, cells: list[str], start: int, end: int) -> None:
        """Send a run of cells; it begins and ends with whole characters."""
        while start and not cells[start]:
            start -= 1
        while end + 1 < len(cells) and not cells[end + 1]:
            end += 1
        place = (self._row, self._column + start)
        if place != self._shown_at:
            same_row = self._shown_at is not None and self._shown_at[0] == place[0]
            self._send(f"\x1b[{place[1] + 1}G" if same_row else f"\x1b[{place[0] + 1};{place[1] + 1}H")
        if self._pen != self._style:
            if self._pen is None:
                self._send(f"\x1b[0;{self._style}m" if self._style else "\x1b[0m")
            else:
                self._send(_change(self._pen, self._style))
            self._pen = self._style
        text = "".join(cells[start : end + 1])
        self._send(text)
        # Past a character of doubtful width, or at the margin, the cursor may be elsewhere.
        sure = all(len(char) == 1 and (char.isascii() or "\u2500" <= char <= "\u259f") for char in text)
        self._shown_at = (self._row, self._column + end + 1) if sure else None


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
