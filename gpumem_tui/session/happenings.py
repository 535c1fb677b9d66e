"""Events in one line each, from records as they come. Says what happened; diagnosis is not its trade."""

import bisect

import msgspec

from gpumem_tui import records
from gpumem_tui.analysis.optimizers import first_step_bytes
from gpumem_tui.analysis.state import Event, Severity
from gpumem_tui.records.ending import Ending, signal_name
from gpumem_tui.units import format_bytes

SHOWN = 400
"""Events in one picture."""

MOST = 10_000
"""Events kept of a run; beyond it, calm ones of long ago are counted by those that stay."""

LONGEST_MESSAGE = 120
"""Characters of what an error said; the report of the failure has more."""

STEP_BYTES = 64 << 20
"""A change of memory outside PyTorch that is worth a line."""


def _foreseen(record: records.Optimizer) -> str | None:
    """What an optimizer's first step will make; None where its class is not known, or nothing is."""
    makes = first_step_bytes(record.name, record.parameters_bytes or 0, record.options)
    more = max(0, (makes or 0) - (record.state_bytes or 0))
    return f"{record.name} will make {format_bytes(more)} of state at its first step" if more else None


def _first_line(text: str) -> str:
    line = text.splitlines()[0]
    return line if len(line) <= LONGEST_MESSAGE else f"{line[: LONGEST_MESSAGE - 1].rstrip()}…"


class Happenings:
    """The run's events, oldest first."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._events: list[Event] = []
        self._marked: list[Event] = []
        """Those that are not calm."""
        self._counted = 0
        """Events that others count."""
        self._outside: dict[tuple[int, int], int] = {}

    def add(
        self, t_ns: int, severity: Severity, text: str, rank: int | None = None, device: int | None = None
    ) -> None:
        """One event."""
        event = Event(t_ns, severity, text, rank, device)
        bisect.insort_right(self._events, event, key=_time)
        if len(self._events) > self._most:
            self._thin()
        if severity is not Severity.INFO:
            bisect.insort_right(self._marked, event, key=_time)
            if len(self._marked) > self._most:
                self._marked = [event for event in self._events if event.severity is not Severity.INFO]

    def _thin(self) -> None:
        """Count every second one of long ago in the one before it: calm ones; others where they are most."""
        half = len(self._events) // 2
        old = self._events[:half]
        for loud in (_LOUD, _LOUD - {Severity.WARNING}, frozenset[Severity]()):
            kept: list[Event] = []
            last_stays = True
            for event in old:
                if kept and last_stays and event.severity not in loud and kept[-1].severity not in loud:
                    kept[-1] = msgspec.structs.replace(kept[-1], more=kept[-1].more + 1 + event.more)
                    last_stays = False
                else:
                    kept.append(event)
                    last_stays = True
            if len(kept) <= 0.8 * half:
                break
        self._events[:half] = kept
        self._counted += half - len(kept)

    def of_rank(self, rank: int | None, record: object) -> None:
        """What a line of a rank's journal has to say, if anything."""
        match record:
            case records.Mark():
                detail = f" ({record.detail})" if record.detail else ""
                self.add(record.t_ns, Severity.INFO, f"{record.name}{detail}", rank)
            case records.Word():
                self.add(record.t_ns, Severity.WARNING, record.text, rank)
            case records.Optimizer():
                text = _foreseen(record)
                if text is not None:
                    self.add(record.t_ns, Severity.INFO, text, rank)
            case records.Failure():
                where = f" in {record.phase}" if record.phase else ""
                step = f", step {record.step}" if record.step else ""
                text = f"out of memory{where}{step}: wanted {format_bytes(record.requested_bytes)}"
                self.add(record.t_ns, Severity.FAILURE, text, rank)
            case records.UncaughtException():
                where = f" in {record.phase}" if record.phase else ""
                where += f" in thread {record.thread}" if record.thread else ""
                said = f": {_first_line(record.text)}" if record.text else ""
                asked_for = record.error == "KeyboardInterrupt"
                severity = Severity.WARNING if asked_for else Severity.FAILURE
                self.add(record.t_ns, severity, f"{record.error}{where}, not caught{said}", rank)
            case records.Pressure():
                times = "once" if record.retries == 1 else f"{record.retries} times"
                text = f"nearly full: PyTorch flushed its cache {times} to satisfy an allocation"
                self.add(record.t_ns, Severity.WARNING, text, rank)
            case records.End() if record.error is not None:
                self.add(record.t_ns, Severity.WARNING, f"a span ended by {record.error}", rank)

    def of_driver(self, record: object) -> None:
        """What a line of the driver's journal has to say, beyond who came to a device."""
        if isinstance(record, records.Gone) and record.signal is not None:
            text = f"process {record.pid} ended: {Ending(None, record.signal).sentence()}"
            self.add(record.t_ns, Severity.WARNING, text)
        if isinstance(record, records.Kill):
            how_many = "a process" if record.count == 1 else f"{record.count} processes"
            whose = "in the workload's cgroup" if record.scope == "cgroup" else "on this node"
            gone = ", ".join(str(pid) for pid, _ in record.gone[:8])
            text = f"the kernel killed {how_many} {whose} for want of host memory"
            self.add(record.t_ns, Severity.FAILURE, f"{text}; gone: {gone}" if gone else text)

    def of_keeper(self, record: object) -> None:
        """What a keeper's line has to say."""
        match record:
            case records.Signal():
                self.add(
                    record.t_ns,
                    Severity.WARNING,
                    f"{signal_name(record.number)} {record.action or ''}".strip(),
                )
            case records.Exit():
                ending = Ending(record.code, record.signal)
                bad = record.signal is not None or record.code != 0
                self.add(
                    record.t_ns,
                    Severity.FAILURE if bad else Severity.INFO,
                    f"workload ended: {ending.sentence()}",
                )
            case records.Dropped() if record.reason:
                self.add(record.t_ns, Severity.WARNING, record.reason)

    def stranger(self, t_ns: int, device: int, pid: int, name: str, used: int | None, came: bool) -> None:
        """A process that is not ours has come to a device, or gone from it."""
        who = f"process {pid}" + (f" ({name})" if name else "")
        what = f"came, holding {format_bytes(used)}" if came else "has gone"
        self.add(t_ns, Severity.WARNING if came else Severity.INFO, f"{who} {what}", device=device)

    def recognised(self, t_ns: int, device: int, rank: int | None, pid: int, evidence: str) -> None:
        """A pid of another namespace is a rank of ours."""
        self.add(t_ns, Severity.INFO, f"is process {pid} of the driver's list: {evidence}", rank, device)

    def outside(
        self,
        t_ns: int,
        device: int,
        pid: int,
        rank: int | None,
        value: int,
        meanwhile: str = "",
        *,
        first: bool = True,
    ) -> None:
        """Memory outside PyTorch, at each paired reading: steps of it are events.

        ``first``: the first reading that there is here is the first that there was.
        """
        before = self._outside.get((device, pid))
        if before is None:
            self._outside[device, pid] = value
            if first:
                text = f"outside PyTorch: {format_bytes(value)} at first sight"
                self.add(t_ns, Severity.INFO, text, rank, device)
        elif abs(value - before) >= STEP_BYTES:
            self._outside[device, pid] = value
            sign = "+" if value > before else ""
            text = f"outside PyTorch {sign}{format_bytes(value - before)}{meanwhile}"
            self.add(t_ns, Severity.INFO, text, rank, device)

    def events(self, until_ns: int | None = None) -> tuple[Event, ...]:
        """The latest :data:`SHOWN` up to a moment, or of all, in order of time."""
        end = _end(self._events, until_ns)
        return tuple(self._events[max(0, end - SHOWN) : end])

    def earlier(self, until_ns: int | None = None) -> int:
        """How many were before those."""
        if until_ns is None:
            return max(0, len(self._events) - SHOWN) + self._counted
        return sum(1 + event.more for event in self._events[: max(0, _end(self._events, until_ns) - SHOWN)])

    def marked(self, until_ns: int | None = None) -> tuple[Event, ...]:
        """Warnings and failures, likewise."""
        end = _end(self._marked, until_ns)
        return tuple(self._marked[max(0, end - SHOWN) : end])

    def next_ns(self, after_ns: int) -> int | None:
        """When the first event after a moment was; None where none is known."""
        place = bisect.bisect_right(self._events, after_ns, key=_time)
        return self._events[place].t_ns if place < len(self._events) else None


_LOUD = frozenset((Severity.WARNING, Severity.FAILURE))


def _time(event: Event) -> int:
    return event.t_ns


def _end(events: list[Event], until_ns: int | None) -> int:
    return len(events) if until_ns is None else bisect.bisect_right(events, until_ns, key=_time)
