"""Reads PyTorch's allocator counters, and keeps the user's view of their peaks what it would have been.

Source: ``torch._C._cuda_memoryStats(ordinal)``, one call for all counters of a device;
it takes the allocator's mutex and no CUDA call. Peaks of a span are exact because
the allocator's peak counters are reset at its boundaries; what the reset takes from
the user is carried here and given back by whatever the user calls
(``torch.cuda.*``, ``torch.accelerator.*`` end in the four functions patched below).

Never initialises CUDA. While a thread is inside an allocator that re-enters Python,
other threads must not read at all (the GIL and the allocator's mutex deadlock).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, FrozenSet, Iterator, Optional, Tuple

from .guard import contained

Stats = Dict[str, Any]
"""What ``torch._C._cuda_memoryStats`` returns: nested dicts with current, peak, allocated, freed."""


class Levels:
    """Counters of one device from one call, in bytes."""

    __slots__ = ("allocated", "peak_allocated", "peak_reserved", "reserved")

    def __init__(self, stats: Stats) -> None:
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        self.allocated: int = allocated["current"]
        self.reserved: int = reserved["current"]
        self.peak_allocated: int = allocated["peak"]
        self.peak_reserved: int = reserved["peak"]

    def nothing(self) -> "Levels":
        """The levels of a device before the first allocation: a fact, not a reading that lacks."""
        levels = Levels.__new__(Levels)
        levels.allocated = levels.reserved = levels.peak_allocated = levels.peak_reserved = 0
        return levels


def _leaves(stats: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Tuple[Any, ...], Dict[str, int]]]:
    """Every {current, peak, ...} dict below ``stats`` with its path."""
    if "peak" in stats and "current" in stats:
        yield path, stats
        return
    for key, value in stats.items():
        if isinstance(value, dict):
            yield from _leaves(value, path + (key,))


class _Peaks:
    """The peaks of all counters of a device in one order, taken by one compiled expression.

    A boundary of every phase does this; walking the nested dicts costs ten times as much.
    """

    def __init__(self, stats: Stats) -> None:
        self.paths = tuple(path for path, _ in _leaves(stats))
        items = ",".join("s" + "".join("[%r]" % (key,) for key in path) + "['peak']" for path in self.paths)
        self.of: Callable[[Stats], Tuple[int, ...]] = eval("lambda s: (%s,)" % items)


class Counters:
    """Reading, and the virtual peaks, of this process.

    ``reset_peaks`` False (``--no-peak-reset``): the allocator's peaks are left alone
    and span peaks are lower bounds.
    """

    def __init__(self, torch: Any, reset_peaks: bool) -> None:
        c = torch._C
        self._read: Callable[[int], Stats] = c._cuda_memoryStats
        self._reset: Callable[[int], Any] = c._cuda_resetPeakMemoryStats
        self._read_any: Optional[Callable[[int], Stats]] = getattr(c, "_accelerator_getDeviceStats", None)
        self._reset_any: Optional[Callable[[int], Any]] = getattr(c, "_accelerator_resetPeakStats", None)
        self._shapes: Dict[int, _Peaks] = {}
        self._pending: Deque[Tuple[int, _Peaks, Tuple[int, ...]]] = deque()
        self._carry: Dict[int, Dict[Tuple[Any, ...], int]] = {}
        self._pooled: FrozenSet[int] = frozenset()
        """Devices with private pools at their last boundary: their counters are listed anew each time."""
        self._lock = threading.RLock()
        self.reset_peaks = reset_peaks
        self.on_user_reset: Callable[[int, Levels], None] = lambda ordinal, levels: None
        """Told before a reset of the user's, with the counters as they stood: open spans keep their peaks."""

    def install(self, torch: Any) -> None:
        """Put the virtual peaks between the user and the four C entry points."""
        c = torch._C
        c._cuda_memoryStats = self.user_stats
        c._cuda_resetPeakMemoryStats = self.user_reset
        if self._read_any is not None and self._reset_any is not None:
            c._accelerator_getDeviceStats = self.user_stats_any
            c._accelerator_resetPeakStats = self.user_reset_any

    # --- our own reading ----------------------------------------------------------------------

    def sample(self, ordinal: int) -> Stats:
        """All counters of a device as the allocator has them. RuntimeError where it has none."""
        return self._read(ordinal)

    def boundary(self, ordinal: int) -> Levels:
        """Counters at the boundary of a span; the allocator's peaks start anew from here."""
        stats = self._read(ordinal)
        if self.reset_peaks:
            self._reset(ordinal)
            shape = self._shape_of(ordinal, stats)
            self._pending.append((ordinal, shape, shape.of(stats)))
        return Levels(stats)

    def _shape_of(self, ordinal: int, stats: Stats) -> _Peaks:
        """Which counters there are: the same ones at every call, but for private pools that come and go."""
        shape = self._shapes.get(ordinal)
        pools = stats.get("reserved_bytes_by_private_pools")
        if shape is None or pools or ordinal in self._pooled:
            self._pooled = self._pooled | {ordinal} if pools else self._pooled - {ordinal}
            shape = self._shapes[ordinal] = _Peaks(stats)
        return shape

    def fold(self) -> None:
        """Take what boundaries have reset into what the user is shown."""
        with self._lock:
            highest: Dict[Tuple[int, _Peaks], Tuple[int, ...]] = {}
            while self._pending:
                ordinal, shape, peaks = self._pending.popleft()
                before = highest.get((ordinal, shape))
                highest[ordinal, shape] = peaks if before is None else tuple(map(max, before, peaks))
            for (ordinal, shape), peaks in highest.items():
                carry = self._carry.setdefault(ordinal, {})
                for path, peak in zip(shape.paths, peaks):  # noqa: B905  no strict= in 3.8
                    if peak > carry.get(path, -1):
                        carry[path] = peak

    def forget_lock(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here."""
        self._lock = threading.RLock()

    # --- what the user calls ------------------------------------------------------------------

    @contained("virtual peaks")
    def _raise_to_carried(self, ordinal: int, stats: Stats) -> None:
        self.fold()
        carry = self._carry.get(ordinal)
        if carry:
            for path, leaf in _leaves(stats):
                peak = carry.get(path)
                if peak is not None and peak > leaf["peak"]:
                    leaf["peak"] = peak

    @contained("virtual peaks")
    def _tell_spans(self, ordinal: int) -> None:
        """Open spans keep their peaks over a reset of the user's."""
        try:
            levels = Levels(self._read(ordinal))
        except RuntimeError:
            return  # no counters here: the user's own call says so to the user
        self.on_user_reset(ordinal, levels)

    @contained("virtual peaks")
    def _drop_carried(self, ordinal: int) -> None:
        with self._lock:
            kept = [item for item in self._pending if item[0] != ordinal]
            self._pending.clear()
            self._pending.extend(kept)
            self._carry.pop(ordinal, None)

    def user_stats(self, ordinal: int) -> Stats:
        """``torch._C._cuda_memoryStats`` as it would be without the monitor."""
        stats = self._read(ordinal)
        self._raise_to_carried(ordinal, stats)
        return stats

    def user_stats_any(self, ordinal: int) -> Stats:
        """``torch._C._accelerator_getDeviceStats`` as it would be without the monitor."""
        assert self._read_any is not None
        stats = self._read_any(ordinal)
        self._raise_to_carried(ordinal, stats)
        return stats

    def user_reset(self, ordinal: int) -> Any:
        """``torch._C._cuda_resetPeakMemoryStats``."""
        self._tell_spans(ordinal)
        result = self._reset(ordinal)
        self._drop_carried(ordinal)
        return result

    def user_reset_any(self, ordinal: int) -> Any:
        """``torch._C._accelerator_resetPeakStats``."""
        assert self._reset_any is not None
        self._tell_spans(ordinal)
        result = self._reset_any(ordinal)
        self._drop_carried(ordinal)
        return result
