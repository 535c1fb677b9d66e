"""A new screen: held back until it stands, and waited for by the keys that are meant for it.

A screen is laid out a few times until it is full: as it was, in its new heights, with the lines
that fit these. Owns that; refuses to know what is drawn.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from gpumem_tui.views.tui.app import MonitorApp

_ROUNDS = 3
"""Times that a screen is laid out until it is full."""

_PATIENCE_S = 0.3
"""Longest time that a key waits for the screen that the one before it opened."""


class Arranging:
    """Comes before Textual's app among the bases of ``MonitorApp``."""

    draws_soon = False
    """Whether it is to be drawn once more."""

    @property
    def _app(self) -> "MonitorApp":
        return cast("MonitorApp", self)

    def draw_soon(self) -> None:
        """Draw once more when all that is under way is done."""
        if not self.draws_soon:
            self.draws_soon = True
            self._app.call_after_refresh(self._draw_again)

    async def _draw_again(self) -> None:
        self.draws_soon = False
        await self._app.draw()

    def hold(self) -> None:
        """Let nothing be seen of a screen until it stands."""
        if self._app.tty is not None:
            self._app.tty.hold()

    def release(self, rounds: int = _ROUNDS) -> None:
        """Let a new screen be seen once it has been laid out so many times."""
        if rounds or self.draws_soon:
            self._app.call_after_refresh(self.release, max(0, rounds - 1))
        elif self._app.tty is not None:
            self._app.tty.release()

    async def arranged(self) -> None:
        """Wait until the screen stands as it will be seen."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._laid_out(), _PATIENCE_S)

    async def _laid_out(self) -> None:
        for _ in range(_ROUNDS):
            await self._app.screen.wait_for_refresh()
            if self.draws_soon:
                await self._app.draw()
