"""The live view. ``run_app`` is all that callers need; Textual is imported when it is called."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpumem_tui.views.feed import Feed
from gpumem_tui.views.text import speaks_utf8

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import AppResult

THEMES = ("dark", "light", "ansi", "mono")
"""What ``theme`` may be."""


def can_draw() -> bool:
    """Whether there is a terminal for a view; callers print plain text otherwise."""
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        return False
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def run_app(
    feed: Feed,
    *,
    theme: str | None = None,
    ascii: bool | None = None,
    interval_s: float = 1.0,
    mouse: bool = True,
    report_dir: Path | None = None,
) -> "AppResult":
    """Show a run until people leave the view. Draws on the controlling terminal, never on stdout or stderr.

    ``theme`` None chooses by the terminal; NO_COLOR wins over it.
    ``ascii`` None draws in ASCII where the locale is not UTF-8. ``interval_s`` is at
    least 0.5. The terminal is restored however the view ends; the caller prints the
    result's sentence and passes its exit code on.
    """
    from gpumem_tui.views.tui.app import AppResult, Left, MonitorApp
    from gpumem_tui.views.tui.terminal import Modes, Terminal
    from gpumem_tui.views.tui.themes import choose

    modes = Modes()
    app = MonitorApp(
        feed,
        palette=choose(theme, os.environ),
        ascii=not speaks_utf8(os.environ) if ascii is None else ascii,
        interval_s=max(0.5, interval_s),
        report_dir=report_dir,
        driver_class=Terminal,
    )
    in_order = False
    try:
        result = app.run(mouse=mouse)
        in_order = True
    finally:
        modes.restore(everything=not in_order)
    if app.crash is not None:
        return app.crash
    return result if result is not None else AppResult(Left.DETACHED, 0, "")
