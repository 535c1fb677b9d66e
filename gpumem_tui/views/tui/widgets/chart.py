"""The chart as a widget: the mouse puts the cursor, the wheel shows a shorter or longer time."""

from textual import events

from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.views import chart
from gpumem_tui.views.tui.widgets.lines import Terms


class Chart(Terms):
    """One device over time."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._sheet = chart.Sheet()

    def show_device(self, device: DeviceState, state: RunState, cells: int) -> None:
        """Draw a device in the first ``cells`` cells of every row."""
        app = self.monitor
        self.show(
            self._sheet.draw(
                device,
                state,
                cells,
                self.size.height,
                timeline=app.timeline,
                style=app.shown_chart_style,
                latest=app.latest,
            )
        )

    async def on_mouse_down(self, event: events.MouseDown) -> None:
        """The cursor goes to the pointer, and follows it until the button is released."""
        if event.y > 0 and event.x >= chart.GUTTER:
            self.capture_mouse()
            await self._point(event)

    async def on_mouse_move(self, event: events.MouseMove) -> None:
        """Drag the cursor."""
        if self.app.mouse_captured is self:
            await self._point(event)

    def on_mouse_up(self) -> None:
        """Let go of the cursor."""
        self.release_mouse()

    async def _point(self, event: events.MouseEvent) -> None:
        columns = self.size.width - chart.GUTTER
        self.monitor.timeline.point(max(0, min(event.x - chart.GUTTER, columns - 1)))
        await self.monitor.seek()

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """A shorter time."""
        event.stop()
        await self.monitor.action_span(-1)

    async def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """A longer time."""
        event.stop()
        await self.monitor.action_span(1)
