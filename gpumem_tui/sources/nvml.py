"""NVML: what one call says of one device, or a :class:`Fault`. The only importer of pynvml.

Owns versions and layouts (memory 2 and 1, process lists 3 and 2) and the driver's
vocabulary of errors. Refuses to remember readings, to keep time and to retry: that
is ``driver``'s. Creates no CUDA context and uses no device memory.
"""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import msgspec

from gpumem_tui.records import Reason
from gpumem_tui.sources.faults import Fault

Handle = Any
"""NVML's own, opaque; valid until the library is closed."""

INSTANCE_BASE = 100
"""A MIG instance's index is ``(card + 1) * INSTANCE_BASE + instance``: never that of a card."""

_REASONS = {
    3: Reason.NOT_SUPPORTED,
    4: Reason.NO_PERMISSION,
    9: Reason.NO_DRIVER,
    12: Reason.NO_DRIVER,
    13: Reason.NOT_SUPPORTED,  # function not found: a driver older than the call
    15: Reason.LOST,
    16: Reason.LOST,
    18: Reason.DRIVER_MISMATCH,
    25: Reason.NOT_SUPPORTED,  # argument version mismatch: older than the structure
}
_OLDER = (3, 13, 25)
"""Errors that mean "not by this version of the call"."""
_FUNCTION_NOT_FOUND = 13

_MOST_BYTES = 1 << 63
"""No memory is as large: NVML's "no value" is all ones, and other nonsense is no figure either."""


class MemoryReading(NamedTuple):
    """Bytes of one device. ``reserved_bytes`` is the driver's share; None with version 1."""

    total_bytes: int
    free_bytes: int
    reserved_bytes: int | None
    version: int


class LoadReading(NamedTuple):
    """Percent, °C, milliwatts, MHz; None where that one call failed, ``fault`` is the first such failure."""

    utilization: int | None
    temperature: int | None
    power_mw: int | None
    fault: Fault | None
    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None


ProcessRow = tuple[int, int | None, str, str | None]
"""(pid, used bytes, kind letters, reason): a row of ``records.Processes``."""


class ProcessReading(NamedTuple):
    """Who is on a device. With a ``fault`` the rows are not all there are: kinds ``missing`` were refused."""

    rows: list[ProcessRow]
    fault: Fault | None
    missing: str = ""


class Found(msgspec.Struct):
    """A device that the driver enumerates: a card, or a MIG instance of one."""

    index: int
    handle: Handle
    uuid: str | None = None
    """Without ``GPU-``; a MIG instance's is kept as it is, ``MIG-...``."""
    pci: str | None = None
    name: str | None = None
    parent: int | None = None
    minor: int | None = None
    """Number of its device file, ``/dev/nvidia<minor>``; None for a MIG instance."""
    fault: Fault | None = None
    """Why there is no handle or no identity."""


class Library(Protocol):
    """What ``driver`` asks of NVML. Every call may raise :class:`Fault`, and may hang."""

    def open(self) -> str | None:
        """Load and initialise; the driver's version, where it tells."""

    def close(self) -> None:
        """Give the library up; handles are void from here on."""

    def devices(self) -> list[Found]:
        """All cards and MIG instances; one that fails is there with its fault."""

    def memory(self, handle: Handle, version: int = 2) -> MemoryReading:
        """Total, free, reserved; version 1 where the driver has no 2."""

    def processes(self, handle: Handle) -> ProcessReading:
        """All kinds of processes, merged by pid."""

    def load(self, handle: Handle) -> LoadReading:
        """Utilisation, temperature and power, each on its own."""


class Nvml:
    """The real library, or one given by its path (it is loaded first, so pynvml finds it by name)."""

    def __init__(self, library: Path | None = None) -> None:
        """Nothing is loaded before :meth:`open`."""
        self._library = library
        self._module: ModuleType | None = None

    @property
    def _nvml(self) -> Any:
        if self._module is None:
            raise Fault(Reason.NOT_READ_YET, "NVML is not open")
        return self._module

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        """One call; pynvml's exception becomes ours."""
        try:
            return function(*args)
        except self._nvml.NVMLError as error:
            code = int(error.value)
            raise Fault(_REASONS.get(code, Reason.FAILED), str(error), code) from None
        except Exception as error:  # noqa: BLE001  pynvml makes no sense of the answer: this call's fault alone
            raise Fault(Reason.FAILED, f"{type(error).__name__}: {error}") from None

    def open(self) -> str | None:
        """Load and initialise NVML."""
        if self._library is not None:
            try:
                ctypes.CDLL(str(self._library), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise Fault(Reason.NO_DRIVER, str(error)) from None
        import pynvml

        self._module = pynvml
        self._call(pynvml.nvmlInit)
        try:
            return _text(self._call(pynvml.nvmlSystemGetDriverVersion))
        except Fault:
            return None

    def versions(self) -> tuple[str | None, str | None]:
        """(NVML's version, the newest CUDA that the driver runs), each None where it is not told."""
        nvml = self._nvml
        library = self._or_none(nvml.nvmlSystemGetNVMLVersion)
        cuda = self._or_none(nvml.nvmlSystemGetCudaDriverVersion_v2)
        return (
            None if library is None else _text(library),
            None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def traits(self, handle: Handle) -> tuple[str | None, bool | None]:
        """(compute capability, whether MIG mode is on), each None where it is not told."""
        nvml = self._nvml
        capability = self._or_none(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        mig = self._or_none(nvml.nvmlDeviceGetMigMode, handle)
        return (
            None if capability is None else f"{capability[0]}.{capability[1]}",
            None if mig is None else bool(mig[0]),
        )

    def _or_none(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return self._call(function, *args)
        except Fault:
            return None

    def close(self) -> None:
        """Shut NVML down; it stays loaded."""
        self._call(self._nvml.nvmlShutdown)

    def devices(self) -> list[Found]:
        """Cards in the driver's order (that of the PCI bus), each followed by its MIG instances."""
        nvml = self._nvml
        found: list[Found] = []
        for index in range(self._call(nvml.nvmlDeviceGetCount)):
            try:
                handle = self._call(nvml.nvmlDeviceGetHandleByIndex, index)
            except Fault as fault:
                found.append(Found(index, None, fault=fault))
                continue
            card = self._identify(Found(index, handle))
            found.append(card)
            found += self._instances(card)
        return found

    def _instances(self, card: Found) -> list[Found]:
        nvml = self._nvml
        instances = []
        try:
            if not self._call(nvml.nvmlDeviceGetMigMode, card.handle)[0]:
                return []
            room = self._call(nvml.nvmlDeviceGetMaxMigDeviceCount, card.handle)
        except Fault:
            return []  # not a card that can be split, or one that does not answer: its readings say so
        for number in range(room):
            try:
                handle = self._call(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card.handle, number)
            except Fault:
                continue  # no instance in this place
            index = (card.index + 1) * INSTANCE_BASE + number
            instances.append(self._identify(Found(index, handle, pci=card.pci, parent=card.index)))
        return instances

    def _identify(self, device: Found) -> Found:
        """Each part on its own; the first that fails is the device's fault."""
        nvml = self._nvml

        def ask(function: Callable[..., Any]) -> Any:
            try:
                return self._call(function, device.handle)
            except Fault as fault:
                device.fault = device.fault or fault
                return None

        uuid, name = ask(nvml.nvmlDeviceGetUUID), ask(nvml.nvmlDeviceGetName)
        device.uuid = None if uuid is None else _text(uuid).removeprefix("GPU-")
        device.name = None if name is None else _text(name)
        if device.parent is None:
            # Not everywhere, and nothing else depends on it: no fault.
            device.minor = self._or_none(nvml.nvmlDeviceGetMinorNumber, device.handle)
            pci = ask(nvml.nvmlDeviceGetPciInfo)
            device.pci = None if pci is None else normalise_pci(_text(pci.busId))
        return device

    def memory(self, handle: Handle, version: int = 2) -> MemoryReading:
        """``version`` 2 falls back to 1 where the driver does not have it."""
        nvml = self._nvml
        if version == 2:
            try:
                info = self._call(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
                return _checked(MemoryReading(info.total, info.free, info.reserved, 2))
            except Fault as fault:
                if fault.code not in _OLDER:
                    raise
        info = self._call(nvml.nvmlDeviceGetMemoryInfo, handle)
        return _checked(MemoryReading(info.total, info.free, None, 1))

    def processes(self, handle: Handle) -> ProcessReading:
        """Compute, graphics and MPS lists: one must work. A driver without the last two has nobody there."""
        lists: list[tuple[str, Sequence[Any]]] = []
        incomplete: Fault | None = None
        missing = ""
        for kind, name in (
            ("C", "nvmlDeviceGetComputeRunningProcesses"),
            ("G", "nvmlDeviceGetGraphicsRunningProcesses"),
            ("M", "nvmlDeviceGetMPSComputeRunningProcesses"),
        ):
            try:
                lists.append((kind, self._list(name, handle)))
            except Fault as fault:  # noqa: PERF203 - each list has its own fate
                if kind == "C" or fault.reason is not Reason.NOT_SUPPORTED:
                    incomplete = incomplete or fault
                    missing += kind
        if incomplete is not None and not lists:
            raise incomplete
        return ProcessReading(merge_processes(lists), incomplete, missing)

    def _list(self, name: str, handle: Handle) -> Sequence[Any]:
        """By version 3 of the call, or 2 where the driver has no 3 (before 510)."""
        try:
            return self._call(getattr(self._nvml, name + "_v3"), handle)  # type: ignore[no-any-return]
        except Fault as fault:
            if fault.code != _FUNCTION_NOT_FOUND:
                raise
            return self._call(getattr(self._nvml, name + "_v2"), handle)  # type: ignore[no-any-return]

    def load(self, handle: Handle) -> LoadReading:
        """Five calls, none of which disturbs another."""
        nvml = self._nvml
        first: Fault | None = None

        def read(function: Callable[..., Any], *more: Any) -> Any:
            nonlocal first
            try:
                return self._call(function, handle, *more)
            except Fault as fault:
                first = first or fault
                return None

        rates = read(nvml.nvmlDeviceGetUtilizationRates)
        degrees = read(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU)
        power = read(nvml.nvmlDeviceGetPowerUsage)
        clock = read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM)
        memory_clock = read(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM)
        utilization = None if rates is None else rates.gpu
        return LoadReading(utilization, degrees, power, first, clock, memory_clock)


def _checked(reading: MemoryReading) -> MemoryReading:
    """The reading, unless it is none. Raises :class:`Fault`."""
    if max(reading.total_bytes, reading.free_bytes, reading.reserved_bytes or 0) >= _MOST_BYTES:
        raise Fault(Reason.NOT_SUPPORTED, "the driver's answer has no value")
    return reading


def merge_processes(lists: Sequence[tuple[str, Sequence[Any]]]) -> list[ProcessRow]:
    """Rows by pid from (kind letter, NVML's entries).

    A process of several kinds has the same figure in each list; one on several MIG
    instances has its own on each, and they add up. A figure that any part lacks is
    missing as a whole.
    """
    parts: dict[int, dict[tuple[Any, Any], int | None]] = {}
    kinds: dict[int, str] = {}
    for kind, entries in lists:
        for entry in entries:
            used = entry.usedGpuMemory
            if used is not None and used >= _MOST_BYTES:
                used = None
            where = (getattr(entry, "gpuInstanceId", None), getattr(entry, "computeInstanceId", None))
            mine = parts.setdefault(entry.pid, {})
            before = mine.get(where)
            mine[where] = used if before is None else before if used is None else max(before, used)
            letters = kinds.get(entry.pid, "")
            kinds[entry.pid] = letters if kind in letters else letters + kind
    rows: list[ProcessRow] = []
    for pid, mine in parts.items():
        known = [used for used in mine.values() if used is not None]
        if len(known) == len(mine):
            rows.append((pid, sum(known), kinds[pid], None))
        else:
            rows.append((pid, None, kinds[pid], Reason.NOT_SUPPORTED.value))
    return rows


def normalise_pci(bus_id: str) -> str:
    """``00000000:3B:00.0`` or ``0000:3B:00.0`` → ``00000000:3b:00.0``."""
    domain, _, rest = bus_id.strip().lower().partition(":")
    return f"{domain:0>8}:{rest}"


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
