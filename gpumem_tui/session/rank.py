"""What one process of the workload has said: identity, counters by device, spans, steps, words."""

from collections import deque

from gpumem_tui import records
from gpumem_tui.analysis.ledger import Counters
from gpumem_tui.analysis.state import (
    CompositionState,
    InputRow,
    Levels,
    Life,
    OpenSpan,
    PhaseRow,
    RankState,
)
from gpumem_tui.analysis.state import Curve as RankCurve
from gpumem_tui.records import Reason
from gpumem_tui.session.curve import Curve
from gpumem_tui.session.phasetable import PhaseTable
from gpumem_tui.session.times import ended_ns

STEADY_NS = 200_000_000
"""Two samples at the default rate to each side."""

SILENT_NS = 5_000_000_000
"""A living process that has not spoken for this long is silent."""

RECENT = 8192
RECENT_NS = 60_000_000_000
"""How many levels, and how long, are kept whole for pairing with driver readings."""

TRAINING = ("forward",)
"""Phases whose first span with a new step number begins that step."""


class RankDevice:
    """One device as one process sees it."""

    def __init__(self) -> None:
        self.facts: records.Device | None = None
        self.allocated, self.reserved = Curve(), Curve()
        self.recent: deque[tuple[int, int, int]] = deque(maxlen=RECENT)
        """(t_ns, allocated, reserved)."""
        self.last: records.Sample | None = None
        self.used = False
        """Whether this process has ever reserved memory there."""

    def add_level(self, t_ns: int, allocated: int, reserved: int) -> None:
        """Levels of one call, from a sample or from the edge of a span."""
        self.used = self.used or reserved > 0
        recent = self.recent
        recent.append((t_ns, allocated, reserved))
        while recent[0][0] < t_ns - RECENT_NS:
            recent.popleft()

    def add_sample(self, sample: records.Sample) -> None:
        """A whole sample."""
        self.last = sample
        if sample.allocated_bytes is None or sample.reserved_bytes is None:
            return
        self.add_level(sample.t_ns, sample.allocated_bytes, sample.reserved_bytes)
        if self.used:
            a, r, t = sample.allocated_bytes, sample.reserved_bytes, sample.t_ns
            self.allocated.add(t, t, a, a, a)
            self.reserved.add(t, t, r, r, r)

    def add_folded(self, bucket: records.Samples) -> None:
        """A folded run of samples."""
        if bucket.allocated is None or bucket.reserved is None:
            return
        self.used = self.used or bucket.reserved[1] > 0
        if self.used:
            self.allocated.add(bucket.t_ns, bucket.until_ns, *bucket.allocated)
            self.reserved.add(bucket.t_ns, bucket.until_ns, *bucket.reserved)
        self.add_level(bucket.until_ns, bucket.allocated[2], bucket.reserved[2])

    def nearest(self, t_ns: int | None) -> tuple[int, int, int] | None:
        """The levels read closest to a moment; the last ones where no moment is given."""
        if not self.recent:
            return None
        if t_ns is None:
            return self.recent[-1]
        return min(self.recent, key=lambda level: abs(level[0] - t_ns))

    def steady(self, t_ns: int, within_ns: int) -> bool:
        """Whether reserved memory was the same in every reading around a moment."""
        around = {reserved for t, _, reserved in self.recent if abs(t - t_ns) <= within_ns}
        return len(around) <= 1

    def settled(self, t_ns: int, within_ns: int) -> int | None:
        """Reserved bytes at a moment, if they stood still around it, before and after."""
        if not self.recent or self.recent[0][0] > t_ns - within_ns:
            return self.reserved.settled(t_ns, within_ns)  # longer ago than readings are kept whole
        around = [(t, reserved) for t, _, reserved in self.recent if abs(t - t_ns) <= within_ns]
        both = any(t <= t_ns for t, _ in around) and any(t >= t_ns for t, _ in around)
        return around[0][1] if both and len({reserved for _, reserved in around}) == 1 else None


class RankModel:
    """The mutable model of one process; fed in journal order."""

    def __init__(self, pid: int, started_ticks: int | None) -> None:
        self.pid, self.started_ticks = pid, started_ticks
        self.parent: int | None = None
        self.rank: records.Rank | None = None
        self.torch: records.Torch | None = None
        self.devices: dict[int, RankDevice] = {}
        self.words: dict[str, str] = {}
        self.spoke_ns = 0
        self.seq = 0
        """Last edge seen, in the journal or in the ring."""
        self.open: dict[int, records.Begin] = {}
        self.phases = PhaseTable()
        self.step: int | None = None
        self._step_times: deque[int] = deque(maxlen=21)
        self.composition: dict[int, records.Composition] = {}
        self.inputs: dict[tuple[str, str, str], int] = {}
        self.bye = False
        self.failure: records.Failure | None = None
        """The last failing allocation: a candidate until it is known how the process ended."""
        self.recovered = False
        """Another step has begun since: the program has caught it."""
        self.dropped = 0

    def device(self, ordinal: int) -> RankDevice:
        """The device of an ordinal."""
        found = self.devices.get(ordinal)
        if found is None:
            found = self.devices[ordinal] = RankDevice()
        return found

    def take(self, record: object) -> None:
        """One line of this process's journal."""
        match record:
            case records.Sample():
                self.device(record.ordinal).add_sample(record)
            case records.Begin():
                self._begin(record)
            case records.End():
                self._end(record)
            case records.Samples():
                self.device(record.ordinal).add_folded(record)
            case records.Spans():
                self.phases.add_folded(record)
            case records.Device():
                self.device(record.ordinal).facts = record
            case records.Rank():
                self.rank = record
            case records.Torch():
                self.torch = record
            case records.Word():
                self.words[record.code] = record.text
            case records.Dropped():
                self.dropped += record.edges + record.samples
            case records.Composition():
                self.composition[record.ordinal] = record
            case records.Inputs():
                self.inputs[record.phase, record.name, record.input] = record.count
            case records.Failure():
                self.failure, self.recovered = record, False
            case records.Bye():
                self.bye = True
        self.spoke_ns = max(self.spoke_ns, ended_ns(record))

    def _begin(self, begin: records.Begin) -> None:
        if begin.seq <= self.seq:
            return
        self.seq = begin.seq
        self.open[begin.span] = begin
        self.phases.began(begin)
        for ordinal, allocated, reserved in begin.levels:
            self.device(ordinal).add_level(begin.t_ns, allocated, reserved)
        if begin.step is not None and begin.step != self.step:
            self.step = begin.step
            self.recovered = True
            if begin.phase in TRAINING:
                self._step_times.append(begin.t_ns)

    def _end(self, end: records.End) -> None:
        if end.seq <= self.seq:
            return
        self.seq = end.seq
        begin = self.open.pop(end.span, None)
        for level in end.levels:
            self.device(level[0]).add_level(end.t_ns, level[1], level[2])
        if begin is not None:
            self.phases.add(begin, end)

    # --- what others ask ----------------------------------------------------------------------

    @property
    def number(self) -> int | None:
        """The rank, where it has one."""
        return self.rank.rank if self.rank is not None else None

    def _unreadable(self) -> Reason | None:
        if self.torch is None:
            return Reason.NOT_READ_YET
        if self.torch.allocator == "pluggable" or self.torch.caching is False:
            return Reason.UNAVAILABLE
        return None

    def counters(self, ordinal: int, t_ns: int | None) -> Counters:
        """The counters to pair with a driver reading at ``t_ns``."""
        level = self.device(ordinal).nearest(t_ns)
        if level is None:
            reason = self._unreadable() or Reason.NOT_READ_YET
            return Counters(self.pid, self.number, None, None, None, reason)
        steady = t_ns is None or self.device(ordinal).steady(t_ns, STEADY_NS)
        return Counters(self.pid, self.number, *level, steady=steady)

    def life(self, now_ns: int, alive: bool, run_over: bool) -> Life:
        """How far this process has come."""
        if self.bye:
            return Life.ENDED
        if run_over or not alive:
            return Life.LOST
        return Life.SILENT if now_ns - self.spoke_ns > SILENT_NS else Life.RUNNING

    def state(self, now_ns: int, alive: bool, run_over: bool) -> RankState:
        """The frozen picture."""
        rank, torch = self.rank, self.torch
        life = self.life(now_ns, alive, run_over)
        spans = sorted(self.open.values(), key=lambda begin: begin.seq)
        return RankState(
            pid=self.pid,
            started_ticks=self.started_ticks,
            rank=self.number,
            local_rank=rank.local_rank if rank else None,
            world_size=rank.world_size if rank else None,
            life=life,
            spoke_ns=self.spoke_ns,
            spans=tuple(OpenSpan(b.phase, b.name, b.t_ns, b.step) for b in spans),
            step=self.step,
            steps_per_second=self._pace(now_ns),
            levels=tuple(
                Levels(
                    ordinal,
                    device.facts.uuid if device.facts else None,
                    device.last.t_ns,
                    device.last.allocated_bytes,
                    device.last.reserved_bytes,
                    device.last.alloc_retries,
                    device.last.ooms,
                )
                for ordinal, device in sorted(self.devices.items())
                if device.last is not None and device.used
            ),
            backend=torch.backend if torch else None,
            torch_version=torch.version if torch else None,
            allocator=torch.allocator if torch else None,
            words=tuple(self.words.values()),
            composition=tuple(_composed(self.composition[ordinal]) for ordinal in sorted(self.composition)),
            inputs=tuple(
                InputRow(phase, name, text, count)
                for (phase, name, text), count in sorted(
                    self.inputs.items(), key=lambda item: (item[0][:2], -item[1])
                )
            ),
        )

    def _pace(self, now_ns: int) -> float | None:
        """Steps a second over the last twenty; None before the second and after a long silence."""
        times = self._step_times
        if len(times) < 2 or now_ns - times[-1] > 60_000_000_000:
            return None
        return (len(times) - 1) * 1e9 / (times[-1] - times[0])

    def curve(self, ordinal: int) -> RankCurve:
        """The history of one device."""
        device = self.device(ordinal)
        return RankCurve(self.pid, self.number, device.allocated.series(), device.reserved.series())

    def rows(self) -> list[PhaseRow]:
        """The phase table."""
        return self.phases.rows(self.pid, self.number)


def _composed(record: records.Composition) -> CompositionState:
    """With what is computed from it: live tensors beyond the known kinds."""
    known = (
        record.parameters_bytes or 0,
        record.gradients_bytes or 0,
        record.optimizer_bytes or 0,
        record.buffers_bytes or 0,
    )
    other = None
    if record.complete and record.allocated_bytes is not None:
        other = record.allocated_bytes - sum(known)
    return CompositionState(
        record.ordinal, record.t_ns, record.step, *known, other, record.allocated_bytes, record.complete
    )
