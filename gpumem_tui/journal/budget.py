"""Keeps the journals of a run within their share of the disk, by folding the oldest first.

Nothing is folded while everything fits. Then whatever is older than :data:`WHOLE_NS`
goes to buckets of 1 s, the oldest segment first, until it fits; if that is not
enough, to 10 s, to 60 s, to 600 s. Only if that is not enough either, closed segments
of the last minutes are folded too. Segments that are being written never are. The
budget is that of the journals; output log, rings and failure records are not folded.

Called every few seconds: a listing when all is well, and a bounded amount of folding
otherwise. May be killed at any point: what is left over is removed by the next call.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

from gpumem_tui.agent import wire
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.journal.fold import StillWritten, fold_segment
from gpumem_tui.journal.foldfacts import decode_fold_facts
from gpumem_tui.journal.lines import open_regular
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.segments import Listing, Segment, scan
from gpumem_tui.journal.window import first_line
from gpumem_tui.records import Header, decode_header

WIDTHS_NS = (1_000_000_000, 10_000_000_000, 60_000_000_000, 600_000_000_000)
"""Of the buckets; each a multiple of the one before."""

WHOLE_NS = 600_000_000_000
"""What is younger stays whole as long as it can."""

WORK_BYTES = 8 << 20
"""Folded in one call, give or take a segment; about a tenth of a second for each MiB."""

MINIMUM_BYTES = 16 << 10
"""Smaller segments are hardly more than their header; folding them gains nothing."""


@dataclass(frozen=True)
class BudgetReport:
    """What one call found and did."""

    bytes_before: int
    bytes_after: int
    over: bool
    """Still more than the budget: more to do with the next call, or nothing left to fold."""
    folded: tuple[tuple[str, int], ...] = ()
    """Name of the fold and width of its buckets, in nanoseconds."""
    removed: tuple[str, ...] = ()
    """Leftovers of a call that was killed."""
    left: tuple[str, ...] = ()
    """One line for each segment that should have been folded and could not be."""


@dataclass(frozen=True)
class _Closed:
    """A segment that nobody writes any more."""

    segment: Segment
    size_bytes: int
    began_ns: int
    ended_ns: int
    bucket_ns: int


def keep_within(
    run: RunDirectory,
    budget_bytes: int,
    now_ns: int,
    *,
    whole_ns: int = WHOLE_NS,
    work_bytes: int = WORK_BYTES,
) -> BudgetReport:
    """Fold the oldest segments until the journals fit, at most ``work_bytes`` of them in this call.

    ``now_ns`` is the monotonic clock of the node on which the run was recorded. One
    caller at a time. Raises OSError if the journals cannot be listed.
    """
    listing = scan(run.journal)
    removed = _remove_leftovers(run, listing)
    sizes = _sizes(run, listing)
    before = total = sum(sizes.values())
    if total <= budget_bytes:
        return BudgetReport(before, total, over=False, removed=removed)
    target = budget_bytes - budget_bytes // 16  # so that the next call finds room
    folded: list[tuple[str, int]] = []
    left: list[str] = []
    work = 0
    closed = list(_closed(run, listing, sizes, now_ns, left))
    for each, width_ns in _in_order(closed, now_ns - whole_ns):
        if total <= target or work >= work_bytes:
            break
        work += each.size_bytes
        try:
            path = fold_segment(run.journal / each.segment.name, width_ns)
            total += path.stat().st_size - each.size_bytes
            folded.append((path.name, width_ns))
        except StillWritten:
            continue
        except (OSError, UnreadableRecording) as error:
            left.append(f"{each.segment.name}: {error}")
    return BudgetReport(before, total, total > budget_bytes, tuple(folded), removed, tuple(left))


def _remove_leftovers(run: RunDirectory, listing: Listing) -> tuple[str, ...]:
    names = [*listing.leftovers, *listing.shadowed]
    for name in names:
        (run.journal / name).unlink(missing_ok=True)
    return tuple(names)


def _sizes(run: RunDirectory, listing: Listing) -> dict[str, int]:
    names = {segment.name for pieces in listing.writers.values() for segment in pieces.values()}
    with os.scandir(run.journal) as entries:
        return {e.name: e.stat().st_size for e in entries if e.name in names and e.is_file()}


def _in_order(closed: list[_Closed], old_ns: int) -> list[tuple[_Closed, int]]:
    """What to fold to which width, the smallest loss first; further steps are for the next call."""
    finest = sorted(closed, key=lambda c: (c.ended_ns > old_ns, c.bucket_ns, c.began_ns, c.segment.name))
    return [
        (each, next(width for width in WIDTHS_NS if width > each.bucket_ns))
        for each in finest
        if each.bucket_ns < WIDTHS_NS[-1]
    ]


def _closed(
    run: RunDirectory, listing: Listing, sizes: dict[str, int], now_ns: int, left: list[str]
) -> Iterator[_Closed]:
    for pieces in listing.writers.values():
        following: Header | None = None
        for number in sorted(pieces, reverse=True):
            segment = pieces[number]
            size_bytes = sizes.get(segment.name)
            if size_bytes is None:
                continue
            try:
                header, bucket_ns = _read_head(run, segment)
            except (OSError, UnreadableRecording) as error:
                left.append(f"{segment.name}: {error}")
                continue
            if following is not None:
                ended_ns, is_closed = following.t_ns, True
            else:
                silent_ns = time.time_ns() - (run.journal / segment.name).stat().st_mtime_ns
                ended_ns, is_closed = now_ns - silent_ns, _is_abandoned(header, silent_ns)
            following = header
            if is_closed and size_bytes >= MINIMUM_BYTES:
                yield _Closed(segment, size_bytes, header.t_ns, ended_ns, bucket_ns)


def _read_head(run: RunDirectory, segment: Segment) -> tuple[Header, int]:
    fd = open_regular(run.journal / segment.name)
    try:
        line = first_line(fd)
    finally:
        os.close(fd)
    header = decode_header(line)
    if header is None:
        raise UnreadableRecording("it has no header")
    return header, decode_fold_facts(line).bucket_ns


def _is_abandoned(header: Header, silent_ns: int) -> bool:
    """Whether the last segment of a writer is its last for good.

    A writer in another pid namespace may seem gone and live: only long silence tells.
    """
    if header.boot != wire.boot_id():
        return True
    return silent_ns > WHOLE_NS and wire.started_ticks(header.pid) != header.started_ticks
