"""The finished spans of a recording one by one, for measurements. Reads whole journals: short runs only."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpumem_tui import records
from gpumem_tui.analysis.measurement import Span
from gpumem_tui.journal.follow import Follower
from gpumem_tui.journal.rundir import RunDirectory


def read_spans(run: RunDirectory, phases: Collection[str], warm: Collection[str] = ()) -> list[Span]:
    """Spans of those phases in the order in which they ended, one for each device.

    A span within another of them is part of it and no row of its own, but it counts
    for cold and warm: a phase is cold where its work is done for the first time.
    Those in ``warm`` are warm by their protocol. Raises :class:`UnreadableRecording`
    where a journal is none.
    """
    begun: dict[tuple[int, int], _Open] = {}
    done: dict[tuple[int, str], int] = {}
    numbers: dict[tuple[int, str], int] = {}
    ranks: dict[int, int | None] = {}
    spans: list[Span] = []
    for head, record in Follower(run).poll():
        pid = head.pid
        match record:
            case records.Rank():
                ranks[pid] = record.rank
            case records.Begin(phase=phase):
                within = begun.get((pid, record.parent or 0))
                inside = within is not None and (within.inside or within.begin.phase in phases)
                cold = (pid, phase) not in done and phase not in warm
                begun[pid, record.span] = _Open(record, inside, cold)
                done[pid, phase] = done.get((pid, phase), 0) + 1
            case records.End() if (pid, record.span) in begun:
                open_ = begun.pop((pid, record.span))
                phase = open_.begin.phase
                if open_.inside or phase not in phases:
                    continue
                numbers[pid, phase] = number = numbers.get((pid, phase), 0) + 1
                spans += _rows(open_, record, pid, ranks.get(pid), number)
    return spans


@dataclass(frozen=True)
class _Open:
    begin: records.Begin
    inside: bool
    """Within another span that is measured."""
    cold: bool


def _rows(open_: _Open, end: records.End, pid: int, rank: int | None, number: int) -> Iterator[Span]:
    begin = open_.begin
    starts = {ordinal: levels for ordinal, *levels in begin.levels}
    for ordinal, allocated, reserved, peak_allocated, peak_reserved, exact in end.levels:
        start = starts.get(ordinal, (None, None))
        yield Span(
            pid=pid,
            rank=rank,
            phase=begin.phase,
            ordinal=ordinal,
            number=number,
            cold=open_.cold,
            began_ns=begin.t_ns,
            duration_ns=end.t_ns - begin.t_ns,
            start_allocated_bytes=start[0],
            start_reserved_bytes=start[1],
            peak_allocated_bytes=peak_allocated,
            peak_reserved_bytes=peak_reserved,
            exact=exact,
            end_allocated_bytes=allocated,
            end_reserved_bytes=reserved,
            error=end.error,
        )
