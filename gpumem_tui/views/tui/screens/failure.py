"""The failure: what was asked, what was in the way, why, and what to try; several failures in turn."""

from textual.app import ComposeResult
from textual.containers import Container

from gpumem_tui.analysis.failurestate import FailureState
from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import failurepanels
from gpumem_tui.views.prose import wrapped
from gpumem_tui.views.text import Line, Span, plain
from gpumem_tui.views.tui.screens.arrange import WIDE
from gpumem_tui.views.tui.screens.view import RowsView
from gpumem_tui.views.tui.widgets.sheet import Sheet


class FailureScreen(RowsView, Container):
    """One sheet of sections; two beside each other where it is wide.

    Failures are of their own moments, whatever moment the other screens are held at.
    """

    newest = True

    def __init__(self) -> None:
        super().__init__(id="failure")
        self._left, self._right = Sheet(id="failed"), Sheet(id="why")
        self._left.focused_panel = True
        self._chosen: tuple[int, int] | None = None
        """(pid, time) of the failure that is shown."""
        self._state: RunState | None = None

    def compose(self) -> ComposeResult:
        """Two columns, of which the second is only there where it is wide."""
        yield self._left
        yield self._right

    def failure(self, state: RunState) -> FailureState | None:
        """The failure that is shown: the first cause, unless another one was chosen."""
        chosen = next((one for one in state.failures if (one.pid, one.t_ns) == self._chosen), None)
        return chosen or (state.failures[0] if state.failures else None)

    def show_state(self, state: RunState) -> None:
        """Draw a picture."""
        self._state = state
        cells, height = self.size.width, self.size.height
        if not cells or not height:
            return
        failure = self.failure(state)
        wide = cells >= WIDE and failure is not None
        self.set_class(wide, "wide")
        if not wide:
            self._focus(self._left)
        column = cells // 2 if wide else cells
        moved = self._right.display != wide or self._left.size != (column, height)
        self._right.display = wide
        self._left.styles.width = column
        if moved:
            self.call_after_refresh(self._fill, state, failure)
        else:
            self._fill(state, failure)

    def _fill(self, state: RunState, failure: FailureState | None) -> None:
        """Draw into columns whose sizes stand."""
        left, right = self._left.size.width, self._right.size.width
        if failure is None:
            self._left.show_parts([("failures", no_failure(state, left))])
            return
        wide = self._right.display
        made = failurepanels.sections(state, failure, left - (1 if wide else 0))
        self._left.show_parts([(one.title, one.rows) for one in made if one.main or not wide])
        if wide:
            made = failurepanels.sections(state, failure, right)
            self._right.show_parts([(one.title, one.rows) for one in made if not one.main])

    def on_resize(self) -> None:
        """Draw again for the new size."""
        if self._state is not None:
            self.show_state(self._state)

    def show_failure(self, failure: FailureState) -> None:
        """Show this one, from its beginning."""
        self._chosen = (failure.pid, failure.t_ns)
        self._left.top()
        self._right.top()
        if self._state is not None:
            self.show_state(self._state)

    def next_item(self, step: int) -> None:
        """Another failure, in the order of the list."""
        if self._state is None or not self._state.failures:
            return
        listed = self._state.failures
        now = self.failure(self._state)
        at = next((n for n, one in enumerate(listed) if one is now), 0)
        self.show_failure(listed[(at + step) % len(listed)])

    def selected_text(self) -> str:
        """The whole failure, as text."""
        failure = None if self._state is None else self.failure(self._state)
        if self._state is None or failure is None:
            return ""
        return "\n".join(plain(line) for line in failurepanels.failure_lines(self._state, failure, 100))

    def next_panel(self, step: int) -> None:
        """The other column where there are two; the next section where there is one."""
        if self._right.display:
            self._focus(self._right if self._left.focused_panel else self._left)
        else:
            self._left.next_part(step)

    async def choose(self) -> None:
        """Hold all other screens at the moment of this failure, and show the first of them."""
        failure = None if self._state is None else self.failure(self._state)
        if failure is None:
            return
        self.monitor.timeline.jump(failure.t_ns)
        await self.monitor.go_to("overview")
        await self.monitor.seek()

    def _focus(self, sheet: Sheet) -> None:
        self._left.mark(sheet is self._left)
        self._right.mark(sheet is self._right)

    def _focused(self) -> Sheet:
        return self._right if self._right.focused_panel and self._right.display else self._left


def no_failure(state: RunState, cells: int) -> list[Line]:
    """What stands here while nothing has failed."""
    lines: list[Line] = [(), *wrapped("nothing has failed in this run", cells, "text", first="   "), ()]
    if state.alerts:
        lines += wrapped("what may come", cells, "strong", first="   ")
        lines += failurepanels.finding_lines([alert.finding for alert in state.alerts], cells)
        return lines
    told = (
        "When memory runs out, this screen says which rank, card, step and phase it was, what was asked "
        "for and what was in the way, why, and what to try next."
    )
    return [*lines, *wrapped(told, cells, "dim", first="   "), (Span(""),)]
