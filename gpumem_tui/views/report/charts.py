"""What the charts of a report show: curves of one device, phase bands of its ranks, failures. No drawing."""

from gpumem_tui import units
from gpumem_tui.analysis.state import DeviceState, RunState, Severity
from gpumem_tui.views import present
from gpumem_tui.views.report.sheet import Chart, Lane, Section, Trace, Words

DEPTHS = 2
"""Bands are drawn down to this depth: phases and what they are made of."""


def chart_section(state: RunState) -> Section:
    """A chart for each device that has a history."""
    charts = [chart for device in state.devices if (chart := _chart(device, state)) is not None]
    if not charts:
        return Section("History", (Words("No history was recorded."),))
    note = Words("Curves are samples; a short peak between two of them is in the table of phases, exactly.")
    return Section("History", (*charts, note))


def _chart(device: DeviceState, state: RunState) -> Chart | None:
    several = len(device.curves) > 1
    traces = [Trace("device used by all, with the driver's share", "used", device.driver_used)]
    for curve in device.curves:
        who = f" {present.rank_name(curve.rank, curve.pid)}" if several else ""
        traces += [
            Trace(f"reserved{who}", "reserved", curve.reserved),
            Trace(f"allocated{who}", "allocated", curve.allocated),
        ]
    traces = [trace for trace in traces if len(trace.series.t_ns)]
    if not traces:
        return None
    total, _ = present.device_total(device)
    highest = max(max(trace.series.high) for trace in traces)
    pids = {curve.pid for curve in device.curves}
    lanes = _lanes(state, pids)
    title = present.device_title(device)
    until_ns = state.facts.ended_ns or state.now_ns
    peaks = ", ".join(f"{t.label} up to {units.format_bytes(max(t.series.high))}" for t in traces)
    return Chart(
        title=title,
        description=f"Memory of {title} over the run: {peaks}.",
        since_ns=state.facts.started_ns,
        until_ns=max(until_ns, *(trace.series.t_ns[-1] for trace in traces)),
        top_bytes=max(total or 0, highest, 1),
        top_is_total=total is not None and total >= highest,
        traces=tuple(traces),
        lanes=lanes,
        marks=tuple(
            (event.t_ns, present.event_sentence(event))
            for event in state.events
            if event.severity is Severity.FAILURE
            and event.device in (None, device.index)
            and event.rank in (None, *(curve.rank for curve in device.curves))
        ),
    )


def _lanes(state: RunState, pids: set[int]) -> tuple[Lane, ...]:
    groups: dict[tuple[int | None, int, int], list[int]] = {}
    for number, band in enumerate(state.bands):
        if band.pid in pids and band.depth < DEPTHS:
            groups.setdefault((band.rank, band.pid, band.depth), []).append(number)
    lanes = []
    for rank, pid, depth in sorted(groups, key=lambda key: (key[0] is None, key[0] or 0, key[1], key[2])):
        label = present.rank_name(rank, pid) if depth == 0 else ""
        lanes.append(Lane(label, tuple(state.bands[n] for n in groups[rank, pid, depth])))
    return tuple(lanes)
