"""The live view. ``run_app`` is all that callers need; Textual is imported when it is called."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpumem_tui.errors import BadInput
from gpumem_tui.views.text import speaks_utf8

if TYPE_CHECKING:
    from gpumem_tui.views.feed import Feed
    from gpumem_tui.views.tui.leaving import AppResult

THEMES = {
    "dark": "calm, for dark terminals",
    "light": "for light terminals",
    "ansi": "the terminal's own sixteen colours",
    "mono": "no colour at all",
    "contrast": "white on black, seven to one",
    "safe": "colours that stay apart for every colour blindness",
}
"""What ``theme`` may be, and what it is for."""

SCREENS = ("overview", "device", "phases", "matrix", "failure", "output", "map", "help")
"""Every screen that has a name of its own."""


def run_app(
    feed: "Feed",
    *,
    theme: str | None = None,
    ascii: bool | None = None,
    interval_s: float | None = None,
    mouse: bool | None = None,
    low_bandwidth: bool | None = None,
    report_dir: Path | None = None,
) -> "AppResult":
    """Show a run until people leave the view. Draws on the controlling terminal, never on stdout or stderr.

    What is None is as people have set it before, in their configuration; a file that
    cannot be used is told in the view, and left alone. NO_COLOR wins over every theme,
    and a locale that is not UTF-8 draws in ASCII. ``interval_s`` is at least 0.5. The
    terminal is restored however the view ends; the caller prints the result's sentence
    and passes its exit code on.
    """
    from gpumem_tui.views.holders import ORDERS
    from gpumem_tui.views.tui import settings
    from gpumem_tui.views.tui.app import MonitorApp
    from gpumem_tui.views.tui.leaving import AppResult, Left
    from gpumem_tui.views.tui.terminal import Terminal
    from gpumem_tui.views.tui.themes import choose

    path = settings.config_path(os.environ)
    flags = settings.Settings(theme, interval_s, ascii, mouse, low_bandwidth)
    trouble = None
    try:
        wanted = flags.over(settings.read(path, tuple(THEMES), ORDERS))
    except BadInput as error:
        wanted, trouble = flags, str(error)
    app = MonitorApp(
        feed,
        palette=choose(wanted.theme, os.environ),
        ascii=not speaks_utf8(os.environ) if wanted.ascii is None else wanted.ascii,
        interval_s=max(0.5, wanted.interval_s or 1.0),
        report_dir=report_dir,
        driver_class=Terminal,
    )
    app.take_settings(wanted, None if trouble else path, trouble)
    result = app.show(mouse=wanted.mouse is not False)
    return result if result is not None else AppResult(Left.DETACHED, 0, "")
