"""Chrome's trace format, for Perfetto and chrome://tracing: phases as slices, counters as tracks.

Each rank is a process of the trace with its threads and, for each device, one track
for allocated and one for reserved: counters of one event would be stacked, and these two must
never be added. Each card is a process of its own with what the driver says. A folded point
is its last value, and its highest on a track of its own. Where a reading is missing there is
an instant that says why, and no counter. Events are sorted by time; ``ts`` are
microseconds since the run began, ``otherData`` ties them to the clocks.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import msgspec

from gpumem_tui import records
from gpumem_tui.analysis.state import RunState
from gpumem_tui.records import Header
from gpumem_tui.views.export.source import Names, Records, names_of

CARD_PID = 10_000_000
"""Process number of card 0 in the trace; beyond every real pid (Linux ends at 4,194,304)."""

RUN_PID = CARD_PID - 1
"""Process number of what belongs to the run as a whole."""

Event = dict[str, Any]

_encode = msgspec.json.Encoder().encode


def chunks(state: RunState, stream: Records) -> Iterator[bytes]:
    """The document in pieces."""
    names = names_of(state)
    trace = _Trace(names)
    for head, record in stream:
        trace.take(head, record)
    trace.close()
    trace.events.sort()
    origin_ns = min([names.started_ns, *(t_ns for t_ns, _, _ in trace.events[:1])])
    yield b'{"displayTimeUnit":"ms","otherData":' + _encode(_other(state, names, origin_ns))
    yield b',"traceEvents":[\n'
    yield b",\n".join(map(_encode, _metadata(trace, names)))
    for t_ns, _, event in trace.events:
        yield b',\n{"ts":%.3f,' % ((t_ns - origin_ns) / 1000) + event[1:]
    yield b"\n]}\n"


def _other(state: RunState, names: Names, origin_ns: int) -> dict[str, Any]:
    return {
        "run": names.run,
        "cards": names.cards,
        "recorded": names.recorded,
        "command": " ".join(state.facts.command),
        "host": state.facts.host,
        "labels": dict(state.facts.labels),
        "identity": msgspec.to_builtins(state.facts.identity),
        "origin_monotonic_ns": origin_ns,
        "origin_wall_ns": names.wall_ns(origin_ns),
    }


def _metadata(trace: "_Trace", names: Names) -> Iterator[Event]:
    """Names of processes and threads; the cards stand below the ranks."""
    badge = "" if names.cards == "real" else f" ({names.cards})"
    badge += " (RECORDED)" if names.recorded else ""
    yield _named("process_name", RUN_PID, name=f"run {names.run}{badge}")
    yield _named("process_sort_index", RUN_PID, sort_index=-1)
    for pid in sorted(trace.processes):
        rank = names.ranks.get(pid)
        title = f"process {pid}" if rank is None else f"rank {rank} ({pid})"
        yield _named("process_name", pid, name=title + badge)
        yield _named("process_sort_index", pid, sort_index=rank or 0)
    for (pid, thread), number in sorted(trace.threads.items(), key=itemgetter(1)):
        yield _named("thread_name", pid, number, name=f"thread {thread}")
    for index in sorted(trace.cards):
        yield _named("process_name", CARD_PID + index, name=f"GPU {index}, by the driver{badge}")
        yield _named("process_sort_index", CARD_PID + index, sort_index=CARD_PID + index)


def _named(what: str, pid: int, tid: int = 0, **args: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "ts": 0, "args": args}


class _Trace:
    """Gathers (t_ns, event) of everything that a trace can show."""

    def __init__(self, names: Names) -> None:
        self.events: list[tuple[int, float, bytes]] = []
        """(t_ns, −duration, JSON without ``ts``): of slices that begin together, the longest first."""
        self.processes: set[int] = set()
        self.cards: set[int] = set()
        self.threads: dict[tuple[int, int], int] = {}
        """Small numbers for threads: their idents are beyond what viewers take."""
        self._names = names
        self._open: dict[tuple[int, int], records.Begin] = {}
        self._missing: dict[int, str | None] = {}

    def take(self, head: Header, record: records.Record) -> None:
        """One record."""
        match record:
            case records.Sample():
                place = f"cuda:{record.ordinal}"
                self._counter(record.t_ns, head.pid, f"allocated {place}", record.allocated_bytes)
                self._counter(record.t_ns, head.pid, f"reserved {place}", record.reserved_bytes)
            case records.Samples():
                self._folded(record.until_ns, head.pid, f"allocated cuda:{record.ordinal}", record.allocated)
                self._folded(record.until_ns, head.pid, f"reserved cuda:{record.ordinal}", record.reserved)
            case records.Begin():
                self._open[head.pid, record.span] = record
            case records.End():
                begin = self._open.pop((head.pid, record.span), None)
                if begin is not None:
                    self._slice(head.pid, begin, record)
            case records.Spans() if record.thread is not None:
                self._run(head.pid, record)
            case records.Mark():
                self._instant(record.t_ns, head.pid, record.name, detail=record.detail)
            case records.Failure():
                self._instant(
                    record.t_ns,
                    head.pid,
                    "out of memory",
                    requested_bytes=record.requested_bytes,
                    phase=record.phase,
                    step=record.step,
                )
            case records.Memory():
                self._memory(record)
            case records.Memories():
                self.cards.add(record.index)
                self._folded(record.until_ns, CARD_PID + record.index, "free", record.free)
            case records.Processes():
                self._processes(record)
            case records.Signal():
                self._instant(record.t_ns, RUN_PID, f"signal {record.number}", action=record.action)
            case records.Exit():
                self._instant(record.t_ns, RUN_PID, "exit", code=record.code, signal=record.signal)

    def close(self) -> None:
        """Spans that never ended begin, and say so."""
        for (pid, _), begin in self._open.items():
            event = self._span(pid, begin) | {"ph": "B"}
            event["args"]["ended"] = False
            self._add(begin.t_ns, event)

    def _add(self, t_ns: int, event: Event) -> None:
        self.events.append((t_ns, -event.get("dur", 0.0), _encode(event)))

    def _counter(self, t_ns: int, pid: int, name: str, value: int | None) -> None:
        if pid < RUN_PID:
            self.processes.add(pid)
        if value is not None:
            event = {"ph": "C", "name": name, "pid": pid, "tid": 0, "args": {"bytes": value}}
            self._add(t_ns, event)

    def _folded(self, t_ns: int, pid: int, name: str, extent: tuple[int, int, int] | None) -> None:
        if extent is not None:
            self._counter(t_ns, pid, name, extent[2])
            self._counter(t_ns, pid, f"{name}, highest of folded", extent[1])

    def _instant(self, t_ns: int, pid: int, name: str, **args: Any) -> None:
        if pid < RUN_PID:
            self.processes.add(pid)
        known = {key: value for key, value in args.items() if value is not None}
        event = {"ph": "i", "s": "p", "name": name, "pid": pid, "tid": 0, "args": known}
        self._add(t_ns, event)

    def _span(self, pid: int, begin: records.Begin) -> Event:
        thread = self.threads.setdefault((pid, begin.thread or 0), len(self.threads) + 1)
        self.processes.add(pid)
        name = begin.phase if begin.name in ("", begin.phase) else f"{begin.phase} {begin.name}"
        args = {} if begin.step is None else {"step": begin.step}
        return {"name": name, "cat": "phase", "pid": pid, "tid": thread, "args": args}

    def _slice(self, pid: int, begin: records.Begin, end: records.End) -> None:
        event = self._span(pid, begin) | {"ph": "X", "dur": (end.t_ns - begin.t_ns) / 1000}
        if end.error is not None:
            event["args"]["error"] = end.error
        for ordinal, allocated, reserved, peak_allocated, peak_reserved, exact in end.levels:
            event["args"] |= {
                f"cuda:{ordinal} end allocated bytes": allocated,
                f"cuda:{ordinal} end reserved bytes": reserved,
                f"cuda:{ordinal} peak allocated bytes": peak_allocated,
                f"cuda:{ordinal} peak reserved bytes": peak_reserved,
                f"cuda:{ordinal} peaks exact": exact,
            }
        self._add(begin.t_ns, event)

    def _run(self, pid: int, spans: records.Spans) -> None:
        """Equal short spans in a row, which the process has summarised as it wrote them."""
        begin = records.Begin(spans.t_ns, 0, 0, None, spans.thread, spans.phase, spans.name, spans.step)
        event = self._span(pid, begin) | {"ph": "X", "dur": (spans.until_ns - spans.t_ns) / 1000}
        event["name"] += f" × {spans.count}"
        event["args"]["spans"] = spans.count
        for what in ("peak_allocated", "peak_reserved"):
            extent = getattr(spans, what)
            if extent is not None:
                key = f"cuda:{spans.ordinal} {what.replace('_', ' ')} bytes"
                event["args"][key] = extent[1]
        self._add(spans.t_ns, event)

    def _memory(self, record: records.Memory) -> None:
        pid = CARD_PID + record.index
        self.cards.add(record.index)
        self._counter(record.t_ns, pid, "free", record.free_bytes)
        if record.total_bytes is not None and record.free_bytes is not None:
            self._counter(record.t_ns, pid, "used: total − free", record.total_bytes - record.free_bytes)
        if self._missing.get(record.index) != record.reason:
            self._missing[record.index] = record.reason
            if record.reason is not None:
                self._instant(record.t_ns, pid, f"reading missing: {record.reason}")

    def _processes(self, record: records.Processes) -> None:
        self.cards.add(record.index)
        for pid, used, _, _ in record.rows:
            rank = self._names.ranks.get(pid)
            who = f"process {pid}" if rank is None else f"rank {rank}"
            self._counter(record.t_ns, CARD_PID + record.index, f"used by {who}", used)
