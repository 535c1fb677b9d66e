"""Phases that the user names (``gpumem_tui.phase``), from any thread, and before CUDA is initialised."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .guard import contained
from .here import NESTED
from .transfers import Late

if TYPE_CHECKING:
    from .phases import Phases


class Named:
    """What ``gpumem_tui.phase`` calls."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def heal(self) -> None:
        """As of all phases of the calling thread."""
        self._phases.heal()

    @contained("the user's phase")
    def enter(self, name: str) -> Optional[Any]:
        """At its begin; it may be what initialises CUDA, and is then written when it ends."""
        phases = self._phases
        spans = phases.spans_now()
        if not phases.on:
            return NESTED
        if spans is None:
            return Late(name, "")
        phases.on_first()
        spans.step = phases.steps.count
        span = spans.begin(name, "")
        span.users = True
        return span

    @contained("the user's phase")
    def leave(self, token: Any, error: Optional[BaseException]) -> None:
        """At its end."""
        phases = self._phases
        spans = phases.spans_now()
        if spans is None:
            return
        if isinstance(token, Late):
            phases.on_look()
            spans.late(token.phase, token.name, token.at, error)
        else:
            spans.end(token, error)
