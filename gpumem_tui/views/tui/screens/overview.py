"""The overview: where every byte of every card is, over time, by whom, and what happened."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import chart, panels
from gpumem_tui.views.text import Line, Span
from gpumem_tui.views.tui.screens.arrange import WIDE, arrange
from gpumem_tui.views.tui.widgets.lines import Lines
from gpumem_tui.views.tui.widgets.panel import DeviceList, Panel

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import MonitorApp

_SIDE = 0.42
"""Share of a wide terminal that ranks, processes and events get."""


class Overview(Container):
    """Devices and chart; ranks, processes and events below them, or beside them where it is wide."""

    def __init__(self) -> None:
        super().__init__(id="overview")
        self._devices = DeviceList(id="devices")
        self._chart = Lines(id="chart")
        self._ranks = Panel("ranks", id="ranks")
        self._processes = Panel("processes on the cards", id="processes")
        self._events = Panel("events", id="events")
        self._left, self._right = Vertical(id="left"), Vertical(id="right")
        self._focus = 0
        self._state: RunState | None = None

    @property
    def monitor(self) -> "MonitorApp":
        """The app, by its own type."""
        return cast("MonitorApp", self.app)

    def compose(self) -> ComposeResult:
        """Two columns of panels; the stylesheet puts one below the other where it is narrow."""
        with self._left:
            yield self._devices
            yield self._chart
        with self._right:
            yield self._ranks
            yield self._processes
            yield self._events

    def show_state(self, state: RunState) -> None:
        """Draw a picture: heights first, and contents once they stand."""
        self._state = state
        cells, height = self.size.width, self.size.height
        if not cells or not height:
            return
        wide = cells >= WIDE
        side = int(cells * _SIDE) if wide else cells
        left = cells - side if wide else cells
        blocks = panels.devices_full(state, left - (1 if wide else 0), self._selected_index(state))
        plan = arrange(
            cells,
            height,
            [len(block) for block in blocks] or [1],
            len(state.ranks) or 1,
            len(state.processes) or 1,
            len(state.events) or 1,
        )
        self.set_class(plan.wide, "wide")
        if plan.wide:
            self._right.styles.width = side
        else:
            self._right.styles.width = "1fr"
        moved = False
        for panel, rows in (
            (self._devices, plan.devices),
            (self._chart, plan.chart),
            (self._ranks, plan.ranks),
            (self._processes, plan.processes),
            (self._events, plan.events),
        ):
            if panel.size.height != rows or panel.display != bool(rows):
                panel.display = bool(rows)
                panel.styles.height = rows
                moved = True
        if moved:
            self.call_after_refresh(self._fill, state, blocks if plan.full else None)
        else:
            self._fill(state, blocks if plan.full else None)

    def _selected_index(self, state: RunState) -> int | None:
        """NVML's index of the selected device, where there is a choice."""
        if len(state.devices) < 2:
            return None
        return state.devices[min(self.monitor.selected, len(state.devices) - 1)].index

    def _fill(self, state: RunState, blocks: Sequence[Sequence[Line]] | None) -> None:
        """Draw into panels whose sizes stand; without blocks, the devices are a table."""
        cells = self._devices.size.width - (1 if self.has_class("wide") else 0)
        head: Sequence[Line] = ()
        if not state.devices:
            why = "" if state.driver_reason is None else f": {state.driver_reason.value}"
            blocks = [[(Span(f"   no card is known{why}", "warning"),)]]
        elif blocks is None:
            head, *blocks = panels.devices_compact(state, cells, self._selected_index(state))
        chosen = min(self.monitor.selected, max(0, len(state.devices) - 1))
        self._devices.show_blocks(head, blocks, chosen)
        if state.devices and self._chart.display:
            size = self._chart.size
            drawn = chart.chart(
                state.devices[chosen],
                state,
                size.width - (1 if self.has_class("wide") else 0),
                size.height,
                span_s=self.monitor.span_s,
                textured=self.monitor.textured,
            )
            self._chart.show(drawn)
        else:
            self._chart.show([])
        for panel, draw in ((self._ranks, panels.rank_lines), (self._processes, panels.process_lines)):
            if panel.display:
                panel.show_rows(draw(state, panel.size.width))
        if self._events.display:
            untold = not panels.moment_fits(state, self.size.width)
            self._events.show_rows(panels.event_lines(state, self._events.size.width, moment=untold))

    def on_resize(self) -> None:
        """Draw again for the new size."""
        if self._state is not None:
            self.show_state(self._state)

    def next_panel(self, step: int) -> None:
        """Keys go to the next panel that is shown; devices come first."""
        shown: list[Panel | None] = [
            None,
            *(p for p in (self._ranks, self._processes, self._events) if p.display),
        ]
        now = self._focused()
        position = (shown.index(now) + step) % len(shown) if now in shown else 0
        for panel in (self._ranks, self._processes, self._events):
            panel.mark(panel is shown[position])

    def _focused(self) -> Panel | None:
        panels_ = (self._ranks, self._processes, self._events)
        return next((panel for panel in panels_ if panel.focused_panel), None)

    def move(self, step: int) -> None:
        """One row of the focused panel, or one device."""
        panel = self._focused()
        if panel is None:
            self.monitor.select_device(self.monitor.selected + step)
        else:
            panel.scroll_rows(step)

    def move_page(self, step: int) -> None:
        """One page of the focused panel."""
        panel = self._focused()
        self.move(step * (panel.page() if panel is not None else 4))

    def move_end(self, step: int) -> None:
        """To one end of the focused panel."""
        self.move(step * 1_000_000)
