"""The live view: asks a feed for pictures at a calm pace, draws what changed, listens to keys.

Owns what is on screen (which view, which device, paused or not) and the way out:
detach, stop, end, crash. Refuses to reach anything but its feed.
"""

import asyncio
import contextlib
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec
from textual import events
from textual.app import App, ComposeResult
from textual.containers import Container
from textual.drivers.headless_driver import HeadlessDriver
from textual.worker import WorkerFailed

from gpumem_tui.analysis.state import RunState
from gpumem_tui.errors import GpumemError
from gpumem_tui.views import panels, present
from gpumem_tui.views.chart import SPANS_S, span_name
from gpumem_tui.views.feed import Feed, Stop
from gpumem_tui.views.text import Line, Span, ends
from gpumem_tui.views.tui import terminal
from gpumem_tui.views.tui.actions import bindings, footer_keys
from gpumem_tui.views.tui.errands import Errands
from gpumem_tui.views.tui.screens.help import Help
from gpumem_tui.views.tui.screens.output import Output
from gpumem_tui.views.tui.screens.overview import Overview
from gpumem_tui.views.tui.screens.phases import Phases
from gpumem_tui.views.tui.themes import PALETTES, Palette, textual_theme
from gpumem_tui.views.tui.widgets.lines import Lines

if TYPE_CHECKING:
    from textual.widgets import Input

Answer = TypeVar("Answer")

_HARDER = (Stop.INTERRUPT, Stop.TERMINATE, Stop.KILL)
_BACKLOG = 4
"""Writes waiting on a slow line from which on a picture is left out."""


class Left(str, Enum):
    """How people left the view."""

    DETACHED = "detached"
    """The view is closed, the run goes on."""
    STOPPED = "stopped"
    """The run was asked to stop from here."""
    ENDED = "ended"
    """The run had ended by itself."""
    CRASHED = "crashed"
    """The view failed; the run is not touched."""


class AppResult(msgspec.Struct, frozen=True):
    """What became of the view."""

    left: Left
    exit_code: int
    """0; 128 + number after a signal; 70 after a crash."""
    sentence: str
    """For the terminal after the view is gone; empty if nothing needs saying."""
    report: Path | None = None
    """Where the report of a crash lies."""


class MonitorApp(App[AppResult]):
    """The view of one run."""

    CSS_PATH: ClassVar[str] = "app.tcss"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[Any]] = bindings()

    def __init__(
        self,
        feed: Feed,
        *,
        palette: Palette,
        ascii: bool = False,
        interval_s: float = 1.0,
        report_dir: Path | None = None,
        driver_class: Any = None,
    ) -> None:
        super().__init__(driver_class=driver_class, ansi_color=palette.native)
        self.feed = feed
        self.palette = palette
        self.ascii = ascii
        self.interval_s = interval_s
        self.state: RunState | None = None
        """The picture on screen."""
        self.selected = 0
        """Position of the selected device."""
        self.view_name = "overview"
        self.asking = False
        """Whether the footer asks how to leave."""
        self.crash: AppResult | None = None
        self._latest: RunState | None = None
        self._paused = False
        self._notice: tuple[str, str] | None = None
        self._stops = 0
        self._span = 1
        self._report_dir = report_dir
        self._errands = Errands()
        self._drawing = asyncio.Lock()
        self.header, self.footer = Lines(id="header"), Lines(id="footer")
        self.overview, self.output, self.phases, self.help = Overview(), Output(), Phases(), Help()
        self._views: dict[str, Overview | Output | Phases | Help] = {
            "overview": self.overview,
            "output": self.output,
            "phases": self.phases,
            "help": self.help,
        }
        self._take_theme(palette)
        self.animation_level = "none"

    @property
    def span_s(self) -> int:
        """Length of the chart in seconds; 0 is the whole run."""
        return SPANS_S[self._span]

    @property
    def textured(self) -> bool:
        """Whether charts use textures, because colours or blocks are not to be had."""
        return self.ascii or self.palette.textured

    def compose(self) -> ComposeResult:
        """One line above, one below, the views between."""
        yield self.header
        with Container(id="body"):
            yield from self._views.values()
        yield self.footer

    def on_mount(self) -> None:
        """Begin to follow the run."""
        self._show_view("overview")
        if not isinstance(self._driver, HeadlessDriver):
            terminal.watch_signals(self._end_by_signal)
        self.run_worker(self._follow(), name="follow", exit_on_error=True)

    def on_unmount(self) -> None:
        """Let the feed's thread go."""
        self._errands.end()

    def errand(self, call: Callable[[], Answer]) -> Awaitable[Answer]:
        """Do something with the feed, in its thread."""
        return self._errands.do(call)

    # --- following --------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(self.interval_s)

    async def look(self) -> None:
        """Ask once for a picture, and draw it unless paused."""
        try:
            self._latest = await self.errand(self.feed.read)
        except GpumemError as error:
            self._notice = ("failure", str(error))
        else:
            if self._notice is not None and self._notice[0] == "failure":
                self._notice = None
            if not self._paused:
                self.state = self._latest
        if isinstance(self._driver, terminal.Terminal) and self._driver.backlog() > _BACKLOG:
            return
        await self.draw()

    async def draw(self) -> None:
        """Show the picture of the moment; what stands already costs nothing."""
        async with self._drawing:
            self._draw_frame()
            if self.state is None:
                return
            view = self._views[self.view_name]
            if isinstance(view, Output):
                await view.show_state(self._latest or self.state)
            else:
                view.show_state(self.state)

    def _draw_frame(self) -> None:
        cells = self.size.width
        if self.state is None:
            self.header.show([(Span(" reading the recording …", "dim"),)])
        else:
            moment = self.view_name == "overview"
            self.header.show([panels.header(self.state, cells, moment=moment)])
        self.footer.show([self._footer(cells)])

    def _footer(self, cells: int) -> Line:
        if self.asking and self.state is not None:
            harder = _HARDER[min(self._stops, len(_HARDER) - 1)].value
            return (
                Span(f" leave {self.state.facts.run}? ", "prompt"),
                *(Span("  d", "key"), Span(" detach, the run goes on")),
                *(Span("   s", "key"), Span(f" stop the run ({harder})")),
                *(Span("   esc", "key"), Span(" stay")),
            )
        keys: list[Span] = []
        for key, word in footer_keys(self.view_name):
            word = "go on" if word == "pause" and self._paused else word
            word = "close" if word == self.view_name == "help" else word
            keys += [Span(f" {key}", "key"), Span(f" {word} ", "dim")]
        return ends(keys, self._status(), cells)

    def _status(self) -> tuple[Span, ...]:
        if self._paused and self.state is not None and self._latest is not None:
            behind = self._latest.now_ns - self.state.now_ns
            at = present.wall_clock(self.state.facts, self.state.now_ns)
            late = f", {present.coarse(behind)} behind" if behind >= 5_000_000_000 else ""
            return (Span(f" paused at {at}{late} ", "prompt"),)
        if self._notice is not None:
            role, text = self._notice
            return (Span(f" {text} ", role),)
        return ()

    # --- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys d and s only answer the question; while it stands or a line is typed, other keys rest."""
        if action == "answer":
            return self.asking
        if self.asking:
            return action in ("leave", "back")
        if self.query("#typing"):
            return action in ("leave", "back")
        if action == "type":
            return self.view_name == "output"
        return True

    async def action_show(self, name: str) -> None:
        """Go to a view."""
        self._show_view(name)
        await self.draw()

    def _show_view(self, name: str) -> None:
        self.view_name = name
        for view in self._views.values():
            view.display = view.id == name

    async def action_help(self) -> None:
        """Show the help, or go back from it."""
        await self.action_show("overview" if self.view_name == "help" else "help")

    async def action_back(self) -> None:
        """Stay; stop typing; close the help."""
        if self.asking:
            self.asking = False
        elif self.query("#typing"):
            await self.query("#typing").remove()
        elif self.view_name == "help":
            self._show_view("overview")
        await self.draw()

    async def action_pause(self) -> None:
        """Hold the picture, or go on."""
        self._paused = not self._paused
        if not self._paused and self._latest is not None:
            self.state = self._latest
        await self.draw()

    def select_device(self, position: int) -> None:
        """Select a device by its position, within what there is."""
        if self.state is not None and self.state.devices:
            self.selected = max(0, min(position, len(self.state.devices) - 1))
            self.overview.show_state(self.state)

    def action_next_panel(self, step: int) -> None:
        """Keys go to another panel."""
        view = self._views[self.view_name]
        if isinstance(view, Overview | Phases):
            view.next_panel(step)

    async def action_move(self, step: int) -> None:
        """Up or down in whatever is shown."""
        await self._move("move", step)

    async def action_move_page(self, step: int) -> None:
        """A page up or down."""
        await self._move("move_page", step)

    async def action_move_end(self, step: int) -> None:
        """To one end."""
        await self._move("move_end", step)

    async def _move(self, how: str, step: int) -> None:
        moved = getattr(self._views[self.view_name], how)(step)
        if moved is not None:
            await moved

    async def action_span(self, step: int) -> None:
        """A longer or shorter chart."""
        self._span = max(0, min(self._span + step, len(SPANS_S) - 1))
        self._notice = ("dim", f"chart: {span_name(self.span_s)}")
        await self.draw()

    def action_theme(self) -> None:
        """The next palette."""
        names = list(PALETTES)
        self.use_palette(PALETTES[names[(names.index(self.palette.name) + 1) % len(names)]])

    def use_palette(self, palette: Palette) -> None:
        """Draw everything in another palette."""
        self.palette = palette
        self._take_theme(palette)
        for lines in self.query(Lines):
            lines.refresh()
        if self.state is not None:
            self.call_after_refresh(self.draw)

    def _take_theme(self, palette: Palette) -> None:
        self.ansi_color = palette.native
        theme = textual_theme(palette)
        if isinstance(theme, str):
            self.theme = theme
        else:
            self.register_theme(theme)
            self.theme = theme.name

    async def action_type(self) -> None:
        """Open a line to type into the workload."""
        state = self.state
        if state is None or not state.facts.interactive or state.facts.ended_ns is not None:
            self._notice = ("warning", "nothing can be typed into this run: it has no terminal of its own")
            await self.draw()
            return
        from textual.widgets import Input

        line = Input(placeholder="type a line into the workload; enter sends it, esc leaves", id="typing")
        await self.mount(line, before=self.footer)
        line.focus()

    async def on_input_submitted(self, event: "Input.Submitted") -> None:
        """Send the line."""
        text = event.value
        event.input.clear()
        try:
            await self.errand(lambda: self.feed.type_in(text.encode() + b"\n"))
        except GpumemError as error:
            self._notice = ("failure", str(error))
        await self.draw()

    async def on_resize(self, _event: events.Resize) -> None:
        """The frame is as wide as the terminal."""
        self.action_redraw()
        self.call_after_refresh(self.draw)

    def action_redraw(self) -> None:
        """Send the whole screen again, whatever something else has written over it."""
        if isinstance(self._driver, terminal.Terminal):
            self._driver.redraw()
        self.refresh(layout=True)

    # --- leaving ----------------------------------------------------------------------------------

    async def action_leave(self) -> None:
        """Ask how; a run that has ended has nothing to ask about."""
        state = self._latest or self.state
        if state is None:
            self.exit(AppResult(Left.DETACHED, 0, ""))
        elif state.facts.ended_ns is not None:
            self.exit(AppResult(Left.STOPPED if self._stops else Left.ENDED, 0, ""))
        else:
            self.asking = True
            await self.draw()

    async def action_answer(self, answer: str) -> None:
        """Detach, or stop the run and watch it end."""
        self.asking = False
        state = self._latest or self.state
        if answer == "detach" and state is not None:
            run = state.facts.run
            self.exit(AppResult(Left.DETACHED, 0, f"{run} goes on; come back with: gpumem-tui attach {run}"))
            return
        how = _HARDER[min(self._stops, len(_HARDER) - 1)]
        try:
            sentence = await self.errand(lambda: self.feed.stop(how))
        except GpumemError as error:
            self._notice = ("failure", str(error))
        else:
            self._stops += 1
            self._notice = ("warning", sentence)
        await self.draw()

    def _end_by_signal(self, number: int) -> None:
        self.exit(AppResult(Left.DETACHED, 128 + number, ""), return_code=128 + number)

    # --- crashing ---------------------------------------------------------------------------------

    def _fatal_error(self) -> None:
        """Textual's way to die, with a report in a file instead of a traceback over the screen."""
        error: BaseException | None = self._exception
        if isinstance(error, WorkerFailed):
            error = error.error
        text = "".join(traceback.format_exception(error)) if error is not None else traceback.format_exc()
        where: Path | None = None
        with contextlib.suppress(OSError):
            where = save_report(text, self._report_dir)
        last = text.strip().splitlines()[-1]
        lies = f"the report lies in {where}" if where is not None else text
        sentence = f"the view failed ({last}); the run is not touched; {lies}"
        self.crash = AppResult(Left.CRASHED, 70, sentence, where)
        self._close_messages_no_wait()


def save_report(text: str, folder: Path | None) -> Path:
    """Write a crash report that only its owner can read. Raises OSError."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="gpumem-tui-crash-", suffix=".txt", dir=folder, delete=False
    ) as file:
        file.write(text)
    return Path(file.name)
