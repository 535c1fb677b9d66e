"""What every app of ours does with its terminal: keys in their order, palettes, redraws, its ways to die.

Knows no picture and no screen; the apps that do are :class:`~gpumem_tui.views.tui.app.MonitorApp`
(a run) and :class:`~gpumem_tui.views.tui.top.TopApp` (cards).
"""

import contextlib
import traceback
from pathlib import Path
from typing import Any, ClassVar

from textual import events
from textual.app import App, ReturnType
from textual.drivers.headless_driver import HeadlessDriver
from textual.worker import WorkerFailed

from gpumem_tui.views.tui import terminal
from gpumem_tui.views.tui.leaving import save_report
from gpumem_tui.views.tui.themes import Palette, textual_theme
from gpumem_tui.views.tui.widgets.lines import Lines
from gpumem_tui.views.tui.widgets.prompt import Prompt


class TerminalApp(App[ReturnType]):
    """Comes last among the bases of an app."""

    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    CRASH_REMARK: ClassVar[str] = ""
    """What people must know when the view has crashed."""

    def __init__(
        self, *, palette: Palette, ascii: bool, report_dir: Path | None = None, driver_class: Any = None
    ) -> None:
        super().__init__(driver_class=driver_class, ansi_color=palette.native)
        self.palette, self.ascii = palette, ascii
        self._report_dir = report_dir
        self.crash: ReturnType | None = None
        self._answers_key = False
        self._take_theme(palette)
        self.animation_level = "none"

    def on_mount(self) -> None:
        """End in order when a signal says so."""
        if not isinstance(self._driver, HeadlessDriver):
            terminal.watch_signals(self.end_by_signal)

    # --- keys -------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """One event; a key to its end, so that none overtakes another however quickly they come.

        Textual hands a key to the widget that has the focus, and looks for what it means once
        it has come back from there. Of keys in one packet (a slow line, a pasted text) the later
        ones would not find the line open that the first opens. Here what a key means is looked up
        at once: every binding has priority, a line that is typed keeps its letters, and the next
        key waits until a letter stands.
        """
        if not isinstance(event, events.Key):
            await super().on_event(event)
            return
        self._answers_key = True
        try:
            await super().on_event(event)
            if isinstance(self.focused, Prompt):
                await self.focused.caught_up()
        finally:
            self._answers_key = False

    def followed_by(self, *actions: str) -> bool:
        """Whether the next key has come already and is for one of these, told by how they begin.

        Keys that a stalled line hands over at once are all done, in their order; of those that would
        paint each other over, only the last one has to draw.
        """
        if not self._answers_key:
            return False  # then the app waits for its next message, which is not to be taken from it
        following = self._peek_message()
        if not isinstance(following, events.Key):
            return False
        bindings = self._bindings.key_to_bindings.get(following.key, ())
        return any(binding.action.startswith(actions) for binding in bindings)

    def type_into(self, prompt: Prompt) -> None:
        """Let a mounted line have the keys, from the next one on."""
        self.screen.set_focus(prompt)

    # --- the picture ------------------------------------------------------------------------------

    @property
    def tty(self) -> terminal.Terminal | None:
        """The terminal; None where a test has the app."""
        return self._driver if isinstance(self._driver, terminal.Terminal) else None

    @property
    def line_is_busy(self) -> bool:
        """Whether another picture would only come behind earlier ones that are still on their way."""
        return self.tty is not None and self.tty.busy()

    def paint_in(self, palette: Palette) -> None:
        """Draw everything in another palette."""
        self.palette = palette
        self._take_theme(palette)
        for lines in self.query(Lines):
            lines.refresh()

    def _take_theme(self, palette: Palette) -> None:
        self.ansi_color = palette.native
        theme = textual_theme(palette)
        if isinstance(theme, str):
            self.theme = theme
        else:
            self.register_theme(theme)
            self.theme = theme.name

    def action_redraw(self) -> None:
        """Send the whole screen again, whatever something else has written over it."""
        if self.tty is not None:
            self.tty.redraw()
        self.refresh(layout=True)

    # --- ends -------------------------------------------------------------------------------------

    def show(self, *, mouse: bool = True) -> ReturnType | None:
        """Run until people leave, or until it crashes; the terminal is restored however that ends."""
        modes, in_order = terminal.Modes(), False
        try:
            result = self.run(mouse=mouse)
            in_order = True
        finally:
            modes.restore(everything=not in_order)
        return result if self.crash is None else self.crash

    def end_by_signal(self, number: int) -> None:
        """Leave after SIGTERM or SIGHUP."""
        raise NotImplementedError

    def crashed(self, sentence: str, report: Path | None) -> ReturnType:
        """What becomes of a view that crashed; ``report`` lies where it could be written."""
        raise NotImplementedError

    def _fatal_error(self) -> None:
        """Textual's way to die, with a report in a file instead of a traceback over the screen."""
        error: BaseException | None = self._exception
        if isinstance(error, WorkerFailed):
            error = error.error
        text = "".join(traceback.format_exception(error)) if error is not None else traceback.format_exc()
        report: Path | None = None
        with contextlib.suppress(OSError):
            report = save_report(text, self._report_dir)
        last = text.strip().splitlines()[-1]
        lies = f"the report lies in {report}" if report is not None else text
        self.crash = self.crashed(f"the view failed ({last}); {self.CRASH_REMARK}{lies}", report)
        self._close_messages_no_wait()
