"""What a workload printed, as lines: colours kept, progress bars overwritten, everything else harmless.

A terminal in small: newline, carriage return, backspace, tab, erase in line, cursor
up and down by a few rows (nested progress bars), colours. All other control
sequences vanish. Holds what it is fed: whoever feeds it bounds that.
"""

import codecs
import re
from collections import deque
from itertools import repeat

from gpumem_tui.views.text import Line, Span, width

_REACH = 64
"""Rows at the end that a cursor may still go back to."""

_LONGEST = 4000
"""Cells of one row; what is printed beyond them is dropped."""

_TOKEN = re.compile(
    r"\x1b\[(?P<args>[0-?]*)[ -/]*(?P<csi>[@-~])"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|\x1b[PX^_][^\x1b]*\x1b\\"
    r"|\x1b[ -/]*[0-~]"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
    r"|(?P<text>[^\x00-\x1f\x7f-\x9f]+)",
    re.DOTALL,
)
_UNFINISHED = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,4096}\x1b?|[PX^_][^\x1b]{0,4096}\x1b?|[ -/]*)?\Z"
)

_NAMES = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "reverse", 9: "strike"}
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 27: ("reverse",), 29: ("strike",)}


class Transcript:
    """Lines of output, fed with bytes as they come."""

    def __init__(self) -> None:
        self._done: list[Line] = []
        self._rows: list[list[tuple[str, str]]] = [[]]
        self._row = 0
        self._column = 0
        self._marks: set[str] = set()
        self._front = self._back = ""
        self._style = "text"
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def __len__(self) -> int:
        return len(self._done) + len(self._rows)

    def line(self, number: int) -> Line:
        """A line, counted from the oldest that is kept."""
        if number < len(self._done):
            return self._done[number]
        return _spans(self._rows[number - len(self._done)])

    def feed(self, data: bytes) -> None:
        """Take more of the output."""
        text = self._rest + self._decode(data)
        unfinished = _UNFINISHED.search(text)
        end = unfinished.start() if unfinished else len(text)
        self._rest = text[end:]
        for token in _TOKEN.finditer(text, 0, end):
            if token["text"] is not None:
                self._write(token["text"])
            elif token["control"] is not None:
                self._control(token["control"])
            elif token["csi"] is not None:
                self._sequence(token["csi"], token["args"])

    def _write(self, text: str) -> None:
        row = self._rows[self._row]
        if text.isascii() and self._column == len(row):
            text = text[: _LONGEST - self._column]
            row.extend(zip(text, repeat(self._style), strict=False))
            self._column = len(row)
            return
        for char in text:
            cells = width(char)
            if cells == 0 or self._column >= _LONGEST:
                continue
            if len(row) < self._column:
                row.extend([(" ", "text")] * (self._column - len(row)))
            row[self._column : self._column + cells] = [
                (char, self._style),
                *[("", self._style)] * (cells - 1),
            ]
            self._column += cells

    def _control(self, char: str) -> None:
        if char == "\n":
            self._down(1)
            self._column = 0
        elif char == "\r":
            self._column = 0
        elif char == "\b":
            self._column = max(0, self._column - 1)
        elif char == "\t":
            self._column = min(_LONGEST, self._column // 8 * 8 + 8)

    def _down(self, count: int) -> None:
        self._row += count
        while len(self._rows) <= self._row:
            self._rows.append([])
        while len(self._rows) > _REACH:
            self._done.append(_spans(self._rows.pop(0)))
            self._row -= 1

    def _sequence(self, final: str, args: str) -> None:
        numbers = [int(n) if n.isdecimal() else 0 for n in re.split("[;:]", args)]
        count = min(max(1, numbers[0]), _REACH)
        if final == "m":
            self._colour(numbers)
        elif final == "A":
            self._row = max(0, self._row - count)
        elif final == "B":
            self._down(min(count, len(self._rows) - 1 - self._row))
        elif final == "C":
            self._column = min(_LONGEST, self._column + max(1, numbers[0]))
        elif final == "D":
            self._column = max(0, self._column - max(1, numbers[0]))
        elif final == "G":
            self._column = min(_LONGEST, max(1, numbers[0]) - 1)
        elif final == "K":
            self._erase(numbers[0])

    def _erase(self, which: int) -> None:
        row = self._rows[self._row]
        if which == 0:
            del row[self._column :]
        elif which == 1:
            end = min(len(row), self._column + 1)
            row[:end] = [(" ", "text")] * end
        elif which == 2:
            row.clear()

    def _colour(self, numbers: list[int]) -> None:
        queue = deque(numbers)
        while queue:
            number = queue.popleft()
            if number == 0:
                self._marks, self._front, self._back = set(), "", ""
            elif number in _NAMES:
                self._marks = self._marks | {_NAMES[number]}
            elif number in _OFF:
                self._marks = self._marks - set(_OFF[number])
            elif number in (38, 48):
                colour = _extended(queue)
                if number == 38:
                    self._front = colour
                else:
                    self._back = colour
            elif 30 <= number <= 37 or 90 <= number <= 97:
                self._front = f"color({number % 10 + (8 if number >= 90 else 0)})"
            elif 40 <= number <= 47 or 100 <= number <= 107:
                self._back = f"color({number % 10 + (8 if number >= 100 else 0)})"
            elif number == 39:
                self._front = ""
            elif number == 49:
                self._back = ""
        words = [*sorted(self._marks), self._front, f"on {self._back}" if self._back else ""]
        told = " ".join(word for word in words if word)
        self._style = f"={told}" if told else "text"


def _extended(queue: "deque[int]") -> str:
    """``5;n`` or ``2;r;g;b`` as a colour's name; empty where it is neither."""
    kind = queue.popleft() if queue else 0
    if kind == 5 and queue:
        return f"color({min(255, queue.popleft())})"
    if kind == 2 and len(queue) >= 3:
        red, green, blue = (min(255, queue.popleft()) for _ in range(3))
        return f"#{red:02x}{green:02x}{blue:02x}"
    return ""


def _spans(row: list[tuple[str, str]]) -> Line:
    spans: list[Span] = []
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end][1] != row[start][1]:
            spans.append(Span("".join(char for char, _ in row[start:end]), row[start][1]))
            start = end
    return tuple(spans)


def wrap(line: Line, cells: int) -> list[Line]:
    """A line as rows of at most ``cells`` cells; an empty line is one empty row."""
    rows: list[Line] = []
    row: list[Span] = []
    room = cells
    for text, role in line:
        part, taken = "", 0
        for char in text:
            size = width(char)
            if size > room - taken:
                if part:
                    row.append(Span(part, role))
                rows.append(tuple(row))
                row, part, taken, room = [], "", 0, cells
            part += char
            taken += size
        if part:
            row.append(Span(part, role))
        room -= taken
    rows.append(tuple(row))
    return rows
