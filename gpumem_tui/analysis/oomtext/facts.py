"""What a log says of running out of memory: frozen facts, each with the line it stands on.

Owns the shape only. A field that the text does not print is None; a figure that is
printed but stands for "not told" is a :class:`Figure` without bytes.
"""

from enum import Enum

import msgspec

from gpumem_tui.analysis.oomtext.figures import Figure


class Family(str, Enum):
    """Which kind of message, by who raised it."""

    ALLOCATOR = "allocator"
    """PyTorch's caching allocator for CUDA, HIP, XPU or NPU."""
    ASYNC = "cudaMallocAsync"
    """PyTorch over the driver's own pools."""
    REJECTED = "rejected in advance"
    """The per-process fraction would have been exceeded; the driver was not asked."""
    EXABYTE = "more than 1 EB"
    """A size that no device has: almost always a negative or overflown shape."""
    MPS = "MPS"
    DRIVER = "driver"
    """"CUDA error: out of memory", outside the allocator."""
    LIBRARY = "library"
    """cuBLAS or cuDNN could not get memory for themselves, or could not start."""
    NCCL = "NCCL"
    XLA = "JAX or TensorFlow"
    """Both stand on the same allocators, and print the same words."""
    ONNX = "ONNX Runtime"
    TENSORRT = "TensorRT"
    PADDLE = "PaddlePaddle"
    GGML = "llama.cpp"
    CUPY = "CuPy"
    SERVER = "server start"
    """A server that counts for itself what fits, and refuses to start."""
    NVML_ASSERT = "NVML assertion"
    """An internal assertion that stands where the message would have stood."""
    HOST_KILL = "host kill"
    """The kernel, a cgroup or a cluster killed the process."""
    HOST_ALLOCATION = "host allocation"
    """The process itself could not get host memory."""
    SHARED_MEMORY = "shared memory"
    """A DataLoader worker ran out of /dev/shm."""


ALLOCATORS = frozenset({Family.ALLOCATOR, Family.ASYNC, Family.REJECTED, Family.EXABYTE, Family.MPS})
"""PyTorch's own messages, with figures."""
FRAMEWORKS = frozenset(
    {Family.XLA, Family.ONNX, Family.TENSORRT, Family.PADDLE, Family.GGML, Family.CUPY, Family.SERVER}
)
"""Not PyTorch's allocator, and not the driver's words alone."""
HOST = frozenset({Family.HOST_KILL, Family.HOST_ALLOCATION, Family.SHARED_MEMORY})


class Holder(msgspec.Struct, frozen=True):
    """A process that the message lists on the device."""

    pid: int
    used: Figure


class OomFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, however many wrappers repeated it."""

    family: Family
    certain: bool = True
    """False where the text does not say that memory was the reason."""
    backend: str | None = None
    """CUDA, HIP, XPU, NPU or MPS."""
    line: int
    """The line of the log on which it is first said, from 1."""
    text: str
    """The start of the message, control characters replaced."""
    mentions: int = 1
    """On how many lines it is said."""
    mention_lines: tuple[int, ...] = ()
    """Lines of the first twenty mentions."""
    rank: int | None = None
    local_rank: int | None = None
    worker: str | None = None
    """Who said it where a worker, host or task name stands before the line."""
    pid: int | None = None
    """The failing process, where the text names it."""
    device: int | None = None
    requested: Figure | None = None
    """What was asked of the driver: a segment, larger than the tensor."""
    total: Figure | None = None
    free: Figure | None = None
    allocated: Figure | None = None
    """Live tensors; since PyTorch 2.1 with the free share of private pools."""
    idle: Figure | None = None
    """Reserved by PyTorch but unallocated."""
    reserved: Figure | None = None
    """Reserved in total; contains allocated."""
    private_pools: Figure | None = None
    allowed: Figure | None = None
    """The cap on this process; without bytes where the text says that there is none."""
    own: Figure | None = None
    """What the driver says this process holds, where it says which one this is."""
    other_allocations: Figure | None = None
    """MPS only: memory of the device outside PyTorch's allocator."""
    holders: tuple[Holder, ...] = ()
    """Listed processes in the message's order, without "this process"."""
    room: Figure | None = None
    """What a server counts as left for its cache."""
    setting: str | None = None
    """A server's own share of the card, as it prints it: "gpu_memory_utilization 0.9"."""
    longest: int | None = None
    """Tokens of the longest sequence that a server was asked to take."""
    fits: int | None = None
    """Tokens of the longest that it says would fit."""
    hint: str | None = None
    """The setting that the message proposes, always or by its version."""
    call: str | None = None
    """The library call or cluster step that failed."""
    phase: str | None = None
    phases: tuple[str, ...] = ()
    """Phases that the traceback tells, outermost first."""
    frame: str | None = None
    """The frame from which the phase was told."""
    user_frame: str | None = None
    """The innermost frame outside libraries."""
    first_optimizer_step: bool = False
    """The traceback is creating optimizer state."""
    role: str = "only"
    """only, first or later among the failures of the log; why is in ``role_why``."""
    role_why: str = ""


class Pressure(msgspec.Struct, frozen=True):
    """Failed driver allocations that are no failures: PyTorch flushes its cache and asks again."""

    device: int
    rank: int | None
    count: int
    first_line: int
    last_line: int
    largest_bytes: int
    """The largest request, exact."""
    least_free_bytes: int
    total_bytes: int


class Aftermath(msgspec.Struct, frozen=True):
    """The end of a process that follows from another's: a victim."""

    what: str
    line: int
    rank: int | None = None
    worker: str | None = None
    pid: int | None = None


class RootCause(msgspec.Struct, frozen=True):
    """torchrun's first observed failure. It observes one node."""

    line: int
    rank: int
    local_rank: int
    exit_code: int
    pid: int


class Planning(msgspec.Struct, frozen=True):
    """A start-up figure of a server: evidence for planning."""

    what: str
    """weights, KV cache, KV cache tokens or concurrency."""
    printed: str
    line: int
    worker: str | None = None


class Reading(msgspec.Struct, frozen=True):
    """All that a log says."""

    lines: int
    bytes: int
    failures: tuple[OomFailure, ...]
    failures_not_kept: int
    """Distinct failures beyond the first thousand."""
    pressure: tuple[Pressure, ...]
    aftermath: tuple[Aftermath, ...]
    root_causes: tuple[RootCause, ...]
    planning: tuple[Planning, ...]
    """The last of each kind and worker."""
    notes: tuple[str, ...]
