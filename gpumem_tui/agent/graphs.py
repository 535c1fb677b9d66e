"""Phases of CUDA graphs: their capture as one, each replay as one. No module is called in a replay."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from .guard import contained
from .here import NESTED
from .spans import Span

if TYPE_CHECKING:
    from .phases import Phases


class Graphs:
    """Hooks of ``CUDAGraph``."""

    def __init__(self, phases: Phases) -> None:
        self._phases = phases
        self.forget()

    def forget(self) -> None:
        """In a forked child: no graph is being captured."""
        self._captures: Dict[int, Tuple[Span, int]] = {}
        """Of graphs being captured: the span, and the identity of what was being handled when it began.

        The exception itself would keep its frames, and their tensors, where a capture never ends.
        """

    def heal(self) -> None:
        """As of all phases of the calling thread."""
        self._phases.heal()

    @contained("phase graph replay")
    def enter_replay(self, graph: Any) -> Optional[Span]:
        """At ``CUDAGraph.replay``: no module is called in it."""
        phases = self._phases
        spans = phases.spans_now()
        if not phases.on or spans is None or phases.here.inside:
            return NESTED
        return spans.begin("graph replay", "")

    @contained("phase graph capture")
    def capture_began(self, graph: Any, error: Optional[BaseException]) -> None:
        """After ``CUDAGraph.capture_begin``."""
        phases = self._phases
        spans = phases.spans_now()
        if phases.on and spans is not None and error is None:
            self._captures[id(graph)] = spans.begin("graph capture", ""), id(sys.exc_info()[1])

    @contained("phase graph capture")
    def capture_ends(self, graph: Any) -> None:
        """Before ``CUDAGraph.capture_end``."""
        phases = self._phases
        span, before = self._captures.pop(id(graph), (None, None))
        if span is not None and phases.spans is not None:
            error = sys.exc_info()[1]  # that of the ``with`` block, which is being left
            phases.spans.end(span, None if id(error) == before else error)
