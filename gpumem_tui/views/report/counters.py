"""The counters of a report: what each is called, its unit, what it means and where it is read."""

from gpumem_tui.views.report.sheet import Column, Table, table

COUNTERS = (
    (
        "allocated",
        "bytes",
        "held by live tensors of one process on one device, at one moment",
        "torch.cuda.memory_stats: allocated_bytes.all.current",
    ),
    (
        "reserved",
        "bytes",
        "managed by PyTorch's caching allocator at that moment; contains allocated, the two are never added",
        "torch.cuda.memory_stats: reserved_bytes.all.current",
    ),
    (
        "peak allocated",
        "bytes",
        "the maximum of allocated over one interval, such as a phase",
        "torch.cuda.memory_stats: allocated_bytes.all.peak, reset at the interval's start",
    ),
    (
        "peak reserved",
        "bytes",
        "the maximum of reserved over it; perhaps at another moment, so the two are never subtracted",
        "torch.cuda.memory_stats: reserved_bytes.all.peak, reset at the interval's start",
    ),
    (
        "process used",
        "bytes",
        "what one process holds on a device, by the driver: reserved, and all outside PyTorch",
        "NVML: usedGpuMemory",
    ),
    (
        "device used",
        "bytes",
        "what is not free on a device, of all processes; without the driver-reserved share where it is told",
        "NVML: total − free − reserved",
    ),
)
"""(name, unit, meaning, source): the allocator's four, and the driver's two beside them."""


def counter_table() -> Table:
    """The definitions as a table."""
    columns = (Column("counter"), Column("unit", keep=2), Column("meaning"), Column("read from", keep=1))
    return table("Counters: four of PyTorch's allocator, two of the driver", columns, COUNTERS)
