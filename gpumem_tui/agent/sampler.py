"""The one thread of ours in the workload: reads counters, drains the ring, writes the journal.

All file I/O of the agent happens here (but failure records). It keeps absolute
deadlines, takes no lock that user code may hold, and goes on draining and writing
where reading counters must stop.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from . import ring as rings
from . import wire
from .guard import contain, errors

if TYPE_CHECKING:
    from .process import Monitored

LOOK_AROUND_NS = 1_000_000_000
"""How often devices that this process has not used yet are looked at."""

UNUSED_EVERY = 10
"""Every so many looks, the counters of unused devices are written too: a rank may hold a context there."""


INPUTS_EVERY = 10
"""Counts of inputs are written once in so many ticks, and at the end."""


class Sampler:
    """Started when CUDA is initialised or the first span begins; a daemon, ended by :meth:`stop`."""

    def __init__(self, monitored: "Monitored", hertz: float) -> None:
        self._monitored = monitored
        self._interval_ns = int(1e9 / hertz)
        self._stop = threading.Event()
        self._looked_ns = 0
        self._looks = 0
        self._ticks = 0
        self._told_errors = 0
        self._lost_edges = 0
        self._thread = threading.Thread(target=self._run, name="gpumem-tui", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Ask the thread to end and wait shortly; the last lines are written by it or, if it is late, not."""
        self._stop.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

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
            self._stop.wait((due - now) / 1e9)

    def tick(self) -> None:
        """One round: counters, edges, words, write."""
        monitored = self._monitored
        journal = monitored.journal
        if journal is None:
            return
        if monitored.may_read():
            self._sample()
        for line in monitored.take_lines():
            journal.append_line(line)
        if monitored.ring is not None:
            for line in edge_lines(monitored.ring.drain()):
                journal.append_line(line)
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
        if not monitored.active or now - self._looked_ns >= LOOK_AROUND_NS:
            self._looked_ns = now
            monitored.look_around()
            self._looks += 1
            if self._looks % UNUSED_EVERY == 1:
                self._sample_devices(monitored.unused())
        self._sample_devices(monitored.active)
        counters.fold()

    def _sample_devices(self, ordinals: Tuple[int, ...]) -> None:
        monitored = self._monitored
        counters, journal = monitored.counters, monitored.journal
        if counters is None or journal is None:
            return
        for ordinal in ordinals:
            try:
                stats = counters.sample(ordinal)
            except RuntimeError as error:  # the allocator has no counters (any more)
                monitored.stop_reading("no counters", "PyTorch's counters cannot be read: %s" % error)
                return
            values = sample_values(stats)
            monitored.last_samples[ordinal] = [wire.now_ns(), ordinal] + values
            journal.append("sample", wire.now_ns(), ordinal, *values)


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


def edge_lines(edges: List[rings.Edge]) -> List[bytes]:
    """``begin`` and ``end`` lines of ring edges; slots of one edge on several devices become one line.

    Slots of two threads may stand between each other's.
    """
    lines = []
    waiting: Dict[Tuple[int, int], List[Any]] = {}
    for edge in edges:
        levels = waiting.setdefault((edge.span, edge.edge), [])
        if edge.ordinal != rings.NO_DEVICE:
            level = [edge.ordinal, edge.allocated_bytes, edge.reserved_bytes]
            if edge.edge == rings.END:
                level += [edge.peak_allocated_bytes, edge.peak_reserved_bytes, edge.exact]
            levels.append(level)
        if edge.more:
            continue
        del waiting[edge.span, edge.edge]
        if edge.edge == rings.BEGIN:
            about = (edge.parent or None, edge.thread, edge.phase, edge.name, edge.step)
            lines.append(wire.encode("begin", edge.t_ns, edge.seq, edge.span, *about, levels))
        else:
            lines.append(wire.encode("end", edge.t_ns, edge.seq, edge.span, edge.error, levels))
    return lines
