"""The ledger: where every byte of one device is at one moment, as terms that sum to its total.

::

    total = free + driver-reserved + Σ our ranks (allocated + cached + outside PyTorch)
                 + Σ other processes + unattributed

Each term is a value with its source and time, or a reason why there is none; what
was observed, computed and assumed is told apart. *Unattributed* is the signed
residual of terms that are all known; where one of them is missing, the unknown
ones and the residual are merged into one labelled term, and nothing is invented.

Refuses: readings of different devices, clamping, zeros for missing values,
differences of two moments (the pairing's skew is carried beside the figures).
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from gpumem_tui.records import Reason


class Basis(str, Enum):
    """How a figure came to be."""

    OBSERVED = "observed"
    COMPUTED = "computed"
    ASSUMED = "assumed"


class Term(msgspec.Struct, frozen=True):
    """A figure in bytes, or a reason why there is none."""

    bytes: int | None
    reason: Reason | None = None
    """Set exactly if ``bytes`` is None."""
    source: str = ""
    """PyTorch's or NVML's own name of it, or the formula."""
    t_ns: int | None = None
    """When it was read, on the node's monotonic clock."""
    basis: Basis = Basis.OBSERVED
    detail: str | None = None
    """The driver's own word about a failure, or a remark such as "includes driver-reserved"."""

    def __post_init__(self) -> None:
        if (self.bytes is None) == (self.reason is None):
            raise ValueError("a term has either bytes or a reason")


def observed(value: int, source: str, t_ns: int | None) -> Term:
    """A figure that was read."""
    return Term(value, source=source, t_ns=t_ns)


def computed(value: int, formula: str, t_ns: int | None, detail: str | None = None) -> Term:
    """A figure that follows from others."""
    return Term(value, source=formula, t_ns=t_ns, basis=Basis.COMPUTED, detail=detail)


def missing(reason: Reason, source: str = "", detail: str | None = None) -> Term:
    """No figure, and why."""
    return Term(None, reason=reason, source=source, detail=detail)


class Counters(msgspec.Struct, frozen=True):
    """What one rank's allocator says of one device, from one and the same call of PyTorch."""

    pid: int
    rank: int | None
    t_ns: int | None
    allocated_bytes: int | None
    reserved_bytes: int | None
    reason: Reason | None = None
    """Why the figures are missing, where they are."""
    steady: bool = True
    """Whether the figures stood still around the moment they are paired with."""
    recognised_by: str = ""
    """By what evidence the driver's row is this rank's, where the pid does not tell."""


class DriverProcess(msgspec.Struct, frozen=True):
    """One row of the driver's process list of one device."""

    pid: int
    used_bytes: int | None
    name: str = ""
    user: str = ""
    kind: str = "C"
    """C compute, G graphics, M MPS client, or a combination."""
    reason: Reason | None = None
    visible: bool = True
    """Whether this pid namespace shows such a process."""


class DriverReading(msgspec.Struct, frozen=True):
    """What the driver says of one device: its memory, and who holds it."""

    t_ns: int | None
    total_bytes: int | None
    free_bytes: int | None
    driver_reserved_bytes: int | None
    """None with version 1 of the call, where it hides in *used*."""
    reason: Reason | None = None
    detail: str | None = None
    processes_t_ns: int | None = None
    processes: tuple[DriverProcess, ...] = ()
    processes_reason: Reason | None = None
    """Why there are no rows; with rows, why there may be more than these."""


class RankShare(msgspec.Struct, frozen=True):
    """One of our ranks on this device."""

    pid: int
    rank: int | None
    allocated: Term
    cached: Term
    outside: Term
    """process used − reserved. Negative where skew or sleeping pools make it so; never clamped."""
    used: Term
    """What the driver says this process holds."""
    reserved: Term
    skew_ns: int | None
    """Time between the allocator's and the driver's reading that were joined."""
    opaque: bool
    """The driver knows what the process holds, but its allocator cannot be read: ``used`` is one term."""
    skewed: bool
    """The skew is larger than the tolerance, or memory was moving: *outside* may be off by what changed."""


class OtherShare(msgspec.Struct, frozen=True):
    """A process on this device that is not ours."""

    pid: int
    name: str
    user: str
    used: Term
    visible: bool
    kind: str


class Ledger(msgspec.Struct, frozen=True):
    """The terms of one device at one moment; ``parts()`` sums to ``total`` wherever total is known."""

    t_ns: int | None
    total: Term
    free: Term
    driver_reserved: Term
    device_used: Term
    ranks: tuple[RankShare, ...]
    others: tuple[OtherShare, ...]
    unattributed: Term
    """Residual of known terms; missing where ``merged`` stands for it."""
    merged: Term | None
    """Everything that cannot be told apart, as one figure; None where all terms are known."""
    merged_label: str = ""
    tolerance_ns: int = 0

    def parts(self) -> list[tuple[str, int]]:
        """Name and bytes of every known term. They sum to ``total.bytes`` exactly."""
        parts: list[tuple[str, int]] = []

        def add(name: str, term: Term) -> None:
            if term.bytes is not None:
                parts.append((name, term.bytes))

        for share in self.ranks:
            if share.opaque:
                add(f"used:{share.pid}", share.used)
                continue
            add(f"allocated:{share.pid}", share.allocated)
            add(f"cached:{share.pid}", share.cached)
            add(f"outside:{share.pid}", share.outside)
        for other in self.others:
            add(f"other:{other.pid}", other.used)
        add("driver reserved", self.driver_reserved)
        add("unattributed", self.unattributed)
        if self.merged is not None:
            add("merged", self.merged)
        add("free", self.free)
        return parts


def _device_used(driver: DriverReading) -> Term:
    if driver.total_bytes is None or driver.free_bytes is None:
        return missing(driver.reason or Reason.NOT_READ_YET, "NVML memory", driver.detail)
    if driver.driver_reserved_bytes is None:
        return computed(
            driver.total_bytes - driver.free_bytes,
            "total − free",
            driver.t_ns,
            "includes driver-reserved",
        )
    used = driver.total_bytes - driver.free_bytes - driver.driver_reserved_bytes
    return computed(used, "total − free − driver-reserved", driver.t_ns)


def _allocator_terms(counters: Counters) -> tuple[Term, Term, Term]:
    """Allocated, cached and reserved of one sample."""
    allocated, reserved = counters.allocated_bytes, counters.reserved_bytes
    if allocated is None or reserved is None:
        gone = missing(counters.reason or Reason.NOT_READ_YET, "torch memory_stats")
        return gone, gone, gone
    return (
        observed(allocated, "allocated_bytes.all.current", counters.t_ns),
        computed(reserved - allocated, "reserved − allocated of one sample", counters.t_ns),
        observed(reserved, "reserved_bytes.all.current", counters.t_ns),
    )


def _share(
    counters: Counters, row: DriverProcess | None, driver: DriverReading, tolerance_ns: int
) -> RankShare:
    allocated, cached, reserved = _allocator_terms(counters)
    t_driver = driver.processes_t_ns
    skew = None if t_driver is None or counters.t_ns is None else counters.t_ns - t_driver
    if row is None:
        reason = driver.processes_reason or driver.reason
        if reason is None:
            reason = Reason.NOT_READ_YET if t_driver is None else Reason.HIDDEN
        used = missing(reason, "NVML usedGpuMemory")
    elif row.used_bytes is None:
        used = missing(row.reason or Reason.NOT_SUPPORTED, "NVML usedGpuMemory")
    else:
        used = observed(row.used_bytes, "NVML usedGpuMemory", t_driver)
        if counters.recognised_by:
            used = msgspec.structs.replace(used, detail=f"recognised by {counters.recognised_by}")
    if used.bytes is not None and reserved.bytes is not None:
        outside = computed(used.bytes - reserved.bytes, "process used − reserved", t_driver)
    elif used.reason is not None:
        outside = missing(used.reason, "process used − reserved")
    else:
        outside = missing(reserved.reason or Reason.UNKNOWN, "process used − reserved")
    return RankShare(
        pid=counters.pid,
        rank=counters.rank,
        allocated=allocated,
        cached=cached,
        outside=outside,
        used=used,
        reserved=reserved,
        skew_ns=skew,
        opaque=reserved.bytes is None and used.bytes is not None,
        skewed=skew is not None and (abs(skew) > tolerance_ns or not counters.steady),
    )


def ledger(driver: DriverReading, ranks: Sequence[Counters], tolerance_ns: int = 300_000_000) -> Ledger:
    """The ledger of one device from a driver reading and our ranks' counters on that device.

    ``ranks`` lists every process of the workload that holds this device, also where
    its counters are missing. ``tolerance_ns`` is the skew up to which an allocator's
    and the driver's reading count as one moment.
    """
    rows = {row.pid: row for row in driver.processes}
    ours = {counters.pid for counters in ranks}
    shares = tuple(_share(counters, rows.get(counters.pid), driver, tolerance_ns) for counters in ranks)
    others = tuple(
        OtherShare(
            pid=row.pid,
            name=row.name,
            user=row.user,
            visible=row.visible,
            kind=row.kind,
            used=missing(row.reason or Reason.NOT_SUPPORTED, "NVML usedGpuMemory")
            if row.used_bytes is None
            else observed(row.used_bytes, "NVML usedGpuMemory", driver.processes_t_ns),
        )
        for row in driver.processes
        if row.pid not in ours
    )
    device_used = _device_used(driver)

    def of_driver(value: int | None, source: str) -> Term:
        if value is None:
            return missing(driver.reason or Reason.NOT_READ_YET, source, driver.detail)
        return observed(value, source, driver.t_ns)

    free = of_driver(driver.free_bytes, "NVML memory.free")
    total = of_driver(driver.total_bytes, "NVML memory.total")
    if driver.driver_reserved_bytes is None and driver.total_bytes is not None:
        reserved = missing(Reason.NOT_SUPPORTED, "NVML memory v2 reserved", "in the residual")
    else:
        reserved = of_driver(driver.driver_reserved_bytes, "NVML memory v2 reserved")
    return _close(driver, total, free, reserved, device_used, shares, others, tolerance_ns)


def _close(
    driver: DriverReading,
    total: Term,
    free: Term,
    reserved: Term,
    device_used: Term,
    shares: tuple[RankShare, ...],
    others: tuple[OtherShare, ...],
    tolerance_ns: int,
) -> Ledger:
    """Take the residual, and name it by what is known: unattributed, or one merged term."""
    rest: int | None = None
    if total.bytes is not None and free.bytes is not None:
        known = [reserved, *(o.used for o in others)]
        for share in shares:
            known += [share.used] if share.opaque else [share.allocated, share.cached, share.outside]
        rest = total.bytes - free.bytes - sum(t.bytes for t in known if t.bytes is not None)

    unknown = []
    if any(s.outside.bytes is None and not s.opaque for s in shares):
        unknown.append("outside PyTorch of our ranks")
    if any(s.allocated.bytes is None and not s.opaque for s in shares):
        unknown.append("allocators of our ranks")
    if driver.processes_t_ns is None:
        unknown.append("other processes")
    elif driver.processes_reason is not None:
        unknown += ["other processes without a figure"] * any(o.used.bytes is None for o in others)
        unknown.append("processes that are not listed")
    elif any(o.used.bytes is None for o in others):
        unknown.append("other processes without a figure")
    if reserved.bytes is None and total.bytes is not None:
        unknown.append("driver-reserved")

    merged: Term | None = None
    label = ""
    if rest is None:
        unattributed = missing(device_used.reason or Reason.NOT_READ_YET, "residual", driver.detail)
    elif unknown:
        label = " + ".join([*unknown, "unattributed"])
        merged = computed(rest, "residual of terms that are not told apart here", driver.t_ns)
        unattributed = missing(Reason.UNKNOWN, "residual", "part of the merged term")
    else:
        unattributed = computed(rest, "total − free − all terms", driver.t_ns)
    return Ledger(
        t_ns=driver.t_ns,
        total=total,
        free=free,
        driver_reserved=reserved,
        device_used=device_used,
        ranks=shares,
        others=others,
        unattributed=unattributed,
        merged=merged,
        merged_label=label,
        tolerance_ns=tolerance_ns,
    )
