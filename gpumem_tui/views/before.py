"""What was recorded in the seconds before a failure, on its device and in its process.

Owns which stretch of time that is, for the Failure screen and for reports. Nothing that
came after the failure is looked at, and no reading is made up.
"""

from bisect import bisect_right
from typing import NamedTuple

from msgspec.structs import replace

from gpumem_tui.analysis.failurestate import FailureState
from gpumem_tui.analysis.rankstate import Series
from gpumem_tui.analysis.state import SEVERAL, DeviceState, RunState
from gpumem_tui.views.curves import Column, columns, driver_share_bytes, less
from gpumem_tui.views.text import clean
from gpumem_tui.views.timeline import SECOND_NS, Window, length

LONGEST_S = 30
"""So much is shown, or all since the run's start where that is less."""


class Stretch(NamedTuple):
    """A part of these seconds; sizes are (lowest, highest, last) in bytes, None where nothing was read."""

    since_ns: int
    until_ns: int
    phases: tuple[str, ...]
    """Those that the process was in, in the order in which they began; an inner one after its outer one."""
    allocated: Column | None
    reserved: Column | None
    used: Column | None
    """Of the device, by all processes, without the driver's share."""


def span_ns(state: RunState, failure: FailureState) -> int:
    """How long before the failure the stretch begins, in nanoseconds."""
    return min(LONGEST_S * SECOND_NS, max(SECOND_NS, failure.t_ns - state.facts.started_ns))


def title(state: RunState, failure: FailureState) -> str:
    """``the last 30 s before it``."""
    return f"the last {length(round(span_ns(state, failure) / SECOND_NS))} before it"


def window(state: RunState, failure: FailureState, parts: int) -> Window:
    """The stretch in so many columns; the failure is the last moment of the last one."""
    column_ns = max(1, -(-span_ns(state, failure) // parts))
    return Window(failure.t_ns + 1 - parts * column_ns, column_ns, parts)


def device_of(state: RunState, failure: FailureState) -> DeviceState | None:
    """The failure's device as it had been read by then; None where it is not known."""
    if failure.device is None or failure.device >= len(state.devices):
        return None
    device, t_ns = state.devices[failure.device], failure.t_ns
    curves = tuple(
        replace(one, allocated=_by(one.allocated, t_ns), reserved=_by(one.reserved, t_ns))
        for one in device.curves
    )
    return replace(device, curves=curves, driver_used=_by(device.driver_used, t_ns))


def stretches(state: RunState, failure: FailureState, parts: int) -> list[Stretch]:
    """The stretch in at most ``parts`` parts, from the first that anything was read in; empty without any."""
    device = device_of(state, failure)
    if device is None:
        return []
    view = window(state, failure, parts)
    curve = next((one for one in device.curves if one.pid == failure.pid), None)
    nothing: list[Column | None] = [None] * parts
    share = driver_share_bytes(device)
    used = [less(column, share) for column in columns(device.driver_used, view, failure.t_ns)]
    allocated = nothing if curve is None else columns(curve.allocated, view, failure.t_ns)
    reserved = nothing if curve is None else columns(curve.reserved, view, failure.t_ns)
    made: list[Stretch] = []
    for number in range(parts):
        levels = (allocated[number], reserved[number], used[number])
        if not made and all(level is None for level in levels):
            continue
        since_ns = view.start_ns + number * view.column_ns
        until_ns = since_ns + view.column_ns
        made.append(Stretch(since_ns, until_ns, _phases(state, failure, since_ns, until_ns), *levels))
    return made


def _by(series: Series, t_ns: int) -> Series:
    """The points that had ended: a folded one that goes on later has levels of later in it."""
    stop = bisect_right(series.t_ns, t_ns)
    return Series(
        series.since_ns[:stop], series.t_ns[:stop], series.low[:stop], series.high[:stop], series.last[:stop]
    )


def _phases(state: RunState, failure: FailureState, since_ns: int, until_ns: int) -> tuple[str, ...]:
    seen = [
        band
        for band in state.bands
        if band.pid == failure.pid
        and band.since_ns < until_ns
        and (band.until_ns is None or band.until_ns >= since_ns)
    ]
    seen.sort(key=lambda band: (band.since_ns, band.depth))
    return tuple(
        dict.fromkeys(
            clean(band.name if band.phase == SEVERAL and band.name else band.phase) for band in seen
        )
    )
