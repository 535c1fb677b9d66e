"""The course of a run: what is needed to say how things stood, and had changed, at a past moment.

Fed with the same records as the models of ``rank`` and ``driver``, which know the
present; everything here has its time, is bounded, and is asked "as of" a moment.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from gpumem_tui import records
from gpumem_tui.session.curve import Curve

TRAINING = ("forward", "backward", "recompute", "optimizer", "no-grad")
"""Phases of a training step."""
AUTOMATIC = (
    *TRAINING, "load", "eval", "save", "generate", "prefill", "decode", "graph capture", "graph replay",
    "compiled",
)  # fmt: skip
"""Phases that are found by themselves; every other one was named by the user."""

WORK = frozenset((*TRAINING, "eval", "generate", "prefill", "decode", "compiled", "graph replay"))
"""Phases in which a program computes; what it does when it ends by an error is none of them."""

RECENT = 64
"""Finished spans whose begin is kept."""
HOLDERS = 256
"""Processes of one device that are remembered: those that were listed last."""
POINTS = 512
"""Steps, or batches of an evaluation, of which a level is kept."""


@dataclass
class _Points:
    """(t_ns, place, allocated) at the same point of each step or batch."""

    points: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=POINTS))

    def until(self, t_ns: int) -> list[tuple[int, int]]:
        """(place, allocated) up to a moment."""
        return [(place, allocated) for t, place, allocated in self.points if t <= t_ns]


class RankCourse:
    """One process."""

    def __init__(self) -> None:
        self._open: dict[int, records.Begin] = {}
        self._seq = 0
        self._ended: deque[tuple[records.Begin, int]] = deque(maxlen=RECENT)
        """A span, and when it ended."""
        self._steps: dict[int, _Points] = {}
        self._batches: dict[int, _Points] = {}
        self._step: int | None = None
        self._in_eval = False
        self._left_eval_ns = 0
        """When the last evaluation was over: a training step began."""
        self._batch = 0
        self.first_optimizer_ns: int | None = None
        """When the first optimizer step had ended without an error."""
        self.first_forward_ns: int | None = None
        """When the first root's call had ended without an error."""
        self.worked_ns = 0
        """When the last span began in which a program computes: who has caught a failure goes on with one."""
        self.optimizers: deque[records.Optimizer] = deque(maxlen=64)
        """Optimizers as they were before the first backward after each was made."""
        self._pressure: deque[records.Pressure] = deque(maxlen=POINTS)
        self._step_peaks: dict[int, tuple[int | None, int, int]] = {}
        """(step, its peak of allocated so far, the peak of the step before), by ordinal."""
        self._peaks: dict[int, list[tuple[int, int]]] = {}
        """(t_ns, largest peak of allocated in training so far), rising, by ordinal."""

    def take(self, record: object) -> None:
        """One line of its journal."""
        if isinstance(record, records.Begin):
            self.begin(record)
        elif isinstance(record, records.End):
            self.end(record)
        elif isinstance(record, records.Spans):
            self._fold(record)
        elif isinstance(record, records.Optimizer):
            self.optimizers.append(record)
        elif isinstance(record, records.Pressure):
            self._pressure.append(record)

    def begin(self, begin: records.Begin) -> None:
        """A span has begun; one that was told already is passed over."""
        if begin.seq <= self._seq:
            return
        self._seq = begin.seq
        if begin.phase in WORK and begin.t_ns > self.worked_ns:
            self.worked_ns = begin.t_ns
        if begin.phase == "forward":
            if self._in_eval:
                self._in_eval, self._left_eval_ns = False, begin.t_ns
            if begin.step is not None and begin.step != self._step and self._is_outer():
                self._step = begin.step
                for ordinal, allocated, _ in begin.levels:
                    self._point(self._steps, ordinal, begin.t_ns, begin.step, allocated)
        elif begin.phase == "eval" and not self._in_eval and self._is_outer():
            self._in_eval, self._batch, self._batches = True, 0, {}
        self._open[begin.span] = begin

    def _is_outer(self) -> bool:
        """Whether no root's call is open."""
        return not any(begin.phase in ("forward", "eval") for begin in self._open.values())

    @staticmethod
    def _point(points: dict[int, _Points], ordinal: int, t_ns: int, place: int, allocated: int) -> None:
        points.setdefault(ordinal, _Points()).points.append((t_ns, place, allocated))

    def end(self, end: records.End) -> None:
        """A span has ended, likewise."""
        if end.seq <= self._seq:
            return
        self._seq = end.seq
        begin = self._open.pop(end.span, None)
        if begin is None:
            return
        self._ended.append((begin, end.t_ns))
        if end.error is not None:
            return
        phase = begin.phase
        if self.first_optimizer_ns is None and phase == "optimizer":
            self.first_optimizer_ns = end.t_ns
        if self.first_forward_ns is None and phase in ("forward", "eval", "no-grad", "prefill"):
            self.first_forward_ns = end.t_ns
        if self._in_eval and phase == "eval" and not any(b.phase == "eval" for b in self._open.values()):
            self._batch += 1
            for ordinal, allocated, *_ in end.levels:
                self._point(self._batches, ordinal, end.t_ns, self._batch, allocated)
        if phase in TRAINING:
            for ordinal, _, _, peak, _, _ in end.levels:
                known = self._step_peaks.get(ordinal)
                if known is None or peak > known[1]:
                    self._peak(ordinal, end.t_ns, peak)
                if known is None or known[0] != begin.step:
                    self._step_peaks[ordinal] = (begin.step, peak, known[1] if known is not None else 0)
                elif known[1] < peak:
                    self._step_peaks[ordinal] = (begin.step, peak, known[2])

    def _peak(self, ordinal: int, t_ns: int, peak: int) -> None:
        peaks = self._peaks.get(ordinal)
        if peaks is None:
            peaks = self._peaks[ordinal] = []
        if not peaks or peak > peaks[-1][1]:
            peaks.append((t_ns, peak))
            if len(peaks) > POINTS:
                del peaks[0]

    def _fold(self, spans: records.Spans) -> None:
        if spans.phase in WORK:
            self.worked_ns = max(self.worked_ns, spans.t_ns)
        if spans.phase == "eval" and self._in_eval and spans.end_allocated is not None:
            low, _, last = spans.end_allocated
            if spans.ordinal is not None:  # of a run that rises, the lowest is the first
                self._point(self._batches, spans.ordinal, spans.t_ns, self._batch + 1, low)
                self._point(self._batches, spans.ordinal, spans.until_ns, self._batch + spans.count, last)
            self._batch += spans.count
        if spans.errors >= spans.count:
            return
        if spans.phase == "optimizer" and self.first_optimizer_ns is None:
            self.first_optimizer_ns = spans.until_ns
        if spans.phase in ("forward", "eval") and self.first_forward_ns is None:
            self.first_forward_ns = spans.until_ns
        if spans.phase in TRAINING and spans.ordinal is not None and spans.peak_allocated is not None:
            self._peak(spans.ordinal, spans.until_ns, spans.peak_allocated[1])

    # --- as of a moment -----------------------------------------------------------------------

    def steps(self, ordinal: int, t_ns: int) -> list[tuple[int, int]]:
        """(step, allocated) at the begin of each step's first forward.

        The first two steps are left out: they make what later ones keep.
        """
        found = self._steps.get(ordinal)
        if found is None:
            return []
        skipped = 2 if len(found.points) < POINTS else 0
        return found.until(t_ns)[skipped:]

    def latest_steps(self, ordinal: int, count: int) -> list[tuple[int, int]]:
        """The last ``count`` of all steps, likewise."""
        found = self._steps.get(ordinal)
        if found is None:
            return []
        size = len(found.points)
        first = max(2 if size < POINTS else 0, size - count)
        return [(place, allocated) for _, place, allocated in islice(found.points, first, None)]

    def batches(self, ordinal: int, t_ns: int) -> list[tuple[int, int]]:
        """(batch, allocated) at the end of each call of the evaluation under way; none once it is over."""
        found = self._batches.get(ordinal)
        if found is None or (found.points and found.points[-1][0] <= self._left_eval_ns <= t_ns):
            return []
        return found.until(t_ns)

    def training_peak(self, ordinal: int, t_ns: int) -> int | None:
        """The largest peak of allocated within training phases that had ended."""
        peaks = self._peaks.get(ordinal, [])
        at = bisect_right(peaks, (t_ns, 1 << 62))
        return peaks[at - 1][1] if at else None

    def step_peak(self, ordinal: int) -> int | None:
        """The peak of allocated in the latest two steps, as far as their phases have ended."""
        found = self._step_peaks.get(ordinal)
        return None if found is None else max(found[1:])

    def retries(self, ordinal: int, since_ns: int) -> int:
        """Allocations that needed a flush of the cache since a moment."""
        return sum(p.retries for p in self._pressure if p.ordinal == ordinal and p.t_ns >= since_ns)

    def started(self, phase: str, ordinal: int, t_ns: int) -> int | None:
        """Allocated when the latest span of a phase began that was open at a moment."""
        spans = [*self._ended, *((begin, t_ns) for begin in self._open.values())]
        around = [b for b, until_ns in spans if b.phase == phase and b.t_ns <= t_ns <= until_ns]
        if not around:
            return None
        levels = max(around, key=lambda b: b.t_ns).levels
        return next((allocated for of, allocated, _ in levels if of == ordinal), None)


class DeviceCourse:
    """Who held what on one device, by the driver's lists."""

    def __init__(self) -> None:
        self.first_list_ns: int | None = None
        self.holders: dict[int, Curve] = {}
        self.seen_ns: dict[int, int] = {}
        """When a process was first listed."""
        self._listed_ns: dict[int, int] = {}

    def take_list(self, processes: records.Processes) -> None:
        """A process list; one that could not be read says nothing."""
        if not processes.is_readable:
            return
        if self.first_list_ns is None:
            self.first_list_ns = processes.t_ns
        for pid, used, _, _ in processes.rows:
            self.seen_ns.setdefault(pid, processes.t_ns)
            self._listed_ns[pid] = processes.t_ns
            if used is not None:
                self.holders.setdefault(pid, Curve()).add(processes.t_ns, processes.t_ns, used, used, used)
        while len(self.seen_ns) > max(HOLDERS, len(processes.rows)):
            oldest = min(self.seen_ns, key=self._listed_ns.__getitem__)
            del self.seen_ns[oldest], self._listed_ns[oldest]
            self.holders.pop(oldest, None)
