"""At the failing allocation: writes down what is known, before the exception unwinds.

Called by PyTorch's own out-of-memory observer on the allocating thread, after the
last retry and outside the allocator's lock. The essentials are on disk first; what
``inquest`` finds out is then written over them. What is
written is a *candidate*: an out-of-memory error that the program catches is an event
and no failure; the reader decides by how the process ended. Errors of our own never
leave: an exception here would replace the user's. What the user's own signal handlers
raise meanwhile passes, as it would anywhere else in their program.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import traceback
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, List, Optional, Tuple

from . import wire
from .guard import contain, is_the_users

if TYPE_CHECKING:
    from .inquest import Inquest
    from .process import Monitored
    from .spans import Span

MOST = 100
"""Failure records of one process; a loop that retries forever must not fill the disk. The oldest go."""

AGAIN_NS = 30_000_000_000
"""A phase that fails again within this time gets its essentials only: a search for a batch size pays once."""

FREE_LOOKS = 10
"""So many failures are looked into whatever that takes; further ones in a twentieth of the time at most."""

FLUSH_NS = 100_000_000
"""A failure that is not looked into further waits for the journal at most once in this time."""

AGAIN = "left out: the same phase failed less than 30 s before"

PARTS = ("pools", "driver", "parts", "settings", "host")
"""What there is beyond the essentials."""


class Failures:
    """Writes failure records of this process into ``failures/`` of the run."""

    def __init__(self, monitored: "Monitored", torch: Any) -> None:
        self._monitored = monitored
        self._torch = torch
        self._directory = os.path.join(monitored.run, "failures")
        self._count = 0
        self._kept: List[str] = []
        self._full: Dict[str, int] = {}
        """When a phase was last looked into in full."""
        self._looks = 0
        self._rest_until_ns = 0
        self._flushed_ns = 0
        self._busy = threading.Lock()
        self._inquest: Optional[Inquest] = None
        self._raised: Deque[Tuple[str, int, int, Optional[str]]] = deque(maxlen=MOST)
        """Of each failing allocation its record, thread, bytes wanted and innermost frame."""

    def attach(self) -> bool:
        """Ask PyTorch to tell. Only after the user initialised CUDA. False: not to be had."""
        attach = getattr(self._torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            return False
        try:
            attach(self.on_out_of_memory)
        except RuntimeError:
            return False  # cudaMallocAsync and pluggable allocators have no observer
        return True

    def prepare(self) -> "Inquest":
        """Load what looks further: on a thread of ours, or at the failure where that is too late."""
        if self._inquest is None:
            from .inquest import Inquest

            self._inquest = Inquest(self._monitored, self._torch, self.stats)
        return self._inquest

    def on_out_of_memory(self, ordinal: int, requested: int, total: int, free: int) -> None:
        """PyTorch's observer: device, bytes wanted (rounded to the segment), allowed total, free."""
        try:
            self._fail(ordinal, requested, total, free)
        except RecursionError:
            return  # the program is as deep in calls as it may be: to look into this would take more
        except BaseException as error:
            if not isinstance(error, Exception) or is_the_users(error):
                raise
            try:
                contain("failure record", error)
            except Exception:  # noqa: BLE001  GPUMEM_TUI_RAISE: kept in guard.errors, still not the user's
                return

    def _fail(self, ordinal: int, requested: int, total: int, free: int) -> None:
        began = wire.now_ns()
        record = self.essentials("out of memory", began, ordinal)
        record.update(requested_bytes=requested, allowed_total_bytes=total, free_bytes=free, stack=_stack())
        record["stream"] = self._current_stream(ordinal)
        phase = " > ".join(each["phase"] for each in record["phases"]) or None
        again = self._is_again(phase or "", began)
        if again:
            record["missing"] = dict.fromkeys(PARTS, AGAIN)
        path = self.keep(record, began)
        if path is not None:
            frame = record["stack"][-1] if record["stack"] else None
            self._raised.append((path, threading.get_ident(), requested, frame))
        self._monitored.tell("failure", began, ordinal, requested, phase, record["step"], path)
        if not again:
            self.complete(record, path, began, phase or "")
        elif began - self._flushed_ns > FLUSH_NS:  # a search for what fits may fail a thousand times a second
            self._flushed_ns = began
            self._monitored.flush()

    # --- essentials ---------------------------------------------------------------------------

    def essentials(self, kind: str, at: int, ordinal: Optional[int]) -> Dict[str, Any]:
        """What is at hand: who, where, when, counters. ``ordinal`` None: no device is known."""
        monitored = self._monitored
        record: Dict[str, Any] = {
            "schema": wire.SCHEMA,
            "t_ns": at,
            "kind": kind,
            "pid": monitored.pid,
            "rank": monitored.rank,
            "ordinal": ordinal,
            "requested_bytes": None,
            "allowed_total_bytes": None,
            "free_bytes": None,
            "stream": None,
            "phases": [{"phase": s.phase, "name": s.name, "step": s.step} for s in self._spans()],
            "step": monitored.spans.step if monitored.spans is not None else None,
            "last_sample": monitored.last_samples.get(ordinal) if ordinal is not None else None,
            "counters": None,
            "stack": [],
            "took_ns": {},
            "missing": dict.fromkeys(PARTS, "not looked into yet"),
        }
        if ordinal is not None:
            stats = self.stats(ordinal)
            record["counters"] = _flat(stats) if stats is not None else None
        return record

    def _spans(self) -> List[Span]:
        """The phases that the calling thread is in; a thread of autograd is in those of who called it."""
        spans = self._monitored.spans
        if spans is None:
            return []
        in_backward = getattr(self._torch._C, "_current_graph_task_id", lambda: -1)() != -1
        return spans.open_spans() if in_backward or not spans.stack() else list(spans.stack())

    def current_device(self) -> Optional[int]:
        """The device of the calling thread, where this process uses it; the only one that it uses."""
        active = self._monitored.reading.active
        try:
            current = self._torch._C._cuda_getDevice()
        except RuntimeError:
            current = None  # after some errors CUDA answers nothing any more
        return current if current in active or not active else active[0] if len(active) == 1 else None

    def _current_stream(self, ordinal: int) -> Optional[int]:
        """The stream that the calling thread allocates for: a thread-local of PyTorch, no call of CUDA."""
        read = getattr(self._torch._C, "_cuda_getCurrentRawStream", None)
        return int(read(ordinal)) if read is not None else None

    def stats(self, ordinal: int) -> Optional[Dict[str, Any]]:
        """Counters of a device; None where they are not to be had now."""
        monitored = self._monitored
        if monitored.counters is None or not monitored.reading.may_read_here():
            return None
        try:
            return monitored.counters.sample(ordinal)
        except RuntimeError:
            return None  # the allocator has no counters

    # --- on disk ------------------------------------------------------------------------------

    def keep(self, record: Dict[str, Any], began: int) -> Optional[str]:
        """Write the essentials. Path relative to the run directory; None where the disk refuses."""
        monitored = self._monitored
        name = "%d-%d-%d.json" % (monitored.pid, monitored.started, self._count)
        self._count += 1
        record["took_ns"]["essentials"] = wire.now_ns() - began
        if not self.save(name, record):
            return None
        self._kept.append(name)
        if len(self._kept) > MOST:
            self._drop_oldest()
        return "failures/" + name

    def path_of(self, text: str, frame: Optional[str]) -> Optional[str]:
        """The record of the failing allocation that raised an error; None where there is none.

        ``text`` is its message and ``frame`` the innermost of its traceback. Several threads may
        fail at once, and an error may come up in another thread than the one that it was raised in:
        what was wanted tells more than the line, the line more than the thread, and the last one is
        taken where nothing tells.
        """
        here = threading.get_ident()
        best: Tuple[Tuple[bool, bool, bool], Optional[str]] = ((False, False, False), None)
        for path, thread, requested, at in self._raised:
            wanted, line = "allocate " + _printed(requested) in text, frame is not None and at == frame
            likeness = wanted, line, thread == here
            if best[1] is None or likeness >= best[0]:
                best = likeness, path
        return best[1]

    def _drop_oldest(self) -> None:
        self.drop(self._kept.pop(0))

    def drop(self, name: str) -> None:
        """A file that has been kept long enough."""
        try:
            os.unlink(os.path.join(self._directory, name))
        except OSError:
            return  # whoever looks through the recording has removed it

    def save(self, name: str, record: Dict[str, Any]) -> bool:
        """As a whole or not at all: a reader never meets half a record. False: the disk refused it."""
        return self.save_bytes(name, wire.well_formed(json.dumps(record, indent=1)).encode())

    def save_bytes(self, name: str, data: bytes) -> bool:
        """A file beside the records, as a whole or not at all."""
        path = os.path.join(self._directory, name)
        try:
            with open(path + ".part", "wb", opener=_privately) as file:
                file.write(data)
            os.replace(path + ".part", path)
        except OSError:
            try:
                os.unlink(path + ".part")
            except OSError:
                pass  # it was never there
            return False  # disk full: the journal's line still tells the essentials
        return True

    # --- what else there is to know -----------------------------------------------------------

    def complete(self, record: Dict[str, Any], path: Optional[str], began: int, phase: str) -> None:
        """Have the journal written, then look into everything else and write the record again.

        ``phase`` is what "again" means: one look in full for each phase and :data:`AGAIN_NS`.
        """
        self._monitored.flush()
        if path is None:
            return
        name = os.path.basename(path)
        if self._is_again(phase, began):
            self.leave_out(record, path, AGAIN)
            return
        if not self._busy.acquire(False):
            self.leave_out(record, path, "left out: another failure was being looked into")
            return
        if self._looks >= FREE_LOOKS and began < self._rest_until_ns:
            self._busy.release()
            self.leave_out(record, path, "left out: many others were looked into a moment before")
            return
        collects = gc.isenabled()
        gc.disable()  # a collection would take longer than all of this, and run finalizers of the user's
        try:
            self._full[phase] = began
            inquest = self.prepare()
            inquest.fill(record, began)
            self.save(name, record)
            if inquest.add_history(record, os.path.join(self._directory, name)):
                self.save(name, record)
        finally:
            if collects:
                gc.enable()
            now = wire.now_ns()
            self._looks, self._rest_until_ns = self._looks + 1, now + 20 * (now - began)
            self._busy.release()

    def _is_again(self, phase: str, at: int) -> bool:
        return at - self._full.get(phase, at - AGAIN_NS) < AGAIN_NS

    def leave_out(self, record: Dict[str, Any], path: Optional[str], why: str) -> None:
        """Let the essentials stand, and say why there is no more."""
        record["missing"] = dict.fromkeys(PARTS, why)
        if path is not None:
            self.save(os.path.basename(path), record)


def _printed(size: int) -> str:
    """A number of bytes as PyTorch's message has it: units switch above each power."""
    for unit, bytes_ in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size > bytes_:
            return "%.2f %s" % (size / bytes_, unit)
    return "%d bytes" % size


def _privately(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _stack() -> List[str]:
    """The calling thread's stack without our own frames, ``file:line function``, innermost last."""
    here = os.path.dirname(__file__)
    frames = traceback.StackSummary.extract(
        traceback.walk_stack(sys._getframe(1)), limit=60, lookup_lines=False
    )
    return [
        "%s:%d %s" % (f.filename, f.lineno or 0, f.name)
        for f in reversed(frames)
        if not f.filename.startswith(here)
    ]


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
