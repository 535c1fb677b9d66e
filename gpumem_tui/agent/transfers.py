"""Phases of what is moved: load and save. The outermost covers what it calls in turn.

Called on the user's threads like all of ``phases``. A load may be what initialises
CUDA: its span is then written when it ends, with the time at which it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .guard import contained
from .here import NESTED
from .wire import now_ns

if TYPE_CHECKING:
    from .phases import Phases


class Late:
    """Token of a phase that began before CUDA was initialised, if it was then initialised within."""

    __slots__ = ("at", "name", "phase")

    def __init__(self, phase: str, name: str) -> None:
        self.phase, self.name, self.at = phase, name, now_ns()


class Transfers:
    """Hooks of loading and saving."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases

    def heal(self) -> None:
        """As of all phases of the calling thread."""
        self._phases.heal()

    @contained("phase load")
    def enter_load(self, what: Any) -> Optional[Any]:
        """At ``torch.load``, ``load_state_dict``, ``Module.to``; the outermost one covers the others."""
        return self._enter("load", _name_of(what), late=True)

    @contained("phase save")
    def enter_save(self, what: Any) -> Optional[Any]:
        """At ``torch.save``, ``save_pretrained``."""
        return self._enter("save", _name_of(what), late=False)

    def _enter(self, phase: str, name: str, late: bool) -> Optional[Any]:
        phases = self._phases
        here = phases.here
        if here.covered or here.inside or not phases.on:
            return NESTED
        spans = phases.spans_now()
        if spans is None and not late:
            return NESTED
        here.covered = True
        if spans is None:
            return Late(phase, name)
        phases.on_first()
        spans.step = phases.steps.count
        return spans.begin(phase, name)

    @contained("phase load or save")
    def leave(self, token: Any, error: Optional[BaseException]) -> None:
        """At the end of load or save."""
        phases = self._phases
        phases.here.covered = False
        spans = phases.spans_now()
        if spans is None:
            return
        phases.on_look()
        if isinstance(token, Late):
            spans.late(token.phase, token.name, token.at, error)
        else:
            spans.end(token, error)


def _name_of(what: Any) -> str:
    """The class of a model, or a model's class itself; nothing for a path or a state."""
    kind = what if isinstance(what, type) else type(what)
    return kind.__name__ if hasattr(kind, "parameters") else ""
