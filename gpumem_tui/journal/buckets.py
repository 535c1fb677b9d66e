"""The algebra of folding: many readings in, few records out that are true of them. Pure.

Counters become (min, max, last) buckets. A bucket belongs to the stretch of time,
aligned to its width, in which its last reading was taken; widths are multiples of
each other, so folding twice gives what folding once to the wider bucket gives.

- ``sample`` → ``samples`` per device. Readings without figures are counted in buckets
  of their own, whose extents are null: a gap stays a gap.
- ``memory`` → ``memories`` per device; readings without figures are counted in
  ``missing``, and for each reason the last reading that gives it is kept as well.
- ``begin``/``end`` → ``spans`` per (phase, name, device, cold). *Cold* is the first span
  of a (phase, name) in a process.
- ``processes``, ``tree``, ``load``, ``host``, ``output`` are thinned: of each bucket those
  readings are kept, whole and at their own time, that are its last one or hold a
  maximum of it (of a pid's bytes; of load, temperature, power; of memory in use), or
  are the last to give a certain reason. So a maximum is never lost, and no line
  mixes two moments.

Refuses to interpolate, and to give a mean.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from msgspec.structs import replace

from gpumem_tui.records import (
    Begin,
    End,
    Host,
    Load,
    Memories,
    Memory,
    Output,
    Peaks,
    Processes,
    Sample,
    Samples,
    Spans,
    Tree,
)
from gpumem_tui.records.kinds import Extent

Bucket = Samples | Memories | Spans
Thinned = Processes | Tree | Load | Host | Output | Peaks


def _point(value: int | None) -> Extent | None:
    return None if value is None else (value, value, value)


def _join(one: Extent | None, two: Extent | None) -> Extent | None:
    if one is None or two is None:
        return two if one is None else one
    return (min(one[0], two[0]), max(one[1], two[1]), two[2])


def _later(one: int | None, two: int | None) -> int | None:
    return one if two is None else two


def _sum(one: int | None, two: int | None) -> int | None:
    """Of what is known."""
    return _later(one, two) if one is None or two is None else one + two


def of_sample(sample: Sample) -> Samples:
    """One reading of the allocator's counters, as a bucket."""
    return Samples(
        t_ns=sample.t_ns,
        until_ns=sample.t_ns,
        ordinal=sample.ordinal,
        count=1,
        allocated=_point(sample.allocated_bytes),
        reserved=_point(sample.reserved_bytes),
        alloc_retries=sample.alloc_retries,
        ooms=sample.ooms,
    )


def of_memory(memory: Memory) -> Memories:
    """One reading of the driver's memory, as a bucket; it is missing if it has neither used nor free."""
    missing = memory.used_bytes is None and memory.free_bytes is None
    return Memories(
        t_ns=memory.t_ns,
        until_ns=memory.t_ns,
        index=memory.index,
        count=0 if missing else 1,
        total_bytes=memory.total_bytes,
        used=_point(memory.used_bytes),
        free=_point(memory.free_bytes),
        driver_reserved_bytes=memory.driver_reserved_bytes,
        missing=1 if missing else 0,
    )


def of_span(begin: Begin, end: End, cold: bool) -> list[Spans]:
    """One finished span, as a bucket for each of its devices, or one without device."""
    whole = Spans(
        t_ns=begin.t_ns,
        until_ns=end.t_ns,
        phase=begin.phase,
        name=begin.name,
        ordinal=None,
        cold=cold,
        count=1,
        errors=0 if end.error is None else 1,
        duration_ns=_point(end.t_ns - begin.t_ns),
        inexact=0,
        step=begin.step,
    )
    if not end.levels:
        return [whole]
    return [
        replace(
            whole,
            ordinal=ordinal,
            peak_allocated=_point(peak_allocated),
            peak_reserved=_point(peak_reserved),
            end_allocated=_point(allocated),
            end_reserved=_point(reserved),
            inexact=0 if exact else 1,
        )
        for ordinal, allocated, reserved, peak_allocated, peak_reserved, exact in end.levels
    ]


def key(bucket: Bucket) -> Hashable:
    """Only buckets of one key may be joined."""
    if isinstance(bucket, Samples):
        return (Samples, bucket.ordinal, bucket.allocated is None, bucket.reserved is None)
    if isinstance(bucket, Memories):
        return (Memories, bucket.index)
    return (Spans, bucket.phase, bucket.name, bucket.ordinal, bucket.cold)


def join(one: Bucket, two: Bucket) -> Bucket:
    """Two buckets of one key as one; ``two`` was written later. Associative."""
    t_ns, until_ns = min(one.t_ns, two.t_ns), max(one.until_ns, two.until_ns)
    if isinstance(one, Samples) and isinstance(two, Samples):
        return Samples(
            t_ns=t_ns,
            until_ns=until_ns,
            ordinal=one.ordinal,
            count=one.count + two.count,
            allocated=_join(one.allocated, two.allocated),
            reserved=_join(one.reserved, two.reserved),
            alloc_retries=_later(one.alloc_retries, two.alloc_retries),
            ooms=_later(one.ooms, two.ooms),
        )
    if isinstance(one, Memories) and isinstance(two, Memories):
        return Memories(
            t_ns=t_ns,
            until_ns=until_ns,
            index=one.index,
            count=one.count + two.count,
            total_bytes=_later(one.total_bytes, two.total_bytes),
            used=_join(one.used, two.used),
            free=_join(one.free, two.free),
            driver_reserved_bytes=_later(one.driver_reserved_bytes, two.driver_reserved_bytes),
            missing=one.missing + two.missing,
        )
    if isinstance(one, Spans) and isinstance(two, Spans):
        return Spans(
            t_ns=t_ns,
            until_ns=until_ns,
            phase=one.phase,
            name=one.name,
            ordinal=one.ordinal,
            cold=one.cold,
            count=one.count + two.count,
            errors=one.errors + two.errors,
            duration_ns=_join(one.duration_ns, two.duration_ns),
            peak_allocated=_join(one.peak_allocated, two.peak_allocated),
            peak_reserved=_join(one.peak_reserved, two.peak_reserved),
            end_allocated=_join(one.end_allocated, two.end_allocated),
            end_reserved=_join(one.end_reserved, two.end_reserved),
            inexact=_sum(one.inexact, two.inexact),
            seq=_later(one.seq, two.seq),
            step=_later(one.step, two.step),
            thread=one.thread if one.thread == two.thread else None,
        )
    raise TypeError("buckets of different kinds cannot be joined")


Claim = tuple[Hashable, float]
"""What a reading may be kept for, and how strongly; of equal ones the latest is kept."""


def _of_processes(record: Processes) -> Iterator[Claim]:
    for pid, used_bytes, *_ in record.rows:
        yield (pid, -1 if used_bytes is None else used_bytes)


def _of_tree(record: Tree) -> Iterator[Claim]:
    for pid, started_ticks, _, rss_bytes in record.rows:
        yield ((pid, started_ticks), -1 if rss_bytes is None else rss_bytes)


def _of_load(record: Load) -> Iterator[Claim]:
    for name in ("utilization", "temperature", "power_mw"):
        value = getattr(record, name)
        if value is not None:
            yield (name, value)


def _of_host(record: Host) -> Iterator[Claim]:
    if record.available_bytes is not None:
        yield ("available", -record.available_bytes)
    for name in ("swap_used_bytes", "cgroup_bytes", "cgroup_oom_kills"):
        value = getattr(record, name)
        if value is not None:
            yield (name, value)


_CLAIMS: dict[type, Callable[[Any], Iterator[Claim]]] = {
    Processes: _of_processes,
    Tree: _of_tree,
    Load: _of_load,
    Host: _of_host,
}


def claims(record: Thinned | Memory) -> Iterator[tuple[Hashable, float]]:
    """Every ground on which a reading may be kept when its bucket is thinned."""
    index = record.ordinal if isinstance(record, Peaks) else getattr(record, "index", None)
    reason = getattr(record, "reason", None)
    if reason is not None:
        yield (type(record), index, "reason", reason), 0
    if isinstance(record, Memory):
        return  # its figures are in a bucket
    yield (type(record), index, "last"), 0
    grounds = _CLAIMS.get(type(record))
    if grounds is not None:
        for ground, strength in grounds(record):
            yield (type(record), index, "most", ground), strength
