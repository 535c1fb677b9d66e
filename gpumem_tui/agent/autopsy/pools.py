"""The allocator's segments folded to figures of each pool and stream: what is idle, and in which holes.

One call of ``torch._C._cuda_memorySnapshot``, without traces where this PyTorch can
leave them out. It holds the GIL and the allocator's mutex for about a microsecond a
block, so it is not called beyond :data:`MOST_BLOCKS`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .absent import Absent

MOST_BLOCKS = 100_000
"""Beyond this many the snapshot alone would take longer than a failing program should wait."""

LIVE = ("active_allocated", "active_pending_free", "active_awaiting_free")
"""States of a block that cannot be used: allocated, or freed and waiting for a stream."""

_LARGE_PAGE = 20 << 20
_SMALL_PAGE = 2 << 20


def take_snapshot(torch: Any, stats: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """The allocator's snapshot, of all devices. ``stats`` are counters of the failing one, for the bound."""
    blocks = count_blocks(stats) if stats is not None else 0
    if blocks > MOST_BLOCKS:
        raise Absent("%d blocks; a snapshot is taken of %d at most" % (blocks, MOST_BLOCKS))
    snapshot = torch._C._cuda_memorySnapshot
    try:
        return snapshot((0, 0, False))  # type: ignore[no-any-return]
    except TypeError:
        pass  # an older PyTorch: traces cannot be left out, and a history of them may take seconds
    except RuntimeError as error:
        raise Absent("no snapshot: %s" % str(error).partition("\n")[0]) from None
    if getattr(torch._C, "_cuda_isHistoryEnabled", lambda: False)():
        raise Absent("memory history is recorded: a snapshot of this PyTorch would take all of it")
    return snapshot()  # type: ignore[no-any-return]


def count_blocks(stats: Dict[str, Any]) -> int:
    """Blocks of a device by its counters: live ones, and the idle ones between them."""
    count = 0
    for name in ("active", "inactive_split"):
        count += stats[name]["all"]["current"] if name in stats else 0
    return count


def fold(segments: List[Dict[str, Any]], ordinal: int) -> List[Dict[str, Any]]:
    """Figures of every pool and stream of one device, as ``records.failure.Pool``, largest first."""
    pools: Dict[Tuple[str, int], Dict[str, Any]] = {}
    for segment in segments:
        if segment["device"] == ordinal:
            _add(pools, segment)
    return sorted(pools.values(), key=lambda pool: -pool["total_bytes"])


def _add(pools: Dict[Tuple[str, int], Dict[str, Any]], segment: Dict[str, Any]) -> None:
    private = tuple(segment.get("segment_pool_id", (0, 0)))
    name = segment["segment_type"] if private == (0, 0) else "private %d,%d" % private
    pool = pools.get((name, segment["stream"]))
    if pool is None:
        pool = pools[name, segment["stream"]] = {
            "pool": name, "stream": segment["stream"], "segments": 0, "total_bytes": 0, "allocated_bytes": 0,
            "idle_bytes": 0, "largest_idle_bytes": 0, "releasable_bytes": 0, "stuck_bytes": 0,
            "expandable": bool(segment.get("is_expandable")),
        }  # fmt: skip
    idle = largest = pages = 0
    page = _SMALL_PAGE if segment["segment_type"] == "small" else _LARGE_PAGE
    at = 0
    for block in segment["blocks"]:
        size = block["size"]
        if block["state"] not in LIVE:
            idle += size
            if size > largest:
                largest = size
            pages += max(0, (at + size) // page - -(-at // page)) * page
        at += size
    total = segment["total_size"]
    pool["segments"] += 1
    pool["total_bytes"] += total
    pool["idle_bytes"] += idle
    pool["allocated_bytes"] += total - idle
    pool["largest_idle_bytes"] = max(pool["largest_idle_bytes"], largest)
    if private != (0, 0):
        releasable = (
            0  # a graph or a MemPool keeps it, or the flush before the failure would have given it back
        )
    elif segment.get("is_expandable"):
        releasable = pages
    else:
        releasable = total if idle == total else 0
    pool["releasable_bytes"] += releasable
    pool["stuck_bytes"] += idle - releasable
