"""The driver as a stream of records: which devices there are, what they hold, and why a reading is missing.

Every call is made by a thread of a crew, in the lane of its device, so that one which
hangs stops nobody else; :meth:`Driver.poll` hands out what is due, waits a moment and returns what
has come. A fault of one call or device disturbs no other. A driver that cannot be
opened, or that has lost a device, is opened anew every 30 s; one that refuses a device is
asked for it as often.

Refuses: averaging, repeating old values, deciding what a figure means.
"""

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from gpumem_tui.records import Gpu, Load, Memory, Processes, Reason, Record, Word
from gpumem_tui.sources.faults import Fault
from gpumem_tui.sources.nvml import Found, Library, Nvml
from gpumem_tui.sources.pace import Pace
from gpumem_tui.sources.worker import Crew, Lane

SECOND_NS = 1_000_000_000
MANY_DEVICES = 4
"""With more devices than this, process lists and load are read every 2 s instead of every second."""

NO_DEVICE = -1
"""Index of a ``gpu`` record that stands for the driver as a whole: why there are no devices to read."""

CLOSE_S = 1.0
"""How long the end waits for the driver to be closed: that call may hang as any other."""

_REOPEN = (Reason.LOST, Reason.NO_DRIVER, Reason.DRIVER_MISMATCH, Reason.FAILED)
"""Faults of a device that opening the driver anew may end."""


class Opened:
    """What the opener brings: the driver's version and devices, or why there are none."""

    def __init__(self, version: str | None, devices: list[Found], fault: Fault | None, t_ns: int) -> None:
        self.version = version
        self.devices = devices
        self.fault = fault
        self.t_ns = t_ns


Item = Record | Opened


class Unit:
    """One device: its identity, its lane, the pace of its calls and their last faults."""

    def __init__(self, found: Found, lane: Lane, period_ns: int, now_ns: int) -> None:
        self.found = found
        self.lane = lane
        self.older_until_ns = 0
        """Until then memory is asked for by version 1 of the call: the driver had no 2 when last asked."""
        self.memory = Pace(period_ns, now_ns)
        self.processes = Pace(SECOND_NS, now_ns)
        self.load = Pace(SECOND_NS, now_ns)
        self.total_bytes: int | None = None
        self.faults: dict[str, Reason] = {}
        self.said: Gpu | None = None
        """Its last ``gpu`` record, at no particular time."""

    @property
    def name(self) -> str:
        """How it is called in words."""
        card = self.found.parent
        if card is None:
            return f"GPU {self.found.index}"
        return f"MIG instance {self.found.index} of GPU {card}"

    def paces(self) -> tuple[tuple[str, Pace], ...]:
        """The kinds of calls, the most important first."""
        return ("memory", self.memory), ("processes", self.processes), ("load", self.load)


class Driver:
    """All devices of this machine. Its methods are called by one thread."""

    def __init__(
        self,
        library: Path | None = None,
        *,
        hertz: float = 2.0,
        retry_s: float = 30.0,
        stale_s: float = 4.0,
        nvml: Library | None = None,
    ) -> None:
        """Read memory ``hertz`` times a second; ``library`` is an NVML other than the system's.

        ``stale_s``: after how long a call that has not returned is said to hang.
        """
        self._nvml: Library = nvml or Nvml(library)
        self._period_ns = round(SECOND_NS / hertz)
        self._retry_ns = round(retry_s * SECOND_NS)
        self._stale_ns = round(stale_s * SECOND_NS)
        self._crew: Crew[Item] = Crew("nvml")
        self._opener = Lane()
        self._units: dict[int, Unit] = {}
        self._version: str | None = None
        self._open = False
        self._next_open_ns = time.monotonic_ns()
        self._said: str | None = None
        """The last word on the driver as a whole; None while it is open and answers."""

    @property
    def devices(self) -> int:
        """How many devices are known, MIG instances included."""
        return len(self._units)

    def due_ns(self) -> int:
        """When the next call is due, on the monotonic clock. While one is under way: a period from now."""
        soon_ns = time.monotonic_ns() + self._period_ns
        if self._opener.busy_since_ns is not None:
            return soon_ns
        moments = [
            pace.due_ns if unit.lane.busy_since_ns is None else max(pace.due_ns, soon_ns)
            for unit in self._units.values()
            for _, pace in unit.paces()
        ]
        if self._wants_opening():
            moments.append(max(self._next_open_ns, soon_ns))
        return min(moments, default=soon_ns)

    def poll(self, wait_s: float = 0.1) -> list[Record]:
        """Make the calls that are due, and return what has been read since the last time.

        Waits up to ``wait_s`` for calls under way; later ones come with the next poll.
        """
        now_ns = time.monotonic_ns()
        records: list[Record] = []
        if self._opener.busy_since_ns is None:
            if now_ns >= self._next_open_ns and self._wants_opening() and self._is_quiet():
                self._next_open_ns = now_ns + self._retry_ns
                self._crew.submit(self._opener, partial(self._reopen, self._open, self._troubled()))
            else:
                self._start_rounds(now_ns)
        self._crew.wait(wait_s)
        for item in self._crew.collect():
            if isinstance(item, Opened):
                self._take_opened(item, records)
            else:
                self._take_reading(item, records)
        self._say_what_hangs(records, time.monotonic_ns())
        return records

    def close(self) -> None:
        """Give the driver up, unless a call of it hangs; the threads end."""
        if self._is_quiet() and self._opener.busy_since_ns is None and self._open:
            self._open = False
            self._crew.submit(self._opener, self._shut)
            self._crew.wait(CLOSE_S)
        self._crew.retire()

    def _shut(self) -> Iterator[Item]:
        """In a thread of the crew."""
        with contextlib.suppress(Fault):  # it may be gone by itself
            self._nvml.close()
        yield from ()

    # --- opening ------------------------------------------------------------------------------

    def _troubled(self) -> bool:
        return any(reason in _REOPEN for unit in self._units.values() for reason in unit.faults.values())

    def _wants_opening(self) -> bool:
        """Also where a device was refused: without a handle, no call can tell that it no longer is."""
        refused = any(unit.found.handle is None for unit in self._units.values())
        return not self._open or refused or self._troubled()

    def _is_quiet(self) -> bool:
        return all(unit.lane.busy_since_ns is None for unit in self._units.values())

    def _reopen(self, was_open: bool, troubled: bool) -> Iterator[Item]:
        """In a thread of the crew: close and open if need be, enumerate."""
        version = self._version
        try:
            if was_open and troubled:
                with contextlib.suppress(Fault):  # closing what is broken may fail; opening tells
                    self._nvml.close()
            if troubled or not was_open:
                version = self._nvml.open()
            yield Opened(version, self._nvml.devices(), None, time.monotonic_ns())
        except Fault as fault:
            yield Opened(None, [], fault, time.monotonic_ns())

    def _take_opened(self, opened: Opened, records: list[Record]) -> None:
        now_ns = opened.t_ns
        if opened.fault is not None:
            self._open = False
            self._say("the driver cannot be opened", opened.fault, records, now_ns)
            for unit in self._units.values():
                unit.found.handle = None
                unit.found.fault = opened.fault
            return
        self._open = True
        self._version = opened.version
        if self._said is not None:
            records.append(Word(now_ns, "driver-open", f"the driver is open: version {opened.version}"))
            self._said = None
            for unit in self._units.values():
                unit.said = None
        gone = dict(self._units)
        for found in opened.devices:
            unit = self._adopt(found, gone, now_ns)
            gone.pop(unit.found.index, None)
            self._say_gpu(unit, records, now_ns)
        for unit in gone.values():
            unit.found.handle = None
            unit.found.fault = Fault(Reason.LOST, "the driver no longer names it")
            self._say_gpu(unit, records, now_ns)
        slowly = 2 * SECOND_NS if len(self._units) > MANY_DEVICES else SECOND_NS
        for unit in self._units.values():
            unit.processes.settle(slowly)
            unit.load.settle(slowly)

    def _adopt(self, found: Found, before: dict[int, Unit], now_ns: int) -> Unit:
        """The unit of a device among those ``before`` that are not taken yet; a new one otherwise.

        By its UUID, since indices shift when a card is gone.
        """
        for unit in before.values():
            if found.uuid is not None and unit.found.uuid == found.uuid:
                found.index = unit.found.index
                unit.found = found
                unit.older_until_ns = 0
                return unit
        taken = before.get(found.index)
        if taken is not None and (found.uuid is None or taken.found.uuid is None):
            found.uuid = found.uuid or taken.found.uuid
            found.pci = found.pci or taken.found.pci
            found.name = found.name or taken.found.name
            found.minor = taken.found.minor if found.minor is None else found.minor
            taken.found = found
            return taken
        while found.index in self._units:
            found.index += 1
        card = self._units.get(found.parent) if found.parent is not None else None
        lane = card.lane if card else Lane()
        unit = self._units[found.index] = Unit(found, lane, self._period_ns, now_ns)
        return unit

    def _say_gpu(self, unit: Unit, records: list[Record], t_ns: int) -> None:
        """Which device it is, where that is new."""
        found = unit.found
        gpu = Gpu(
            t_ns=0,
            index=found.index,
            uuid=found.uuid,
            pci=found.pci,
            name=found.name,
            total_bytes=unit.total_bytes,
            parent=found.parent,
            driver_version=self._version,
            reason=_text(found.fault),
            minor=found.minor,
        )
        if gpu != unit.said:
            unit.said = gpu
            records.append(msgspec.structs.replace(gpu, t_ns=t_ns))

    # --- readings -----------------------------------------------------------------------------

    def _start_rounds(self, now_ns: int) -> None:
        """One job for each free lane that has calls due; instances share their card's lane."""
        due: dict[Lane, list[tuple[Unit, str]]] = {}
        for unit in self._units.values():
            if unit.lane.busy_since_ns is not None:
                continue
            for kind, pace in unit.paces():
                if pace.is_due(now_ns):
                    pace.advance(now_ns)
                    due.setdefault(unit.lane, []).append((unit, kind))
        for lane, calls in due.items():
            self._crew.submit(lane, partial(self._read_round, calls))

    def _read_round(self, calls: list[tuple[Unit, str]]) -> Iterator[Item]:
        """In a thread of the crew: the calls one after another, each with its own fate."""
        for unit, kind in calls:
            if kind == "memory":
                yield self._read_memory(unit)
            elif kind == "processes":
                yield self._read_processes(unit)
            else:
                yield self._read_load(unit)

    def _read_memory(self, unit: Unit) -> Memory:
        index, before = unit.found.index, time.monotonic_ns()
        asked = 1 if before < unit.older_until_ns else 2
        try:
            reading = self._nvml.memory(_handle(unit), asked)
        except Fault as fault:
            t_ns, took_ns = _moment(before)
            return Memory(t_ns, took_ns, index, reason=fault.text)
        t_ns, took_ns = _moment(before)
        if reading.version < asked:
            unit.older_until_ns = before + self._retry_ns
        total, free, reserved, version = reading
        used = total - free - (reserved or 0)
        return Memory(t_ns, took_ns, index, total, free, used, reserved, version)

    def _read_processes(self, unit: Unit) -> Processes:
        index, before = unit.found.index, time.monotonic_ns()
        try:
            reading = self._nvml.processes(_handle(unit))
        except Fault as fault:
            t_ns, took_ns = _moment(before)
            return Processes(t_ns, took_ns, index, reason=fault.text)
        t_ns, took_ns = _moment(before)
        return Processes(t_ns, took_ns, index, reading.rows, _text(reading.fault), reading.missing)

    def _read_load(self, unit: Unit) -> Load:
        before = time.monotonic_ns()
        try:
            reading = self._nvml.load(_handle(unit))
        except Fault as fault:
            return Load(_moment(before)[0], unit.found.index, reason=fault.text)
        t_ns, took_ns = _moment(before)
        unit.load.learn(took_ns)
        return Load(
            t_ns,
            unit.found.index,
            reading.utilization,
            reading.temperature,
            reading.power_mw,
            _text(reading.fault),
            reading.clock_mhz,
            reading.memory_clock_mhz,
        )

    def _take_reading(self, item: Record, records: list[Record]) -> None:
        if isinstance(item, Memory):
            unit = self._units[item.index]
            unit.memory.learn(item.took_ns)
            if item.total_bytes is not None and item.total_bytes != unit.total_bytes:
                unit.total_bytes = item.total_bytes
                self._say_gpu(unit, records, item.t_ns)
            self._note(unit, "memory", item.reason, records, item.t_ns)
        elif isinstance(item, Processes):
            unit = self._units[item.index]
            unit.processes.learn(item.took_ns)
            self._note(unit, "processes", item.reason, records, item.t_ns)
        records.append(item)

    # --- words --------------------------------------------------------------------------------

    def _note(self, unit: Unit, kind: str, text: str | None, records: list[Record], t_ns: int) -> None:
        """Say it when the fate of a kind of reading changes, not with every reading."""
        reason = None if text is None else Reason(text.partition(": ")[0])
        before = unit.faults.get(kind)
        if reason is before:
            return
        if reason is None:
            del unit.faults[kind]
            text = f"{unit.name}: {kind} can be read again"
            records.append(Word(t_ns, "device-recovered", text, unit.found.index))
        else:
            unit.faults[kind] = reason
            records.append(Word(t_ns, "device-fault", f"{unit.name}: {kind}: {text}", unit.found.index))

    def _say(self, what: str, fault: Fault, records: list[Record], t_ns: int) -> None:
        text = f"{what}: {fault.text}"
        if text != self._said:
            self._said = text
            records.append(Word(t_ns, "no-driver", text))
            records.append(Gpu(t_ns, NO_DEVICE, driver_version=self._version, reason=fault.text))

    def _say_what_hangs(self, records: list[Record], now_ns: int) -> None:
        """Where a lane is stuck, the readings of its devices are missing, at their own pace."""
        since_ns = self._opener.busy_since_ns
        if since_ns is not None and now_ns - since_ns >= self._stale_ns:
            fault = Fault(Reason.STALE, "a driver call has not returned")
            self._say("the driver does not answer", fault, records, now_ns)
        for unit in self._units.values():
            started_ns = unit.lane.busy_since_ns or since_ns
            if started_ns is None or now_ns - started_ns < self._stale_ns:
                continue
            seconds = (now_ns - started_ns) // SECOND_NS
            text = Fault(Reason.STALE, f"a driver call has not returned for {seconds} s").text
            for kind, pace in unit.paces():
                if not pace.is_due(now_ns):
                    continue
                pace.advance(now_ns)
                index = unit.found.index
                if kind == "memory":
                    records.append(Memory(now_ns, 0, index, reason=text))
                elif kind == "processes":
                    records.append(Processes(now_ns, 0, index, reason=text))
                else:
                    records.append(Load(now_ns, index, reason=text))
                    continue
                self._note(unit, kind, text, records, now_ns)


def _text(fault: Fault | None) -> str | None:
    return None if fault is None else fault.text


def _handle(unit: Unit) -> object:
    if unit.found.handle is None:
        raise unit.found.fault or Fault(Reason.UNKNOWN)
    return unit.found.handle


def _moment(before_ns: int) -> tuple[int, int]:
    """(middle, duration) of a call that began then and has ended now."""
    took_ns = time.monotonic_ns() - before_ns
    return before_ns + took_ns // 2, took_ns
