"""One frozen struct for every kind of line, in the order of ``agent.wire.FIELDS``.

Units are in the names: ``_bytes`` are bytes, ``_ns`` nanoseconds of the node's
monotonic clock. The comments of ``agent.wire.FIELDS`` give each field's source.
"""

import msgspec


class _Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A line is an array whose first element names its kind; trailing fields may be missing."""


class Rank(_Line, tag="rank", frozen=True):
    t_ns: int
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    source: str | None = None


class Torch(_Line, tag="torch", frozen=True):
    t_ns: int
    version: str | None = None
    backend: str | None = None
    backend_version: str | None = None
    allocator: str | None = None
    settings: str | None = None
    caching: bool | None = None


class Device(_Line, tag="device", frozen=True):
    t_ns: int
    ordinal: int
    uuid: str | None = None
    pci: str | None = None
    name: str | None = None
    total_bytes: int | None = None
    identified_by: str | None = None
    initialised_ns: int | None = None


class Sample(_Line, tag="sample", frozen=True):
    t_ns: int
    ordinal: int
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    active_bytes: int | None = None
    requested_bytes: int | None = None
    inactive_split_bytes: int | None = None
    alloc_retries: int | None = None
    ooms: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None


class Peaks(_Line, tag="peaks", frozen=True):
    t_ns: int
    ordinal: int
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None


Extent = tuple[int, int, int]
"""(min, max, last) of one counter over a bucket."""


class Samples(_Line, tag="samples", frozen=True):
    t_ns: int
    until_ns: int
    ordinal: int
    count: int
    allocated: Extent | None = None
    reserved: Extent | None = None
    alloc_retries: int | None = None
    ooms: int | None = None


class Begin(_Line, tag="begin", frozen=True):
    t_ns: int
    seq: int
    span: int
    parent: int | None = None
    thread: int | None = None
    phase: str = ""
    name: str = ""
    step: int | None = None
    levels: list[tuple[int, int, int]] = []


class End(_Line, tag="end", frozen=True):
    t_ns: int
    seq: int
    span: int
    error: str | None = None
    levels: list[tuple[int, int, int, int, int, bool]] = []


class Spans(_Line, tag="spans", frozen=True):
    t_ns: int
    until_ns: int
    phase: str
    name: str
    ordinal: int | None
    cold: bool
    count: int
    errors: int = 0
    duration_ns: Extent | None = None
    peak_allocated: Extent | None = None
    peak_reserved: Extent | None = None
    end_allocated: Extent | None = None
    end_reserved: Extent | None = None
    inexact: int | None = None
    seq: int | None = None
    step: int | None = None
    thread: int | None = None


class Inputs(_Line, tag="inputs", frozen=True):
    t_ns: int
    phase: str
    name: str
    input: str
    count: int


class Composition(_Line, tag="composition", frozen=True):
    t_ns: int
    ordinal: int
    step: int | None = None
    parameters_bytes: int | None = None
    gradients_bytes: int | None = None
    optimizer_bytes: int | None = None
    buffers_bytes: int | None = None
    allocated_bytes: int | None = None
    complete: bool = False
    took_ns: int = 0
    caches_bytes: int | None = None
    dtypes: list[tuple[str, str, int]] = []


class Mark(_Line, tag="mark", frozen=True):
    t_ns: int
    name: str
    detail: str | None = None


class Word(_Line, tag="word", frozen=True):
    t_ns: int
    code: str
    text: str
    ordinal: int | None = None


class Map(_Line, tag="map", frozen=True):
    t_ns: int
    ordinal: int
    path: str | None = None
    reason: str | None = None
    took_ns: int = 0


class Failure(_Line, tag="failure", frozen=True):
    t_ns: int
    ordinal: int | None = None
    requested_bytes: int | None = None
    phase: str | None = None
    step: int | None = None
    path: str | None = None


class UncaughtException(_Line, tag="exception", frozen=True):
    t_ns: int
    kind: str = "exception"
    error: str = ""
    text: str = ""
    phase: str | None = None
    step: int | None = None
    path: str | None = None
    thread: str | None = None


class Optimizer(_Line, tag="optimizer", frozen=True):
    t_ns: int
    ordinal: int
    name: str = ""
    parameters_bytes: int | None = None
    state_bytes: int | None = None
    options: list[str] = []


class Pressure(_Line, tag="pressure", frozen=True):
    t_ns: int
    ordinal: int
    retries: int = 0
    alloc_retries: int | None = None


class Stall(_Line, tag="stall", frozen=True):
    t_ns: int
    since_ns: int
    phase: str | None = None
    step: int | None = None
    stack: list[str] = []


class Dropped(_Line, tag="dropped", frozen=True):
    t_ns: int
    edges: int = 0
    samples: int = 0
    reason: str | None = None


class Bye(_Line, tag="bye", frozen=True):
    t_ns: int
    reason: str | None = None


class Gpu(_Line, tag="gpu", frozen=True):
    t_ns: int
    index: int
    uuid: str | None = None
    pci: str | None = None
    name: str | None = None
    total_bytes: int | None = None
    parent: int | None = None
    driver_version: str | None = None
    reason: str | None = None
    minor: int | None = None


class Memory(_Line, tag="memory", frozen=True):
    t_ns: int
    took_ns: int
    index: int
    total_bytes: int | None = None
    free_bytes: int | None = None
    used_bytes: int | None = None
    driver_reserved_bytes: int | None = None
    version: int | None = None
    reason: str | None = None


class Processes(_Line, tag="processes", frozen=True):
    t_ns: int
    took_ns: int
    index: int
    rows: list[tuple[int, int | None, str, str | None]] = []
    reason: str | None = None
    missing: str = ""

    @property
    def is_readable(self) -> bool:
        """Whether its rows stand for something: all holders, or those of the kinds that could be read."""
        return self.reason is None or bool(self.missing)


class Process(_Line, tag="process", frozen=True):
    t_ns: int
    pid: int
    started_ticks: int | None = None
    parent: int | None = None
    name: str | None = None
    user: str | None = None
    command: str | None = None
    visible: bool = True
    namespace_pid: int | None = None
    container: str | None = None
    job: str | None = None


class Load(_Line, tag="load", frozen=True):
    t_ns: int
    index: int
    utilization: int | None = None
    temperature: int | None = None
    power_mw: int | None = None
    reason: str | None = None
    clock_mhz: int | None = None
    memory_clock_mhz: int | None = None


class Tree(_Line, tag="tree", frozen=True):
    t_ns: int
    rows: list[tuple[int, int | None, int | None, int | None]] = []


class Host(_Line, tag="host", frozen=True):
    t_ns: int
    total_bytes: int | None = None
    available_bytes: int | None = None
    swap_used_bytes: int | None = None
    cgroup_bytes: int | None = None
    cgroup_limit_bytes: int | None = None
    cgroup_oom_kills: int | None = None


class Kill(_Line, tag="kill", frozen=True):
    t_ns: int
    count: int
    scope: str = "cgroup"
    gone: list[tuple[int, int | None]] = []


class Gone(_Line, tag="gone", frozen=True):
    t_ns: int
    pid: int
    started_ticks: int | None = None
    code: int | None = None
    signal: int | None = None


class Memories(_Line, tag="memories", frozen=True):
    t_ns: int
    until_ns: int
    index: int
    count: int
    total_bytes: int | None = None
    used: Extent | None = None
    free: Extent | None = None
    driver_reserved_bytes: int | None = None
    missing: int = 0


class Start(_Line, tag="start", frozen=True):
    t_ns: int
    pid: int
    started_ticks: int | None = None


class Signal(_Line, tag="signal", frozen=True):
    t_ns: int
    number: int
    action: str | None = None


class Exit(_Line, tag="exit", frozen=True):
    t_ns: int
    code: int | None = None
    signal: int | None = None


class Output(_Line, tag="output", frozen=True):
    t_ns: int
    size_bytes: int


Record = (
    Rank | Torch | Device | Sample | Peaks | Samples | Begin | End | Spans | Mark | Word | Failure
    | Map | UncaughtException | Optimizer | Pressure | Stall | Dropped | Bye | Inputs | Composition
    | Gpu | Memory | Processes | Process | Load | Tree | Host | Kill | Gone | Memories
    | Start | Signal | Exit | Output
)  # fmt: skip
"""Any line of any journal but its header."""
