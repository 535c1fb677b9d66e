"""A screen of the view as an SVG, drawn without a terminal."""

from typing import TYPE_CHECKING

from gpumem_tui.views.feed import Feed
from gpumem_tui.views.tui.painting import paint

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import MonitorApp


async def picture(
    feed: Feed,
    place: str,
    size: tuple[int, int],
    *,
    theme: str = "dark",
    ascii: bool = False,
    keys: tuple[str, ...] = (),
) -> str:
    """The screen called ``place`` in ``size`` (columns, rows), after ``keys`` were pressed there."""
    from gpumem_tui.views.tui.app import MonitorApp
    from gpumem_tui.views.tui.themes import PALETTES

    app = MonitorApp(feed, palette=PALETTES[theme], ascii=ascii, interval_s=3600)
    async with app.run_test(size=size) as pilot:
        await app.look()
        await app.go_to(place)
        for key in keys:
            await pilot.pause()
            await pilot.press(key)
        # Heights first, then contents, then what contents ask for: each takes a round.
        for _ in range(4):
            await pilot.pause()
        await app.draw()
        await pilot.pause()
        state = app.state
        title = "gpumem-tui" if state is None else f"gpumem-tui {state.facts.run}: {place}"
        return painted(app, title)


def painted(app: "MonitorApp", title: str) -> str:
    """What stands on the screen of an app."""
    return paint(app.screen._compositor.render_strips(), app.size.width, title=title) + "\n"
