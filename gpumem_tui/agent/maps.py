"""A map of the allocator's blocks while a program runs, where somebody who watches has asked for one.

Whoever asks touches ``map.request`` in the run directory; the sampler's thread looks
at it once a second and, where it is new, writes what a failure would: the pools of
each device in use and a snapshot of every block, without traces. Taking it holds the
GIL and the allocator's mutex for about a microsecond a block, so it is refused beyond
:data:`MOST_BLOCKS` and where another thread than the allocating one must not read.
"""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from . import wire
from .autopsy import pools
from .autopsy.absent import Absent

if TYPE_CHECKING:
    from .failures import Failures
    from .process import Monitored

EVERY_NS = 1_000_000_000
MOST_BLOCKS = 50_000
"""On all devices. A failure may take longer than a program that runs well."""

MOST_MAPS = 20
"""Maps of one process; then the oldest goes."""


class Maps:
    """Those of this process."""

    def __init__(self, monitored: "Monitored", torch: Any) -> None:
        self._monitored, self._torch = monitored, torch
        self._path = os.path.join(monitored.run, wire.MAP_REQUEST)
        self._seen = self._stamp()
        self._looked_ns = 0
        self._count = 0
        self._kept: List[List[str]] = []

    def _stamp(self) -> Optional[int]:
        try:
            return os.stat(self._path).st_mtime_ns
        except OSError:
            return None  # nobody has asked yet

    def look(self, now_ns: int) -> None:
        """Whether somebody has asked since the last look; if so, take the map."""
        if now_ns - self._looked_ns < EVERY_NS:
            return
        self._looked_ns = now_ns
        stamp, failures = self._stamp(), self._monitored.failures
        if stamp is None or stamp == self._seen or failures is None:
            return
        self._seen = stamp
        for line in self._take(failures):
            self._monitored.tell("map", *line)

    def _take(self, failures: "Failures") -> List[List[Any]]:
        """Maps of all devices in use, written; their journal lines."""
        began, ordinals = wire.now_ns(), self._monitored.reading.active
        try:
            segments = self._segments(failures)
        except Absent as absent:
            visible = ordinals or sorted(self._monitored.devices)
            return [[began, ordinal, None, str(absent), wire.now_ns() - began] for ordinal in visible]
        taken_ns = wire.now_ns() - began
        name = "map-%d-%d-%d" % (self._monitored.pid, self._monitored.started, self._count)
        self._count += 1
        files = [name + ".pickle"]
        whole = failures.save_bytes(
            files[0], pickle.dumps({"segments": segments, "device_traces": []}, protocol=4)
        )
        lines: List[List[Any]] = []
        for ordinal in ordinals:
            record = failures.essentials("map", began, ordinal)
            record["pools"] = pools.fold(segments, ordinal)
            record["history"] = "failures/" + files[0] if whole else None
            record["took_ns"] = {"pools": taken_ns}
            record["missing"] = {}
            files.append("%s-%d.json" % (name, ordinal))
            kept = failures.save(files[-1], record)
            path, reason = ("failures/" + files[-1], None) if kept else (None, "the disk refused it")
            lines.append([began, ordinal, path, reason, wire.now_ns() - began])
        self._forget_oldest(failures, files)
        return lines

    def _segments(self, failures: "Failures") -> List[Dict[str, Any]]:
        monitored = self._monitored
        if not monitored.reading.may_read() or monitored.counters is None:
            raise Absent("the counters of this process cannot be read from another thread")
        blocks = 0
        for ordinal in monitored.reading.active:
            stats = failures.stats(ordinal)
            if stats is None:
                raise Absent("the counters of this process cannot be read now")
            blocks += pools.count_blocks(stats)
        if blocks > MOST_BLOCKS:
            raise Absent(
                "%d blocks; a map of a run that goes on is taken of %d at most" % (blocks, MOST_BLOCKS)
            )
        found: List[Dict[str, Any]] = pools.take_snapshot(self._torch, None)["segments"]
        for segment in found:
            for block in segment["blocks"]:
                block.pop("frames", None)  # of a history that the user records: it may be large
        return found

    def _forget_oldest(self, failures: "Failures", files: List[str]) -> None:
        self._kept.append(files)
        if len(self._kept) > MOST_MAPS:
            for name in self._kept.pop(0):
                failures.drop(name)
