"""Panels that scroll: a heading and rows, or the list of devices. What does not fit is said."""

from collections.abc import Callable, Sequence

from textual import events

from gpumem_tui.views.panels import rule
from gpumem_tui.views.text import Line, Span
from gpumem_tui.views.tui.widgets.lines import Lines

Draw = Callable[[int], Sequence[Line]]
"""Rows of a panel for a given width."""


def hidden(above: int, below: int, noun: str = "") -> str:
    """``3 more devices: ↓``; empty if everything is in view."""
    of = f" {noun}" if noun else ""
    parts = []
    if above:
        parts.append(f"{above} above: ↑")
    if below:
        parts.append(f"{below} more{of}: ↓")
    return "  ".join(parts)


class Panel(Lines):
    """A heading with rows below it; the heading says how many are out of view."""

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id)
        self.title = title
        self._rows: Sequence[Line] = ()
        self._head: Sequence[Line] = ()
        self._first = 0
        self.focused_panel = False

    def show_rows(self, rows: Sequence[Line], head: Sequence[Line] = ()) -> None:
        """New rows; the place in them is kept. ``head`` stays above them."""
        self._rows, self._head = rows, head
        self._draw()

    def _draw(self) -> None:
        room = self.page()
        self._first = max(0, min(self._first, len(self._rows) - room))
        below = len(self._rows) - room - self._first
        remark = hidden(self._first, max(0, below))
        heading = rule(self.title, self.size.width, remark, focused=self.focused_panel)
        shown = [heading, *self._head, *self._rows[self._first : self._first + room]]
        self.show(shown[: self.size.height])

    def scroll_rows(self, count: int) -> None:
        """Move by rows; stops at both ends."""
        self._first += count
        self._draw()

    def page(self) -> int:
        """Rows of one page."""
        return max(1, self.size.height - 1 - len(self._head))

    def mark(self, focused: bool) -> None:
        """Show whether keys go to this panel."""
        self.focused_panel = focused
        self._draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves this panel."""
        event.stop()
        self.scroll_rows(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves this panel."""
        event.stop()
        self.scroll_rows(-1)


class DeviceList(Lines):
    """The devices, as blocks or as table rows, with the selected one always in view."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._blocks: Sequence[Sequence[Line]] = ()
        self._head: Sequence[Line] = ()
        self._chosen = 0
        self._first = 0
        self.at_row: list[int] = []
        """Which device (by position) each row of the widget belongs to; −1 for none."""

    def show_blocks(self, head: Sequence[Line], blocks: Sequence[Sequence[Line]], chosen: int) -> None:
        """New devices; ``chosen`` is the position of the selected one."""
        self._head, self._blocks, self._chosen = head, blocks, chosen
        self._draw()

    def _draw(self) -> None:
        room = max(1, self.size.height - len(self._head))
        self._first = max(0, min(self._first, self._chosen, len(self._blocks) - 1))
        while self._first < self._chosen and self._chosen >= self._first + self._fitting(room):
            self._first += 1
        while self._first > 0 and self._first - 1 + self._fitting(room, self._first - 1) >= len(self._blocks):
            self._first -= 1
        count = self._fitting(room)
        lines, rows = list(self._head), [-1] * len(self._head)
        for position in range(self._first, min(len(self._blocks), self._first + count)):
            lines += self._blocks[position]
            rows += [position] * len(self._blocks[position])
        remark = hidden(self._first, len(self._blocks) - self._first - count, "devices")
        if remark:
            lines = [*lines[: self.size.height - 1], (Span(f"   {remark}", "key"),)]
            rows = [*rows[: self.size.height - 1], -1]
        self.at_row = rows
        self.show(lines[: self.size.height])

    def _fitting(self, room: int, first: int | None = None) -> int:
        """How many blocks from ``first`` on are shown whole; at least one."""
        start = self._first if first is None else first
        used = 0
        for number, block in enumerate(self._blocks[start:]):
            last = start + number + 1 == len(self._blocks)
            if used + len(block) > room - (0 if last and start == 0 else 1):
                return max(1, number)
            used += len(block)
        return max(1, len(self._blocks) - start)

    def on_click(self, event: events.Click) -> None:
        """A click selects a device."""
        if event.y < len(self.at_row) and self.at_row[event.y] >= 0:
            self.monitor.select_device(self.at_row[event.y])

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel goes to the next device."""
        event.stop()
        self.monitor.select_device(self._chosen + 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel goes to the device before."""
        event.stop()
        self.monitor.select_device(self._chosen - 1)
