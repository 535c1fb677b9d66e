"""Tells what allocated memory is made of: at step ends, and before an optimizer has stepped.

Decides when; ``composition`` looks. A walk that does not fit into its budget goes on
at the next step's end that is due, but only while exactly as much is allocated as at
its beginning: then its pieces are of one state. Else it begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

from . import composition, wire
from .guard import contained

if TYPE_CHECKING:
    from .process import Monitored

OPTIONS = ("momentum", "amsgrad", "centered")
"""Defaults of an optimizer that decide how many moments it keeps."""

AT_ONCE = 2
"""So many walks come at the first step ends, before the pace of :data:`composition.EVERY_NS`."""


class Makeup:
    """The lines ``composition`` and ``optimizer`` of this process."""

    def __init__(self, monitored: Monitored, torch: Any) -> None:
        self._monitored, self._torch = monitored, torch
        self.forget()

    def forget(self) -> None:
        """In a forked child: nothing has been told of it."""
        self._walks = 0
        self._walked_ns = 0
        self._walk: Optional[composition.Walk] = None
        """A walk that is not complete."""
        self._began_with: Dict[int, int] = {}
        """Bytes allocated on each device when it began."""

    @contained("composition")
    def at_step_end(self) -> None:
        """What memory is made of: after two steps, then every 30 s."""
        monitored, now = self._monitored, wire.now_ns()
        if self._walks >= AT_ONCE and now - self._walked_ns < composition.EVERY_NS:
            return
        phases, spans = monitored.phases, monitored.spans
        if phases is None or spans is None or monitored.reading.custom_pools:
            return
        self._walks += 1
        self._walked_ns = now
        allocated = self._allocated()
        walk = self._walk
        if walk is None or allocated != self._began_with:
            walk, self._began_with = composition.Walk(), allocated
        self._walk = walk
        roots, optimizers = phases.roots.living(), phases.optimizers.living()
        with self._torch._C.DisableTorchFunction():
            walk.go_on(roots, optimizers, phases.caches.living())
        if walk.complete:
            self._walk = None
        for ordinal, of in walk.sizes.items():
            *values, caches = (
                sum(size for (kind, _), size in of.items() if kind == wanted) for wanted in composition.KINDS
            )
            dtypes = [[kind, str(dtype)[6:], size] for (kind, dtype), size in of.items()]
            how = (allocated.get(ordinal), walk.complete, walk.took_ns, caches, dtypes)
            monitored.tell("composition", now, ordinal, phases.steps.count, *values, *how)

    def _allocated(self) -> Dict[int, int]:
        monitored = self._monitored
        counters = monitored.counters
        if counters is None:
            return {}
        readings = {ordinal: counters.sample(ordinal) for ordinal in monitored.reading.readable}
        return {ordinal: stats["allocated_bytes"]["all"]["current"] for ordinal, stats in readings.items()}

    @contained("optimizer state")
    def foresee(self, optimizer: Any) -> None:
        """At the first backward of an optimizer: what its first step will make state for."""
        monitored = self._monitored
        if monitored.spans is None:
            return
        with self._torch._C.DisableTorchFunction():
            held = composition.of_optimizer(optimizer)
        if held is None:
            return
        options = [name for name in OPTIONS if optimizer.defaults.get(name)]
        for ordinal, (parameters, state) in held.items():
            name = type(optimizer).__name__
            monitored.tell("optimizer", wire.now_ns(), ordinal, name, parameters, state, options)
