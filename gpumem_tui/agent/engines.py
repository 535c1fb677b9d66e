"""Phases of an engine's step: DeepSpeed's, whose own optimizers are none of PyTorch's or part of it.

Called on the user's threads like all of ``phases``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .guard import contained
from .here import NESTED
from .spans import Span

if TYPE_CHECKING:
    from .phases import Phases

ENGINE = 0
"""Identity of an engine among optimizers, whose own are addresses."""


class Engines:
    """Hooks of an engine."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def heal(self) -> None:
        """As of all phases of the calling thread."""
        self._phases.heal()

    @contained("phase of an engine's step")
    def enter_engine(self, engine: Any) -> Optional[Span]:
        """At ``step`` of DeepSpeed's engine, which steps at the last micro-batch only."""
        phases = self._phases
        spans = phases.spans_now()
        if not phases.on or spans is None:
            return NESTED
        phases.steps.leads(ENGINE)
        if not engine.is_gradient_accumulation_boundary():
            return NESTED
        phases.end_stale()
        phases.on_first()
        spans.step = phases.steps.count
        phases.here.stepping = True
        return spans.begin("optimizer", type(engine).__name__)

    @contained("phase of an engine's step")
    def leave_engine(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of an engine's step."""
        phases = self._phases
        phases.here.stepping = False
        if phases.spans is not None:
            phases.spans.end(span, error)
        if error is None:
            phases.steps.stepped(ENGINE)
            phases.on_step_end()
