"""The live view: asks a feed for pictures at a calm pace, draws what changed, listens to keys.

Owns what is on screen (which view, which device, paused or not) and the way out:
detach, stop, end, crash. Refuses to reach anything but its feed.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.css.query import NoMatches
from textual.drivers.headless_driver import HeadlessDriver
from textual.widget import Widget

from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.errors import GpumemError
from gpumem_tui.views import panels
from gpumem_tui.views.feed import Feed
from gpumem_tui.views.text import Line, Span
from gpumem_tui.views.timeline import Timeline
from gpumem_tui.views.tui.arranging import Arranging
from gpumem_tui.views.tui.errands import Errands
from gpumem_tui.views.tui.leaving import HARDER, AppResult, Left
from gpumem_tui.views.tui.registry import bindings, hints, make_views
from gpumem_tui.views.tui.screens.view import View
from gpumem_tui.views.tui.terminalapp import TerminalApp
from gpumem_tui.views.tui.themes import PALETTES, Palette
from gpumem_tui.views.tui.travel import Travel
from gpumem_tui.views.tui.usage import Usage
from gpumem_tui.views.tui.widgets.alert import AlertLine
from gpumem_tui.views.tui.widgets.keys import Hint, Keys
from gpumem_tui.views.tui.widgets.lines import Lines
from gpumem_tui.views.tui.widgets.prompt import Prompt

Answer = TypeVar("Answer")


class MonitorApp(Travel, Usage, Arranging, TerminalApp[AppResult]):
    """The view of one run."""

    CSS_PATH: ClassVar[str] = "app.tcss"
    BINDINGS: ClassVar[list[Any]] = bindings()
    CRASH_REMARK: ClassVar[str] = "the run is not touched; "

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
        super().__init__(palette=palette, ascii=ascii, report_dir=report_dir, driver_class=driver_class)
        self.feed = feed
        self.timeline = Timeline()
        self.interval_s = interval_s
        self.selected = 0
        """Position of the selected device."""
        self.view_name = "overview"
        self.asking = False
        """Whether the footer asks how to leave."""
        self._notice: tuple[str, str] | None = None
        self._stops = 0
        self._errands = Errands()
        self._drawing = asyncio.Lock()
        self._due = asyncio.Event()
        """Set when it is time for the next look."""
        self._shown: tuple[str, RunState, tuple[object, ...]] | None = None
        """What the view was drawn from: its name, the picture, and what was new then."""
        self.header, self.footer = Lines(id="header"), Keys(id="footer")
        self.alert = AlertLine()
        self.views = make_views()
        """The screens, by name."""

    @property
    def view(self) -> View:
        """The screen that is shown."""
        return self.views[self.view_name]

    def compose(self) -> ComposeResult:
        """One line above, one below, the views between."""
        yield self.header
        yield self.alert
        with Container(id="body"):
            yield from cast("list[Widget]", [*self.views.values()])
        yield self.footer

    def on_mount(self) -> None:
        """Begin to follow the run."""
        self._show_view("overview")
        self.run_worker(self._follow(), name="follow", exit_on_error=True)

    def on_unmount(self) -> None:
        """Let the feed's thread go."""
        self._errands.end()

    def errand(self, call: Callable[[], Answer]) -> Awaitable[Answer]:
        """Do something with the feed, in its thread."""
        return self._errands.do(call)

    # --- following --------------------------------------------------------------------------------

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        await self.look()
        if not isinstance(self._driver, HeadlessDriver):
            gc.freeze()  # what stands with the first picture stays, and is looked through no more
            gc.enable()
        while True:
            timer = loop.call_later(self.pace_s(), self._due.set)
            await self._due.wait()
            self._due.clear()
            timer.cancel()
            await self.look()

    def hurry(self) -> None:
        """Look now, not when it would be time for it."""
        self._due.set()

    async def look(self) -> None:
        """Ask once for a picture, and draw it unless paused."""
        try:
            latest = await self.errand(self.feed.read)
        except GpumemError as error:
            self._notice = ("failure", str(error))
        else:
            if self._notice is not None and self._notice[0] == "failure":
                self._notice = None
            if self.take_latest(latest):
                await self.seek()
        self.fade()
        if self.tty is not None:
            self.hear(self.tty.speed.slow)
        if self.line_is_busy:
            return
        await self.draw(anew=False)

    async def draw(self, *, anew: bool = True) -> None:
        """Show the picture of the moment; unless ``anew``, one that stands already is left as it is."""
        async with self._drawing:
            self._draw_frame()
            if self.state is None:
                return
            latest = self.latest or self.state
            state = latest if self.view.newest else self.state
            news = (latest.events, latest.marked, latest.failures, latest.alerts)
            before, self._shown = self._shown, (self.view_name, state, news)
            if not anew and before is not None and before[1] is state and before == self._shown:
                return
            await _done(self.view.show_state(state))

    def _draw_frame(self) -> None:
        cells = self.size.width
        if self.state is None:
            self.header.show([(Span(" reading the recording …", "dim"),)])
        else:
            moment = self.view_name == "overview"
            self.header.show([panels.header(self.state, cells, moment=moment)])
        self.alert.show_state(self.state, self.view_name)
        self.draw_footer()

    def draw_footer(self) -> None:
        """The keys that do something here; or a question, or what the pointer rests on."""
        if self.asking and self.state is not None:
            harder = HARDER[min(self._stops, len(HARDER) - 1)].value
            ways = (
                Hint("d", "detach, the run goes on", "answer('detach')"),
                Hint("s", f"stop the run ({harder})", "answer('stop')"),
                Hint("esc", "stay", "back"),
            )
            self.footer.show_keys(ways, lead=(Span(f" leave {self.state.facts.run}? ", "prompt"),))
            return
        if self._typing is not None:
            self.footer.show_keys((Hint("enter", "do it", "submit"), Hint("esc", "leave it", "back")))
            return
        if self.explained:
            self.footer.show_keys((), lead=(Span(f" {self.explained}"),))
            return
        over = self.latest is not None and self.latest.facts.over
        self.footer.show_keys(hints(self.view_name, self.paused, over, self.ascii), self._status())

    @property
    def _typing(self) -> Prompt | None:
        """The line that is being typed."""
        try:
            return self.screen.get_child_by_id("typing", Prompt)
        except NoMatches:
            return None

    def _status(self) -> Line:
        if self._notice is not None:
            role, text = self._notice
            return (Span(f" {text} ", role), *self.when(brief=self.size.width < _BOTH))
        return self.when()

    # --- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys d and s only answer the question; while it stands or a line is typed, other keys rest."""
        if action == "answer":
            return self.asking
        if self.asking:
            return action in ("leave", "back")
        if self._typing is not None:
            return action in ("leave", "back", "submit")
        if action == "type":
            return self.view_name == "output"
        return True

    async def action_show(self, name: str) -> None:
        """Go to a view, unless the next key leaves it again."""
        if self.followed_by("show"):
            self.view_name = name
        else:
            await self.go_to(name)

    async def go_to(self, name: str) -> None:
        """Show a view."""
        self.hold()
        self._show_view(name)
        await self.draw()
        self.release()
        await self.arranged()

    def _show_view(self, name: str) -> None:
        self.view_name = name
        for each, view in self.views.items():
            cast("Widget", view).display = each == name

    async def action_help(self) -> None:
        """Show the help, or go back from it."""
        await self.go_to("overview" if self.view_name == "help" else "help")

    async def action_submit(self) -> None:
        """What enter does to a line that is typed."""
        await self.query_one("#typing", Prompt).action_submit()

    async def action_back(self) -> None:
        """Stay; stop typing; close the help."""
        if self.asking:
            self.asking = False
        elif self._typing is not None:
            await self._typing.leave()
        elif self.filter_word:
            self.filter_word = ""
        elif self.view_name == "help":
            self._show_view("overview")
        await self.draw()

    def select_device(self, position: int) -> None:
        """Select a device by its position, within what there is."""
        if self.state is not None and self.state.devices:
            self.selected = max(0, min(position, len(self.state.devices) - 1))
            self.view.show_state(self.state)

    def selected_device(self) -> DeviceState | None:
        """The selected device in the picture on screen."""
        return None if self.state is None else self.device_in(self.state)

    def device_in(self, state: RunState) -> DeviceState | None:
        """The selected device in a picture."""
        return state.devices[min(self.selected, len(state.devices) - 1)] if state.devices else None

    def action_next_panel(self, step: int) -> None:
        """Keys go to another panel."""
        self.view.next_panel(step)

    async def action_move(self, step: int) -> None:
        """Up or down in whatever is shown."""
        await _done(self.view.move(step))

    async def action_move_page(self, step: int) -> None:
        """A page up or down."""
        await _done(self.view.move_page(step))

    async def action_move_end(self, step: int) -> None:
        """To one end; from the past, back to now."""
        if step > 0 and self.paused and not self.view.newest:
            await self.action_live()
        else:
            await _done(self.view.move_end(step))

    async def action_next_item(self, step: int) -> None:
        """Another thing of its kind."""
        await _done(self.view.next_item(step))

    async def action_choose(self) -> None:
        """Open what is selected."""
        await _done(self.view.choose())

    async def action_theme(self) -> None:
        """The next palette."""
        names = list(PALETTES)
        await self.action_use_theme(names[(names.index(self.palette.name) + 1) % len(names)])

    def use_palette(self, palette: Palette) -> None:
        """Draw everything in another palette."""
        self.paint_in(palette)
        if self.state is not None:
            self.call_after_refresh(self.draw)

    async def action_type(self) -> None:
        """Open a line to type into the workload."""
        state = self.state
        if state is None or not state.facts.interactive or state.facts.over:
            self._notice = ("warning", "nothing can be typed into this run: it has no terminal of its own")
            await self.draw()
            return
        hint = "type a line into the workload; enter sends it, esc leaves"
        await self.ask(Prompt(hint, submitted=self._type_in))

    async def _type_in(self, text: str) -> None:
        self.query_one("#typing", Prompt).clear()
        try:
            await self.errand(lambda: self.feed.reach.type_in(text.encode() + b"\n"))
        except GpumemError as error:
            self._notice = ("failure", str(error))
        await self.draw()

    def screen_text(self) -> str:
        """Everything that stands on the screen."""
        return "\n".join(strip.text for strip in self.screen._compositor.render_strips())

    async def on_resize(self, _event: events.Resize) -> None:
        """The frame is as wide as the terminal."""
        if self.state is not None:
            self.hold()
            self.action_redraw()
            self.release()
        self.call_after_refresh(self.draw)

    # --- leaving ----------------------------------------------------------------------------------

    async def action_leave(self) -> None:
        """Ask how; of a run that is over, or only played, there is nothing to ask."""
        state = self.latest or self.state
        if state is None:
            self.exit(AppResult(Left.DETACHED, 0, ""))
        elif state.facts.over:
            self.exit(AppResult(Left.STOPPED if self._stops else Left.ENDED, 0, ""))
        else:
            self.asking = True
            await self.draw()

    async def action_answer(self, answer: str) -> None:
        """Detach, or stop the run and watch it end."""
        self.asking = False
        state = self.latest or self.state
        if answer == "detach" and state is not None:
            run = state.facts.run
            self.exit(AppResult(Left.DETACHED, 0, f"{run} goes on; come back with: gpumem-tui attach {run}"))
            return
        how = HARDER[min(self._stops, len(HARDER) - 1)]
        try:
            sentence = await self.errand(lambda: self.feed.reach.stop(how))
        except GpumemError as error:
            self._notice = ("failure", str(error))
        else:
            self._stops += 1
            self._notice = ("warning", sentence)
        await self.draw()

    def end_by_signal(self, number: int) -> None:
        """Leave the view; the run goes on."""
        self.exit(AppResult(Left.DETACHED, 128 + number, ""), return_code=128 + number)

    def crashed(self, sentence: str, report: Path | None) -> AppResult:
        """The view crashed."""
        return AppResult(Left.CRASHED, 70, sentence, report)


_BOTH = 110
"""Cells of a footer that has room for a sentence and for how far a held picture is from now."""


async def _done(awaited: Awaitable[None] | None) -> None:
    """Wait for what a screen does, where it takes time."""
    if awaited is not None:
        await awaited
