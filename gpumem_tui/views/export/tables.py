"""CSV: five tables with raw bytes. Their columns, in :data:`TABLES`, are this module's promise.

Every row begins with the run, its cards (``real`` or ``SIMULATED …``) and whether it is a bundled
recording. A missing figure is an empty field; ``reason`` says why. Figures are never added:
one row has one counter. Columns may be added at the end; none is renamed or removed.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpumem_tui import records
from gpumem_tui.analysis.factors import factors_of
from gpumem_tui.analysis.ledger import Term
from gpumem_tui.analysis.state import RunState
from gpumem_tui.records import Header
from gpumem_tui.views.export.source import Names, Records, names_of

_RUN = ("run", "cards", "recorded")

TABLES: dict[str, tuple[str, ...]] = {
    # one row for one counter at one moment; a folded row has low, high and last of its interval
    "timeline": (
        *_RUN, "since_ns", "t_ns", "wall_ns", "source", "basis", "pid", "rank", "ordinal", "device", "uuid",
        "counter", "low_bytes", "high_bytes", "last_bytes", "reason",
    ),
    # one row for one finished span on one device
    "spans": (
        *_RUN, "pid", "rank", "thread", "ordinal", "device", "phase", "name", "step", "since_ns", "t_ns",
        "duration_ns", "error", "start_allocated_bytes", "start_reserved_bytes", "peak_allocated_bytes",
        "peak_reserved_bytes", "exact", "end_allocated_bytes", "end_reserved_bytes", "reason",
    ),
    # one row for a phase of a rank on a device, cold or warm, over all its spans
    "phases": (
        *_RUN, "pid", "rank", "ordinal", "device", "phase", "name", "kind", "count", "errors", "duration_ns",
        "start_allocated_bytes", "start_reserved_bytes", "peak_allocated_bytes", "peak_reserved_bytes",
        "exact", "end_allocated_bytes", "end_reserved_bytes", "last_ns", "reason",
    ),
    # one row for a term of a device's ledger at the shown moment
    "ledger": (
        *_RUN, "moment", "t_ns", "device", "uuid", "term", "pid", "rank", "holder", "bytes", "basis",
        "source", "reason", "detail",
    ),
    # one row for a fact of what was run, as ``compare`` names it, and where and when
    "identity": (*_RUN, "name", "value", "reason"),
}  # fmt: skip
"""Columns of every table, in order."""

_FOLDED = "folded away with the spans it belonged to, or not read then"
_UNREAD = "not read"

Row = dict[str, Any]


def lines(table: str, state: RunState, stream: Records) -> Iterator[str]:
    """The head and every row, each with its line end (RFC 4180)."""
    names = names_of(state)
    columns = TABLES[table]
    run: Row = {"run": names.run, "cards": names.cards, "recorded": names.recorded}
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns, restval="")
    writer.writeheader()
    for row in _READERS[table](state, stream, names):
        writer.writerow({key: _field(value) for key, value in (run | row).items()})
        if buffer.tell() > 1 << 16:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _field(value: Any) -> Any:
    """Booleans as ``true`` and ``false``; nothing for None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


# --- timeline -------------------------------------------------------------------------------------


def _timeline(state: RunState, stream: Records, names: Names) -> Iterator[Row]:
    for head, record in stream:
        match record:
            case records.Sample():
                yield from _sample(head, record, names)
            case records.Samples():
                yield from _samples(head, record, names)
            case records.Memory():
                yield from _memory(record, names)
            case records.Memories():
                yield from _memories(record, names)
            case records.Processes():
                yield from _processes(record, names)


def _of_rank(head: Header, ordinal: int, names: Names) -> Row:
    device = names.devices.get((head.pid, ordinal))
    return {
        "source": "pytorch",
        "basis": "observed",
        "pid": head.pid,
        "rank": names.ranks.get(head.pid),
        "ordinal": ordinal,
        "device": device,
        "uuid": None if device is None else names.uuids.get(device),
    }


def _at(t_ns: int, names: Names, since_ns: int | None = None) -> Row:
    return {"since_ns": t_ns if since_ns is None else since_ns, "t_ns": t_ns, "wall_ns": names.wall_ns(t_ns)}


def _figure(counter: str, value: int | None, reason: str) -> Row:
    same = {"counter": counter, "low_bytes": value, "high_bytes": value, "last_bytes": value}
    return {**same, "reason": reason if value is None else None}


def _extent(counter: str, extent: tuple[int, int, int] | None) -> Row:
    if extent is None:
        return {"counter": counter, "reason": _UNREAD}
    return {"counter": counter, "low_bytes": extent[0], "high_bytes": extent[1], "last_bytes": extent[2]}


def _sample(head: Header, record: records.Sample, names: Names) -> Iterator[Row]:
    base = _at(record.t_ns, names) | _of_rank(head, record.ordinal, names)
    yield base | _figure("allocated", record.allocated_bytes, _UNREAD)
    yield base | _figure("reserved", record.reserved_bytes, _UNREAD)


def _samples(head: Header, record: records.Samples, names: Names) -> Iterator[Row]:
    base = _at(record.until_ns, names, record.t_ns) | _of_rank(head, record.ordinal, names)
    yield base | _extent("allocated", record.allocated)
    yield base | _extent("reserved", record.reserved)


def _of_driver(index: int, names: Names, basis: str = "observed") -> Row:
    return {"source": "nvml", "basis": basis, "device": index, "uuid": names.uuids.get(index)}


def _memory(record: records.Memory, names: Names) -> Iterator[Row]:
    base = _at(record.t_ns, names) | _of_driver(record.index, names)
    reason = record.reason or _UNREAD
    yield base | _figure("device total", record.total_bytes, reason)
    yield base | _figure("device free", record.free_bytes, reason)
    missing = record.reason or "not supported"
    yield base | _figure("driver reserved", record.driver_reserved_bytes, missing)


def _memories(record: records.Memories, names: Names) -> Iterator[Row]:
    base = _at(record.until_ns, names, record.t_ns) | _of_driver(record.index, names)
    yield base | _figure("device total", record.total_bytes, _UNREAD)
    yield base | _extent("device free", record.free)
    yield base | _figure("driver reserved", record.driver_reserved_bytes, "not supported")


def _processes(record: records.Processes, names: Names) -> Iterator[Row]:
    base = _at(record.t_ns, names) | _of_driver(record.index, names)
    if record.reason is not None:
        yield base | _figure("process used", None, record.reason)
    for pid, used, _, reason in record.rows:
        who = {"pid": pid, "rank": names.ranks.get(pid)}
        yield base | who | _figure("process used", used, reason or "not supported")


# --- spans ----------------------------------------------------------------------------------------


def _spans(state: RunState, stream: Records, names: Names) -> Iterator[Row]:
    open_spans: dict[tuple[int, int], records.Begin] = {}
    for head, record in stream:
        if isinstance(record, records.Begin):
            open_spans[head.pid, record.span] = record
        elif isinstance(record, records.End):
            begin = open_spans.pop((head.pid, record.span), None)
            if begin is not None:
                yield from _span(head, begin, record, names)


def _span(head: Header, begin: records.Begin, end: records.End, names: Names) -> Iterator[Row]:
    starts = {level[0]: level[1:] for level in begin.levels}
    base: Row = {
        "pid": head.pid,
        "rank": names.ranks.get(head.pid),
        "thread": begin.thread,
        "phase": begin.phase,
        "name": begin.name,
        "step": begin.step,
        "since_ns": begin.t_ns,
        "t_ns": end.t_ns,
        "duration_ns": end.t_ns - begin.t_ns,
        "error": end.error,
    }
    for ordinal, allocated, reserved, peak_allocated, peak_reserved, exact in end.levels:
        started = starts.get(ordinal)
        yield base | {
            "ordinal": ordinal,
            "device": names.devices.get((head.pid, ordinal)),
            "start_allocated_bytes": None if started is None else started[0],
            "start_reserved_bytes": None if started is None else started[1],
            "peak_allocated_bytes": peak_allocated,
            "peak_reserved_bytes": peak_reserved,
            "exact": exact,
            "end_allocated_bytes": allocated,
            "end_reserved_bytes": reserved,
            "reason": "start: not read then" if started is None else None,
        }
    if not end.levels:
        yield base | {"reason": "no device was read at its end"}


# --- phases and ledger: from the state ------------------------------------------------------------


def _phases(state: RunState, stream: Records, names: Names) -> Iterator[Row]:
    for row in state.phases:
        figures = {
            name: getattr(row, name)
            for name in TABLES["phases"]
            if hasattr(row, name) and name not in ("run", "cards", "recorded")
        }
        missing = [name for name, value in figures.items() if name.endswith("_bytes") and value is None]
        yield figures | {
            "device": names.devices.get((row.pid, row.ordinal)),
            "kind": "cold" if row.cold else "warm",
            "reason": f"{', '.join(missing)}: {_FOLDED}" if missing else None,
        }


def _ledger(state: RunState, stream: Records, names: Names) -> Iterator[Row]:
    for device in state.devices:
        ledger = device.ledger
        base: Row = {"moment": state.facts.moment or "now", "device": device.index, "uuid": device.uuid}

        def row(term: str, figure: Term, base: Row = base, **who: Any) -> Row:
            return {
                **base,
                "term": term,
                **who,
                "t_ns": figure.t_ns,
                "bytes": figure.bytes,
                "basis": figure.basis.value,
                "source": figure.source,
                "reason": None if figure.reason is None else figure.reason.value,
                "detail": figure.detail,
            }

        for share in ledger.ranks:
            who: Row = {"pid": share.pid, "rank": share.rank}
            yield row("allocated", share.allocated, **who)
            yield row("cached", share.cached, **who)
            yield row("outside PyTorch", share.outside, **who)
            if share.opaque:
                yield row("process used", share.used, **who)
        for other in ledger.others:
            yield row("other process", other.used, pid=other.pid, holder=other.name)
        yield row("driver reserved", ledger.driver_reserved)
        yield row("unattributed", ledger.unattributed)
        if ledger.merged is not None:
            yield row("merged", ledger.merged, holder=ledger.merged_label)
        yield row("free", ledger.free)
        yield row("total", ledger.total)


# --- identity ------------------------------------------------------------------------------------


def _identity(state: RunState, stream: Records, names: Names) -> Iterator[Row]:
    facts, identity = state.facts, state.facts.identity
    told: list[tuple[str, str | None]] = [
        (factor.name, factor.values[0])
        for factor in factors_of([state])
        if factor.name != "memory of the cards"  # rounded; the table of ledgers has it to the byte
    ]
    told += [("host", facts.host), ("ending", facts.ending), ("started_wall_ns", str(facts.started_wall_ns))]
    why = "not known"
    if identity is not None:
        why = identity.revision.reason or why
        told += [("commit", identity.revision.commit), ("branch", identity.revision.branch)]
        told += [("working directory", identity.cwd), ("gpumem-tui", identity.version)]
        told += [("samples a second and rank", f"{identity.hertz:g}")]
    for name, value in told:
        reason = why if name in ("code revision", "commit", "branch") else "not known"
        yield {"name": name, "value": value, "reason": reason if value is None else None}


_READERS: dict[str, Callable[[RunState, Records, Names], Iterable[Row]]] = {
    "timeline": _timeline,
    "spans": _spans,
    "phases": _phases,
    "ledger": _ledger,
    "identity": _identity,
}
