"""Panels that scroll: a heading and rows, or the list of devices. What does not fit is said."""

from collections.abc import Callable, Sequence

from textual import events

from gpumem_tui.views.panels import rule
from gpumem_tui.views.text import Line, Span, plain
from gpumem_tui.views.tui.widgets.lines import Terms

_WHOLE = 400
"""Cells in which no row is cut."""

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


class Panel(Terms):
    """A heading with rows below it; the heading says how many are out of view."""

    def __init__(self, title: str, *, id: str) -> None:
        super().__init__(id=id)
        self.title = title
        self.key: Line = ()
        """What stands after the title in colours of its own."""
        self._rows: Sequence[Line] = ()
        self._head: Sequence[Line] = ()
        self._first = 0
        self._kept = ""
        self.focused_panel = False

    def show_rows(self, rows: Sequence[Line], head: Sequence[Line] = ()) -> None:
        """New rows; the place in them is kept. ``head`` stays above them."""
        self._rows, self._head, self._kept = rows, head, ""
        self._draw()

    def show_drawn(self, draw: Draw, head: Sequence[Line] = ()) -> None:
        """Rows of which only those with the filter's word stay; one that is cut off on screen counts."""
        rows, word = draw(self.size.width), self.monitor.filter_word.lower()
        if not word:
            self.show_rows(rows, head)
            return
        whole = draw(_WHOLE)
        kept = [row for row, all_of_it in zip(rows, whole, strict=False) if word in plain(all_of_it).lower()]
        self._rows, self._head, self._kept = kept, head, f", {len(kept)} of {len(rows)} with “{word}”"
        self._draw()

    def _draw(self) -> None:
        room = self.page()
        self._first = max(0, min(self._first, len(self._rows) - room))
        below = len(self._rows) - room - self._first
        remark = hidden(self._first, max(0, below))
        title = self.title + self._kept
        heading = rule(title, self.size.width, remark, focused=self.focused_panel, key=self.key)
        shown = [heading, *self._head, *self._rows[self._first : self._first + room]]
        self.show(shown[: self.size.height])

    def scroll_rows(self, count: int) -> None:
        """Move by rows; stops at both ends."""
        self._first += count
        self._draw()

    def keep_in_view(self, row: int) -> None:
        """Scroll as little as shows this row."""
        first = max(row - self.page() + 1, min(self._first, row))
        if first != self._first:
            self._first = first
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


class DeviceList(Terms):
    """The devices, as blocks or as table rows, with the selected one always in view."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._blocks: Sequence[Sequence[Line]] = ()
        self._head: Sequence[Line] = ()
        self._chosen = 0
        self._pinned: int | None = None
        self._tell: Callable[[Sequence[int]], Span] = lambda _: Span("")
        self._first = 0
        self.at_row: list[int] = []
        """Which device (by position) each row of the widget belongs to; −1 for none."""

    def show_blocks(
        self,
        head: Sequence[Line],
        blocks: Sequence[Sequence[Line]],
        chosen: int,
        pinned: int | None = None,
        *,
        tell: Callable[[Sequence[int]], Span],
    ) -> None:
        """New devices; ``chosen`` is the selected one's position, ``pinned`` of one that stays in view.

        ``tell`` says of some positions what must be known of those that are not in view.
        """
        self._head, self._blocks, self._chosen = head, blocks, chosen
        self._pinned, self._tell = pinned, tell
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
            unseen = [n for n in range(len(self._blocks)) if not self._first <= n < self._first + count]
            more = (Span(f"   {remark}  ", "key"), self._tell(unseen))
            lines = [*lines[: self.size.height - 1], more]
            rows = [*rows[: self.size.height - 1], -1]
        self._keep_pinned(lines, rows)
        self.at_row = rows
        self.show(lines[: self.size.height])

    def _keep_pinned(self, lines: list[Line], rows: list[int]) -> None:
        """A pinned device that is out of view takes the place of the first one that is in view."""
        pinned = self._pinned
        if pinned is None or pinned in rows or pinned >= len(self._blocks):
            return
        at, block = len(self._head), list(self._blocks[pinned])
        lines[at : at + len(block)] = block
        rows[at : at + len(block)] = [pinned] * len(block)

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

    async def on_click(self, event: events.Click) -> None:
        """A click selects a device; one on the selected device opens it."""
        at = self.at_row[event.y] if event.y < len(self.at_row) else -1
        if at == self._chosen:
            await self.monitor.go_to("device")
        elif at >= 0:
            self.monitor.select_device(at)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel goes to the next device."""
        event.stop()
        self.monitor.select_device(self._chosen + 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel goes to the device before."""
        event.stop()
        self.monitor.select_device(self._chosen - 1)
