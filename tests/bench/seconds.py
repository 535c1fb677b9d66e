"""Plays a recording second by second in the live view, as fast as it goes, and writes what a second cost.

``python seconds.py RECORDING SKIPPED COUNTED RESULT``: processor time, by part, in milliseconds.
For a benchmark: little depends on what else the machine does meanwhile.
"""

import json
import sys
import time
from pathlib import Path

from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session import Playback, playback
from gpumem_tui.views.tui import run_app
from gpumem_tui.views.tui.app import MonitorApp
from gpumem_tui.views.tui.leaving import AppResult, Left
from gpumem_tui.views.tui.terminal import Terminal

PACE_S = 0.03
"""Between two seconds: longer than writes are put together."""


class Clock:
    """A clock that is a second later at every picture."""

    now_s = 0.0

    def monotonic(self):
        return self.now_s


class Seconds(Playback):
    """A feed that counts, and knows when it is enough."""

    def __init__(self, run, clock, skipped, counted):
        super().__init__(run)
        self.clock, self.skipped, self.last = clock, skipped, skipped + counted
        self.seconds = 0
        self.parts = {"feed": 0.0, "draw": 0.0, "send": 0.0}
        self.began = dict(self.parts)
        self.total = 0.0

    def read(self):
        self.clock.now_s += 1
        began = time.thread_time()
        state = super().read()
        self.spend("feed", time.thread_time() - began)
        self.seconds += 1
        if self.seconds == self.skipped:
            self.began, self.total = dict(self.parts), time.process_time()
        elif self.seconds == self.last:
            self.total = time.process_time() - self.total
        return state

    def spend(self, part, seconds):
        self.parts[part] += seconds

    def told(self):
        count = self.last - self.skipped
        ms = {name: (self.parts[name] - self.began[name]) / count * 1e3 for name in self.parts}
        total = self.total / count * 1e3
        return {**ms, "rest": total - sum(ms.values()), "total": total}


def main():
    path, skipped, counted, result = sys.argv[1:]
    clock = playback.time = Clock()
    feed = Seconds(RunDirectory(Path(path)), clock, int(skipped), int(counted))
    send, draw = Terminal._send, MonitorApp.draw

    def timed_send(terminal):
        began = time.thread_time()
        send(terminal)
        feed.spend("send", time.thread_time() - began)

    async def timed_draw(app, **how):
        began = time.thread_time()
        await draw(app, **how)
        feed.spend("draw", time.thread_time() - began)
        if feed.seconds >= feed.last:
            app.exit(AppResult(Left.DETACHED, 0, ""))

    Terminal._send, MonitorApp.draw, MonitorApp.pace_s = timed_send, timed_draw, lambda app: PACE_S
    ended = run_app(feed, low_bandwidth=False)
    Path(result).write_text(json.dumps(feed.told()))
    return ended.exit_code


if __name__ == "__main__":
    sys.exit(main())
