"""A widget that shows lines and repaints only the cells that differ from what is on screen."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from rich.segment import Segment
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumem_tui.views.text import Line, ascii_line, fit, width

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import MonitorApp

_NEAR = 6
"""Changes closer than this many cells go out together: a jump costs as much."""


def changed(old: Line, new: Line) -> list[tuple[int, int]]:
    """(first cell, number of cells) of every part of a line that has to be drawn again."""
    if old == new:
        return []
    before, after = _cells(old), _cells(new)
    size = max(len(before), len(after))
    before += [("", "")] * (size - len(before))
    after += [("", "")] * (size - len(after))
    runs: list[tuple[int, int]] = []
    for column in range(size):
        if before[column] == after[column]:
            continue
        if runs and column - sum(runs[-1]) < _NEAR:
            runs[-1] = (runs[-1][0], column + 1 - runs[-1][0])
        else:
            runs.append((column, 1))
    return runs


def _cells(line: Line) -> list[tuple[str, str]]:
    cells: list[tuple[str, str]] = []
    for text, role in line:
        for char in text:
            cells.append((char, role))
            if not char.isascii():
                cells.extend([("", role)] * (width(char) - 1))
    return cells


class Lines(Widget):
    """Lines of spans, one to a row, from the top."""

    DEFAULT_CSS: ClassVar[str] = "Lines { height: 1; width: 1fr; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []

    @property
    def monitor(self) -> "MonitorApp":
        """The app, by its own type."""
        return cast("MonitorApp", self.app)

    def show(self, lines: Sequence[Line]) -> None:
        """Show these lines; what is the same as before costs nothing."""
        cells = self.size.width
        fitted = [fit(line, cells) for line in lines]
        if self.monitor.ascii:
            fitted = [ascii_line(line) for line in fitted]
        before, self._lines = self._lines, fitted
        regions = []
        for row in range(max(len(before), len(fitted))):
            old = before[row] if row < len(before) else ()
            new = fitted[row] if row < len(fitted) else ()
            regions += [Region(start, row, count, 1) for start, count in changed(old, new)]
        if regions:
            self.refresh(*regions)

    @property
    def text(self) -> str:
        """What stands on the widget, for tests and for copying."""
        return "\n".join("".join(span.text for span in line).rstrip() for line in self._lines)

    def render_line(self, y: int) -> Strip:
        """Row ``y`` in the palette of the moment."""
        style = self.monitor.palette.style
        blank = style("text")
        if y >= len(self._lines):
            return Strip.blank(self.size.width, blank)
        strip = Strip([Segment(text, style(role)) for text, role in self._lines[y] if text])
        return strip.adjust_cell_length(self.size.width, blank)
