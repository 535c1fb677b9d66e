"""What a training script may say of itself: ``gpumem_tui.phase("rollout")``, ``gpumem_tui.mark("saved")``.

No-ops, costing less than a microsecond, where the script is not monitored, and within
what torch.compile compiles: there is no moment at which such a phase would begin. Standard
library only; never raises because of the monitor.
"""

from __future__ import annotations

import sys
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any


def _phases() -> Any:
    """The agent's phases in this process, or None; None, too, while torch.compile traces the caller."""
    agent: Any = sys.modules.get("_gpumem_tui_agent")
    if agent is None or agent.tracing() or agent.monitored is None:
        return None
    return agent.monitored.phases


class phase(ContextDecorator):  # noqa: N801  reads as a word of the language where it is used
    """A named span, as context manager or decorator; nests, from any thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tokens: list[Any] = []

    def _recreate_cm(self) -> phase:
        """Each call of a decorated function is a span of its own."""
        return phase(self.name)

    def __enter__(self) -> phase:
        phases = _phases()
        self._tokens.append(phases.named.enter(self.name) if phases is not None else None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        token, phases = self._tokens.pop(), _phases()
        if token is not None and phases is not None:
            phases.named.leave(token, error)


def mark(text: str) -> None:
    """A moment worth a tick on the axis, with a text of yours."""
    phases = _phases()
    if phases is not None:
        phases.mark("mark", text)
