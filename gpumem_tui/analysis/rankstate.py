"""What a picture tells of one rank: how far it has come, its counters, open spans, phases and composition.

Data only, as all of ``analysis.state``; times are of the node's monotonic clock.
"""

import array
from collections.abc import Sequence
from enum import Enum

import msgspec


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
    """Computed: allocated at that moment − the other parts; None where the walk was not complete."""
    allocated_bytes: int | None
    complete: bool
    """Otherwise the walk hit its time budget, and the figures are lower bounds."""
    caches_bytes: int | None = None
    """Key-value caches; None where the recording is older than this figure."""
    dtypes: tuple[tuple[str, str, int], ...] = ()
    """(kind, dtype, bytes) of the same storages; kinds as ``agent.composition.KINDS`` has them."""


class InputRow(msgspec.Struct, frozen=True):
    """Tensors that really entered a root module: ``float32[8,512] int64[8,512]``, and how often."""

    phase: str
    name: str
    input: str
    count: int


class PeakState(msgspec.Struct, frozen=True):
    """The highest a process has been on one device since it began, whatever anybody has reset.

    Two maxima of two counters; they need not have happened together.
    """

    ordinal: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


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
    python: str | None = None
    """Version of the workload's interpreter."""
    backend_version: str | None = None
    allocator_settings: str | None = None
    """As PyTorch reports them, or the environment's."""
    marks: tuple[tuple[str, int], ...] = ()
    """How often at least it called what the axis shows: ``("empty_cache", 3)``."""
    peaks: tuple[PeakState, ...] = ()
    """Over the life of the process, as far as it has told."""
    ending: str | None = None
    """How somebody saw it end badly: ``killed by SIGKILL``, ``exit code 1``; None where nobody did."""


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
    """Start and end are those of the last span."""
    last_ns: int
    end_growth_bytes: int | None = None
    """Growth of allocated at the end from one span to the next; 0: it does not. None: too few spans."""
    peak_growth_bytes: int | None = None
    """Likewise the peak of allocated."""
    growth_spans: int = 0
    """The latest spans over which that was so."""
