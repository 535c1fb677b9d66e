"""The overview: where every byte of every card is, over time, by whom, and what happened."""

from collections.abc import Sequence
from functools import partial

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import panels, present
from gpumem_tui.views.holders import ORDERS
from gpumem_tui.views.text import Line, Span
from gpumem_tui.views.tui.screens.arrange import WIDE, arrange
from gpumem_tui.views.tui.screens.view import CardView
from gpumem_tui.views.tui.widgets.chart import Chart
from gpumem_tui.views.tui.widgets.panel import DeviceList, Panel

_SIDE = 0.45
"""Share of a wide terminal that ranks, processes and events get …"""

_DEVICES = 81
"""… of what is beyond these cells: four terms in a row, and the chart with its key."""

_ROOMY = {True: 14, False: 9}
"""Rows of chart, wide or not, that are left where cards may have a blank row each."""

_CHARTS = 4
"""Cards up to which each may have a chart of its own …"""

_CHART = 12
"""… which has so many rows at least."""


class Overview(CardView, Container):
    """Devices and charts; ranks, processes and events below them, or beside them where it is wide."""

    cards_a_page = 4

    def __init__(self) -> None:
        super().__init__(id="overview")
        self._devices = DeviceList(id="devices")
        self._charts = [Chart(id=f"chart{number or ''}") for number in range(_CHARTS)]
        self._ranks = Panel("ranks", id="ranks")
        self._processes = Panel("processes on the cards", id="processes")
        self._events = Panel("events", id="events")
        self._left, self._right = Vertical(id="left"), Vertical(id="right")
        self._focus = 0
        self._state: RunState | None = None

    def compose(self) -> ComposeResult:
        """Two columns of panels; the stylesheet puts one below the other where it is narrow."""
        with self._left:
            yield self._devices
            yield from self._charts
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
        side = min(int(cells * _SIDE), cells - _DEVICES) if wide else cells
        left = cells - side if wide else cells
        counts = len(state.ranks) or 1, len(state.processes) or 1, len(state.events) or 1
        for airy in (True, False):
            blocks = panels.devices_full(
                state, left - (1 if wide else 0), self._selected_index(state), airy=airy
            )
            plan = arrange(cells, height, [len(block) for block in blocks], *counts)
            if plan.full and plan.chart >= _ROOMY[wide]:
                break
        self.set_class(plan.wide, "wide")
        if plan.wide:
            self._right.styles.width = side
        else:
            self._right.styles.width = "1fr"
        moved = False
        for panel, rows in (
            (self._devices, plan.devices),
            *zip(self._charts, self._heights(len(state.devices), plan.chart), strict=True),
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

    @staticmethod
    def _heights(devices: int, rows: int) -> list[int]:
        """Of each chart: one for every card where there is room, else one of the selected card."""
        shown = devices if devices <= _CHARTS and rows >= devices * _CHART else 1
        each, more = divmod(rows, max(1, shown))
        return [each + (number < more) if number < shown else 0 for number in range(_CHARTS)]

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
        self._devices.show_blocks(
            head,
            blocks,
            chosen,
            self.monitor.pinned_position(),
            tell=lambda unseen: panels.fullest([state.devices[position] for position in unseen]),
        )
        self._fill_charts(state, chosen)
        order = self.monitor.sort
        self._processes.title = "processes on the cards" + (f", by {order}" if order != ORDERS[0] else "")
        if self._ranks.display:
            named = state.ranks and self._ranks.size.width >= panels.RANK_FIGURES
            self._ranks.title = "ranks, allocated of reserved" if named else "ranks"
            self._ranks.show_drawn(partial(panels.rank_lines, state))
        if self._processes.display:
            self._processes.show_drawn(partial(panels.process_lines, state, order=order))
        if self._events.display:
            untold = not panels.moment_fits(state, self.size.width)
            self._events.show_drawn(partial(panels.event_lines, state, moment=untold))

    def _fill_charts(self, state: RunState, chosen: int) -> None:
        shown = [chart for chart in self._charts if chart.display]
        devices = state.devices if len(shown) > 1 else state.devices[chosen : chosen + 1]
        for chart, device in zip(shown, devices, strict=False):
            chart.show_device(device, state, chart.size.width - (1 if self.has_class("wide") else 0))

    def on_resize(self) -> None:
        """Draw again for the new size."""
        if self._state is not None:
            self.show_state(self._state)

    def selected_text(self) -> str:
        """The selected device with all its terms, to the byte; or the focused panel."""
        panel, state = self._focused(), self._state
        if panel is not None:
            return panel.text
        if state is None or not state.devices:
            return ""
        return present.device_words(state.devices[min(self.monitor.selected, len(state.devices) - 1)], state)

    async def choose(self) -> None:
        """Open the selected card."""
        await self.monitor.go_to("device")

    def _panels(self) -> tuple[Panel, ...]:
        return self._ranks, self._processes, self._events
