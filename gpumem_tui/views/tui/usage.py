"""What people do with the view beside looking: find a command, filter, sort, pin, copy, save, set.

The half of the app that belongs to people's hands; the other half follows the run.
Owns the prompt and what is remembered; refuses to draw (screens) and to name keys (``registry``).
"""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from gpumem_tui.errors import GpumemError
from gpumem_tui.views.holders import ORDERS
from gpumem_tui.views.phases import ORDERS as PHASE_ORDERS
from gpumem_tui.views.text import cut
from gpumem_tui.views.tui import settings
from gpumem_tui.views.tui.copying import clipped, save_run
from gpumem_tui.views.tui.palette import Commands
from gpumem_tui.views.tui.registry import ACTIONS
from gpumem_tui.views.tui.settings import Settings
from gpumem_tui.views.tui.themes import PALETTES
from gpumem_tui.views.tui.widgets.prompt import Prompt

if TYPE_CHECKING:
    from textual.timer import Timer

    from gpumem_tui.views.tui.app import MonitorApp

INTERVALS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Times between two pictures that keys step through, in seconds."""

_HELD_S = 5.0
"""While the picture is held, the run is looked at as rarely, in seconds; ..."""

_LONG_HELD_NS = 10_000_000_000
"""... once it is behind by so much that nobody counts the seconds any more."""

_FADES_S = 4.0

RESTS_S = 0.4
"""A pointer that stands so long on a term has it explained; one that passes by changes nothing."""

LOW_BANDWIDTH_S = 5.0
"""Least time between two pictures in low-bandwidth mode, in seconds."""


class Usage:
    """Comes before Textual's app among the bases of ``MonitorApp``."""

    filter_word = ""
    """Rows without it are not shown; empty shows all."""
    sort = ORDERS[0]
    """Order of the processes."""
    phase_order = PHASE_ORDERS[0]
    pinned: str | int | None = None
    """UUID (else index) of the device that stays in view."""
    low_bandwidth = False
    settings_path: Path | None = None
    """Where settings are remembered; None remembers nothing."""
    _before_commands = "overview"
    _notice: tuple[str, str] | None = None
    """(role, sentence) at the right end of the footer."""
    _said_s = 0.0
    _slow_line = False
    explained = ""
    """What the pointer rests on, in place of the footer's keys."""
    _pointed = ""
    _resting: "Timer | None" = None

    @property
    def _monitor(self) -> "MonitorApp":
        return cast("MonitorApp", self)

    async def say(self, text: str, role: str = "dim") -> None:
        """A sentence in the footer; a calm one fades by itself."""
        self._notice, self._said_s = (role, text), time.monotonic()
        await self._monitor.draw()

    def point_at(self, meaning: str) -> None:
        """The pointer is on something with this meaning, or on nothing; told once it has rested there."""
        if meaning == self._pointed:
            return
        self._pointed = meaning
        if self._resting is not None:
            self._resting.stop()
        if self.explained:
            self.explained = ""
            self._monitor.draw_footer()
        self._resting = self._monitor.set_timer(RESTS_S, self._explain) if meaning else None

    def _explain(self) -> None:
        self.explained = self._pointed
        self._monitor.draw_footer()

    def fade(self) -> None:
        """Take a calm sentence away once it has been read."""
        calm = self._notice is not None and self._notice[0] == "dim"
        if calm and time.monotonic() - self._said_s > _FADES_S:
            self._notice = None

    # --- prompt and palette ---------------------------------------------------------------------------

    async def ask(self, prompt: Prompt) -> None:
        """Open a line to type into, in place of one that is open."""
        await self._monitor.query("#typing").remove()
        await self._monitor.mount(prompt, before=self._monitor.footer)
        self._monitor.type_into(prompt)
        await self._monitor.draw()

    async def action_commands(self) -> None:
        """Every command, found by its words."""
        app = self._monitor
        if app.view_name == "commands":
            return
        self._before_commands = app.view_name
        commands = self._commands()
        here = [a for a in ACTIONS if a.works_on(app.view_name) and not a.action.startswith("answer")]
        commands.open([a for a in here if a.action != "commands"])
        await app.go_to("commands")

        async def search(words: str) -> None:
            commands.search(words)

        async def step(step: int) -> None:
            commands.step(step)

        async def run(_: str) -> None:
            await self.run_command()

        prompt = Prompt(
            "words of what to do; enter does it, esc leaves",
            submitted=run,
            changed=search,
            stepped=step,
            left=self._close_commands,
        )
        await self.ask(prompt)

    def _commands(self) -> Commands:
        return cast(Commands, self._monitor.views["commands"])

    async def _close_commands(self) -> None:
        await self._monitor.go_to(self._before_commands)

    async def run_command(self) -> None:
        """Leave the palette and do what is marked in it."""
        chosen = self._commands().chosen
        if chosen is None:
            return
        await self._monitor.query("#typing").remove()
        await self._close_commands()
        await self._monitor.run_action(chosen.action)

    # --- rows -----------------------------------------------------------------------------------------

    async def action_filter(self) -> None:
        """Show only rows with a word."""

        async def keep(word: str) -> None:
            self.filter_word = word.strip()
            await self._monitor.draw()

        async def done(word: str) -> None:
            await self._monitor.query("#typing").remove()
            await keep(word)

        async def all_rows() -> None:
            await keep("")

        prompt = Prompt(
            "show rows with this word: rank, user, pid, command, phase; esc shows all",
            text=self.filter_word,
            submitted=done,
            changed=keep,
            left=all_rows,
        )
        await self.ask(prompt)

    async def action_sort(self) -> None:
        """The next order of processes; on the phases' screen, of phases."""
        shown = self._monitor.view_name
        if shown == "phases":
            place = PHASE_ORDERS.index(self.phase_order) + 1
            self.phase_order = PHASE_ORDERS[place % len(PHASE_ORDERS)]
            await self._monitor.draw()
            return
        if shown not in ("overview", "device"):
            await self.say("nothing on this screen has an order")
            return
        self.sort = ORDERS[(ORDERS.index(self.sort) + 1) % len(ORDERS)]
        self._remember(Settings(sort=self.sort))
        await self.say(f"processes by {self.sort}")

    async def action_pin(self) -> None:
        """Keep the selected device in view, or let go of it."""
        app = self._monitor
        if app.state is None or not app.state.devices:
            return
        device = app.state.devices[min(app.selected, len(app.state.devices) - 1)]
        name = device.uuid if device.uuid is not None else device.index
        self.pinned = None if self.pinned == name else name
        await self.say(f"GPU {device.index} {'stays in view' if self.pinned is not None else 'is let go'}")

    def pinned_position(self) -> int | None:
        """Of the pinned device, in the picture; None where none is pinned, or it is gone."""
        state = self._monitor.state
        if state is None or self.pinned is None:
            return None
        names = [device.uuid if device.uuid is not None else device.index for device in state.devices]
        return names.index(self.pinned) if self.pinned in names else None

    # --- taking along ---------------------------------------------------------------------------------

    async def action_copy(self, whole: bool = False) -> None:
        """Put what is selected, or the whole screen, on the clipboard of the terminal."""
        app = self._monitor
        text = clipped((app.screen_text() if whole else app.view.selected_text()) or app.screen_text())
        app.copy_to_clipboard(text)
        await self.say(f"copied (OSC 52): {cut(text.lstrip().replace(chr(10), ' '), 30)}")

    async def action_save(self, kind: str = "txt") -> None:
        """Write a report of this picture into the current folder."""
        app = self._monitor
        state = app.state
        if state is None:
            return
        try:
            path = await asyncio.to_thread(save_run, state, Path.cwd(), kind)
        except OSError as error:
            await self.say(f"cannot save a report: {error.strerror or error}", "failure")
        else:
            await self.say(f"saved ./{path.name}")

    async def action_ask_map(self) -> None:
        """Ask the ranks for a map of their blocks now."""
        app = self._monitor
        try:
            await self.say(await app.errand(app.feed.reach.ask_map))
        except GpumemError as error:
            await self.say(str(error), "failure")

    # --- settings -------------------------------------------------------------------------------------

    def take_settings(self, wanted: Settings, path: Path | None, trouble: str | None = None) -> None:
        """Begin as people have set it; ``path`` is where changes are remembered, None forgets them."""
        self.sort = wanted.sort or self.sort
        self.low_bandwidth = bool(wanted.low_bandwidth)
        self.settings_path = path
        if trouble is not None:
            self._notice = ("warning", trouble)

    async def action_use_theme(self, name: str) -> None:
        """Draw in this theme, and remember it."""
        self._monitor.use_palette(PALETTES[name])
        self._remember(Settings(theme=name))
        await self.say(f"theme: {name}")

    async def action_interval(self, step: int) -> None:
        """Draw more or less often."""
        app = self._monitor
        near = min(range(len(INTERVALS_S)), key=lambda n: abs(INTERVALS_S[n] - app.interval_s))
        app.interval_s = INTERVALS_S[max(0, min(near + step, len(INTERVALS_S) - 1))]
        self._remember(Settings(interval_s=app.interval_s))
        await self.say(f"a picture every {app.interval_s:g} s")

    async def action_low_bandwidth(self) -> None:
        """Spare the line, or stop sparing it."""
        self.low_bandwidth = not self.low_bandwidth
        self._remember(Settings(low_bandwidth=self.low_bandwidth))
        word = f"a picture every {self.pace_s():g} s"
        await self.say(f"low bandwidth {'on' if self.low_bandwidth else 'off'}: {word}")

    def pace_s(self) -> float:
        """Seconds from one picture to the next."""
        app = self._monitor
        wanted = app.interval_s
        if app.timeline.behind_ns > _LONG_HELD_NS:
            wanted = max(wanted, _HELD_S)
        return max(wanted, LOW_BANDWIDTH_S) if self.low_bandwidth or self._slow_line else wanted

    def hear(self, slow: bool) -> None:
        """The line has become slow, or fast again."""
        if slow == self._slow_line:
            return
        self._slow_line = slow
        pace = f"a picture every {self.pace_s():g} s"
        told = ("remark", f"slow line: {pace}") if slow else ("dim", f"the line is fast again: {pace}")
        self._notice = told  # a slow line is told as long as it is one
        self._said_s = time.monotonic()

    def _remember(self, changes: Settings) -> None:
        if self.settings_path is None:
            return
        try:
            settings.write(self.settings_path, changes)
        except OSError as error:
            self._notice = ("warning", f"not remembered: {error.strerror or error}")
            self.settings_path = None
