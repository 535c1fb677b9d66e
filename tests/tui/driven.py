"""An app on a scripted feed under Textual's pilot, and what stands on its screen.

The pilot waits for events here, not for time: a screen is settled when nothing is left to do.
"""

import asyncio

import textual.app
import textual.pilot
from tui.scripted import ScriptedFeed

from gpumem_tui.views.tui.app import MonitorApp
from gpumem_tui.views.tui.themes import PALETTES
from gpumem_tui.views.tui.widgets.lines import Lines

NARROW, WIDE = (80, 24), (160, 50)


async def until_quiet(min_sleep: float = 0, max_sleep: float = 1) -> None:
    """Until the loop has nothing that it could run at once, twice with a moment for threads between.

    Textual's own sleeps until the process has used hardly any processor time for 20 ms: slow for a
    hundred keys, and too early where the machine is busy with something else.
    """
    loop = asyncio.get_running_loop()
    quiet = 0
    while quiet < 2:
        await asyncio.sleep(0.001)
        quiet = 0 if loop._ready else quiet + 1


textual.app.wait_for_idle = textual.pilot.wait_for_idle = until_quiet


class View:
    """To be used as a context; the first picture is drawn when it is entered."""

    def __init__(self, *pictures, size=NARROW, output=b"", error=None, palette="dark", ascii=False):
        self.feed = ScriptedFeed(*pictures, output=output, error=error)
        self.app = MonitorApp(self.feed, palette=PALETTES[palette], ascii=ascii, interval_s=3600)
        self.context = self.app.run_test(size=size)

    async def __aenter__(self):
        self.pilot = await self.context.__aenter__()
        await self.look()
        return self

    async def __aexit__(self, *error):
        await self.context.__aexit__(*error)

    async def look(self):
        await self.app.look()
        await self.settle()

    async def settle(self):
        """Until every message and every answer of the feed is dealt with, and what those began."""
        await self.pilot.pause()
        errands = [worker for worker in self.app.workers if worker.name != "follow"]
        if errands:
            await self.app.workers.wait_for_complete(errands)
        await self.pilot.pause()
        while self.app.draws_soon:
            await self.pilot.pause()

    async def press(self, *keys):
        """One key after the other, each when the one before has been answered."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()

    async def click(self, widget, x=0, y=0):
        await self.pilot.click(widget, offset=(x, y))
        await self.settle()

    async def click_text(self, word):
        """Click where a word stands, wherever that is."""
        for row, line in enumerate(self.screen.splitlines()):
            if word in line:
                await self.pilot.click(offset=(line.index(word), row))
                await self.settle()
                return
        raise AssertionError(f"no {word!r} on\n{self.screen}")

    def text(self, name):
        return self.app.query_one(f"#{name}", Lines).text

    @property
    def screen(self):
        """Everything as the compositor would draw it."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)
