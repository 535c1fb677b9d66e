"""What is known of one failure: typed facts, each an amount or None. The rules see nothing else."""

from enum import Enum

import msgspec

from gpumem_tui.analysis.findings.amounts import Amount


class Kind(str, Enum):
    """Where memory ran out."""

    ALLOCATOR = "device allocator"
    REJECTED = "rejected in advance"
    IMPOSSIBLE = "impossible size"
    MPS = "MPS"
    OUTSIDE = "outside the allocator"
    NVML_ASSERT = "assertion in place of the message"
    HOST_KILL = "host kill"
    HOST_ALLOCATION = "host allocation"
    SHARED_MEMORY = "shared memory"
    PRESSURE = "pressure"


class Neighbour(msgspec.Struct, frozen=True):
    """A process on the device as the driver lists it."""

    pid: int
    used: Amount | None
    """None where the driver gave no figure."""


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """One failure."""

    kind: Kind
    certain: bool = True
    """False where nothing says that memory was the reason."""
    backend: str | None = None
    call: str | None = None
    """What failed, outside the allocator."""
    phase: str | None = None
    frame: str | None = None
    """The frame that told the phase."""
    first_optimizer_step: bool = False
    requested: Amount | None = None
    total: Amount | None = None
    free: Amount | None = None
    allocated: Amount | None = None
    idle: Amount | None = None
    """Held by PyTorch, allocated by nobody."""
    reserved: Amount | None = None
    private_pools: Amount | None = None
    """Part of ``allocated``, of which some may be free."""
    cap: Amount | None = None
    """The largest ``reserved`` that this process may have."""
    own: Amount | None = None
    """What the driver says this process holds, where it is known which process this is."""
    self_listed: bool = False
    """Whether the list says which process is this one, with or without a figure."""
    neighbours: tuple[Neighbour, ...] = ()
    """Listed processes that are not known to be this one."""
    other_allocations: Amount | None = None
    hint: str | None = None
    """The setting that the message proposes."""
    expandable_segments: bool | None = None
    pressure_count: int | None = None
