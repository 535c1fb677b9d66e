"""What one process of the workload has said: identity, counters by device, spans, steps, words."""

import re
from bisect import bisect_left, bisect_right
from collections import deque

from gpumem_tui import records
from gpumem_tui.analysis.ledger import Counters
from gpumem_tui.analysis.rankstate import (
    CompositionState,
    InputRow,
    Levels,
    Life,
    OpenSpan,
    PeakState,
    PhaseRow,
    RankState,
)
from gpumem_tui.analysis.state import Curve as RankCurve
from gpumem_tui.records import Reason
from gpumem_tui.records.ending import Ending
from gpumem_tui.session.bands import Bands
from gpumem_tui.session.curve import Curve
from gpumem_tui.session.phasetable import PhaseMarks, PhaseTable
from gpumem_tui.session.recent import Recent
from gpumem_tui.session.times import ended_ns

STEADY_NS = 200_000_000
"""Two samples at the default rate to each side."""

SILENT_NS = 5_000_000_000
"""A living process that has not spoken for this long is silent."""

MARKS = 256
"""Marks kept of a process, the latest."""


class RankDevice:
    """One device as one process sees it."""

    def __init__(self) -> None:
        self.facts: records.Device | None = None
        self.allocated, self.reserved = Curve(), Curve()
        self.recent = Recent()
        self.last: records.Sample | None = None
        self.used = False
        """Whether this process has ever reserved memory there."""
        self.first_ns: int | None = None
        """When it was first seen to hold memory there."""

    def add_level(self, t_ns: int, allocated: int, reserved: int) -> None:
        """Levels of one call, from a sample or from the edge of a span."""
        if self.first_ns is None and reserved > 0:
            self.first_ns, self.used = t_ns, True
        self.recent.add((t_ns, allocated, reserved))

    def add_sample(self, sample: records.Sample) -> None:
        """A whole sample."""
        self.last = sample
        if sample.allocated_bytes is None or sample.reserved_bytes is None:
            return
        self.add_level(sample.t_ns, sample.allocated_bytes, sample.reserved_bytes)
        self.draw(sample)

    def add_folded(self, bucket: records.Samples) -> None:
        """A folded run of samples; its last one is a sample as it was."""
        if bucket.allocated is None or bucket.reserved is None:
            return
        self.used = self.used or bucket.reserved[1] > 0
        self.draw(bucket)
        t_ns, allocated, reserved = bucket.until_ns, bucket.allocated[2], bucket.reserved[2]
        self.last = records.Sample(
            t_ns, bucket.ordinal, allocated, reserved, alloc_retries=bucket.alloc_retries, ooms=bucket.ooms
        )
        self.add_level(t_ns, allocated, reserved)

    def draw(self, record: "records.Sample | records.Samples") -> None:
        """A sample, or a folded run of them, on the curves alone."""
        if not self.used:
            return
        if isinstance(record, records.Samples):
            if record.allocated is not None and record.reserved is not None:
                self.allocated.add(record.t_ns, record.until_ns, *record.allocated)
                self.reserved.add(record.t_ns, record.until_ns, *record.reserved)
        elif record.allocated_bytes is not None and record.reserved_bytes is not None:
            a, r, t = record.allocated_bytes, record.reserved_bytes, record.t_ns
            self.allocated.add(t, t, a, a, a)
            self.reserved.add(t, t, r, r, r)

    def nearest(self, t_ns: int | None) -> tuple[int, int, int] | None:
        """The levels read closest to a moment; the last ones where no moment is given."""
        return self.recent.nearest(t_ns)

    def least_between(self, since_ns: int, until_ns: int) -> int | None:
        """The least allocated of the readings between two moments, without both; None where there is none."""
        recent = self.recent.around((since_ns + until_ns) // 2, (until_ns - since_ns) // 2)
        found = [allocated for t_ns, allocated, _ in recent if since_ns < t_ns < until_ns]
        drawn = self.allocated.series()
        first = bisect_right(drawn.since_ns, since_ns)
        found += [drawn.low[at] for at in range(first, bisect_left(drawn.t_ns, until_ns))]
        return min(found, default=None)

    def steady(self, t_ns: int, within_ns: int) -> bool:
        """Whether reserved memory was the same in every reading around a moment."""
        return len({reserved for _, _, reserved in self.recent.around(t_ns, within_ns)}) <= 1

    def settled(self, t_ns: int, within_ns: int) -> int | None:
        """Reserved bytes at a moment, if they stood still around it, before and after."""
        first_ns = self.recent.first_ns
        if first_ns is None or first_ns > t_ns - within_ns:
            return self.reserved.settled(t_ns, within_ns)  # longer ago than readings are kept whole
        around = self.recent.around(t_ns, within_ns)
        if not around or not around[0][0] <= t_ns <= around[-1][0]:
            return None
        return around[0][2] if len({reserved for _, _, reserved in around}) == 1 else None


class RankModel:
    """The mutable model of one process; fed in journal order."""

    def __init__(self, pid: int, started_ticks: int | None) -> None:
        self.pid, self.started_ticks = pid, started_ticks
        self.parent: int | None = None
        self.python: str | None = None
        self.marks: dict[str, int] = {}
        """How often each mark was made."""
        self.rank: records.Rank | None = None
        self.torch: records.Torch | None = None
        self.devices: dict[int, RankDevice] = {}
        self.words: dict[str, str] = {}
        self.spoke_ns = 0
        self.seq = 0
        """Last edge seen, in the journal or in the ring."""
        self.open: dict[int, records.Begin] = {}
        self.phases = PhaseTable()
        self.bands = Bands(pid)
        self.phase_marks = PhaseMarks()
        self.recent_marks: deque[records.Mark] = deque(maxlen=MARKS)
        self.step: int | None = None
        self._step_times: deque[tuple[int, int]] = deque(maxlen=21)
        """(t_ns, step) of the first span of each step."""
        self.composition: dict[int, records.Composition] = {}
        self.inputs: dict[tuple[str, str, str], int] = {}
        self.peaks: dict[int, PeakState] = {}
        self.bye = False
        self.last_word: int | None = None
        """How it was about to end, by its ring (``agent.ring``); None where that is not told."""
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
                self.sample(record)
            case records.Begin():
                self.begin(record)
            case records.End():
                self.end(record)
            case records.Samples():
                self.device(record.ordinal).add_folded(record)
            case records.Spans():
                self._folded(record)
                self.bands.folded(record)
                self._mark(record.until_ns)
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
            case records.Peaks(_, ordinal, int(allocated), int(reserved)):
                self.peaks[ordinal] = PeakState(ordinal, allocated, reserved)
            case records.Inputs():
                self.inputs[record.phase, record.name, record.input] = record.count
            case records.Mark():
                self.recent_marks.append(record)
                self.marks[record.name] = self.marks.get(record.name, 0) + _times(record)
            case records.Bye():
                self.bye = True
        self.spoke_ns = max(self.spoke_ns, ended_ns(record))

    def sample(self, sample: records.Sample) -> None:
        """Counters of one device."""
        self.device(sample.ordinal).add_sample(sample)

    def begin(self, begin: records.Begin) -> None:
        """A span has begun; one that was told already, by the ring or the journal, is passed over."""
        if begin.seq <= self.seq:
            return
        self.seq = begin.seq
        self.open[begin.span] = begin
        self.phases.began(begin)
        self.bands.began(begin)
        devices = self.devices
        for ordinal, allocated, reserved in begin.levels:
            device = devices.get(ordinal) or self.device(ordinal)
            device.add_level(begin.t_ns, allocated, reserved)
        if begin.step != self.step:
            self._stepped(begin.step, begin.t_ns)

    def _stepped(self, step: int | None, t_ns: int) -> None:
        if step is None or step == self.step:
            return
        if self.step is None or step < self.step:  # a first training step ends what was counted before
            self._step_times.clear()
        self.step = step
        self._step_times.append((t_ns, step))

    def _folded(self, spans: records.Spans) -> None:
        """Spans that were summarised, by the recorder or, being many and short, by the process itself."""
        self.phases.add_folded(spans)
        if spans.seq is not None:
            self.seq = max(self.seq, spans.seq)
        if spans.step is not None and spans.step > (self.step or 0):
            self._stepped(spans.step, spans.until_ns)

    def end(self, end: records.End) -> None:
        """A span has ended, likewise."""
        if end.seq <= self.seq:
            return
        self.seq = end.seq
        begin = self.open.pop(end.span, None)
        devices = self.devices
        for ordinal, allocated, reserved, *_ in end.levels:
            device = devices.get(ordinal) or self.device(ordinal)
            device.add_level(end.t_ns, allocated, reserved)
        self.bands.ended(end)
        if begin is not None:
            self.phases.add(begin, end)
            if end.t_ns >= self.phase_marks.due_ns:
                self._mark(end.t_ns)

    def _mark(self, t_ns: int) -> None:
        if self.phase_marks.due(t_ns):
            self.phase_marks.add(t_ns, self.rows())

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

    def life(self, now_ns: int, alive: bool, run_over: bool, ending: Ending | None = None) -> Life:
        """How far this process has come."""
        if ending is not None and not alive:
            return Life.FAILED if ending.shell_code() else Life.ENDED
        if self.bye:
            return Life.ENDED
        if run_over or not alive:
            return Life.LOST
        return Life.SILENT if now_ns - self.spoke_ns > SILENT_NS else Life.RUNNING

    def state(self, now_ns: int, alive: bool, run_over: bool, ending: Ending | None = None) -> RankState:
        """The frozen picture. ``ending``: how somebody saw it end."""
        rank, torch = self.rank, self.torch
        life = self.life(now_ns, alive, run_over, ending)
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
            python=self.python,
            backend_version=torch.backend_version if torch else None,
            allocator_settings=torch.settings if torch else None,
            marks=tuple(self.marks.items()),
            ending=ending.sentence() if ending is not None and life is Life.FAILED else None,
            peaks=tuple(self.peaks[ordinal] for ordinal in sorted(self.peaks)),
        )

    def _pace(self, now_ns: int) -> float | None:
        """Steps a second over the last twenty; None before the second and after a long silence."""
        times = self._step_times
        if len(times) < 2 or now_ns - times[-1][0] > 60_000_000_000:
            return None
        (since_ns, first), (until_ns, last) = times[0], times[-1]
        return (last - first) * 1e9 / (until_ns - since_ns)

    def step_seconds(self, now_ns: int) -> float | None:
        """How long a step takes, over the last twenty; None where no pace is known."""
        pace = self._pace(now_ns)
        return 1 / pace if pace else None

    def curve(self, ordinal: int) -> RankCurve:
        """The history of one device."""
        device = self.device(ordinal)
        return RankCurve(self.pid, self.number, device.allocated.series(), device.reserved.series())

    def rows(self) -> list[PhaseRow]:
        """The phase table."""
        return self.phases.rows(self.pid, self.number)


_LEFT_OUT = re.compile(r"(\d+) more since the last")


def _times(mark: records.Mark) -> int:
    """How often that was: marks of one name are written once a second at most, and say how many were not."""
    told = _LEFT_OUT.fullmatch(mark.detail or "")
    return 1 + (int(told[1]) if told and mark.name != "mark" else 0)


def _composed(record: records.Composition) -> CompositionState:
    """With what is computed from it: live tensors beyond the known kinds."""
    known = (
        record.parameters_bytes or 0,
        record.gradients_bytes or 0,
        record.optimizer_bytes or 0,
        record.buffers_bytes or 0,
        record.caches_bytes or 0,
    )
    other = None
    if record.complete and record.allocated_bytes is not None:
        other = record.allocated_bytes - sum(known)
    return CompositionState(
        record.ordinal,
        record.t_ns,
        record.step,
        *known[:4],
        other,
        record.allocated_bytes,
        record.complete,
        record.caches_bytes,
        tuple(record.dtypes),
    )
