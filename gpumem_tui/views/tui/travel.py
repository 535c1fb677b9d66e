"""Time travel: hold the picture, move a cursor through the recording, and come back to now.

The half of the app that knows when it is. Owns the timeline and what the pictures on
screen are of; refuses to draw. Moves are answered one at a time: while a picture of the
past is being read, the cursor may go on, and only where it stands then is read next.
"""

from functools import partial
from typing import TYPE_CHECKING, cast

from gpumem_tui.analysis.state import RunState, Severity
from gpumem_tui.errors import GpumemError
from gpumem_tui.views import bands, present
from gpumem_tui.views.chart import STYLES
from gpumem_tui.views.text import Line, Span
from gpumem_tui.views.timeline import Timeline, span_name

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import MonitorApp

_NEAR_NS = 5_000_000_000
"""To both sides of the cursor: where steps are looked up one by one."""


class Travel:
    """Comes before Textual's app among the bases of ``MonitorApp``."""

    state: RunState | None = None
    """The picture on screen: of now, or of the cursor."""
    latest: RunState | None = None
    """The picture of now."""
    timeline: Timeline
    chart_style = STYLES[0]
    _seeking = False
    _near: tuple[set[int], list[int]] = (set(), [])
    """Processes, and when each of their steps near the cursor began, without a gap."""

    @property
    def _monitor(self) -> "MonitorApp":
        return cast("MonitorApp", self)

    @property
    def paused(self) -> bool:
        """Whether the picture is held at a cursor."""
        return self.timeline.cursor_ns is not None

    @property
    def shown_chart_style(self) -> str:
        """How charts are drawn: in textures where colours or blocks are not to be had."""
        app = self._monitor
        if app.ascii or (app.palette.textured and self.chart_style == "block"):
            return "texture"
        return self.chart_style

    def take_latest(self, state: RunState) -> bool:
        """A new picture of now; whether the past is known better since, so that it must be shown again."""
        better = self.latest is not None and self.latest.unread_before_ns != state.unread_before_ns
        self.latest = state
        if better:
            self._near = set(), []
        facts = state.facts
        last_ns = state.now_ns if facts.ended_ns is None else facts.ended_ns
        self.timeline.know(facts.started_ns, last_ns)
        if not self.paused:
            self.state = state
        return better and self.paused

    def when(self, *, brief: bool = False) -> Line:
        """For the footer: which moment is shown, and how far it is from now; empty where that is now."""
        cursor_ns, latest = self.timeline.cursor_ns, self.latest
        if cursor_ns is None or latest is None:
            return ()
        at = present.wall_clock(latest.facts, cursor_ns)
        late, far = "", present.behind(self.timeline.held_behind_ns, self.timeline.behind_ns)
        if far and not brief:
            late = f", {far} before the end" if latest.facts.ended_ns is not None else f", behind by {far}"
        return (Span(f" paused at {at}{late} ", "prompt"),)

    # --- moving ---------------------------------------------------------------------------------------

    async def action_pause(self) -> None:
        """Hold the picture, or go on."""
        if self.paused:
            await self.action_live()
        else:
            self.timeline.hold()
            await self._monitor.draw()

    async def action_live(self) -> None:
        """Back to now."""
        self.timeline.live()
        self.state = self.latest
        await self._monitor.draw()
        self._monitor.hurry()

    async def action_scrub(self, columns: int) -> None:
        """Move the cursor by columns of the chart."""
        self.timeline.move(columns)
        if not self._monitor.followed_by("scrub", "span"):
            await self.seek()

    async def action_span(self, step: int) -> None:
        """A longer or shorter chart."""
        self.timeline.zoom(step)
        if self._monitor.followed_by("span"):
            return
        if self.paused:
            await self.seek()
        await self._monitor.say(f"chart: {span_name(self.timeline.span_s)}")

    async def action_chart(self) -> None:
        """Another way to draw charts."""
        styles = [style for style in STYLES if style != "block" or not self._monitor.palette.textured]
        here = styles.index(self.chart_style) if self.chart_style in styles else 0
        self.chart_style = styles[(here + 1) % len(styles)]
        await self._monitor.say(f"charts in {self.shown_chart_style}")

    async def action_jump(self, what: str, step: int) -> None:
        """To the next (1) or previous (-1) event, phase, step or failure."""
        try:
            moments = await self._moments(what, step)
        except GpumemError as error:
            await self._monitor.say(str(error), "failure")
            return
        if self.timeline.next_of(moments, step):
            if what != "step" or not self._monitor.followed_by("jump('step'", "scrub"):
                await self.seek()
        else:
            where = "later" if step > 0 else "earlier"
            await self._monitor.say(f"no {where} {what} is known")

    async def _moments(self, what: str, step: int) -> list[int]:
        """When things of a kind happened; of phases the one that is wanted. In no order."""
        state, latest = self.state, self.latest
        if state is None or latest is None:
            return []
        if what == "event":
            moments = {event.t_ns for event in (*latest.events, *latest.marked, *state.events)}
            return [*moments, *(() if state.next_event_ns is None else (state.next_event_ns,))]
        if what == "failure":
            failures = [failure.t_ns for failure in latest.failures]
            told = (*latest.events, *latest.marked)
            return failures or [event.t_ns for event in told if event.severity is Severity.FAILURE]
        device = self._monitor.selected_device()
        pids = {curve.pid for curve in device.curves[:1]} if device is not None else set()
        timeline = self.timeline
        here = timeline.latest_ns if timeline.cursor_ns is None else timeline.cursor_ns
        if what == "phase":
            view, last_ns = timeline.shown, timeline.latest_ns
            beyond = [
                band
                for band in (latest.bands if state is not latest else ())
                if band.since_ns >= view.end_ns or (band.until_ns or view.end_ns) <= view.start_ns
            ]
            known = [band for band in (*state.bands, *beyond) if band.pid in pids]
            found = (
                bands.change_after(known, view, here, last_ns)
                if step > 0
                else bands.change_before(known, view, here, timeline.started_ns)
            )
            return [] if found is None else [found]
        return await self._steps(here, step, pids, latest)

    async def _steps(self, here: int, step: int, pids: set[int], latest: RunState) -> list[int]:
        """When steps near a moment began; read anew only where those that are known end."""
        known_pids, known = self._near
        if (
            known_pids == pids
            and any(t > here if step > 0 else t < here for t in known)
            and (min(known) <= here <= max(known))
        ):
            return known
        app = self._monitor
        near = await app.errand(lambda: app.feed.read_at(here - 1, here - _NEAR_NS, here + _NEAR_NS))
        first: dict[int, int] = {}
        for band in (*near.bands, *latest.bands):
            if band.step is not None and band.pid in pids:
                first[band.step] = min(band.since_ns, first.get(band.step, band.since_ns))
        moments = sorted(first.values())
        sure = [t for t in moments if here - _NEAR_NS < t < min(here + _NEAR_NS, self.timeline.latest_ns)]
        self._near = pids, sure[1:]  # the first one may have begun before what was read
        return moments

    async def seek(self) -> None:
        """Show the picture of wherever the cursor is by now."""
        app, timeline = self._monitor, self.timeline
        await app.draw()
        if self._seeking:
            return
        self._seeking = True
        try:
            done: tuple[int, int, int] | None = None
            thorough = False
            while (cursor_ns := timeline.cursor_ns) is not None:
                view = timeline.shown
                wanted = (cursor_ns, view.start_ns, view.end_ns)
                if wanted == done and (thorough or self.state is None or not self.state.coarse):
                    break
                thorough, done = wanted == done, wanted
                seen_ns = timeline.latest_ns
                state = await app.errand(partial(app.feed.read_at, *wanted, thorough))
                if timeline.cursor_ns is not None:
                    self.state = state
                    timeline.saw(seen_ns)
                    await app.draw()
        except GpumemError as error:
            await app.say(str(error), "failure")
        finally:
            self._seeking = False
