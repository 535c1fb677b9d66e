"""One line under the header: what has failed, or what threatens the run; gone where nothing does."""

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import failurepanels
from gpumem_tui.views.prose import brief
from gpumem_tui.views.text import Span, ends, line_width, plain
from gpumem_tui.views.tui.widgets.lines import Lines

PLACE, KEY = "failure", "5"
"""The screen that says more, and its key."""


class AlertLine(Lines):
    """The gravest of all; how many more there are; the key that says more."""

    def __init__(self) -> None:
        super().__init__(id="alert")
        self.display = False

    def show_state(self, state: RunState | None, place: str) -> None:
        """Draw it on every screen but the one that says it all."""
        lines = []
        if state is not None and place != PLACE:
            lines = failurepanels.alert_lines(state, 500)
        if self.display != bool(lines):
            self.display = bool(lines)
        if not lines:
            return
        more = (Span(f"  {len(lines) - 1} more", "dim"),) if len(lines) > 1 else ()
        after = (*more, Span(f"  {KEY} ", "key"), Span("why ", "dim"))
        said = brief(plain(lines[0]).rstrip(), self.size.width - line_width(after))
        self.show([ends((Span(said, lines[0][0].role),), after, self.size.width)])

    async def on_click(self) -> None:
        """Say more."""
        await self.monitor.go_to(PLACE)
