"""The memory of a device folded to rows of cells: which parts of the segments are live, which idle.

Pure. Every pool and stream is a strip of its segments, one after another by
address; a cell is the same number of bytes in every strip, so that lengths
compare. Gaps between segments in the address space are not drawn: they are nobody's.
"""

from collections.abc import Iterator, Sequence

import msgspec

from gpumem_tui.analysis.fragmentation import pools_of
from gpumem_tui.analysis.snapshot import Segment, Use
from gpumem_tui.records.failure import Pool
from gpumem_tui.units import MIB

FINEST_BYTES = 1 * MIB
"""A cell is never less."""


class Cell(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One cell of a strip, in bytes; the three sum to the cell, or to less in a strip's last one."""

    live_bytes: int
    pending_bytes: int
    idle_bytes: int
    starts: int = 0
    """Segments that begin in it."""

    @property
    def total_bytes(self) -> int:
        """What of the strip lies in it."""
        return self.live_bytes + self.pending_bytes + self.idle_bytes


class Strip(msgspec.Struct, frozen=True):
    """One pool on one stream: its figures, and its cells in rows of at most the asked width."""

    pool: Pool
    rows: tuple[tuple[Cell, ...], ...]


class MemoryMap(msgspec.Struct, frozen=True):
    """One device."""

    device: int
    cell_bytes: int
    strips: tuple[Strip, ...]

    @property
    def rows(self) -> int:
        """Rows of all strips."""
        return sum(len(strip.rows) for strip in self.strips)


def memory_map(segments: Sequence[Segment], device: int, *, width: int, rows: int) -> MemoryMap:
    """Fold the segments of one device to rows of ``width`` cells, about ``rows`` of them in all.

    Every pool and stream takes a row at least, so there may be more rows than asked
    for, where there are more pools than rows.
    """
    mine = sorted((s for s in segments if s.device == device), key=lambda s: s.address)
    pools = pools_of(mine)
    cell = FINEST_BYTES
    while _rows(pools, cell, width) > max(rows, len(pools)):
        cell *= 2
    strips = []
    for pool in sorted(pools, key=_order):
        of_pool = [s for s in mine if (s.pool, s.stream, s.expandable) == _key(pool)]
        cells = list(_cells(of_pool, cell))
        lines = tuple(tuple(cells[at : at + width]) for at in range(0, len(cells), width))
        strips.append(Strip(pool, lines))
    return MemoryMap(device, cell, tuple(strips))


def _key(pool: Pool) -> tuple[str, int, bool]:
    return pool.pool, pool.stream, pool.expandable


def _order(pool: Pool) -> tuple[bool, int, str, int]:
    """The default pools before private ones, large before small."""
    return pool.pool.startswith("private"), -pool.total_bytes, pool.pool, pool.stream


def _rows(pools: Sequence[Pool], cell: int, width: int) -> int:
    return sum(-(-max(1, pool.total_bytes) // (cell * width)) for pool in pools)


def _cells(segments: Sequence[Segment], cell: int) -> Iterator[Cell]:
    """Blocks poured into cells; a segment's tail that no block covers counts as idle."""
    sizes = {Use.LIVE: 0, Use.PENDING: 0, Use.IDLE: 0}
    room, starts = cell, 0
    for segment in segments:
        starts += 1
        pieces = [(block.size_bytes, block.use) for block in segment.blocks]
        pieces.append((segment.total_bytes - sum(size for size, _ in pieces), Use.IDLE))
        for size, use in pieces:
            while size:
                part = min(size, room)
                sizes[use] += part
                size -= part
                room -= part
                if not room:
                    yield Cell(sizes[Use.LIVE], sizes[Use.PENDING], sizes[Use.IDLE], starts)
                    sizes = dict.fromkeys(sizes, 0)
                    room, starts = cell, 0
    if room < cell:
        yield Cell(sizes[Use.LIVE], sizes[Use.PENDING], sizes[Use.IDLE], starts)
