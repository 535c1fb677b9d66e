"""The driver's live view: asks its feed for a picture at a calm pace, draws what changed, listens to keys.

Owns what is chosen and the ways out; what is on the screen is ``topscreen``'s. Sends
a signal only after a question, through its feed.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding

from gpumem_tui.analysis.top import SORTS, TopProcess, TopState, Wanted, select
from gpumem_tui.analysis.waiting import Alarms, Waiting
from gpumem_tui.errors import BadInput, GpumemError
from gpumem_tui.views import toppanels, toprows, topscreen
from gpumem_tui.views.holders import ORDERS
from gpumem_tui.views.text import Line, Span, clean, speaks_utf8
from gpumem_tui.views.tui import THEMES, settings, terminal
from gpumem_tui.views.tui.errands import Errands
from gpumem_tui.views.tui.terminalapp import TerminalApp
from gpumem_tui.views.tui.themes import PALETTES, Palette, choose
from gpumem_tui.views.tui.widgets.lines import Lines
from gpumem_tui.views.tui.widgets.prompt import Prompt

NOTICE_S = 30.0
"""How long a word on something that happened stays."""


class TopFeed(Protocol):
    """What the view needs. Every method is called in one worker thread."""

    def read(self) -> TopState:
        """The picture of now."""

    def end(self, pid: int, started_ticks: int | None, number: signal.Signals) -> str:
        """Send one process a signal. Returns a sentence on what was done."""


class TopResult(msgspec.Struct, frozen=True):
    """How the view was left."""

    outcome: str
    """``left``, ``fulfilled`` or ``timeout`` of what was waited for, ``signal``, ``crashed``."""
    exit_code: int = 0
    sentence: str = ""


class TopApp(TerminalApp[TopResult]):
    """The view."""

    CSS: ClassVar[str] = (
        "Screen { layout: vertical; overflow: hidden; } #sheet { height: 1fr; }"
        "#typing { height: 1; width: 1fr; border: none; padding: 0 1; }"
    )
    BINDINGS: ClassVar[list[Any]] = [
        Binding(keys, action, show=False, priority=True)
        for keys, action in (
            ("up,k", "move(-1)"),
            ("down,j", "move(1)"),
            ("pageup", "page(-1)"),
            ("pagedown", "page(1)"),
            ("home,g", "move(-1000000)"),
            ("end,G", "move(1000000)"),
            ("enter", "details"),
            ("s", "sort"),
            ("m", "mine"),
            ("d", "device"),
            ("f", "tree"),
            ("slash", "filter"),
            ("x", "ask"),
            ("y", "answer('SIGTERM')"),
            ("K", "answer('SIGKILL')"),
            ("space", "pause"),
            ("t", "theme"),
            ("question_mark,f1,h", "help"),
            ("escape", "back"),
            ("ctrl+l", "redraw"),
            ("ctrl+z", "suspend_process"),
            ("q", "leave"),
            ("ctrl+c", "leave"),
            ("ctrl+q", "leave"),
        )
    ]

    def __init__(
        self,
        feed: TopFeed,
        *,
        palette: Palette,
        ascii: bool,
        wanted: Wanted,
        sort: str,
        tree: bool = False,
        interval_s: float = 1.0,
        waiting: Waiting | None = None,
        alarms: Alarms | None = None,
        tell: Callable[[str], None] | None = None,
        timeout_s: float | None = None,
        report_dir: Path | None = None,
        driver_class: Any = None,
    ) -> None:
        super().__init__(palette=palette, ascii=ascii, report_dir=report_dir, driver_class=driver_class)
        self.feed = feed
        self.place = topscreen.Place(sort=sort, tree=tree)
        self.state: TopState | None = None
        """The picture on screen, with the wanted rows only."""
        self.asked: TopProcess | None = None
        """The process about which the footer asks."""
        self._wanted, self._interval_s = wanted, interval_s
        self._waiting, self._alarms, self._tell = waiting, alarms, tell
        self._until_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._paused = False
        self._notice: tuple[str, str, float] | None = None
        self._errands = Errands()
        self._sheet: topscreen.Sheet | None = None
        self.header, self.sheet, self.footer = Lines(id="header"), Lines(id="sheet"), Lines(id="footer")

    def compose(self) -> ComposeResult:
        """One line above, one below, the sheet between."""
        yield self.header
        yield self.sheet
        yield self.footer

    def on_mount(self) -> None:
        """Begin to look."""
        self.run_worker(self._follow(), name="follow", exit_on_error=True)

    def on_unmount(self) -> None:
        """Let the feed's thread go."""
        self._errands.end()

    # --- following --------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            began_s = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.05, self._interval_s - (time.monotonic() - began_s)))

    async def look(self) -> None:
        """Ask once for a picture, and draw it unless paused."""
        try:
            state = await self._errands.do(self.feed.read)
        except GpumemError as error:
            self.notice("failure", str(error))
        else:
            shown = select(state, self._wanted)
            self._hear(state, shown)
            if not self._paused:
                self.state = shown
        if self.line_is_busy:
            return
        self.draw()

    def _hear(self, state: TopState, shown: TopState) -> None:
        """Alarms and what is waited for."""
        for sentence in self._alarms.take(shown) if self._alarms is not None else ():
            self.notice("warning", sentence)
            if self._tell is None:
                self.bell()
            else:
                self._tell(sentence)
        if self._waiting is not None and self._waiting.take(state):
            self.exit(TopResult("fulfilled"))
        elif self._until_s is not None and time.monotonic() > self._until_s:
            self.exit(TopResult("timeout", 1))

    def notice(self, role: str, text: str) -> None:
        """Say something in the footer for a while."""
        self._notice = (role, text, time.monotonic() + NOTICE_S)

    def draw(self) -> None:
        """Show the picture of the moment; what stands already costs nothing."""
        cells = self.size.width
        if self.state is None:
            self.header.show([(Span(" asking the driver …", "dim"),)])
        else:
            self.header.show([toppanels.header(self.state, cells)])
            self._sheet = topscreen.draw(self.state, self.place, cells, self.sheet.size.height)
            self.place = self._sheet.place
            self.sheet.show(self._sheet.lines)
        self.footer.show([self._footer(cells)])

    def _footer(self, cells: int) -> Line:
        if self.asked is not None:
            return topscreen.question(self.asked)
        return topscreen.footer(self._status(), self._paused, cells)

    def _status(self) -> tuple[Span, ...]:
        if self._notice is not None and time.monotonic() < self._notice[2]:
            return (Span(f" {clean(self._notice[1])} ", self._notice[0]),)
        if self._paused:
            return (Span(" paused ", "prompt"),)
        if self._waiting is not None:
            condition, now = self._waiting.condition.text, self._waiting.verdict.now
            return (Span(f" waiting: {clean(condition)} ", "prompt"), Span(f" {clean(now)} ", "remark"))
        return topscreen.latest_event(self.state, NOTICE_S) if self.state is not None else ()

    # --- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While the question stands, only its answers work."""
        if action == "answer":
            return self.asked is not None
        if self.asked is not None or self._typing is not None:
            return action in ("back", "leave")
        return True

    @property
    def _typing(self) -> Prompt | None:
        """The line that is being typed."""
        return next(iter(self.query(Prompt)), None)

    def _go(self, **changes: Any) -> None:
        self.place = msgspec.structs.replace(self.place, **changes)
        self.draw()

    def action_move(self, step: int) -> None:
        """Choose another process."""
        if self._sheet is not None and not self.place.help:
            self.place = topscreen.move(self._sheet, step)
            self.draw()

    def action_page(self, step: int) -> None:
        """Choose one a page away."""
        if self._sheet is not None:
            self.action_move(step * self._sheet.page)

    def action_details(self) -> None:
        """Show or hide what is known of the chosen process."""
        if self.place.chosen is None:
            self.action_move(0)
        self._go(details=not self.place.details)

    def action_sort(self) -> None:
        """The next order."""
        names = list(SORTS)
        self._go(sort=names[(names.index(self.place.sort) + 1) % len(names)], first=0)

    def action_mine(self) -> None:
        """Only one's own processes, or all."""
        self._go(mine=not self.place.mine, first=0)

    def action_device(self) -> None:
        """The processes of the next card; of all after the last."""
        if self.state is None:
            return
        cards: list[int | None] = [None, *(device.index for device in self.state.devices)]
        at = cards.index(self.place.device) if self.place.device in cards else 0
        self._go(device=cards[(at + 1) % len(cards)], first=0)

    def action_tree(self) -> None:
        """Below who started them, or the plain list."""
        self._go(tree=not self.place.tree, first=0)

    async def action_filter(self) -> None:
        """Show only processes with a word, from its first letter on."""

        async def keep(word: str) -> None:
            self._go(word=word.strip(), first=0)

        async def close() -> None:
            await self.query(Prompt).remove()
            self.footer.display = True
            self.call_after_refresh(self.draw)

        async def done(word: str) -> None:
            await close()
            await keep(word)

        async def all_rows() -> None:
            await done("")

        async def step(rows: int) -> None:
            self.action_move(rows)

        hint = "show processes with this word: user, command, pid, run, job; esc shows all"
        prompt = Prompt(hint, text=self.place.word, submitted=done, changed=keep, stepped=step, left=all_rows)
        self.footer.display = False
        await self.mount(prompt)
        self.type_into(prompt)

    def action_help(self) -> None:
        """Show or hide the help."""
        self._go(help=not self.place.help)

    async def action_back(self) -> None:
        """Withdraw the question; close what is open; show all rows."""
        if self.asked is not None:
            self.asked = None
            self.draw()
        elif self._typing is not None:
            await self._typing.leave()
        elif self.place.help:
            self._go(help=False)
        elif self.place.details:
            self._go(details=False)
        else:
            self._go(word="", first=0)

    def action_pause(self) -> None:
        """Hold the picture, or go on."""
        self._paused = not self._paused
        self.draw()

    def action_ask(self) -> None:
        """Ask whether to end the chosen process."""
        process = topscreen.chosen(self._sheet) if self._sheet is not None else None
        if process is None:
            self.notice("warning", "choose a process first: ↑ ↓")
        elif not process.visible:
            self.notice("warning", f"{toprows.who(process)} from here: it cannot be ended from here")
        else:
            self.asked = process
        self.draw()

    async def action_answer(self, name: str) -> None:
        """Send the signal that was confirmed."""
        process, self.asked = self.asked, None
        if process is not None:
            pid, ticks, number = process.pid, process.started_ticks, signal.Signals[name]
            self.notice("warning", await self._errands.do(lambda: self.feed.end(pid, ticks, number)))
        self.draw()

    def action_theme(self) -> None:
        """The next palette."""
        names = list(PALETTES)
        self.paint_in(PALETTES[names[(names.index(self.palette.name) + 1) % len(names)]])

    def action_leave(self) -> None:
        """Leave; nothing else happens."""
        self.exit(TopResult("left", 0 if self._waiting is None else 130))

    def on_resize(self, _event: events.Resize) -> None:
        """Draw for the new size."""
        self.action_redraw()
        self.call_after_refresh(self.draw)

    def on_click(self, event: events.Click) -> None:
        """A click chooses a process."""
        if event.widget is self.sheet and self._sheet is not None and self.asked is None:
            self.place = topscreen.choose_at(self._sheet, event.y)
            self.draw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel moves the choice."""
        self.action_move(1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel moves the choice."""
        self.action_move(-1)

    # --- leaving ----------------------------------------------------------------------------------

    def end_by_signal(self, number: int) -> None:
        """Leave after SIGTERM or SIGHUP."""
        self.exit(TopResult("signal", 128 + number), return_code=128 + number)

    def crashed(self, sentence: str, report: Path | None) -> TopResult:
        """The view crashed."""
        return TopResult("crashed", 70, sentence)


def run_top(
    feed: TopFeed,
    *,
    wanted: Wanted,
    sort: str,
    tree: bool,
    waiting: Waiting | None,
    alarms: Alarms | None,
    tell: Callable[[str], None] | None,
    timeout_s: float | None,
    theme: str | None,
    ascii: bool | None,
    interval_s: float,
    report_dir: Path | None,
) -> TopResult:
    """Show cards and processes until people leave, or until what is waited for is there.

    Draws on the controlling terminal, which is restored however the view ends. Colours
    and ASCII that are None are as people have set them in the view of a run.
    """
    own = settings.Settings(theme, None, ascii, None, None)
    with contextlib.suppress(BadInput):  # a file that cannot be used is told where it is written
        own = own.over(settings.read(settings.config_path(os.environ), tuple(THEMES), ORDERS))
    app = TopApp(
        feed,
        palette=choose(own.theme, os.environ),
        ascii=not speaks_utf8(os.environ) if own.ascii is None else own.ascii,
        wanted=wanted,
        sort=sort,
        tree=tree,
        interval_s=interval_s,
        waiting=waiting,
        alarms=alarms,
        tell=tell,
        timeout_s=timeout_s,
        report_dir=report_dir,
        driver_class=terminal.Terminal,
    )
    result = app.show()
    return result if result is not None else TopResult("left")
