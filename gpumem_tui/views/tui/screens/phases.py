"""The phases: what every rank is doing, what each phase took, and what allocated is made of."""

from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Container

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import phasepanels
from gpumem_tui.views.tui.screens.arrange import arrange_phases
from gpumem_tui.views.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import MonitorApp

TITLE = "phases"


class Phases(Container):
    """Current phases on top, the table below them, then composition and inputs where there are some."""

    def __init__(self) -> None:
        super().__init__(id="phases")
        self._now = Panel("now", id="now")
        self._table = Panel(TITLE, id="phasetable")
        self._composition = Panel("what allocated is made of", id="composition")
        self._inputs = Panel("inputs of root modules", id="inputs")
        self._table.focused_panel = True
        self._state: RunState | None = None

    @property
    def monitor(self) -> "MonitorApp":
        """The app, by its own type."""
        return cast("MonitorApp", self.app)

    def compose(self) -> ComposeResult:
        """Four panels, one below the other."""
        yield self._now
        yield self._table
        yield self._composition
        yield self._inputs

    def show_state(self, state: RunState) -> None:
        """Draw a picture: heights first, and contents once they stand."""
        self._state = state
        cells, height = self.size.width, self.size.height
        if not cells or not height:
            return
        table = phasepanels.phase_table(state, cells)
        plan = arrange_phases(
            height,
            len(state.ranks) or 1,
            len(table.head) + len(table.rows),
            len(phasepanels.composition_lines(state, cells)),
            len(phasepanels.input_lines(state, cells)),
        )
        moved = False
        for panel, rows in zip(self._panels(), plan, strict=True):
            if panel.size.height != rows or panel.display != bool(rows):
                panel.display = bool(rows)
                panel.styles.height = rows
                moved = True
        if moved:
            self.call_after_refresh(self._fill, state)
        else:
            self._fill(state)

    def _panels(self) -> tuple[Panel, ...]:
        """In the order in which they stand, which is that of their heights in a plan."""
        return self._now, self._table, self._composition, self._inputs

    def _fill(self, state: RunState) -> None:
        """Draw into panels whose sizes stand."""
        cells = self.size.width
        table = phasepanels.phase_table(state, cells)
        self._table.title = f"{TITLE}; no room for {table.dropped}" if table.dropped else TITLE
        self._table.show_rows(table.rows, table.head)
        for panel, draw in (
            (self._now, phasepanels.current_lines),
            (self._composition, phasepanels.composition_lines),
            (self._inputs, phasepanels.input_lines),
        ):
            if panel.display:
                panel.show_rows(draw(state, cells))

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

    def move(self, step: int) -> None:
        """One row of the focused panel."""
        self._focused().scroll_rows(step)

    def move_page(self, step: int) -> None:
        """One page of the focused panel."""
        self._focused().scroll_rows(step * self._focused().page())

    def move_end(self, step: int) -> None:
        """To one end of the focused panel."""
        self._focused().scroll_rows(step * 1_000_000)
