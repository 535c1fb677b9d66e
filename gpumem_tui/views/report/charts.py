"""What the charts of a report show: curves of one device, phase bands of its ranks, failures. No drawing."""

from bisect import bisect_left

from msgspec.structs import replace

from gpumem_tui import units
from gpumem_tui.analysis.failurestate import FailureState
from gpumem_tui.analysis.rankstate import Series
from gpumem_tui.analysis.state import DeviceState, RunState, Severity
from gpumem_tui.views import before, present
from gpumem_tui.views.report.sheet import Chart, Lane, Section, Trace, Words
from gpumem_tui.views.timeline import length

DEPTHS = 2
"""Bands are drawn down to this depth: phases and what they are made of."""


def chart_section(state: RunState) -> Section:
    """A chart for each device that has a history."""
    charts = [chart for device in state.devices if (chart := _chart(device, state)) is not None]
    if not charts:
        return Section("History", (Words("No history was recorded."),))
    note = Words("Curves are samples; a short peak between two of them is in the table of phases, exactly.")
    return Section("History", (*charts, note))


def chart_before(state: RunState, failure: FailureState, caption: str) -> Chart | None:
    """The seconds before a failure; None where nothing was read of its device by then."""
    device = before.device_of(state, failure)
    if device is None:
        return None
    since_ns = failure.t_ns - before.span_ns(state, failure)
    chart = _chart(device, state, (since_ns, failure.t_ns))
    return None if chart is None else replace(chart, title=f"{caption}: {chart.title}", zero="failure")


def _chart(device: DeviceState, state: RunState, only: tuple[int, int] | None = None) -> Chart | None:
    """Over the whole run, or over one stretch of it."""
    several = len(device.curves) > 1
    traces = [Trace("device used by all, with the driver's share", "used", device.driver_used)]
    for curve in device.curves:
        who = f" {present.rank_name(curve.rank, curve.pid)}" if several else ""
        traces += [
            Trace(f"reserved{who}", "reserved", curve.reserved),
            Trace(f"allocated{who}", "allocated", curve.allocated),
        ]
    if only is not None:
        traces = [replace(trace, series=_since(trace.series, only[0])) for trace in traces]
    traces = [trace for trace in traces if len(trace.series.t_ns)]
    if not traces:
        return None
    total, _ = present.device_total(device)
    highest = max(max(trace.series.high) for trace in traces)
    pids = {curve.pid for curve in device.curves}
    title = present.device_title(device)
    until_ns = max(state.facts.ended_ns or state.now_ns, *(trace.series.t_ns[-1] for trace in traces))
    since_ns, until_ns = only or (state.facts.started_ns, until_ns)
    peaks = ", ".join(f"{t.label} up to {units.format_bytes(max(t.series.high))}" for t in traces)
    stretch = "the run" if only is None else f"the last {length(round((until_ns - since_ns) / 1e9))}"
    return Chart(
        title=title,
        description=f"Memory of {title} over {stretch}: {peaks}.",
        since_ns=since_ns,
        until_ns=until_ns,
        top_bytes=max(total or 0, highest, 1),
        top_is_total=total is not None and total >= highest,
        traces=tuple(traces),
        lanes=_lanes(state, pids, since_ns, until_ns),
        marks=tuple(
            (event.t_ns, present.event_sentence(event))
            for event in state.events
            if event.severity is Severity.FAILURE
            and since_ns <= event.t_ns <= until_ns
            and event.device in (None, device.index)
            and event.rank in (None, *(curve.rank for curve in device.curves))
        ),
    )


def _since(series: Series, since_ns: int) -> Series:
    """The points that reach beyond a moment."""
    kept = slice(bisect_left(series.t_ns, since_ns), None)
    return Series(
        series.since_ns[kept], series.t_ns[kept], series.low[kept], series.high[kept], series.last[kept]
    )


def _lanes(state: RunState, pids: set[int], since_ns: int, until_ns: int) -> tuple[Lane, ...]:
    groups: dict[tuple[int | None, int, int], list[int]] = {}
    for number, band in enumerate(state.bands):
        within = band.since_ns <= until_ns and (band.until_ns is None or band.until_ns >= since_ns)
        if band.pid in pids and band.depth < DEPTHS and within:
            groups.setdefault((band.rank, band.pid, band.depth), []).append(number)
    lanes = []
    for rank, pid, depth in sorted(groups, key=lambda key: (key[0] is None, key[0] or 0, key[1], key[2])):
        label = present.rank_name(rank, pid) if depth == 0 else ""
        lanes.append(Lane(label, tuple(state.bands[n] for n in groups[rank, pid, depth])))
    return tuple(lanes)
