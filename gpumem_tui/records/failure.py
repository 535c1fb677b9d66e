"""The failure record: one JSON object in ``failures/``, written by the failing process itself. Data only.

Written in two goes: the essentials at once, before the exception unwinds, and the
same file again with what was found out within the next 300 ms. Every part after the
essentials is None with its reason in ``missing`` where it was not to be had, was too
slow, or was left out because the same phase had failed a moment before.

Sizes are bytes, times nanoseconds of the node's monotonic clock.
"""

import msgspec


class OpenPhase(msgspec.Struct, frozen=True):
    """A phase that was open, outermost first."""

    phase: str = ""
    name: str = ""
    step: int | None = None


class Pool(msgspec.Struct, frozen=True):
    """Segments of one pool and stream after the last flush (``torch._C._cuda_memorySnapshot``)."""

    pool: str
    """``small``, ``large``, or ``private 1,0``."""
    stream: int
    segments: int
    total_bytes: int
    """Mapped: the sum of its segments."""
    allocated_bytes: int
    """In blocks that are allocated, or wait for their stream."""
    idle_bytes: int
    largest_idle_bytes: int
    """The largest hole: no single request above it fits here without a new segment."""
    releasable_bytes: int
    """What ``empty_cache`` would give back: segments without a live block, of expandable ones whole pages.

    0 of private pools, which a graph or a MemPool keeps.
    """
    stuck_bytes: int
    """Idle, and kept by a live block or by a private pool: idle − releasable."""
    expandable: bool = False


class Holder(msgspec.Struct, frozen=True):
    """A process that the driver lists on the device."""

    pid: int
    used_bytes: int | None = None
    kind: str = ""
    name: str | None = None
    """As /proc names it; None where this PID namespace does not show it."""


class DriverReading(msgspec.Struct, frozen=True):
    """NVML, as the failing process read it, off its thread and with a deadline."""

    t_ns: int
    took_ns: int
    total_bytes: int | None = None
    free_bytes: int | None = None
    used_bytes: int | None = None
    driver_reserved_bytes: int | None = None
    version: int | None = None
    processes: list[Holder] | None = None


class Tensor(msgspec.Struct, frozen=True):
    """A live tensor, by storage."""

    size_bytes: int
    kind: str
    """``parameters``, ``gradients``, ``optimizer state``, ``buffers``, ``KV cache`` or ``other``."""
    shape: list[int] = []
    dtype: str = ""
    name: str | None = None
    """Module path such as ``model.layers.3.mlp.up.weight``; None where nothing names it."""


class Parts(msgspec.Struct, frozen=True):
    """What allocated memory was made of. Storages once; lower bounds unless ``complete``."""

    kinds: dict[str, int]
    """Bytes by kind, as in ``Tensor.kind``; ``other`` are live tensors of no other kind."""
    dtypes: dict[str, int]
    largest: list[Tensor]
    tensors: int
    complete: bool
    took_ns: int


class Settings(msgspec.Struct, frozen=True):
    """How the allocator was set up."""

    backend: str | None = None
    text: str | None = None
    """As PyTorch reports its effective settings, else the environment's."""
    expandable_segments: bool | None = None
    memory_fraction: float | None = None
    """``torch.cuda.set_per_process_memory_fraction``; None where it was never set or cannot be read."""


class HostMemory(msgspec.Struct, frozen=True):
    """Of the failing process and its node. Never shown as device memory."""

    rss_bytes: int | None = None
    pinned_bytes: int | None = None
    """``torch.cuda.host_memory_stats``: held by PyTorch's pinned allocator."""
    available_bytes: int | None = None
    cgroup_bytes: int | None = None
    cgroup_limit_bytes: int | None = None


class FailureRecord(msgspec.Struct, frozen=True):
    """All of it. ``kind`` is ``out of memory``, ``outside the allocator`` or ``exception``."""

    t_ns: int
    kind: str
    pid: int
    schema: int = 1
    rank: int | None = None
    ordinal: int | None = None
    requested_bytes: int | None = None
    """What the allocator asked the driver for: the segment, not the tensor."""
    allowed_total_bytes: int | None = None
    """What the allocator may use on this device: total, or less where a memory fraction is set."""
    stream: int | None = None
    """The stream that it allocated for (``torch._C._cuda_getCurrentRawStream``), as pools name theirs."""
    free_bytes: int | None = None
    """``cudaMemGetInfo`` as the allocator saw it at the failure."""
    phases: list[OpenPhase] = []
    step: int | None = None
    last_sample: list[int | None] | None = None
    """The last sample before the flush, fields of ``agent.wire.FIELDS["sample"]`` after the kind."""
    counters: dict[str, int | None] | None = None
    """Flat ``torch.cuda.memory_stats``, after the flush."""
    stack: list[str] = []
    """``file:line function``, innermost last."""
    error: str | None = None
    """Class and message of an exception that nobody caught; empty message where reading it would run code."""
    pools: list[Pool] | None = None
    driver: DriverReading | None = None
    parts: Parts | None = None
    settings: Settings | None = None
    host: HostMemory | None = None
    history: str | None = None
    """Path of the memory-history dump, relative to the run directory, where ``--history`` asked for one."""
    took_ns: dict[str, int] = {}
    """How long each part took: ``essentials`` and each of those that may be missing, ``history`` too."""
    missing: dict[str, str] = {}
    """Why a part is None."""
