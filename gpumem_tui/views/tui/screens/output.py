"""The output screen: what the workload printed, as it came, read in windows of the log."""

import asyncio

from textual import events

from gpumem_tui.analysis.state import RunState
from gpumem_tui.errors import GpumemError
from gpumem_tui.units import KIB
from gpumem_tui.views.text import Line, Span
from gpumem_tui.views.transcript import Transcript, wrap
from gpumem_tui.views.tui.screens.view import View
from gpumem_tui.views.tui.widgets.lines import Lines

WINDOW_BYTES = 128 * KIB
"""How much of the log is read at once; no more than twice that is held."""


class Output(View, Lines):
    """The log from its end, following it; or from wherever one has scrolled to."""

    newest = True

    def __init__(self) -> None:
        super().__init__(id="output")
        self._transcript = Transcript()
        self._start = 0
        self._end = 0
        self._log_bytes: int | None = None
        self._interactive = True
        self._top: int | None = None
        """First line in view; None follows the end."""
        self._reading = asyncio.Lock()
        self._trouble = ""

    @property
    def following(self) -> bool:
        """Whether new output comes into view by itself."""
        return self._top is None

    async def show_state(self, state: RunState) -> None:
        """Read what is new, and draw."""
        self._log_bytes, self._interactive = state.output_bytes, state.facts.interactive
        if self._log_bytes is not None and self.following:
            async with self._reading:
                await self._follow(self._log_bytes)
        self._draw()

    async def _follow(self, size: int) -> None:
        if size < self._end or size - self._end > WINDOW_BYTES or size - self._start > 2 * WINDOW_BYTES:
            await self._load(max(0, size - WINDOW_BYTES), size)
        elif size > self._end:
            data = await self._read(self._end, size - self._end)
            self._transcript.feed(data)
            self._end += len(data)

    async def _load(self, start: int, end: int, place: int = 0) -> int:
        """Hold a window, from a line's beginning on; returns the count of its lines before ``place``."""
        data = await self._read(start, end - start)
        end = start + len(data)
        if start:
            cut = data.find(b"\n") + 1
            start, data = start + cut, data[cut:]
        self._transcript = Transcript()
        self._transcript.feed(data[: max(0, place - start)])
        before = len(self._transcript) - 1
        self._transcript.feed(data[max(0, place - start) :])
        self._start, self._end = start, end
        return before

    async def _read(self, start: int, size: int) -> bytes:
        try:
            data: bytes = await self.monitor.errand(lambda: self.monitor.feed.reach.read_output(start, size))
        except GpumemError as error:
            self._trouble = str(error)
            return b""
        self._trouble = ""
        return data

    def _draw(self) -> None:
        cells, height = self.size.width, self.size.height
        if not cells or not height:
            return
        if self._log_bytes is None:
            self.show([(), (Span(f"   {self._why_none()}", "dim"),)])
        elif not self._log_bytes:
            self.show([(), (Span("   nothing printed yet", "dim"),)])
        else:
            self.show([*self._rows(cells, height - 1), self._status()])

    def _why_none(self) -> str:
        if not self._interactive:
            return "no output log: this run was not started on a terminal, its output went its own way"
        return "no output log in this recording"

    def _rows(self, cells: int, height: int) -> list[Line]:
        script = self._transcript
        rows: list[Line] = []
        if self._top is not None:
            for number in range(self._top, len(script)):
                rows += wrap(script.line(number), cells)
                if len(rows) >= height:
                    break
            rows = rows[:height]
        else:
            last = len(script) - (1 if not script.line(len(script) - 1) else 0)
            for number in range(last - 1, -1, -1):
                rows = wrap(script.line(number), cells) + rows
                if len(rows) >= height:
                    break
            rows = rows[-height:]
        return rows + [()] * (height - len(rows))

    def _status(self) -> Line:
        if self._trouble:
            return (Span(f" {self._trouble}", "failure"),)
        if self.following:
            return (Span(" following", "dim"),)
        more = "" if self._log_bytes is None or self._end >= self._log_bytes else ", more was printed since"
        return (Span(f" held at line {self._first_line()}{more}; End follows", "key"),)

    def _first_line(self) -> str:
        number = f"{(self._top or 0) + 1:,}"
        return number if self._start == 0 else f"{number} of this window (byte {self._start:,} on)"

    def on_resize(self) -> None:
        """Draw again for the new size."""
        self._draw()

    async def move(self, step: int) -> None:
        """By lines; going up lets go of the end, going down to it follows again."""
        height = max(1, self.size.height - 1)
        top = self._top if self._top is not None else max(0, len(self._transcript) - height - 1)
        wanted = top + step
        async with self._reading:
            if wanted < 0 and self._start > 0:
                first = self._start
                wanted += await self._load(max(0, first - WINDOW_BYTES), first + WINDOW_BYTES, first)
            elif (
                wanted + height >= len(self._transcript)
                and self._log_bytes is not None
                and self._log_bytes > self._end
            ):
                edge, shown = self._end, len(self._transcript) - 1 - wanted
                wanted = await self._load(max(0, edge - WINDOW_BYTES), edge + WINDOW_BYTES, edge) - shown
        last = len(self._transcript) - height
        all_in_view = last <= 0 and not self._start
        whole = self._log_bytes is None or self._end >= self._log_bytes
        follows = whole and (all_in_view or (step > 0 and wanted >= last))
        self._top = None if follows else max(0, min(wanted, last))
        self._draw()

    async def move_page(self, step: int) -> None:
        """By pages."""
        await self.move(step * max(1, self.size.height - 2))

    async def move_end(self, step: int) -> None:
        """To the beginning of the log, or to its end, following."""
        async with self._reading:
            if step < 0:
                if self._start and self._log_bytes is not None:
                    await self._load(0, min(self._log_bytes, WINDOW_BYTES))
                self._top = 0
            else:
                self._top = None
                if self._log_bytes is not None:
                    await self._follow(self._log_bytes)
        self._draw()

    async def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        await self.move(3)

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        await self.move(-3)
