"""What one process did from a moment on: a cell of a notebook, as rows of phases and a settled picture."""

import time
from collections.abc import Callable

from gpumem_tui import records
from gpumem_tui.analysis.rankstate import PhaseRow
from gpumem_tui.analysis.state import DeviceState, RunState
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session.phasetable import PhaseTable
from gpumem_tui.session.stream import records_of

_LOOK_S = 0.1


def phases_since(run: RunDirectory, pid: int, since_ns: int) -> tuple[PhaseRow, ...]:
    """Phases of one process over the spans that began after a moment; cold is the first of them there."""
    table = PhaseTable()
    begun: dict[int, records.Begin] = {}
    for head, record in records_of(run, since_ns=since_ns):
        if head.pid != pid or record.t_ns < since_ns:
            continue
        if isinstance(record, records.Begin):
            begun[record.span] = record
            table.began(record)
        elif isinstance(record, records.End) and record.span in begun:
            table.add(begun.pop(record.span), record)
    return tuple(table.rows(pid, None))


def devices_of(state: RunState, pid: int) -> list[DeviceState]:
    """The devices that a process holds."""
    return [device for device in state.devices if any(share.pid == pid for share in device.ledger.ranks)]


def settled(read: Callable[[], RunState], pid: int, after_ns: int, seconds: float) -> tuple[RunState, bool]:
    """A picture with driver readings, of a process's devices, of after a moment; False: none came in time."""
    until = time.monotonic() + seconds
    while True:
        state = read()
        times = [device.ledger.t_ns for device in devices_of(state, pid)]
        if times and all(t_ns is not None and t_ns > after_ns for t_ns in times):
            return state, True
        if time.monotonic() > until:
            return state, False
        time.sleep(_LOOK_S)
