"""Charts and bars of a report as inline SVG. Colours are classes that the page's style resolves.

A curve is drawn in steps: a reading stands until the next one and no longer than a few
times its usual spacing, then the line breaks. What happened within a folded point is
drawn as its range. Nothing is interpolated.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import pairwise
from statistics import median

from gpumem_tui import units
from gpumem_tui.analysis.rankstate import Series
from gpumem_tui.analysis.state import Band
from gpumem_tui.views.report.sheet import Bar, Chart, Lane, Trace

WIDTH = 960
_LEFT, _RIGHT, _TOP = 62, 12, 22
_PLOT = 220
_LANE = 16
_AXIS = 26
_HOLD = 4
"""A reading stands for so many times the median spacing of its curve."""

_SHORTEST_NS = 2_000_000_000
"""And at least for so long: a busy process is late with its samples now and then."""

_TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400)

Coordinate = Callable[[int], float]
"""From a moment or a size to a place in the picture."""

PHASES = ("load", "forward", "backward", "recompute", "optimizer", "eval", "generate", "save")
"""Phases that have a colour of their own; all others share one."""


def chart(item: Chart, number: int) -> str:
    """One device's history. ``number`` makes its ids unique on the page."""
    lanes_top = _TOP + _PLOT + 8
    axis_y = lanes_top + _LANE * len(item.lanes)
    height = axis_y + _AXIS
    inner = WIDTH - _LEFT - _RIGHT
    span_ns = max(1, item.until_ns - item.since_ns)

    def x(t_ns: int) -> float:
        return _LEFT + inner * min(1.0, max(0.0, (t_ns - item.since_ns) / span_ns))

    def y(size: int) -> float:
        return _TOP + _PLOT * (1 - min(1.0, max(0.0, size / item.top_bytes)))

    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-labelledby="chart-{number}-title chart-{number}-desc">',
        f'<title id="chart-{number}-title">{escape(item.title)}</title>',
        f'<desc id="chart-{number}-desc">{escape(item.description)}</desc>',
        *_scale(item, y),
    ]
    parts += [_curve(trace, x, y) for trace in item.traces]
    for row, lane in enumerate(item.lanes):
        parts += _lane(lane, lanes_top + row * _LANE, x, item.until_ns)
    parts += _time_axis(item, x, axis_y)
    for t_ns, label in item.marks:
        at = x(t_ns)
        parts.append(
            f'<g class="mark"><line x1="{at:.1f}" y1="{_TOP}" x2="{at:.1f}" y2="{axis_y}"/>'
            f"<title>{escape(label)}</title></g>"
        )
    return "".join([*parts, "</svg>"])


def _scale(item: Chart, y: Coordinate) -> Iterable[str]:
    """Horizontal lines at quarters, and the card's total."""
    for quarter in range(5):
        size = item.top_bytes * quarter // 4
        at = y(size)
        kind = "limit" if quarter == 4 and item.top_is_total else "grid"
        yield f'<line class="{kind}" x1="{_LEFT}" y1="{at:.1f}" x2="{WIDTH - _RIGHT}" y2="{at:.1f}"/>'
        yield _label(units.format_gib(size), _LEFT - 6, at + 4, "end")
    unit = "GiB, top line: total of the card" if item.top_is_total else "GiB"
    yield _label(unit, _LEFT, 12, "start")


def _label(text: str, x: float, y: float, anchor: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _curve(trace: Trace, x: Coordinate, y: Coordinate) -> str:
    line, ranges = path_of(trace.series, x, y)
    drawn = f'<path class="curve {trace.key}" d="{line}"/>'
    if ranges:
        drawn += f'<path class="range {trace.key}" d="{ranges}"/>'
    return f"<g>{drawn}<title>{escape(trace.label)}</title></g>"


def path_of(series: Series, x: Coordinate, y: Coordinate) -> tuple[str, str]:
    """A curve as steps, and the ranges of its folded points; one column of the picture holds one point."""
    hold_ns = hold_of(series.t_ns)
    line: list[str] = []
    ranges: list[str] = []
    before_ns: int | None = None
    for since_ns, t_ns, low, high, last in _columns(series, x):
        if before_ns is None or since_ns - before_ns > hold_ns:
            line.append(f"M{x(since_ns):.1f} {y(last):.1f}")
            line.append(f"H{x(t_ns):.1f}")
        else:
            line.append(f"H{x(t_ns):.1f}V{y(last):.1f}")
        if low != high:
            ranges.append(f"M{x(t_ns):.1f} {y(low):.1f}V{y(high):.1f}")
        before_ns = t_ns
    return "".join(line), "".join(ranges)


def hold_of(times: Sequence[int]) -> int:
    """How long a reading stands: a few times the usual spacing of the curve, in nanoseconds."""
    spacing = [after - before for before, after in pairwise(times)]
    return max(_SHORTEST_NS, _HOLD * int(median(spacing))) if spacing else 0


def _columns(series: Series, x: Coordinate) -> Iterable[tuple[int, int, int, int, int]]:
    """Points of the series; those that fall into one column of the picture are joined."""
    hold_ns = hold_of(series.t_ns)
    held: tuple[int, int, int, int, int] | None = None
    for point in zip(series.since_ns, series.t_ns, series.low, series.high, series.last, strict=True):
        since_ns, t_ns, low, high, last = point
        if held is not None and int(x(t_ns)) == int(x(held[1])) and since_ns - held[1] <= hold_ns:
            held = (held[0], t_ns, min(held[2], low), max(held[3], high), last)
            continue
        if held is not None:
            yield held
        held = (since_ns, t_ns, low, high, last)
    if held is not None:
        yield held


def _lane(lane: Lane, top: float, x: Coordinate, until_ns: int) -> Iterable[str]:
    """One row of bands; bands narrower than a column are joined with equal neighbours."""
    if lane.label:
        yield _label(lane.label, _LEFT - 6, top + 11, "end")
    for start, end, bands in _merged(lane.bands, x, until_ns):
        first = bands[0]
        label = first.phase if first.name in ("", first.phase) else f"{first.phase} {first.name}"
        count = f", {len(bands)} spans" if len(bands) > 1 else ""
        step = "" if first.step is None or len(bands) > 1 else f", step {first.step}"
        failed = next((band.error for band in bands if band.error), None)
        word = f", failed: {failed}" if failed else ""
        kind = f"band-{first.phase}" if first.phase in PHASES else "band-other"
        error = " band-failed" if failed else ""
        yield (
            f'<rect class="band {kind}{error}" x="{start:.1f}" y="{top}" '
            f'width="{max(0.8, end - start):.1f}" height="{_LANE - 4}">'
            f"<title>{escape(label + count + step + word)}</title></rect>"
        )
        if end - start > 7 * len(first.phase) + 6:
            yield f'<text class="band-label" x="{start + 3:.1f}" y="{top + 10}">{escape(first.phase)}</text>'


def _merged(bands: Sequence[Band], x: Coordinate, until_ns: int) -> Iterable[tuple[float, float, list[Band]]]:
    held: tuple[float, float, list[Band]] | None = None
    for band in bands:
        start = x(band.since_ns)
        end = x(until_ns if band.until_ns is None else band.until_ns)
        if held is not None and band.phase == held[2][0].phase and max(end - held[0], start - held[1]) < 1.0:
            held[2].append(band)
            held = (held[0], max(held[1], end), held[2])
            continue
        if held is not None:
            yield held
        held = (start, end, [band])
    if held is not None:
        yield held


def _time_axis(item: Chart, x: Coordinate, top: float) -> Iterable[str]:
    seconds = max(1e-9, (item.until_ns - item.since_ns) / 1e9)
    step = next((tick for tick in _TICKS_S if seconds / tick <= 8), _TICKS_S[-1])
    yield f'<line class="axis" x1="{_LEFT}" y1="{top}" x2="{WIDTH - _RIGHT}" y2="{top}"/>'
    zero_ns = item.until_ns if item.zero else item.since_ns
    for number in range(int(seconds // step) + 1):
        after = -number * step if item.zero else number * step
        at = x(zero_ns + after * 1_000_000_000)
        anchor = "end" if at > WIDTH - _RIGHT - 20 else "start" if at < _LEFT + 20 else "middle"
        told = units.format_seconds(number * step) + (" before" if item.zero else "")
        yield f'<line class="axis" x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{top + 4}"/>'
        yield _label(told if number else item.zero or "start", at, top + 17, anchor)


def bar(item: Bar, number: int) -> str:
    """A ledger from left to right; what is beyond the known parts stays blank."""
    known = [(key, label, size) for key, label, size in item.parts if size is not None and size > 0]
    whole = max(item.total_bytes or 0, sum(size for _, _, size in known))
    described = ", ".join(f"{label} {units.format_bytes(size)}" for _, label, size in item.parts)
    parts = [
        f'<svg class="ledger" viewBox="0 0 {WIDTH} 34" role="img" '
        f'aria-labelledby="bar-{number}-title bar-{number}-desc">',
        f'<title id="bar-{number}-title">{escape(item.title)}</title>',
        f'<desc id="bar-{number}-desc">{escape(described)}</desc>',
        f'<rect class="blank" x="0" y="1" width="{WIDTH}" height="32"/>',
    ]
    at = 0.0
    for key, label, size in known:
        wide = WIDTH * size / whole
        told = f"{label} {units.format_bytes(size)}"
        parts.append(
            f'<rect class="term {key}" x="{at:.2f}" y="1" width="{wide:.2f}" height="32">'
            f"<title>{escape(told)}</title></rect>"
        )
        at += wide
    return "".join([*parts, "</svg>"])
