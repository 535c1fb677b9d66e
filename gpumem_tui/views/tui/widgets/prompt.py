"""A line to type into, at the foot of the screen; what it is for is up to who opens it."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar

from textual.binding import Binding
from textual.widgets import Input

_PATIENCE_S = 1.0
"""Longest time that a key waits for the one before it to stand in the line."""


async def nothing(*_: object) -> None:
    """Where a prompt has nothing to do."""


class Prompt(Input):
    """Enter hands the text over; esc leaves; ↑ and ↓ are for a list above it. At most one is open."""

    BINDINGS: ClassVar[list[Any]] = [
        Binding("up", "step(-1)", show=False, priority=True),
        Binding("down", "step(1)", show=False, priority=True),
        *(replace(binding, priority=True) for binding in Binding.make_bindings(Input.BINDINGS)),
    ]

    def __init__(
        self,
        hint: str,
        *,
        text: str = "",
        submitted: Callable[[str], Awaitable[None]],
        changed: Callable[[str], Awaitable[None]] = nothing,
        stepped: Callable[[int], Awaitable[None]] = nothing,
        left: Callable[[], Awaitable[None]] = nothing,
    ) -> None:
        super().__init__(text, placeholder=hint, id="typing", select_on_focus=False)
        self.cursor_blink = False
        self._submitted, self._changed, self._stepped, self._left = submitted, changed, stepped, left

    async def action_submit(self) -> None:
        """Hand the text over; who takes it may close this line."""
        await self._submitted(self.value)

    async def on_input_changed(self, event: Input.Changed) -> None:
        """Tell what stands there."""
        event.stop()
        await self._changed(event.value)

    async def action_step(self, step: int) -> None:
        """Move in the list above."""
        await self._stepped(step)

    async def caught_up(self) -> None:
        """Once every key so far stands in the line."""
        stands = asyncio.Event()
        if self.call_later(stands.set):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stands.wait(), _PATIENCE_S)

    async def leave(self) -> None:
        """Close without handing anything over."""
        await self.remove()
        await self._left()
