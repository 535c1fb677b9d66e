"""The driver's view without a run: reads cards and processes itself, and makes one picture at a time.

Joins the driver's stream with /proc and with the recordings of live runs. Writes
nothing, creates no CUDA context, and sends a signal only where it is told to.
"""

import os
import platform
import signal
import time
from collections import deque
from pathlib import Path
from typing import Protocol

import msgspec

from gpumem_tui import records
from gpumem_tui.analysis.ledger import DriverReading, Ledger, ledger
from gpumem_tui.analysis.state import Event, Severity
from gpumem_tui.analysis.top import (
    Ancestor,
    FileHolder,
    RunShare,
    TopDevice,
    TopProcess,
    TopState,
    nobodys_bytes,
)
from gpumem_tui.records import Reason
from gpumem_tui.session.driver import MINUTE_NS, STALE_NS, DriverModel, GpuModel, Holding, reason_of
from gpumem_tui.session.liveruns import LiveRuns
from gpumem_tui.sources.devicefiles import OpenFiles, read_open_files
from gpumem_tui.sources.processes import Stat, describe, read_stat, started_wall_ns

FILES_EVERY_S = 10.0
"""How often open device files are looked for, while there is memory that nobody accounts for."""

STATS_EVERY_S = 3.0
"""How often host memory and state of the processes are read."""

PATIENCE_S = 0.25
"""How long one picture waits for calls under way; slower ones come with the next."""

EVENTS = 100

DEEPEST = 32
"""So many ancestors of a process are looked for."""


class Readings(Protocol):
    """The driver as a stream of records: ``sources.driver.Driver``, handed in by whoever may reach it."""

    def poll(self, wait_s: float) -> list[records.Record]:
        """What has been read since the last time."""

    def close(self) -> None:
        """Give the driver up."""


class Top:
    """A feed of pictures. All methods are called by one thread."""

    def __init__(self, driver: Readings, *, simulated_state: Path | None = None) -> None:
        """``simulated_state`` is the state file of the simulated machine that NVML stands for here."""
        self._driver = driver
        self._model = DriverModel()
        self._runs = LiveRuns(simulated_state)
        self._simulated = simulated_state is not None
        self._stats: dict[int, Stat | None] = {}
        self._families: dict[int, tuple[int, tuple[Ancestor, ...]]] = {}
        """Of each process: its parent, and all above it."""
        self._next_stats_s = 0.0
        self._looked = 0
        """Counts what was newly read of processes."""
        self._ledgers: dict[int, tuple[DriverReading, Ledger]] = {}
        """Of each device, and the reading that it was made of."""
        self._rows: dict[int, tuple[Ledger, int, dict[tuple[str | int, int], RunShare], list[TopProcess]]]
        self._rows = {}
        self._files: OpenFiles | None = None
        self._next_files_s = 0.0
        self._word: str | None = None
        self._version: str | None = None
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._asked: set[int] = set()
        """Devices of which a process list came, or why there is none."""
        self._user = viewer()

    def read(self) -> TopState:
        """The picture of now."""
        for record in self._driver.poll(PATIENCE_S):
            self._take(record)
        self._look_at_processes()
        self._runs.read()
        return self._picture()

    def read_whole(self, seconds: float) -> TopState:
        """The first picture in which every device was asked, or what there is after so long."""
        until_s = time.monotonic() + seconds
        while not (state := self.read()).complete and time.monotonic() < until_s:
            time.sleep(0.02)
        return state

    def close(self) -> None:
        """Give the driver up."""
        self._driver.close()

    def end(self, pid: int, started_ticks: int | None, number: signal.Signals) -> str:
        """Send one process a signal, if it is still that process. Returns a sentence on what was done."""
        stat = read_stat(pid)
        if stat is None or stat.started_ticks != started_ticks:
            return f"nothing was sent: process {pid} has ended"
        try:
            os.kill(pid, number)
        except PermissionError:
            return f"not permitted: process {pid} belongs to another user"
        except ProcessLookupError:
            return f"nothing was sent: process {pid} has ended"
        return f"{number.name} was sent to process {pid}"

    # --- taking -------------------------------------------------------------------------------

    def _take(self, record: records.Record) -> None:
        self._model.take(record)
        match record:
            case records.Gpu():
                self._version = record.driver_version or self._version
                if record.index < 0:  # the driver as a whole
                    self._word = (record.reason or "").partition(": ")[2] or None
            case records.Processes() if record.index in self._model.gpus:
                self._asked.add(record.index)
                self._model.gpus[record.index].add_processes(record)
            case records.Word():
                severity = Severity.INFO if record.code.endswith(("recovered", "open")) else Severity.WARNING
                self._events.append(Event(record.t_ns, severity, record.text))

    def _look_at_processes(self) -> None:
        """Who is new is described; who stays is asked for its state and host memory now and then."""
        names = self._model.names
        pids = {pid for gpu in self._model.gpus.values() for pid in gpu.holdings}
        again = time.monotonic() >= self._next_stats_s
        if again:
            self._next_stats_s = time.monotonic() + STATS_EVERY_S
        for pid in names.keys() - pids:
            del names[pid]
            self._stats.pop(pid, None)
            self._families.pop(pid, None)
        for pid in pids:
            known = names.get(pid)
            if known is not None and not again:
                continue
            self._looked += 1
            stat = self._stats[pid] = read_stat(pid)
            same = known is not None and known.visible == (stat is not None)
            if stat is not None and known is not None:
                same = same and (known.started_ticks, known.name) == (stat.started_ticks, stat.name)
            if not same:
                names[pid] = describe(pid)
            if stat is not None and (not same or self._families.get(pid, (None,))[0] != stat.parent):
                self._families[pid] = (stat.parent, _ancestors(stat.parent))

    # --- the picture --------------------------------------------------------------------------

    def _picture(self) -> TopState:
        now_ns = time.monotonic_ns()
        model = self._model
        split = {gpu.gpu.parent for gpu in model.gpus.values() if gpu.gpu.parent is not None}
        order = sorted(model.gpus.values(), key=_place)
        held = {gpu.gpu.index: self._ledger(gpu, now_ns) for gpu in order}
        devices = [self._device(gpu, *held[gpu.gpu.index], gpu.gpu.index in split) for gpu in order]
        if any(nobodys_bytes(device) is not None for device in devices):
            devices = self._with_files(devices)
        processes = [row for gpu in order for row in self._rows_of(gpu, held[gpu.gpu.index][1], now_ns)]
        on_instances = {
            (model.gpus[row.device].gpu.parent, row.pid)
            for row in processes
            if model.gpus[row.device].gpu.parent is not None
        }
        asked = all(gpu.memories and gpu.gpu.index in self._asked for gpu in model.gpus.values())
        return TopState(
            now_ns=now_ns,
            wall_ns=time.time_ns(),
            host=platform.node(),
            viewer=self._user,
            driver_version=self._version,
            driver_reason=model.reason if not model.gpus else None,
            driver_word=self._word if model.reason is not None else None,
            simulated="simulated cards" if self._simulated else None,
            devices=tuple(devices),
            processes=tuple(row for row in processes if (row.device, row.pid) not in on_instances),
            alarms=self._runs.alarms,
            events=tuple(self._events),
            complete=asked if model.gpus else model.reason not in (None, Reason.STALE),
        )

    def _device(self, gpu: GpuModel, reading: DriverReading, held: Ledger, split: bool) -> TopDevice:
        facts, load = gpu.gpu, gpu.load
        word = next((m.reason for m in reversed(gpu.memories)), None)
        last = gpu.lists[-1] if gpu.lists else None
        return TopDevice(
            index=facts.index,
            parent=facts.parent,
            uuid=facts.uuid,
            pci=facts.pci,
            name=facts.name,
            ledger=held,
            utilization=load.utilization if load else None,
            temperature=load.temperature if load else None,
            power_mw=load.power_mw if load else None,
            clock_mhz=load.clock_mhz if load else None,
            memory_clock_mhz=load.memory_clock_mhz if load else None,
            load_reason=reason_of(load.reason) if load else Reason.NOT_READ_YET,
            processes_reason=reading.processes_reason
            or (reason_of(last.reason) if last is not None else None),
            processes_missing=last.missing if last is not None and reading.processes_t_ns is not None else "",
            reason=word,
            split=split,
        )

    def _ledger(self, gpu: GpuModel, now_ns: int) -> tuple[DriverReading, Ledger]:
        """The ledger of now; most readings are those of a second ago, paired with the same list."""
        reading = gpu.reading(now_ns, None, self._model.names)
        known = self._ledgers.get(gpu.gpu.index)
        if known is None or known[0] != reading:
            known = self._ledgers[gpu.gpu.index] = (reading, ledger(reading, []))
        return known

    def _with_files(self, devices: list[TopDevice]) -> list[TopDevice]:
        """Who has the files of cards open, for cards on which memory belongs to nobody."""
        if time.monotonic() >= self._next_files_s:
            self._next_files_s = time.monotonic() + FILES_EVERY_S
            self._files = read_open_files()
        files = self._files
        found = []
        for device in devices:
            card = device.index if device.parent is None else device.parent
            minor = self._model.gpus[card].gpu.minor if card in self._model.gpus else None
            if files is None or minor is None or nobodys_bytes(device) is None:
                found.append(device)
                continue
            listed = self._model.gpus[device.index].holdings
            pids = [pid for pid in files.by_minor.get(minor, ()) if pid not in listed]
            holders = [describe(pid) for pid in pids[:8]]
            found.append(
                msgspec.structs.replace(
                    device,
                    file_holders=tuple(FileHolder(h.pid, h.name or "", h.user or "") for h in holders),
                    unreadable=files.unreadable,
                )
            )
        return found

    def _rows_of(self, gpu: GpuModel, held: Ledger, now_ns: int) -> list[TopProcess]:
        """The rows of one device; made anew only where something they show is new."""
        index = gpu.gpu.index
        last = gpu.lists[-1] if gpu.lists else None
        if last is None or now_ns - last.t_ns > STALE_NS:
            return []
        known = self._rows.get(index)
        if known is None or known[0] is not held or known[1:3] != (self._looked, self._runs.shares):
            rows = self._processes(gpu, held, now_ns)
            known = self._rows[index] = (held, self._looked, self._runs.shares, rows)
        return known[3]

    def _processes(self, gpu: GpuModel, held: Ledger, now_ns: int) -> list[TopProcess]:
        rows = []
        for process in held.others:
            pid = process.pid
            known, stat = self._model.names.get(pid), self._stats.get(pid)
            holding = gpu.holdings.get(pid)
            ticks = known.started_ticks if known is not None else None
            rows.append(
                TopProcess(
                    device=gpu.gpu.index,
                    pid=pid,
                    name=process.name,
                    user=process.user,
                    command=(known.command if known is not None else None) or "",
                    kind=process.kind,
                    used=process.used,
                    growth_bytes=holding.growth_bytes(now_ns) if holding is not None else None,
                    rise_bytes=_rise(holding, now_ns),
                    since_ns=holding.since_ns if holding is not None else now_ns,
                    started_wall_ns=started_wall_ns(ticks),
                    started_ticks=ticks,
                    rss_bytes=stat.rss_bytes if stat is not None else None,
                    visible=process.visible,
                    zombie=stat is not None and stat.has_ended,
                    mine=bool(process.user) and process.user == self._user,
                    container=known.container if known is not None else None,
                    job=known.job if known is not None else None,
                    namespace_pid=known.namespace_pid if known is not None else None,
                    run=self._runs.shares.get((gpu.uuid or gpu.gpu.index, pid)),
                    ancestors=self._families[pid][1] if pid in self._families else (),
                )
            )
        return rows


def _ancestors(parent: int) -> tuple[Ancestor, ...]:
    """A parent and those above it, but for init."""
    found: list[Ancestor] = []
    while parent > 1 and len(found) < DEEPEST:
        known = describe(parent)
        if not known.visible:
            break
        found.append(Ancestor(parent, known.name or "", known.user or "", known.command or ""))
        parent = known.parent or 0
    return tuple(found)


def _rise(holding: Holding | None, now_ns: int) -> int:
    """What a process holds above the least of the last minute; all of it, if it came after we did."""
    if holding is None or not holding.past:
        return 0
    latest = holding.past[-1][1]
    if holding.came and holding.since_ns > now_ns - MINUTE_NS:
        return latest
    if holding.moved_ns < holding.past[-1][0] - MINUTE_NS:
        return 0
    return latest - min(used for t, used in holding.past if t >= holding.past[-1][0] - MINUTE_NS)


def viewer() -> str:
    """The user who looks, called as /proc's owners are."""
    return describe(os.getpid()).user or str(os.getuid())


def _place(gpu: GpuModel) -> tuple[int, int]:
    """Cards by index, each followed by its MIG instances."""
    facts = gpu.gpu
    return (facts.index, -1) if facts.parent is None else (facts.parent, facts.index)
