"""A widget that shows lines and sends only the cells that differ from what is on screen.

Textual's way from a changed line to the terminal goes through every widget that lies
around it, twice. A picture a second changes few cells of many lines, so they are sent
from here, with the same styles and filters. Textual draws these widgets where their
place changes; both draw from the lines that stand now, so neither can undo the other.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, ClassVar, cast

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.color import Color
from textual.errors import NoWidget
from textual.filter import LineFilter
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from gpumem_tui.views.meanings import meaning_at
from gpumem_tui.views.text import Line, Span, ascii_line, fit, line_width

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import MonitorApp


class Lines(Widget):
    """Lines of spans, one to a row, from the top."""

    DEFAULT_CSS: ClassVar[str] = "Lines { height: 1; width: 1fr; }"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._lines: list[Line] = []
        self._cells = 0
        """Width of the lines."""

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
        same_width, self._cells = cells == self._cells, cells
        before, self._lines = self._lines, fitted
        if before == fitted:
            return
        try:
            region, _, clip, *_ = self.screen.find_widget(self)
        except NoWidget:
            return  # it has no place yet, and is drawn when it gets one
        if same_width and region.width == cells and clip.contains_region(region):
            self._send(region, before)
        else:
            self.refresh()

    def _send(self, region: Region, before: Sequence[Line]) -> None:
        """Send what differs from the lines that stood before, from where it begins in each row to its end."""
        driver, console, style_of = self.app._driver, self.app.console, self._style_of()
        if driver is None:
            return
        out, blank = [], (Span(" " * region.width),)
        pairs = zip_longest(before, self._lines, fillvalue=blank)
        for row, (old, new) in enumerate(islice(pairs, region.height)):
            if old != new:
                column, spans = _difference(old, new)
                strip = Strip([Segment(text, style_of(role)) for text, role in spans if text])
                out.append(f"\x1b[{region.y + row + 1};{region.x + column + 1}H{strip.render(console)}")
        driver.write("".join(out))

    @property
    def text(self) -> str:
        """What stands on the widget, for tests and for copying."""
        return "\n".join("".join(span.text for span in line).rstrip() for line in self._lines)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Rows of the lines that stand, in the palette of the moment; nothing of it is kept."""
        style_of, width = self._style_of(), self.size.width
        blank = style_of("text")
        strips = []
        for row in crop.line_range:
            line = self._lines[row] if row < len(self._lines) else ()
            strip = Strip([Segment(text, style_of(role)) for text, role in line if text])
            strips.append(strip.adjust_cell_length(width, blank))
        if crop.column_span == (0, width):
            return strips
        return [strip.crop(*crop.column_span) for strip in strips]

    def _style_of(self) -> Callable[[str], Style]:
        """What draws each role: its style in the palette, as Textual's filters leave it."""
        palette, filters = self.monitor.palette, tuple(self.get_line_filters())
        ground = self.background_colors[1]
        return lambda role: _filtered(palette.style(role), filters, ground)


@lru_cache(maxsize=1024)
def _filtered(style: Style, filters: tuple[LineFilter, ...], ground: Color) -> Style:
    strip = Strip([Segment(" ", style)])
    for each in filters:
        strip = strip.apply_filter(each, ground)
    (segment,) = strip
    return segment.style or style


def _difference(before: Line, after: Line) -> tuple[int, Sequence[Span]]:
    """What two lines of one width differ in: the cell where it begins, and the spans of the later one."""
    least = min(len(before), len(after))
    first = next((n for n in range(least) if before[n] != after[n]), least)
    last = next((n for n in range(least - first) if before[-1 - n] != after[-1 - n]), least - first)
    return line_width(after[:first]), after[first : len(after) - last]


class Terms(Lines):
    """Lines in a part of the screen that may change its size; terms are explained to a pointer that rests."""

    def on_resize(self) -> None:
        """What was shown may have been drawn for another size."""
        self.monitor.draw_soon()

    async def on_mouse_move(self, event: events.MouseMove) -> None:
        """A pointer that rests on a term has it explained."""
        line = self._lines[event.y] if 0 <= event.y < len(self._lines) else ()
        self.monitor.point_at(meaning_at(line, event.x))

    def on_leave(self) -> None:
        """The pointer is elsewhere."""
        self.monitor.point_at("")
