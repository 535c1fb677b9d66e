"""What a view receives: one frozen picture of a run at one moment. Data only.

``session`` builds it from a recording; views draw it and reach nothing behind it.
All times are nanoseconds of the recording node's monotonic clock; ``RunState.now_ns``
is the moment the picture stands for, so every age is ``now_ns − t_ns``.
"""

import array
from collections.abc import Sequence
from enum import Enum

import msgspec

from gpumem_tui.analysis.ledger import Ledger
from gpumem_tui.records import Reason


class Life(str, Enum):
    """How far a run, or one of its processes, has come."""

    STARTING = "starting"
    RUNNING = "running"
    SILENT = "silent"
    """Alive as far as known, but its journal has not grown for longer than it should."""
    ENDED = "ended"
    """Ended in order."""
    FAILED = "failed"
    """Ended with an error, or killed."""
    LOST = "lost"
    """Gone without a word, and nobody saw how."""


class Severity(str, Enum):
    """How loudly an event is shown."""

    INFO = "info"
    WARNING = "warning"
    FAILURE = "failure"


class RunFacts(msgspec.Struct, frozen=True):
    """Who this run is."""

    run: str
    """Name of the run, as ``attach`` takes it."""
    path: str
    command: tuple[str, ...]
    host: str
    user: str
    started_wall_ns: int
    started_ns: int
    life: Life
    ending: str | None
    """One clause on how it ended: "exit code 3", "killed by SIGKILL"; None while it runs."""
    exit_code: int | None
    ended_ns: int | None
    interactive: bool
    """Ran on a pty of its own, with an output log; otherwise its output went where it always goes."""
    simulated: str | None
    """"2 × 24 GiB" where the cards are simulated; every screen says so."""
    assumptions: tuple[tuple[str, str], ...]
    """What the simulated card assumes: (name, value with unit)."""
    recorded: bool
    """A bundled recording that stands in for a live run; every screen says RECORDED."""
    labels: tuple[tuple[str, str], ...]
    recorder: Life
    keeper: Life
    live: bool
    """Followed as it grows, as opposed to replayed."""
    moment: str | None = None
    """What the ledgers of an ended run show: "at the out-of-memory error of rank 0"; None while it runs."""
    moment_ns: int | None = None


class Series(msgspec.Struct, frozen=True):
    """One curve: equal-length columns, oldest first. A gap in time stays a gap; nothing is interpolated.

    ``low`` and ``high`` bound what happened within a folded point; ``last`` is its last value.
    ``t_ns[i]`` is when point i ended, ``since_ns[i]`` when it began (equal for a raw sample).
    """

    since_ns: Sequence[int]
    t_ns: Sequence[int]
    low: Sequence[int]
    high: Sequence[int]
    last: Sequence[int]

    @staticmethod
    def empty() -> "Series":
        """A curve without points."""
        none = array.array("q")
        return Series(none, none, none, none, none)


class OpenSpan(msgspec.Struct, frozen=True):
    """A span that has begun and not ended, as far as the recording says."""

    phase: str
    name: str
    since_ns: int
    step: int | None


class Levels(msgspec.Struct, frozen=True):
    """A rank's last counters on one device."""

    ordinal: int
    uuid: str | None
    t_ns: int
    allocated_bytes: int | None
    reserved_bytes: int | None
    alloc_retries: int | None
    ooms: int | None


class CompositionState(msgspec.Struct, frozen=True):
    """What allocated memory of a rank on one device is made of, at the end of one step. Storages once."""

    ordinal: int
    t_ns: int
    step: int | None
    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    buffers_bytes: int
    other_bytes: int | None
    """Computed: allocated at that moment − the four above; None where the walk was not complete."""
    allocated_bytes: int | None
    complete: bool
    """Otherwise the walk hit its time budget, and the four figures are lower bounds."""


class InputRow(msgspec.Struct, frozen=True):
    """Tensors that really entered a root module: ``float32[8,512] int64[8,512]``, and how often."""

    phase: str
    name: str
    input: str
    count: int


class RankState(msgspec.Struct, frozen=True):
    """One process of the workload that has something to say."""

    pid: int
    started_ticks: int | None
    rank: int | None
    local_rank: int | None
    world_size: int | None
    life: Life
    spoke_ns: int
    """When its journal last grew."""
    spans: tuple[OpenSpan, ...]
    """Outermost first."""
    step: int | None
    steps_per_second: float | None
    levels: tuple[Levels, ...]
    backend: str | None
    """cuda, hip or cpu."""
    torch_version: str | None
    allocator: str | None
    words: tuple[str, ...]
    """What people must know about how it is measured."""
    composition: tuple[CompositionState, ...] = ()
    """The latest of each device."""
    inputs: tuple[InputRow, ...] = ()
    """Of each phase, the most frequent first."""


class PhaseRow(msgspec.Struct, frozen=True):
    """One phase of one rank on one device, over all its finished spans; cold and warm apart.

    Peaks are maxima of two counters over the same spans; they need not have happened together.
    """

    pid: int
    rank: int | None
    phase: str
    name: str
    ordinal: int
    cold: bool
    count: int
    errors: int
    duration_ns: int | None
    """Median where spans are whole, otherwise the last; None where none is known."""
    start_allocated_bytes: int | None
    start_reserved_bytes: int | None
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    exact: bool
    """Otherwise the peaks are lower bounds and are shown with ≥."""
    end_allocated_bytes: int | None
    end_reserved_bytes: int | None
    last_ns: int


class Curve(msgspec.Struct, frozen=True):
    """The allocator's history of one rank on one device."""

    pid: int
    rank: int | None
    allocated: Series
    reserved: Series


class DeviceState(msgspec.Struct, frozen=True):
    """One device of the node."""

    index: int
    """NVML's index; None of CUDA's ordinals."""
    uuid: str | None
    name: str | None
    pci: str | None
    ledger: Ledger
    utilization: int | None
    temperature: int | None
    power_mw: int | None
    load_reason: Reason | None
    driver_used: Series
    """total − free, as the driver says."""
    curves: tuple[Curve, ...]
    ours: bool
    """Whether a rank of this run holds it."""
    torch_total_bytes: int | None
    """What cudaMemGetInfo calls total; differs from NVML's by the reserved share."""


class ProcessRow(msgspec.Struct, frozen=True):
    """A process on one device, ours or not."""

    device: int
    pid: int
    rank: int | None
    ours: bool
    name: str
    user: str
    command: str
    used_bytes: int | None
    reason: Reason | None
    growth_bytes: int | None
    """Change over the last minute; None where it was not seen that long."""
    since_ns: int
    """When it was first seen on this device."""
    visible: bool
    kind: str
    rss_bytes: int | None


class Event(msgspec.Struct, frozen=True):
    """Something that happened, in one line."""

    t_ns: int
    severity: Severity
    text: str
    rank: int | None = None
    device: int | None = None
    output_offset: int | None = None


class HostState(msgspec.Struct, frozen=True):
    """Memory of the node, and of the workload on it. Never shown as device memory."""

    t_ns: int
    total_bytes: int | None
    available_bytes: int | None
    cgroup_bytes: int | None
    cgroup_limit_bytes: int | None
    workload_rss_bytes: int | None


class Health(msgspec.Struct, frozen=True):
    """What the recording itself lost or could not read."""

    corrupt_lines: int = 0
    unknown_lines: int = 0
    dropped: int = 0
    notes: tuple[str, ...] = ()


class RunState(msgspec.Struct, frozen=True):
    """The whole picture."""

    facts: RunFacts
    now_ns: int
    devices: tuple[DeviceState, ...]
    ranks: tuple[RankState, ...]
    phases: tuple[PhaseRow, ...]
    processes: tuple[ProcessRow, ...]
    events: tuple[Event, ...]
    """Oldest first, the latest few hundred."""
    host: HostState | None
    output_bytes: int | None
    """Size of the output log; None where there is none."""
    health: Health
    driver_reason: Reason | None
    """Why there is no driver reading at all, where that is so."""
