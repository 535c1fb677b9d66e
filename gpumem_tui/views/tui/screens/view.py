"""What a screen is to the app: it takes pictures, and answers to keys that it has a use for."""

from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, ClassVar, cast

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views.tui.widgets.panel import Panel

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import MonitorApp


class View:
    """Comes before a widget among a screen's bases. A key that a screen does not take does nothing there."""

    newest: ClassVar[bool] = False
    """Whether it is given the newest picture also while the others stand still."""

    @property
    def monitor(self) -> "MonitorApp":
        """The app, by its own type."""
        return cast("MonitorApp", self.app)  # type: ignore[attr-defined]

    def show_state(self, state: RunState) -> Awaitable[None] | None:
        """Draw a picture; what stands already must cost nothing."""
        raise NotImplementedError

    def next_panel(self, step: int) -> None:
        """Keys go to another panel."""

    def move(self, step: int) -> Awaitable[None] | None:
        """Up or down."""

    def move_page(self, step: int) -> Awaitable[None] | None:
        """A page up or down."""

    def move_end(self, step: int) -> Awaitable[None] | None:
        """To one end."""

    def next_item(self, step: int) -> Awaitable[None] | None:
        """The next thing of its kind, such as another failure."""

    def selected_text(self) -> str:
        """What is selected, for the clipboard; empty: the whole screen."""
        return ""

    def choose(self) -> Awaitable[None] | None:
        """Open what is selected."""


class RowsView(View):
    """A screen whose up and down move rows: those of the panel that has the keys."""

    def _focused(self) -> Panel:
        raise NotImplementedError

    def move(self, step: int) -> None:
        """One row."""
        self._focused().scroll_rows(step)

    def move_page(self, step: int) -> None:
        """One page."""
        self._focused().scroll_rows(step * self._focused().page())

    def move_end(self, step: int) -> None:
        """To one end."""
        self._focused().scroll_rows(step * 1_000_000)


class CardView(View):
    """A screen whose up and down choose a card, until tab has given them to one of its panels."""

    cards_a_page: ClassVar[int] = 1

    def _panels(self) -> Sequence[Panel]:
        raise NotImplementedError

    def _focused(self) -> Panel | None:
        """The panel that has the keys; None: the choice of the card."""
        return next((panel for panel in self._panels() if panel.focused_panel), None)

    def next_panel(self, step: int) -> None:
        """Keys go to the next panel that is shown; the choice of the card comes first."""
        shown: list[Panel | None] = [None, *(panel for panel in self._panels() if panel.display)]
        now = self._focused()
        position = (shown.index(now) + step) % len(shown) if now in shown else 0
        for panel in self._panels():
            panel.mark(panel is shown[position])

    def move(self, step: int) -> None:
        """One row of the focused panel, or the next card."""
        panel = self._focused()
        if panel is None:
            self.monitor.select_device(self.monitor.selected + step)
        else:
            panel.scroll_rows(step)

    def move_page(self, step: int) -> None:
        """One page of the focused panel, or of cards."""
        panel = self._focused()
        self.move(step * (panel.page() if panel is not None else self.cards_a_page))

    def move_end(self, step: int) -> None:
        """To one end of the focused panel, or the last card."""
        self.move(step * 1_000_000)
