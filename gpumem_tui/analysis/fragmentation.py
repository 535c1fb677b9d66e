"""How the allocator's memory lies: by pool and stream what is live, idle, stuck, and the largest hole.

Pure arithmetic over a snapshot's segments or a failure record's pools. The rules of
PyTorch's allocator that it rests on have been the same since 1.13: requests up to
1 MiB come from 2 MiB segments (the small pool), those below 10 MiB from segments of
20 MiB, larger ones from segments of their own size, rounded to 2 MiB; a free block
serves only requests of its own pool and stream.
"""

from collections.abc import Iterable, Sequence

import msgspec

from gpumem_tui.analysis.snapshot import Segment, Use
from gpumem_tui.records.failure import Pool
from gpumem_tui.units import MIB

SMALL_BYTES = 1 * MIB
SMALL_SEGMENT_BYTES = 2 * MIB
MIDDLE_SEGMENT_BYTES = 20 * MIB
"""Also the page that an expandable segment of the large pool maps and unmaps."""


class Request(msgspec.Struct, frozen=True):
    """What a failed request can have been, by the segment that was asked of the driver."""

    segment_bytes: int
    least_bytes: int
    """The smallest tensor that asks for such a segment."""
    large: bool


class Holes(msgspec.Struct, frozen=True):
    """Idle memory beside a request. Bytes."""

    largest_bytes: int
    """Largest block in the pools that can serve the request."""
    idle_bytes: int
    """All idle blocks of those pools."""
    stuck_bytes: int
    """Of all pools: idle in segments that a live block keeps."""
    releasable_bytes: int
    """Of all pools: in segments without a live block."""
    elsewhere_bytes: int
    """Idle in pools that cannot serve it: the other size class, private pools, and other streams'."""
    other_streams_idle_bytes: int
    """Of this, in pools that would serve it if it came from their stream."""
    private_idle_bytes: int
    streams: int
    """Streams with a pool of its size class."""
    expandable: bool


def request_of(segment_bytes: int) -> Request:
    """The tensors that a request of this segment size stands for."""
    if segment_bytes <= SMALL_SEGMENT_BYTES:
        return Request(segment_bytes, 1, large=False)
    if segment_bytes == MIDDLE_SEGMENT_BYTES:
        return Request(segment_bytes, SMALL_BYTES + 1, large=True)
    return Request(segment_bytes, max(SMALL_BYTES, segment_bytes - 2 * MIB) + 1, large=True)


def pools_of(segments: Iterable[Segment]) -> list[Pool]:
    """By pool and stream, in the order of the segments."""
    groups: dict[tuple[str, int, bool], list[Segment]] = {}
    for segment in segments:
        groups.setdefault((segment.pool, segment.stream, segment.expandable), []).append(segment)
    return [_pool(*key, group) for key, group in groups.items()]


def _pool(name: str, stream: int, expandable: bool, segments: Sequence[Segment]) -> Pool:
    idle = largest = releasable = 0
    for segment in segments:
        holes = [block.size_bytes for block in segment.blocks if block.use is Use.IDLE]
        idle += sum(holes)
        largest = max(largest, *holes, 0)
        if expandable:
            releasable += sum(hole // MIDDLE_SEGMENT_BYTES * MIDDLE_SEGMENT_BYTES for hole in holes)
        elif segment.private is None and len(holes) == len(segment.blocks):
            releasable += sum(holes)
    total = sum(segment.total_bytes for segment in segments)
    return Pool(
        pool=name,
        stream=stream,
        segments=len(segments),
        total_bytes=total,
        allocated_bytes=sum(
            b.size_bytes for segment in segments for b in segment.blocks if b.use is not Use.IDLE
        ),
        idle_bytes=idle,
        largest_idle_bytes=largest,
        releasable_bytes=releasable,
        stuck_bytes=idle - releasable,
        expandable=expandable,
    )


def holes_for(pools: Sequence[Pool], segment_bytes: int, stream: int | None = None) -> Holes:
    """What lies idle beside a request for such a segment; ``stream`` None: which one asked is not known."""
    wanted = "large" if request_of(segment_bytes).large else "small"
    alike = [pool for pool in pools if pool.pool == wanted]
    serving = [pool for pool in alike if stream in (None, pool.stream)]
    private = [pool for pool in pools if pool.pool.startswith("private")]
    idle = sum(pool.idle_bytes for pool in serving)
    return Holes(
        largest_bytes=max((pool.largest_idle_bytes for pool in serving), default=0),
        idle_bytes=idle,
        stuck_bytes=sum(pool.stuck_bytes for pool in pools),
        releasable_bytes=sum(pool.releasable_bytes for pool in pools),
        elsewhere_bytes=sum(pool.idle_bytes for pool in pools) - idle,
        private_idle_bytes=sum(pool.idle_bytes for pool in private),
        other_streams_idle_bytes=sum(pool.idle_bytes for pool in alike) - idle,
        streams=len({pool.stream for pool in alike}),
        expandable=any(pool.expandable for pool in alike),
    )
