"""How the allocator's memory lies, as lines: pools with their holes, and a map of segments and blocks.

Owns glyphs and columns. Figures of pools come from a failure's record, maps from a
snapshot (``analysis.memorymap``); a process that runs gives one only where somebody asks for it (``r``).
"""

from collections.abc import Sequence

from gpumem_tui import units
from gpumem_tui.analysis.fragmentation import holes_for
from gpumem_tui.analysis.memorymap import Cell, MemoryMap, Strip
from gpumem_tui.records.failure import FailureRecord, Pool
from gpumem_tui.views.bar import apportion
from gpumem_tui.views.prose import wrapped
from gpumem_tui.views.text import SWATCH, TEXTURE, Line, Span, clean, fit, left, right, width

_PARTS = (("allocated", "allocated"), ("stuck", "cached"), ("releasable", "free"))
"""What a pool's bytes are, and the roles in which they are drawn."""

MEANINGS = (
    ("allocated", "live blocks"),
    ("cached", "idle, kept by a live block of the same segment (stuck)"),
    ("free", "idle, in segments without a live block (empty_cache gives them back)"),
)

_COLUMNS = (
    ("segments", "segs"),
    ("total_bytes", "total"),
    ("allocated_bytes", "live"),
    ("idle_bytes", "idle"),
    ("largest_idle_bytes", "largest hole"),
    ("stuck_bytes", "stuck"),
)
_GIVE_WAY = ("segments", "total_bytes", "stuck_bytes", "allocated_bytes")
_LEAST_BAR = 12


def hole_bytes(record: FailureRecord | None) -> int | None:
    """The largest hole in the pools that could have served the request; None where pools are not known."""
    if record is None or record.pools is None or record.requested_bytes is None:
        return None
    return holes_for(record.pools, record.requested_bytes, record.stream).largest_bytes


def idle_bytes(record: FailureRecord | None) -> int | None:
    """What lay idle in all pools; without pools, reserved − allocated of the same counters."""
    if record is None:
        return None
    if record.pools is not None:
        return sum(pool.idle_bytes for pool in record.pools)
    counters = record.counters or {}
    reserved, allocated = (counters.get(f"{name}_bytes.all.current") for name in ("reserved", "allocated"))
    return None if reserved is None or allocated is None else reserved - allocated


def pool_lines(pools: Sequence[Pool] | None, cells: int) -> list[Line]:
    """A row for each pool and stream: a bar of live, stuck and releasable, and its figures."""
    if not pools:
        return []
    rows = sorted(pools, key=lambda p: (p.pool.startswith("private"), -p.total_bytes, p.pool, p.stream))
    names = [_pool_name(pool, rows) for pool in rows]
    name_cells = min(24, max(width(name) for name in names))
    columns = [
        (key, head, max(len(head), *(len(_figure(pool, key)) for pool in rows))) for key, head in _COLUMNS
    ]
    for key in _GIVE_WAY:
        if cells - name_cells - 3 - sum(size + 2 for _, _, size in columns) >= _LEAST_BAR:
            break
        columns = [column for column in columns if column[0] != key]
    room = cells - name_cells - 3 - sum(size + 2 for _, _, size in columns)
    most = max(pool.total_bytes for pool in rows)
    head = [Span(" " * (name_cells + 3 + max(0, room)), "dim")]
    head += [Span(f"  {right(title, size)}", "dim") for _, title, size in columns]
    lines = [fit(head, cells)]
    for pool, name in zip(rows, names, strict=True):
        spans = [Span(f"   {left(name, name_cells)}", "text"), *_pool_bar(pool, most, room)]
        spans += [
            Span(f"  {right(_figure(pool, key), size)}", "strong" if key == "largest_idle_bytes" else "text")
            for key, _, size in columns
        ]
        lines.append(fit(spans, cells))
    for role, meaning in MEANINGS:
        lines.append(fit((Span(f"   {SWATCH[role]} ", role), Span(meaning, "dim")), cells))
    return lines


def _pool_name(pool: Pool, pools: Sequence[Pool]) -> str:
    name = clean(pool.pool)
    if len({each.stream for each in pools}) > 1:
        name += " default stream" if pool.stream == 0 else f" stream {pool.stream:#x}"
    return f"{name}, expandable" if pool.expandable else name


def _figure(pool: Pool, key: str) -> str:
    value = getattr(pool, key)
    return str(value) if key == "segments" else units.format_bytes(value)


def _pool_bar(pool: Pool, most: int, room: int) -> list[Span]:
    if room < 2 or not most:
        return [Span(" " * max(0, room))]
    long = max(1, round(pool.total_bytes * (room - 1) / most))
    counts = apportion([pool.allocated_bytes, pool.stuck_bytes, pool.releasable_bytes], long)
    spans = [Span(" ")]
    spans += [
        Span(TEXTURE[role] * count, role) for (_, role), count in zip(_PARTS, counts, strict=True) if count
    ]
    return [*spans, Span(" " * (room - 1 - sum(counts)))]


def map_lines(drawn: MemoryMap, cells: int) -> list[Line]:
    """Segments and blocks of one device: a strip for each pool, a character for the same bytes everywhere."""
    signs = [Span("  ", "dim")]
    for glyph, role, meaning in MAP_SIGNS:
        signs += [Span(f" {glyph}", role), Span(f" {meaning} ", "dim")]
    heading = f"every block; a character is {units.format_bytes(drawn.cell_bytes)}"
    lines = [fit((Span(f" {heading}", "strong"),), cells), fit(signs, cells)]
    pools = [strip.pool for strip in drawn.strips]
    for strip in drawn.strips:
        pool = strip.pool
        told = (
            f"{_pool_name(pool, pools)}: {units.format_bytes(pool.total_bytes)} in {pool.segments} "
            f"{'segment' if pool.segments == 1 else 'segments'}, idle {units.format_bytes(pool.idle_bytes)}, "
            f"largest hole {units.format_bytes(pool.largest_idle_bytes)}"
        )
        lines += wrapped(told, cells, "text", first=" ")
        lines += _strip_lines(strip, cells)
    return lines


def _strip_lines(strip: Strip, cells: int) -> list[Line]:
    lines = []
    for row in strip.rows:
        spans = [Span("   ")]
        for cell in row:
            glyph, role = _glyph(cell)
            if spans[-1].role == role and len(spans) > 1:
                spans[-1] = Span(spans[-1].text + glyph, role)
            else:
                spans.append(Span(glyph, role))
        lines.append(fit(spans, cells))
    return lines


def _glyph(cell: Cell) -> tuple[str, str]:
    """Full, mostly live, mostly idle or empty; a segment's beginning is drawn where it is all idle."""
    if not cell.idle_bytes:
        return (TEXTURE["allocated"], "allocated") if cell.live_bytes else (TEXTURE["used"], "used")
    if not cell.live_bytes + cell.pending_bytes:
        return (_BEGINS if cell.starts else TEXTURE["free"]), "free"
    share = cell.idle_bytes / cell.total_bytes
    return (_MOSTLY_LIVE if share < 0.5 else _MOSTLY_IDLE), "allocated"


_MOSTLY_LIVE, _MOSTLY_IDLE, _BEGINS = "▆", "▂", "┆"

MAP_SIGNS = (
    (TEXTURE["allocated"], "allocated", "live"),
    (_MOSTLY_LIVE, "allocated", "mostly live"),
    (_MOSTLY_IDLE, "allocated", "mostly idle"),
    (TEXTURE["free"], "free", "idle"),
    (_BEGINS, "free", "new segment"),
    (TEXTURE["used"], "used", "freed, in use"),
)
"""(glyph, role, meaning) of the map. A cell is as full as it is live; none of these is *stuck*'s glyph."""
