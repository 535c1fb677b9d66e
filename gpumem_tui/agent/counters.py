"""Reads PyTorch's allocator counters, and keeps the user's view of their peaks what it would have been.

Source: ``torch._C._cuda_memoryStats(ordinal)``, one call for all counters of a device;
it takes the allocator's mutex and no CUDA call. Peaks of a span are exact because
the allocator's peak counters are reset where it begins; what the reset takes from the
user is carried here and given back by whatever the user calls (``torch.cuda.*``,
``torch.accelerator.*`` end in the four functions patched below).

Never initialises CUDA. While a thread is inside an allocator that re-enters Python,
other threads must not read at all (the GIL and the allocator's mutex deadlock).
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, Optional, Sequence, Set, Tuple

from .guard import contained

Stats = Dict[str, Any]
"""What ``torch._C._cuda_memoryStats`` returns: nested dicts with current, peak, allocated, freed."""

_ALLOCATED, _RESERVED = ("allocated_bytes", "all"), ("reserved_bytes", "all")
"""Paths of the two counters whose peaks are kept over the life of the process."""

_POOLS = "reserved_bytes_by_private_pools"

Levels = Tuple[int, int, int, int]
"""Counters of one device from one call, in bytes: allocated, reserved, peak allocated, peak reserved.

A plain tuple: it is made at every boundary of every phase.
"""

MOST_PENDING = 4096
"""Boundaries whose peaks may wait until somebody folds them: usually the sampler, in each of its rounds."""

MOST_MET = 256
"""Different sets of peaks of a device that are remembered as carried."""

MOST_SHAPES = 64
"""Sets of counters that are remembered, where private pools come and go."""


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

    Most begins of a phase do this; walking the nested dicts costs ten times as much.
    """

    def __init__(self, stats: Stats) -> None:
        self.paths = tuple(path for path, _ in _leaves(stats))
        self.of: Callable[[Stats], Tuple[int, ...]] = eval("lambda s: (%s)" % ",".join(_items(self.paths)))
        self.met: Set[Tuple[int, ...]] = set()
        """Peaks that are carried already: those that come again, as in a loop they do, need not be."""


def _items(paths: Sequence[Tuple[Any, ...]]) -> Iterator[str]:
    """Expressions on stats ``s`` for the peak of each path.

    A dict that several paths go through is looked up once and then has a name.
    """
    names: Dict[Tuple[Any, ...], str] = {(): "s"}
    for *within, last in paths:
        way = ""
        for depth in range(len(within) + 1):
            known = names.get(tuple(within[:depth]))
            if known is not None:
                way = known
            else:
                name = names[tuple(within[:depth])] = "a%d" % len(names)
                way = "(%s:=%s[%r])" % (name, way, within[depth - 1])
        yield "%s[%r]['peak']" % (way, last)


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
        self._shapes: Dict[Any, _Peaks] = {}
        """By ordinal; with private pools, by ordinal and their identities."""
        self._pending: Deque[Tuple[int, _Peaks, Tuple[int, ...]]] = deque()
        self._carry: Dict[int, Dict[Tuple[Any, ...], int]] = {}
        self._lock = threading.RLock()
        self.highest: Dict[int, Tuple[int, int]] = {}
        """Peaks of allocated and reserved by device since this process began, whatever was reset."""
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

    def levels(self, ordinal: int) -> Levels:
        """Counters as they stand, with their peaks since these last began anew."""
        stats = self._read(ordinal)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        return allocated["current"], reserved["current"], allocated["peak"], reserved["peak"]

    def begin_anew(self, ordinal: int) -> Levels:
        """The same; the peaks of what follows are known from here on.

        Where both counters stand at their peaks, they are what a reset would make of them: the
        others' peaks need not be carried then.
        """
        stats = self._read(ordinal)
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        levels = allocated["current"], reserved["current"], allocated["peak"], reserved["peak"]
        if (levels[2] > levels[0] or levels[3] > levels[1]) and self.reset_peaks:
            self._reset(ordinal)  # at once: what another thread allocates in between would be lost
            self._carry_later(ordinal, stats)
        return levels

    def _carry_later(self, ordinal: int, stats: Stats) -> None:
        """Note the peaks that a reset has taken from the user."""
        pools = stats.get(_POOLS)
        shape = self._shapes.get((ordinal, *pools) if pools else ordinal) or self._shape_of(ordinal, stats)
        peaks = shape.of(stats)
        if peaks not in shape.met:
            self._pending.append((ordinal, shape, peaks))
            shape.met.add(peaks)
            if len(self._pending) > MOST_PENDING:  # nobody folds where our thread may not read, or is gone
                self.fold()

    def _shape_of(self, ordinal: int, stats: Stats) -> _Peaks:
        """Which counters there are: the same ones at every call, but for private pools that come and go."""
        if len(self._shapes) > MOST_SHAPES:
            self._shapes = {}
        pools = stats.get(_POOLS)
        shape = self._shapes[(ordinal, *pools) if pools else ordinal] = _Peaks(stats)
        return shape

    def fold(self) -> None:
        """Take what boundaries have reset into what the user is shown."""
        with self._lock:
            highest: Dict[Tuple[int, _Peaks], Tuple[int, ...]] = {}
            while self._pending:
                ordinal, shape, peaks = self._pending.popleft()
                if len(shape.met) > MOST_MET:
                    shape.met.clear()
                before = highest.get((ordinal, shape))
                highest[ordinal, shape] = peaks if before is None else tuple(map(max, before, peaks))
            for (ordinal, shape), peaks in highest.items():
                carry = self._carry.setdefault(ordinal, {})
                for path, peak in zip(shape.paths, peaks):  # noqa: B905  no strict= in 3.8
                    if peak > carry.get(path, -1):
                        carry[path] = peak
                self.note_peaks(ordinal, carry.get(_ALLOCATED, 0), carry.get(_RESERVED, 0))

    def note_peaks(self, ordinal: int, allocated: int, reserved: int) -> None:
        """Peaks that were read, before anything resets them."""
        with self._lock:
            before = self.highest.get(ordinal, (0, 0))
            self.highest[ordinal] = (max(before[0], allocated), max(before[1], reserved))

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
            levels = self.levels(ordinal)
        except RuntimeError:
            return  # no counters here: the user's own call says so to the user
        self.fold()
        self.note_peaks(ordinal, levels[2], levels[3])
        self.on_user_reset(ordinal, levels)

    @contained("virtual peaks")
    def _drop_carried(self, ordinal: int) -> None:
        with self._lock:
            kept = [item for item in self._pending if item[0] != ordinal]
            self._pending.clear()
            self._pending.extend(kept)
            self._carry.pop(ordinal, None)
            for shape in list(self._shapes.values()):
                shape.met.clear()

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
