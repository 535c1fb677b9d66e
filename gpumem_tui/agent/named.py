"""Phases that the user names (``gpumem_tui.phase``): of threads, tasks and generators, before CUDA, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional

from .guard import contained
from .here import NESTED
from .spans import Span
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
        return spans.begin(name, "", users=True)

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

    def pick(self, tokens: List[Any]) -> Any:
        """Of what one object has begun, within itself or on several threads: what the calling code ends."""
        spans = self._phases.spans
        for span in reversed(spans.stack() if spans is not None else ()):
            if span in tokens:
                return span
        return tokens[-1]

    @contained("the user's phase")
    def pause(self, token: Any) -> None:
        """Where a generator yields: what its caller does is none of its phase."""
        if self._phases.spans is not None and isinstance(token, Span):
            self._phases.spans.step_out(token)

    @contained("the user's phase")
    def resume(self, token: Any) -> None:
        """Where it goes on."""
        if self._phases.spans is not None and isinstance(token, Span):
            self._phases.spans.step_in(token)
