"""One device: its memory over time with phases, what changed, its ledger term by term, who holds it."""

from functools import partial

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.views import devicepanels, panels, phasepanels, present
from gpumem_tui.views.holders import ORDERS
from gpumem_tui.views.text import Line, Span
from gpumem_tui.views.tui.screens.arrange import WIDE, share
from gpumem_tui.views.tui.screens.view import CardView
from gpumem_tui.views.tui.widgets.chart import Chart
from gpumem_tui.views.tui.widgets.lines import Terms
from gpumem_tui.views.tui.widgets.panel import Panel

_TALL = 26
"""Rows from which on the history comes before what the phases' screen tells as well."""

_SIDE = 0.45
"""Share of a wide terminal that stands beside chart and ledger."""

_PHASES = 6
"""Rows from which on the phases of the card are told beside it."""


class Device(CardView, Container):
    """The selected card. Up and down go to its neighbours, tab to the panels below the chart."""

    def __init__(self) -> None:
        super().__init__(id="device")
        self._bar = Terms(id="devicebar")
        self._chart = Chart(id="devicechart")
        self._ledger = Panel("ledger", id="ledger")
        self._changes = Panel("what changed", id="changes")
        self._composition = Panel("what allocated is made of", id="devicecomposition")
        self._processes = Panel("processes", id="deviceprocesses")
        self._phases = Panel("phases", id="devicephases")
        self._left, self._right = Vertical(id="deviceleft"), Vertical(id="deviceright")
        self._state: RunState | None = None
        self._airy = False
        """Whether there is room for blank rows."""

    def compose(self) -> ComposeResult:
        """Two columns; the stylesheet puts one below the other where it is narrow."""
        with self._left:
            yield self._bar
            yield self._chart
            yield self._ledger
        with self._right:
            yield self._changes
            yield self._composition
            yield self._processes
            yield self._phases

    def show_state(self, state: RunState) -> None:
        """Draw a picture: heights first, and contents once they stand."""
        self._state = state
        cells, height = self.size.width, self.size.height
        device = self.monitor.device_in(state)
        if not cells or not height:
            return
        if device is None:
            self._bar.show([(Span("   no card is known", "warning"),)])
            return
        wide = cells >= WIDE
        self.set_class(wide, "wide")
        side = int(cells * _SIDE) if wide else cells
        self._right.styles.width = side if wide else "1fr"
        here = devicepanels.narrowed(state, device)
        counts = {
            "chart": (6 if height < _TALL else 9, 8 + len(device.curves)),
            "ledger": (min(8, max(4, height - 13)), 1 + len(devicepanels.ledger_lines(device, state, cells))),
            "changes": (3 if height < 24 else 4, 1 + len(self._changed(device, here, side))),
            "processes": (2, 1 + (len(here.processes) or 1)),
        }
        self._airy = False
        rows = _arranged(self._with_parts(counts, here, side), height - 2, wide)
        if wide and height - sum(rows.get(name, 0) for name in _BESIDE) > len(here.ranks):
            self._airy = True
            rows = _arranged(self._with_parts(counts, here, side), height - 2, wide)
        over = height - sum(rows.get(name, 0) for name in _BESIDE)
        if wide and here.phases and over >= _PHASES:
            table = phasepanels.phase_table(here, side)
            rows["phases"] = min(over, 1 + len(table.head) + len(table.rows))
        moved = False
        for panel, name in (
            (self._chart, "chart"),
            (self._ledger, "ledger"),
            (self._changes, "changes"),
            (self._composition, "composition"),
            (self._processes, "processes"),
            (self._phases, "phases"),
        ):
            given = rows.get(name, 0)
            if panel.size.height != given or panel.display != bool(given):
                panel.display = bool(given)
                panel.styles.height = given
                moved = True
        if self._bar.size.height != 2:
            self._bar.styles.height = 2
            moved = True
        if moved:
            self.call_after_refresh(self._fill, device, state, here)
        else:
            self._fill(device, state, here)

    def _with_parts(
        self, counts: dict[str, tuple[int, int]], here: RunState, cells: int
    ) -> dict[str, tuple[int, int]]:
        """The same, with what allocated is made of where somebody has looked."""
        parts = len(phasepanels.composition_lines(here, cells, airy=self._airy))
        return {**counts, "composition": (min(5, 1 + parts), 1 + parts)} if parts else counts

    def _changed(self, device: DeviceState, state: RunState, cells: int) -> list[Line]:
        timeline = self.monitor.timeline
        now_ns = timeline.cursor_ns or state.facts.moment_ns or timeline.latest_ns
        since_ns = min(now_ns, max(timeline.shown.start_ns, timeline.started_ns))
        return devicepanels.change_lines(device, state, since_ns, now_ns, cells)

    def _fill(self, device: DeviceState, state: RunState, here: RunState) -> None:
        """Draw into panels whose sizes stand."""
        room = 1 if self.has_class("wide") else 0
        several = len(state.devices) > 1
        self._bar.show(panels.device_block(device, state, self._bar.size.width - room, several)[:2])
        if self._chart.display:
            self._chart.show_device(device, state, self._chart.size.width - room)
        ledger = self._ledger.size.width - room
        self._ledger.show_rows(devicepanels.ledger_lines(device, state, ledger, held=self.monitor.paused))
        self._changes.title = f"what changed{self._since(state)}"
        self._changes.show_rows(self._changed(device, here, self._changes.size.width))
        self._composition.show_rows(
            phasepanels.composition_lines(here, self._composition.size.width, airy=self._airy)
        )
        order = self.monitor.sort
        self._processes.title = "processes" + (f", by {order}" if order != ORDERS[0] else "")
        self._processes.show_drawn(partial(panels.process_lines, here, order=order))
        if self._phases.display:
            table = phasepanels.phase_table(here, self._phases.size.width)
            self._phases.title = phasepanels.titled("phases", table.dropped, self._phases.size.width)
            self._phases.show_drawn(lambda cells: phasepanels.phase_table(here, cells).rows, table.head)

    def _since(self, state: RunState) -> str:
        timeline = self.monitor.timeline
        since_ns = max(timeline.shown.start_ns, timeline.started_ns)
        return f" since {present.wall_clock(state.facts, since_ns)}" if since_ns else ""

    def on_resize(self) -> None:
        """Draw again for the new size."""
        if self._state is not None:
            self.show_state(self._state)

    def _panels(self) -> tuple[Panel, ...]:
        return self._ledger, self._changes, self._composition, self._processes, self._phases

    def selected_text(self) -> str:
        """The device with all its terms, to the byte; or the focused panel."""
        panel, state = self._focused(), self._state
        if panel is not None:
            return panel.text
        device = None if state is None else self.monitor.device_in(state)
        return "" if device is None or state is None else present.device_words(device, state)


_BESIDE = ("changes", "composition", "processes")
"""Panels that stand beside chart and ledger where it is wide."""

_WANTED = ("ledger", "chart", "changes", "processes", "composition")
"""Panels in the order in which they get their least rows where they stand below one another."""


def _arranged(counts: dict[str, tuple[int, int]], height: int, wide: bool) -> dict[str, int]:
    """Rows of each panel; what is over goes to the chart."""
    if not wide:
        rows = share(height, {name: counts[name] for name in _WANTED if name in counts})
        if rows["chart"]:
            rows["chart"] += height - sum(rows.values())
        return rows
    beside = {name: wish for name, wish in counts.items() if name not in ("chart", "ledger")}
    rows = share(height + 2, beside)
    ledger = min(counts["ledger"][1], max(0, height - counts["chart"][0]))
    return {**rows, "ledger": ledger, "chart": height - ledger}
