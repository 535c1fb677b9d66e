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
    FOREIGN = "another framework"
    """Its own allocator, beside PyTorch's or without it."""
    REFUSED = "server start"
    """A server that counts for itself what fits, and refuses to start."""
    NVML_ASSERT = "assertion in place of the message"
    HOST_KILL = "host kill"
    HOST_ALLOCATION = "host allocation"
    SHARED_MEMORY = "shared memory"
    PRESSURE = "pressure"
    EXCEPTION = "exception"
    """A program's own error, which does not speak of memory."""
    SIGNAL = "signal"
    """Ended by a signal that speaks of no memory."""
    EXIT = "exit"
    """Ended with an error's code, and told of no error that nobody caught."""
    GONE = "gone"
    """Gone without a word; nobody saw how."""
    SILENCE = "silence"
    """Alive and without a word."""


class Who(str, Enum):
    """Whose process a neighbour is, as far as a recording tells."""

    STRANGER = "stranger"
    RANK = "rank of this run"
    STRAY = "rank of this run with its tensors elsewhere"
    ORPHAN = "left behind"


class Growth(msgspec.Struct, frozen=True):
    """How one holder grew before the failure."""

    grew: Amount
    seconds: float
    """How long before the failure it began to."""
    during: str | None = None
    """The phase or marker in which it came: "phase rollout", "mark first collective"."""
    came: bool = False
    """It was not there before."""


class Neighbour(msgspec.Struct, frozen=True):
    """A process on the device as the driver lists it."""

    pid: int
    used: Amount | None
    """None where the driver gave no figure."""
    name: str = ""
    who: Who = Who.STRANGER
    rank: int | None = None
    growth: Growth | None = None


class Holes(msgspec.Struct, frozen=True):
    """Idle memory in the allocator's pools beside the request, after the last flush."""

    largest: Amount
    """The largest hole where the request could go."""
    idle: Amount
    """All of it where the request could go."""
    elsewhere: Amount
    """Idle where it could not: the other size class, private pools, pools of other streams."""
    private: Amount
    other_streams: Amount
    streams: int = 1
    expandable: bool = False
    captures: int = 0
    """Graph captures with private pools in which something lies idle."""
    made_pools: int = 0
    """Pools that were made by name: MemPool, or one that graphs share."""


class Kept(msgspec.Struct, frozen=True):
    """What an attempt that failed and was caught had made, and what of it was live ever since."""

    kept: Amount
    """The least that was live since, beyond what there was when its phase began."""
    seconds: float
    """How long before it had failed."""
    phase: str


class Trend(msgspec.Struct, frozen=True):
    """Live memory at the same point of each step or batch."""

    unit: str
    """"step" or "batch"."""
    slope_bytes: int
    """Median of all slopes between two points, in bytes a unit."""
    units: int
    """So many steps or batches lie between the first and the last point, both counted."""
    grown: Amount
    """From the first of these points to the last."""
    steady: bool
    """Whether nearly every point lies above the one before, by about the same."""


class Training(msgspec.Struct, frozen=True):
    """How far a program had come, and what its live memory was made of."""

    steps: int | None = None
    """Steps that it has begun."""
    computed: bool = False
    """Whether a call of a root module had ended before."""
    optimizer_stepped: bool | None = None
    """Whether an optimizer step had ended before."""
    at_phase_start: Amount | None = None
    """Allocated when the failing phase began."""
    training_peak: Amount | None = None
    """Largest peak of allocated in training phases before; a maximum of its own."""
    parameters: Amount | None = None
    gradients: Amount | None = None
    optimizer_state: Amount | None = None
    kv_cache: Amount | None = None
    largest_other: Amount | None = None
    """The largest live tensor that is no parameter, gradient, optimizer state or buffer."""
    forecast: Amount | None = None
    """Optimizer state that the first step makes, by the optimizer's own kind."""
    makes_state: bool = False
    """The stack is in the code that makes optimizer state."""
    for_each: bool = False
    """The stack is in the code that steps all parameters at once, with temporaries for all of them."""
    live_other: Amount | None = None
    """Live tensors that are no parameters, gradients, optimizer state or buffers."""
    largest_other_is: str | None = None
    """What the largest of them is: "uint8 [83886080]"."""


class Lost(msgspec.Struct, frozen=True):
    """A process of the program's own that died before the program did, as far as that is known."""

    who: str | None = None
    """"process 4711 (pt_data_worker)"; None where only the program's error speaks of it."""
    word: str | None = None
    """"killed by SIGKILL"."""
    seconds: float | None = None
    """How long before."""


class Host(msgspec.Struct, frozen=True):
    """Host memory about the end. Never device memory."""

    kills: int | None = None
    """Kills for memory in the workload's cgroup while the run lasted; None where that is not told."""
    limit: Amount | None = None
    used: Amount | None = None
    """Of the cgroup, as last read."""
    rss: Amount | None = None
    """Of the workload's processes, as last read."""
    available: Amount | None = None


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
    device_named: bool = False
    """Whether a text says of which device it speaks."""
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
    room: Amount | None = None
    """What a server counts as left for its cache."""
    setting: str | None = None
    """A server's own share of the card, as it prints it."""
    longest: int | None = None
    """Tokens of the longest sequence that a server was asked to take."""
    fits: int | None = None
    """Tokens of the longest that it says would fit."""
    hint: str | None = None
    """The setting that the message proposes."""
    expandable_segments: bool | None = None
    pressure_count: int | None = None
    # --- what only a recording tells ---
    recorded: bool = False
    """From a recording: figures are exact, and whatever is None was looked for and not to be had."""
    holes: Holes | None = None
    before_flush: Amount | None = None
    """Reserved in the last sample before PyTorch gave its cache back."""
    outside_growth: Growth | None = None
    """Of this process's memory outside PyTorch, beyond what it had at first sight."""
    unlisted: Amount | None = None
    """The ledger's residual, where every listed process has a figure."""
    list_reason: str | None = None
    """Why the driver's process list is missing."""
    free_elsewhere: int = 0
    """Devices of the node on which no rank of this run has memory."""
    kept: Kept | None = None
    trend: Trend | None = None
    eval_trend: Trend | None = None
    training: Training = Training()
    host: Host = Host()
    error: str | None = None
    """Of an exception: its type and first line. Of a signal: its name."""
    caught_seconds: float | None = None
    """How long before an exception memory had run out and was caught, with no phase of work since."""
    of_memory: str | None = None
    """Words of an exception that speak of memory, in a form that tells neither whose nor how much."""
    lost: Lost | None = None
    first_rank: str | None = None
    """Who failed before, where that is why this process ended: "rank 1"."""
    first_seconds: float | None = None
    """How long before."""
