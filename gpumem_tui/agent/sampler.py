"""The one thread of ours in the workload: reads counters, drains the ring, writes the journal.

All file I/O of the agent happens here (but failure records). It keeps absolute
deadlines, takes no lock that user code may hold, and goes on draining and writing
where reading counters must stop.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import wire
from .aside import Aside
from .edges import EdgeLines
from .guard import contain, errors
from .stalls import Stalls, stall_line

if TYPE_CHECKING:
    from .process import Monitored

LOOK_AROUND_NS = 1_000_000_000
"""How often devices that this process has not used yet are looked at."""

UNUSED_EVERY = 10
"""Every so many looks, the counters of unused devices are written too: a rank may hold a context there."""


PRESSURE_EVERY_NS = 10_000_000_000
"""Pressure is told at once, then summed up in lines this far apart."""

INPUTS_EVERY = 10
"""Counts of inputs are written once in so many ticks, and at the end."""


class Sampler:
    """Started when CUDA is initialised or the first span begins; a daemon, ended by :meth:`stop`."""

    def __init__(self, monitored: "Monitored", hertz: float) -> None:
        self._monitored = monitored
        self._interval_ns = int(1e9 / hertz)
        self._stop, self._wake, self._through = threading.Event(), threading.Event(), threading.Event()
        self._looked_ns = 0
        self._looks = 0
        self._ticks = 0
        self._told_errors = 0
        self._strain: Dict[int, Tuple[int, int, int]] = {}
        """Retries and out-of-memory errors of a device when pressure was last told, and when that was."""
        self._lost_edges = 0
        self._edges = EdgeLines(fold=not monitored.strict)  # a protocol wants every repeat
        self._stalls = Stalls()
        self._told_peaks: Dict[int, Tuple[int, int]] = {}
        self._thread = Aside(self._run, "sampler")
        self._hurrying = threading.Lock()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ask the thread to end and wait shortly; the last lines are written by it or, if it is late, not."""
        self._stop.set()
        self._wake.set()
        if not self._thread.is_current():
            self._thread.join(timeout_s)

    def hurry(self, timeout_s: float) -> None:
        """From any thread of the user's: have written now what is known; waits shortly until it is.

        One at a time: a signal handler that comes here while its own thread is here would
        wait for itself.
        """
        if not self._thread.is_alive() or not self._hurrying.acquire(False):
            return
        try:
            self._through.clear()
            self._wake.set()
            self._through.wait(timeout_s)
        finally:
            self._hurrying.release()

    def _run(self) -> None:
        due = wire.now_ns()
        monitored = self._monitored
        while True:
            last = self._stop.is_set()
            try:
                self.tick()
                if last:
                    self._ticks = 0
                    self.tick()
                    monitored.say_goodbye()
            except Exception as error:  # noqa: BLE001  the named boundary of this thread
                contain("sampler", error)
                if len(errors) > 5:
                    return
            if last:
                return
            due += self._interval_ns
            now = wire.now_ns()
            if due < now:  # the machine slept or was busy: no burst of catching up
                due = now
            self._through.set()
            if self._wake.wait((due - now) / 1e9) and not self._stop.is_set():
                self._wake.clear()
                due = wire.now_ns()

    def tick(self) -> None:
        """One round: counters, edges, words, write."""
        monitored = self._monitored
        journal = monitored.journal
        if journal is None:
            return
        if monitored.reading.may_read():
            self._sample()
        if monitored.maps is not None:
            monitored.maps.look(wire.now_ns())
        monitored.groups.look_for_collective()
        for line in monitored.take_lines():
            journal.append_line(line)
        if monitored.ring is not None:
            edges = monitored.ring.drain()
            for line in self._edges.lines(edges):
                journal.append_line(line)
            since_ns = self._stalls.look(bool(edges), wire.now_ns())
            if since_ns is not None and monitored.spans is not None:
                spans = monitored.spans.open_spans()
                phase = " > ".join(span.phase for span in spans) or None
                journal.append_line(stall_line(since_ns, phase, monitored.spans.step))
            if monitored.ring.lost_edges > self._lost_edges:
                lost = monitored.ring.lost_edges - self._lost_edges
                self._lost_edges += lost
                journal.append(
                    "dropped", wire.now_ns(), lost, 0, "more edges than the ring holds in one tick"
                )
        if monitored.inputs is not None and self._ticks % INPUTS_EVERY == 0:
            for news in monitored.inputs.news():
                journal.append("inputs", wire.now_ns(), *news)
        self._ticks += 1
        for error in errors[self._told_errors :]:
            self._told_errors += 1
            journal.append("word", wire.now_ns(), "own error", error)
        journal.flush()

    def _sample(self) -> None:
        monitored = self._monitored
        counters, journal = monitored.counters, monitored.journal
        if counters is None or journal is None:
            return
        now = wire.now_ns()
        if not monitored.reading.active or now - self._looked_ns >= LOOK_AROUND_NS:
            self._looked_ns = now
            monitored.reading.look_around()
            self._looks += 1
            if self._looks % UNUSED_EVERY == 1:
                self._sample_devices(monitored.reading.unused())
        self._sample_devices(monitored.reading.active)
        counters.fold()
        for ordinal in monitored.reading.active:
            peaks = counters.highest.get(ordinal)
            if peaks is not None and peaks != self._told_peaks.get(ordinal):
                self._told_peaks[ordinal] = peaks
                journal.append("peaks", wire.now_ns(), ordinal, *peaks)

    def _sample_devices(self, ordinals: Tuple[int, ...]) -> None:
        monitored = self._monitored
        counters, journal = monitored.counters, monitored.journal
        if counters is None or journal is None:
            return
        for ordinal in ordinals:
            try:
                stats = counters.sample(ordinal)
            except RuntimeError as error:  # the allocator has no counters (any more)
                monitored.reading.stop("no counters", "PyTorch's counters cannot be read: %s" % error)
                return
            values = sample_values(stats)
            counters.note_peaks(
                ordinal, stats["allocated_bytes"]["all"]["peak"], stats["reserved_bytes"]["all"]["peak"]
            )
            monitored.last_samples[ordinal] = [wire.now_ns(), ordinal] + values
            journal.append("sample", wire.now_ns(), ordinal, *values)
            self._tell_pressure(ordinal, stats.get("num_alloc_retries"), stats.get("num_ooms"))

    def _tell_pressure(self, ordinal: int, retries: Optional[int], ooms: Optional[int]) -> None:
        """Allocations that succeeded only after the cache was flushed: the device is nearly full."""
        if retries is None or ooms is None or self._monitored.journal is None:
            return
        retries_before, ooms_before, told_ns = self._strain.get(ordinal, (0, 0, -PRESSURE_EVERY_NS))
        if retries < retries_before or ooms < ooms_before:  # the user has reset the counters
            self._strain[ordinal] = retries, ooms, told_ns
            return
        survived, now = (retries - retries_before) - (ooms - ooms_before), wire.now_ns()
        if survived > 0 and now - told_ns >= PRESSURE_EVERY_NS:
            self._strain[ordinal] = retries, ooms, now
            self._monitored.journal.append("pressure", now, ordinal, survived, retries)


def sample_values(stats: Dict[str, Any]) -> List[Optional[int]]:
    """The values of a ``sample`` line after its ordinal; None where this PyTorch has no such counter."""

    def current(name: str) -> Optional[int]:
        found = stats.get(name)
        return found["all"]["current"] if found else None

    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    return [
        allocated["current"],
        reserved["current"],
        current("active_bytes"),
        current("requested_bytes"),
        current("inactive_split_bytes"),
        stats.get("num_alloc_retries"),
        stats.get("num_ooms"),
        allocated["peak"],
        reserved["peak"],
    ]
