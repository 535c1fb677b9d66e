"""The phases: what every rank is doing, what each phase took on which rank, and what allocated is made of."""

from functools import partial

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import phasepanels
from gpumem_tui.views.phases import ORDERS, growing
from gpumem_tui.views.tui.screens.arrange import WIDE, arrange_phases
from gpumem_tui.views.tui.screens.view import RowsView
from gpumem_tui.views.tui.widgets.chart import Chart
from gpumem_tui.views.tui.widgets.lines import Terms
from gpumem_tui.views.tui.widgets.panel import Panel

TITLE = "phases"

_SIDE = 44
"""Cells from which on there is something to read beside the table."""

_STEP = 4
"""The table's column grows by so many cells at once: not every longer figure moves all that is beside it."""


class Phases(RowsView, Container):
    """Current phases on top, the table below them, then composition and inputs where there are some.

    Where it is wide, these stand beside the table, with the selected card's history below them.
    """

    def __init__(self) -> None:
        super().__init__(id="phases")
        self._now = Panel("now", id="now")
        self._table = Panel(TITLE, id="phasetable")
        self._compared = Panel("ranks compared", id="compared")
        self._composition = Panel("what allocated is made of", id="composition")
        self._inputs = Panel("inputs of root modules", id="inputs")
        self._chart = Chart(id="phaseschart")
        self._left, self._right = Vertical(id="phasesleft"), Vertical(id="phasesright")
        self._table.focused_panel = True
        self._state: RunState | None = None
        self._airy = False
        """Whether there is room for blank rows."""

    def compose(self) -> ComposeResult:
        """Two columns; the stylesheet puts one below the other where it is narrow."""
        with self._left:
            yield self._now
            yield self._table
            yield self._compared
        with self._right:
            yield self._composition
            yield self._inputs
            yield self._chart

    def show_state(self, state: RunState) -> None:
        """Draw a picture: widths and heights first, and contents once they stand."""
        self._state = state
        cells, height = self.size.width, self.size.height
        if not cells or not height:
            return
        whole = max(phasepanels.whole_width(state) + 2, cells // 2)
        side = cells - -(-whole // _STEP) * _STEP if cells >= WIDE else 0
        beside = side >= _SIDE
        left, right = (cells - side, side) if beside else (cells, cells)
        table = phasepanels.phase_table(state, left)
        for self._airy in (True, False):
            plan = arrange_phases(
                height,
                len(state.ranks) or 1,
                len(table.head) + len(table.rows),
                len(phasepanels.spread_lines(state, left)),
                len(phasepanels.composition_lines(state, right, airy=self._airy)),
                len(phasepanels.input_lines(state, right)),
                beside=beside,
            )
            if plan.chart:
                break
        moved = self.has_class("wide") != beside or (beside and self._right.size.width != right)
        self.set_class(beside, "wide")
        self._right.styles.width = right if beside else "1fr"
        if not state.devices:
            plan = plan._replace(chart=0)
        panels: tuple[Terms, ...] = (*self._panels(), self._chart)
        for panel, rows in zip(panels, plan, strict=True):
            if panel.size.height != rows or panel.display != bool(rows):
                panel.display = bool(rows)
                panel.styles.height = rows
                moved = True
        if moved:
            self.call_after_refresh(self._fill, state)
        else:
            self._fill(state)

    def _panels(self) -> tuple[Panel, ...]:
        """In the order in which they stand, which is that of their heights in a plan; a chart comes last."""
        return self._now, self._table, self._compared, self._composition, self._inputs

    def _fill(self, state: RunState) -> None:
        """Draw into panels whose sizes stand."""
        cells = self._table.size.width
        order = self.monitor.phase_order
        table = phasepanels.phase_table(state, cells, order)
        title = TITLE if order == ORDERS[0] else f"{TITLE} by {order}"
        told = growing(state)
        title = f"{title}; {told}" if told else title
        self._table.title = phasepanels.titled(title, table.dropped, cells)
        self._table.show_drawn(lambda room: phasepanels.phase_table(state, room, order).rows, table.head)
        for panel, draw in (
            (self._now, phasepanels.current_lines),
            (self._compared, phasepanels.spread_lines),
            (self._composition, partial(phasepanels.composition_lines, airy=self._airy)),
            (self._inputs, phasepanels.input_lines),
        ):
            if panel.display:
                panel.show_drawn(partial(draw, state))
        device = self.monitor.device_in(state)
        if self._chart.display and device is not None:
            self._chart.show_device(device, state, self._chart.size.width)

    def on_resize(self) -> None:
        """Draw again for the new size."""
        if self._state is not None:
            self.show_state(self._state)

    def next_panel(self, step: int) -> None:
        """Keys go to the next panel that is shown."""
        shown = [panel for panel in self._panels() if panel.display]
        if not shown:
            return
        position = (shown.index(self._focused()) + step) % len(shown)
        for panel in self._panels():
            panel.mark(panel is shown[position])

    def _focused(self) -> Panel:
        """The panel that keys go to: the table, unless another one that is shown was chosen."""
        return next((panel for panel in self._panels() if panel.focused_panel and panel.display), self._table)
