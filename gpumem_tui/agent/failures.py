"""At the failing allocation: writes down what is known, before the exception unwinds.

Called by PyTorch's own out-of-memory observer on the allocating thread, after the
last retry and outside the allocator's lock. What is written is a *candidate*: an
out-of-memory error that the program catches is an event and no failure; the reader
decides by how the process ended. Never raises: an exception here would replace the
user's.
"""

from __future__ import annotations

import json
import os
import traceback
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from . import wire
from .guard import contain

if TYPE_CHECKING:
    from .process import Monitored

MOST = 100
"""Failure records of one process; a loop that retries forever must not fill the disk."""


class Failures:
    """Writes failure records of this process into ``failures/`` of the run."""

    def __init__(self, monitored: "Monitored", directory: str) -> None:
        self._monitored = monitored
        self._directory = directory
        self._count = 0

    def attach(self, torch: Any) -> bool:
        """Ask PyTorch to tell. Only after the user initialised CUDA. False: not to be had."""
        attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            return False
        try:
            attach(self.on_out_of_memory)
        except RuntimeError:
            return False  # cudaMallocAsync and pluggable allocators have no observer
        return True

    def on_out_of_memory(self, ordinal: int, requested: int, total: int, free: int) -> None:
        """PyTorch's observer: device, bytes wanted (rounded to the segment), allowed total, free."""
        try:
            self._write(ordinal, requested, total, free)
        except Exception as error:  # noqa: BLE001  the named boundary: nothing may replace the user's exception
            try:
                contain("failure record", error)
            except Exception:  # noqa: BLE001  GPUMEM_TUI_RAISE: kept in guard.errors, still not the user's
                return

    def _write(self, ordinal: int, requested: int, total: int, free: int) -> None:
        at = wire.now_ns()
        monitored = self._monitored
        spans = monitored.spans.open_spans() if monitored.spans is not None else []
        number = self._count
        self._count += 1
        path = None
        if number < MOST:
            name = "%d-%d-%d.json" % (monitored.pid, monitored.started, number)
            record = self._record(at, ordinal, requested, total, free, spans)
            if self._save(name, record):
                path = "failures/" + name
        phase = " > ".join(s.phase for s in spans) or None
        step = monitored.spans.step if monitored.spans is not None else None
        monitored.tell("failure", at, ordinal, requested, phase, step, path)

    def _record(
        self, at: int, ordinal: int, requested: int, total: int, free: int, spans: List[Any]
    ) -> Dict[str, Any]:
        monitored = self._monitored
        record: Dict[str, Any] = {
            "schema": wire.SCHEMA,
            "t_ns": at,
            "kind": "out of memory",
            "pid": monitored.pid,
            "rank": monitored.rank,
            "ordinal": ordinal,
            "requested_bytes": requested,
            "allowed_total_bytes": total,
            "free_bytes": free,
            "phases": [{"phase": s.phase, "name": s.name, "step": s.step} for s in spans],
            "step": monitored.spans.step if monitored.spans is not None else None,
            "last_sample": monitored.last_samples.get(ordinal),
            "counters": None,
            "stack": [],
        }
        if monitored.counters is not None and monitored.may_read():
            record["counters"] = _flat(monitored.counters.sample(ordinal))
        frames = traceback.StackSummary.extract(traceback.walk_stack(None), limit=60, lookup_lines=False)
        here = os.path.dirname(__file__)
        record["stack"] = [
            "%s:%d %s" % (f.filename, f.lineno or 0, f.name)
            for f in reversed(frames)
            if os.path.dirname(f.filename) != here
        ]
        return record

    def _save(self, name: str, record: Dict[str, Any]) -> bool:
        data = json.dumps(record, indent=1).encode()
        try:
            fd = os.open(os.path.join(self._directory, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
        except OSError:
            return False  # disk full: the journal's line still tells the essentials
        return True


def _flat(stats: Dict[Any, Any], prefix: str = "") -> Dict[str, Optional[int]]:
    """Nested counters as ``allocated_bytes.all.current: n``."""
    flat: Dict[str, Optional[int]] = {}
    for key, value in stats.items():
        name = prefix + "_".join(map(str, key if isinstance(key, tuple) else (key,)))
        if isinstance(value, dict):
            flat.update(_flat(value, name + "."))
        else:
            flat[name] = value
    return flat
