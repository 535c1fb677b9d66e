"""What the driver's view receives: every card and every process on it, at one moment. Data only.

Also the questions that need no more than this data: which rows are wanted, in which
order. Times are nanoseconds of the node's monotonic clock unless they say ``wall``.
"""

from collections.abc import Callable, Iterable

import msgspec

from gpumem_tui.analysis.ledger import Ledger, Term
from gpumem_tui.analysis.state import Event
from gpumem_tui.records import Reason

INSTANCE_BASE = 100
"""A MIG instance's index is ``(card + 1) * INSTANCE_BASE + its number``."""


class FileHolder(msgspec.Struct, frozen=True):
    """A living process that has a card's device file open: it may hold memory that nobody names."""

    pid: int
    name: str
    user: str


class TopDevice(msgspec.Struct, frozen=True):
    """One card, or one MIG instance of a card."""

    index: int
    parent: int | None
    """The card of a MIG instance."""
    uuid: str | None
    pci: str | None
    name: str | None
    ledger: Ledger
    """Without ranks: every process is one of ``others``."""
    utilization: int | None
    temperature: int | None
    power_mw: int | None
    clock_mhz: int | None
    memory_clock_mhz: int | None
    load_reason: Reason | None
    processes_reason: Reason | None
    """Why the process list is missing or not complete; None where it is what the driver says."""
    reason: str | None
    """The driver's own word on a card that cannot be read."""
    processes_missing: str = ""
    """Kinds (``G``, ``GM``) whose list was refused while another was not; else empty."""
    split: bool = False
    """In MIG mode: its memory is that of its instances."""
    file_holders: tuple[FileHolder, ...] | None = None
    """Who has its device file open and is not in its process list; None where that was not looked for."""
    unreadable: int = 0
    """Processes whose open files may not be looked at."""

    @property
    def label(self) -> str:
        """``0``; ``0:1`` for instance 1 of card 0."""
        return device_label(self.index, self.parent)


def device_label(index: int, parent: int | None) -> str:
    """How a device is called: NVML's index, and a MIG instance by its card's and its own."""
    if parent is None:
        return str(index)
    return f"{parent}:{index - (parent + 1) * INSTANCE_BASE}"


class RunShare(msgspec.Struct, frozen=True):
    """A process that is a rank of a run that gpumem-tui records, by that run's own recording."""

    run: str
    rank: int | None
    phase: str
    step: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    identified_by: str | None


class Ancestor(msgspec.Struct, frozen=True):
    """A process that started another, or started who did."""

    pid: int
    name: str
    user: str
    command: str


class TopProcess(msgspec.Struct, frozen=True):
    """One process on one device."""

    device: int
    pid: int
    name: str
    user: str
    """Empty where this pid namespace does not show it."""
    command: str
    kind: str
    """C compute, G graphics, M MPS client, or a combination."""
    used: Term
    growth_bytes: int | None
    """Change over the last minute; None until it was watched that long, or without figures."""
    rise_bytes: int
    """What it holds above the least of the last minute; all it holds if it came meanwhile."""
    since_ns: int
    """When it was first seen on this device."""
    started_wall_ns: int | None
    started_ticks: int | None
    rss_bytes: int | None
    """Host memory; None where this namespace does not show the process."""
    visible: bool
    zombie: bool
    """It has ended, and its parent has not taken note."""
    mine: bool
    """Of the user who looks."""
    container: str | None
    job: str | None
    namespace_pid: int | None
    run: RunShare | None = None
    ancestors: tuple[Ancestor, ...] = ()
    """Its parent, the parent's parent and so on, as far as this namespace shows them; init is left out."""


class RunAlarm(msgspec.Struct, frozen=True):
    """An out-of-memory failure in a live run that is recorded on this machine."""

    t_ns: int
    run: str
    text: str


class TopState(msgspec.Struct, frozen=True):
    """The whole picture."""

    now_ns: int
    wall_ns: int
    host: str
    viewer: str
    """The user who looks."""
    driver_version: str | None
    driver_reason: Reason | None
    """Why there is no device at all, where that is so."""
    driver_word: str | None
    """The driver's own word on it, or on what it could not do."""
    simulated: str | None
    devices: tuple[TopDevice, ...]
    """By index; a card's MIG instances after it."""
    processes: tuple[TopProcess, ...]
    alarms: tuple[RunAlarm, ...] = ()
    events: tuple[Event, ...] = ()
    """What happened since the view was opened, oldest first."""
    complete: bool = True
    """Every device was asked at least once; not so in the first moments, nor before the driver answers."""


class Wanted(msgspec.Struct, frozen=True):
    """Which devices and processes are shown. Empty means all."""

    devices: frozenset[str] = frozenset()
    """By label, by UUID (also its start), or by PCI address."""
    users: frozenset[str] = frozenset()
    pids: frozenset[int] = frozenset()

    def device(self, device: TopDevice) -> bool:
        """Whether a device is wanted; with a card its MIG instances are."""
        if not self.devices:
            return True
        names = {device.label, *(() if device.parent is None else (str(device.parent),))}
        uuid = (device.uuid or "").lower()
        return bool(names & self.devices) or any(
            uuid and uuid.startswith(wanted.lower().removeprefix("gpu-")) and len(wanted) > 3
            for wanted in self.devices
        )

    def process(self, process: TopProcess) -> bool:
        """Whether a process is wanted, on a device that is."""
        return (not self.users or process.user in self.users) and (
            not self.pids or process.pid in self.pids or process.namespace_pid in self.pids
        )


def select(state: TopState, wanted: Wanted) -> TopState:
    """The same picture with the wanted rows only."""
    devices = tuple(device for device in state.devices if wanted.device(device))
    shown = {device.index for device in devices}
    return msgspec.structs.replace(
        state,
        devices=devices,
        processes=tuple(p for p in state.processes if p.device in shown and wanted.process(p)),
    )


def _size(process: TopProcess) -> tuple[bool, int]:
    return process.used.bytes is None, -(process.used.bytes or 0)


SORTS: dict[str, Callable[[TopProcess], tuple[object, ...]]] = {
    "memory": lambda p: (*_size(p), p.device, p.pid),
    "device": lambda p: (p.device, *_size(p), p.pid),
    "growth": lambda p: (p.growth_bytes is None, -(p.growth_bytes or 0), *_size(p), p.pid),
    "user": lambda p: (not p.user, p.user, *_size(p), p.device, p.pid),
    "pid": lambda p: (p.pid, p.device),
    "start": lambda p: (p.started_wall_ns is None, -(p.started_wall_ns or 0), p.pid, p.device),
    "rss": lambda p: (p.rss_bytes is None, -(p.rss_bytes or 0), p.pid, p.device),
}
"""Orders of processes, by name; rows without the figure come last, never first."""


def ordered(processes: Iterable[TopProcess], by: str) -> list[TopProcess]:
    """Processes in the order of that name."""
    return sorted(processes, key=SORTS[by])


NOBODYS_BYTES = 256 << 20
"""From so much on, used memory that no process accounts for is pointed out; drivers hold some themselves."""


def nobodys_bytes(device: TopDevice) -> int | None:
    """Used memory that belongs to no listed process, where that is known and worth a word."""
    rest = device.ledger.unattributed.bytes
    return rest if rest is not None and rest >= NOBODYS_BYTES and not device.split else None
