"""Failures of a run, and memory snapshots, as plain text: what ``explain`` prints of them.

Owns the order of the parts; the parts themselves are ``failurepanels`` and ``memorymappanel``.
"""

from collections.abc import Iterable

from gpumem_tui import units
from gpumem_tui.analysis.fragmentation import pools_of
from gpumem_tui.analysis.memorymap import memory_map
from gpumem_tui.analysis.snapshot import FailedRequest, Snapshot, Use
from gpumem_tui.analysis.state import RunState
from gpumem_tui.views import failurepanels, panels, present
from gpumem_tui.views.memorymappanel import MAP_SIGNS, map_lines, pool_lines
from gpumem_tui.views.prose import wrapped
from gpumem_tui.views.text import Line, Span, clean, cut, plain, to_ascii

MAP_ROWS = 24
"""Rows of the map of one device."""


def render_failures(state: RunState, *, cells: int = 80, ascii: bool = False, most: int | None = None) -> str:
    """Every failure of a run in full, ``most`` of them, ending with a newline."""
    count = len(state.failures)
    lines: list[Line] = [
        (Span(f"{_count(count)} in run {clean(state.facts.run)}: {present.run_sentence(state)}"),)
    ]
    for number, failure in enumerate(state.failures):
        if most is not None and number >= most:
            lines += [(), (Span(f"… and {count - most} more; --all prints them, --json has them all"),)]
            break
        lines += [(), *failurepanels.failure_lines(state, failure, cells)]
        if failure.record is not None and failure.record.history is not None:
            dumped = f"{state.facts.path}/{failure.record.history}"
            lines += wrapped(f"memory history: {dumped} (explain draws its map)", cells, first=" ")
    return _text(lines, cells, ascii=ascii)


def render_snapshot(snapshot: Snapshot, name: str, *, cells: int = 80, ascii: bool = False) -> str:
    """Pools and map of each device, at most ``cells`` wide, ending with a newline."""
    total = sum(segment.total_bytes for segment in snapshot.segments)
    lines = wrapped(
        f"memory snapshot {clean(name)}: {len(snapshot.segments):,} segments, {units.format_bytes(total)}",
        cells,
    )
    for device in snapshot.devices():
        segments = snapshot.of(device)
        mapped = sum(segment.total_bytes for segment in segments)
        sizes = dict.fromkeys(Use, 0)
        for segment in segments:
            for block in segment.blocks:
                sizes[block.use] += block.size_bytes
        told = ", ".join(f"{use.value} {units.format_bytes(size)}" for use, size in sizes.items() if size)
        lines += [(), panels.rule(f"device {device}: {units.format_bytes(mapped)} mapped: {told}", cells)]
        lines += pool_lines(pools_of(segments), cells)
        lines += map_lines(memory_map(segments, device, width=cells - 3, rows=MAP_ROWS), cells)
        lines += wrapped(
            "   ".join(f"{glyph} {meaning}" for glyph, _, meaning in MAP_SIGNS), cells, first="   "
        )
        lines += _failed([failed for failed in snapshot.failed if failed.device == device], cells)
    if snapshot.settings:
        lines += [(), *wrapped(f"allocator settings: {snapshot.settings}", cells)]
    return _text(lines, cells, ascii=ascii)


def _failed(failed: list[FailedRequest], cells: int) -> Iterable[Line]:
    for request in failed[-8:]:
        free = "" if request.free_bytes is None else f", {units.format_bytes(request.free_bytes)} free"
        yield from wrapped(
            f"out of memory in its history: {units.format_bytes(request.requested_bytes)} wanted{free}",
            cells,
            first=" ",
        )


def _count(count: int) -> str:
    return f"{count or 'no'} failure{'' if count == 1 else 's'}"


def _text(lines: Iterable[Line], cells: int, *, ascii: bool) -> str:
    texts = (cut(plain(line), cells).rstrip() for line in lines)
    return "".join(f"{to_ascii(text) if ascii else text}\n" for text in texts)
