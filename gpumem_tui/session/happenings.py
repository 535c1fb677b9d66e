"""Events in one line each, from records as they come. Says what happened; diagnosis is not its trade."""

from collections import deque

from gpumem_tui import records
from gpumem_tui.analysis.state import Event, Severity
from gpumem_tui.records.ending import Ending, signal_name
from gpumem_tui.units import format_bytes

MOST = 400
"""Events kept for the views."""

STEP_BYTES = 64 << 20
"""A change of memory outside PyTorch that is worth a line."""


class Happenings:
    """The run's events, oldest first."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MOST)
        self._outside: dict[tuple[int, int], int] = {}

    def add(
        self, t_ns: int, severity: Severity, text: str, rank: int | None = None, device: int | None = None
    ) -> None:
        """One event."""
        self._events.append(Event(t_ns, severity, text, rank, device))

    def of_rank(self, rank: int | None, record: object) -> None:
        """What a line of a rank's journal has to say, if anything."""
        match record:
            case records.Mark():
                detail = f" ({record.detail})" if record.detail else ""
                self.add(record.t_ns, Severity.INFO, f"{record.name}{detail}", rank)
            case records.Word():
                self.add(record.t_ns, Severity.WARNING, record.text, rank)
            case records.Failure():
                where = f" in {record.phase}" if record.phase else ""
                step = f", step {record.step}" if record.step else ""
                text = f"out of memory{where}{step}: wanted {format_bytes(record.requested_bytes)}"
                self.add(record.t_ns, Severity.FAILURE, text, rank)
            case records.End() if record.error is not None:
                self.add(record.t_ns, Severity.WARNING, f"a span ended by {record.error}", rank)

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

    def outside(self, t_ns: int, device: int, pid: int, rank: int | None, value: int) -> None:
        """Memory outside PyTorch, at each paired reading: steps of it are events."""
        before = self._outside.get((device, pid))
        if before is None:
            self._outside[device, pid] = value
            text = f"outside PyTorch: {format_bytes(value)} at first sight"
            self.add(t_ns, Severity.INFO, text, rank, device)
        elif abs(value - before) >= STEP_BYTES:
            self._outside[device, pid] = value
            sign = "+" if value > before else ""
            text = f"outside PyTorch {sign}{format_bytes(value - before)}"
            self.add(t_ns, Severity.INFO, text, rank, device)

    def events(self) -> tuple[Event, ...]:
        """A frozen copy, in order of time."""
        return tuple(sorted(self._events, key=lambda event: event.t_ns))
