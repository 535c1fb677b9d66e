"""Phases of what calls models in turn: ``generate`` of Hugging Face, and functions that torch.compile made.

Called on the user's threads like all of ``phases``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Tuple

from .guard import contained
from .here import NESTED
from .spans import Span

if TYPE_CHECKING:
    from .phases import Phases


class Regions:
    """Hooks of generation and of compiled functions."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def heal(self) -> None:
        """As of all phases of the calling thread."""
        self._phases.heal()

    @contained("phase generate")
    def enter_generate(self, model: Any) -> Optional[Span]:
        """At ``generate`` of Hugging Face: prefill is its first forward, decode are the later ones."""
        phases = self._phases
        spans = phases.spans_now()
        if not phases.on or spans is None or phases.here.generating:
            return NESTED
        phases.here.generating = 1
        phases.steps.inferred(id(model))
        spans.step = phases.steps.count
        return spans.begin("generate", type(model).__name__)

    @contained("phase generate")
    def leave_generate(self, span: Span, error: Optional[BaseException]) -> None:
        """At the end of ``generate``."""
        phases = self._phases
        phases.here.generating = 0
        if phases.spans is not None:
            phases.spans.end(span, error)
            phases.on_step_end()

    @contained("key-value cache")
    def note_cache(self, cache: Any) -> None:
        """A key-value cache is made."""
        self._phases.caches.add(cache)

    @contained("compiled region")
    def enter_compiled(self, function: Any) -> Optional[Tuple[Span, int]]:
        """At the call of what ``torch.compile`` made of a function; a model's own is part of its call."""
        phases, here = self._phases, self._phases.here
        if here.inside or here.covered or not phases.on or phases.graph_task() != -1:
            return NESTED
        if hasattr(getattr(function, "__self__", None), "parameters"):
            return NESTED
        spans = phases.spans_now()
        if spans is None:
            return NESTED
        if phases.grad_enabled():
            phases.steps.forward()
        else:
            phases.steps.inferred(id(function))
        phases.on_first()
        spans.step = phases.steps.count
        name = getattr(function, "__name__", type(function).__name__)
        return spans.begin("compiled", name), phases.steps.learned

    @contained("compiled region")
    def leave_compiled(self, token: Tuple[Span, int], error: Optional[BaseException]) -> None:
        """At the end of a compiled function."""
        phases = self._phases
        span, learned = token
        if phases.spans is not None:
            phases.spans.end(span, error)
        if phases.steps.learned > learned:
            phases.steps.region_ended()
