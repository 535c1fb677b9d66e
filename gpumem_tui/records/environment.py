"""What is read of a machine for ``env``: the driver and its cards, PyTorch, and where we stand.

Data only, as it was read; a value that could not be read is None with its reason
beside it. ``analysis.environment`` says what follows from it.
"""

import msgspec

from gpumem_tui.records.reasons import Reason


class CardFacts(msgspec.Struct, frozen=True):
    """One card or MIG instance, as NVML declares it, and which of its readings succeed."""

    index: int
    parent: int | None
    name: str | None
    uuid: str | None
    pci: str | None
    total_bytes: int | None = None
    reserved_bytes: int | None = None
    memory_version: int | None = None
    """Version of the memory call; 1 does not tell the driver's share apart."""
    memory_reason: str | None = None
    processes: int | None = None
    figures: int | None = None
    """How many of them have a memory figure."""
    processes_reason: str | None = None
    load_reason: str | None = None
    capability: str | None = None
    """Compute capability, as in 9.0."""
    mig: bool | None = None
    reason: str | None = None
    """Why it has no handle or no identity."""


class DriverFacts(msgspec.Struct, frozen=True):
    """NVML and what it stands on."""

    driver_version: str | None
    nvml_version: str | None
    cuda_version: str | None
    """The newest CUDA that this driver runs."""
    module_version: str | None
    """Of the kernel module, by /proc/driver/nvidia/version."""
    reason: Reason | None
    """Why there is no NVML; None where it is open."""
    word: str | None
    cards: tuple[CardFacts, ...] = ()


class TorchFacts(msgspec.Struct, frozen=True):
    """PyTorch as the workload's interpreter has it, asked without creating a context."""

    python: str
    """The interpreter that was asked."""
    python_version: str | None = None
    version: str | None = None
    path: str | None = None
    cuda: str | None = None
    """Version of CUDA that it was built for; None in other builds."""
    hip: str | None = None
    allocator: str | None = None
    """``native``, ``cudaMallocAsync`` or ``pluggable``."""
    settings: str | None = None
    """What it says of its allocator's settings, where it does."""
    devices: int | None = None
    """torch.cuda.device_count()."""
    initialized: bool | None = None
    """Whether asking has initialised CUDA; it must not."""
    error: str | None = None
    """Why it cannot be imported, or could not be asked."""

    @property
    def backend(self) -> str | None:
        """``cuda``, ``hip`` or ``cpu``; HIP builds call theirs torch.cuda too."""
        if self.version is None:
            return None
        return "hip" if self.hip else "cuda" if self.cuda else "cpu"


class Surroundings(msgspec.Struct, frozen=True):
    """The machine, and what stands between us and it."""

    host: str
    system: str | None
    kernel: str
    machine: str
    container: str | None
    """What tells that this is a container; None where nothing does."""
    pid_namespace: str | None
    """``initial`` or ``own``; None where it may not be known."""
    wsl: bool
    mps: str | None
    """What tells of CUDA's multi-process service."""
    device_files: tuple[tuple[str, bool], ...]
    """(path, may be opened) of the files of GPUs and their drivers."""
    memory_bytes: int | None
    cgroup_limit_bytes: int | None
    root: bool
    hidden_processes: bool | None
    """Whether /proc hides other users' processes."""
    variables: tuple[tuple[str, str | None], ...]
    """Those that decide what is visible and how memory is allocated; None is not set."""
