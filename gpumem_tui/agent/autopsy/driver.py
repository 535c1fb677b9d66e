"""NVML as the failing process asks it: a device's memory and who is on it. The minimal binding, by ctypes.

Every call may hang: only a thread that nobody waits for without a deadline calls
these. ctypes gives up the GIL during a call. NVML makes no CUDA context and takes no
device memory.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional, Tuple

from .. import wire  # noqa: TID252  in the workload the package has another name
from ..aside import Aside  # noqa: TID252  in the workload the package has another name
from .absent import Absent

LIBRARY = "libnvidia-ml.so.1"
NO_FIGURE = (1 << 64) - 1
"""What NVML says where the driver does not tell a process's memory."""

_INSUFFICIENT_SIZE = 7
_REASONS = {
    3: "not supported",
    4: "no permission",
    9: "the driver is not loaded",
    12: "no driver library",
    13: "not supported by this driver",
    15: "the device is lost",
    18: "driver and library versions differ",
}


class _MemoryV1(ctypes.Structure):
    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class _MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


class _Process(ctypes.Structure):
    _fields_ = [
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class _Failed(Exception):
    """A call that NVML refused; ``code`` is its own."""

    def __init__(self, code: int) -> None:
        super().__init__(_REASONS.get(code, "NVML error %d" % code))
        self.code = code


def _call(library: Any, name: str, *arguments: Any) -> None:
    function = getattr(library, name, None)
    code = 13 if function is None else function(*arguments)
    if code:
        raise _Failed(code)


def read(uuid: Optional[str], pci: Optional[str]) -> Dict[str, Any]:
    """One device, as ``records.failure.DriverReading``. Raises :class:`Absent`. May hang."""
    began = wire.now_ns()
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise Absent("no driver library") from None
    try:
        _call(library, "nvmlInit_v2")
        try:
            handle = _handle(library, uuid, pci)
            reading: Dict[str, Any] = {"t_ns": wire.now_ns()}
            reading.update(_memory(library, handle))
            reading["processes"] = _holders(library, handle)
        finally:
            library.nvmlShutdown()  # NVML counts: the user's own pynvml stays open
    except _Failed as error:
        raise Absent(str(error)) from None
    reading["took_ns"] = wire.now_ns() - began
    return reading


def _handle(library: Any, uuid: Optional[str], pci: Optional[str]) -> ctypes.c_void_p:
    """The device by what identifies it. Raises :class:`_Failed` by the last way that was tried."""
    ways: List[Tuple[str, str]] = []
    if uuid:
        ways += [("nvmlDeviceGetHandleByUUID", prefix + uuid) for prefix in ("GPU-", "MIG-", "")]
    if pci:
        ways.append(("nvmlDeviceGetHandleByPciBusId_v2", pci))
    failed = _Failed(3)
    for function, name in ways:
        handle = ctypes.c_void_p()
        try:
            _call(library, function, name.encode(), ctypes.byref(handle))
        except _Failed as error:
            failed = error
            continue
        return handle
    raise failed


def _memory(library: Any, handle: ctypes.c_void_p) -> Dict[str, Any]:
    """Version 2 tells the driver's share apart; version 1 counts it as used."""
    newer = _MemoryV2(version=ctypes.sizeof(_MemoryV2) | 2 << 24)
    try:
        _call(library, "nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(newer))
    except _Failed as error:
        if error.code not in (3, 13, 25):
            raise
    else:
        return {
            "version": 2, "total_bytes": newer.total, "free_bytes": newer.free, "used_bytes": newer.used,
            "driver_reserved_bytes": newer.reserved,
        }  # fmt: skip
    older = _MemoryV1()
    _call(library, "nvmlDeviceGetMemoryInfo", handle, ctypes.byref(older))
    return {
        "version": 1, "total_bytes": older.total, "free_bytes": older.free, "used_bytes": older.used,
        "driver_reserved_bytes": None,
    }  # fmt: skip


def _holders(library: Any, handle: ctypes.c_void_p) -> Optional[List[Dict[str, Any]]]:
    """Compute, graphics and MPS processes by pid; None where the driver lists none of these kinds."""
    parts: Dict[int, Dict[Tuple[int, int], Optional[int]]] = {}
    kinds: Dict[int, str] = {}
    listed = False
    for letter, kind in (("C", "Compute"), ("G", "Graphics"), ("M", "MPSCompute")):
        rows = _list(library, kind, handle)
        listed = listed or rows is not None
        for row in rows or ():
            used = row.memory if row.memory != NO_FIGURE else None
            parts.setdefault(row.pid, {})[row.gpu_instance, row.compute_instance] = used
            kinds[row.pid] = kinds.get(row.pid, "") + (letter if letter not in kinds.get(row.pid, "") else "")
    if not listed:
        return None
    found = []
    for pid, sizes in parts.items():
        known = [size for size in sizes.values() if size is not None]
        found.append({
            "pid": pid, "used_bytes": sum(known) if len(known) == len(sizes) else None, "kind": kinds[pid],
            "name": name_of(pid),
        })  # fmt: skip
    return sorted(found, key=lambda holder: -(holder["used_bytes"] or 0))


def _list(library: Any, kind: str, handle: ctypes.c_void_p) -> Optional[Any]:
    for version in ("_v3", "_v2"):  # one structure; which of the two a driver has depends on its age
        room = 64
        for _ in range(4):  # processes may come between two calls
            count, rows = ctypes.c_uint(room), (_Process * room)()
            try:
                _call(
                    library, "nvmlDeviceGet%sRunningProcesses%s" % (kind, version), handle,
                    ctypes.byref(count), rows,
                )  # fmt: skip
            except _Failed as error:
                if error.code != _INSUFFICIENT_SIZE:
                    break
                room = count.value + 16
                continue
            return rows[: count.value]
    return None


def name_of(pid: int) -> Optional[str]:
    """What /proc calls a process; None where this pid namespace does not show it."""
    try:
        with open("/proc/%d/comm" % pid, "rb") as file:
            text = file.read(256).rstrip(b"\n").decode("utf-8", "replace")
    except OSError:
        return None
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


class Asking(Aside):
    """One question to the driver, on a thread of its own; whoever asks waits as long as it likes."""

    def __init__(self, uuid: Optional[str], pci: Optional[str]) -> None:
        super().__init__(self._ask, "driver")
        self._device = (uuid, pci)
        self.reading: Optional[Dict[str, Any]] = None
        """The answer, once there is one; before, and where there is none, ``reason`` says why."""
        self.reason = "the driver has not answered in time"

    def _ask(self) -> None:
        try:
            self.reading = read(*self._device)
        except Absent as absent:
            self.reason = str(absent)
        except Exception as error:  # noqa: BLE001  the named boundary of this thread: it would print
            self.reason = "%s: %s" % (type(error).__name__, error)
