"""From a failure that a text tells to the facts that the rules weigh."""

from gpumem_tui.analysis.findings import Amount, Kind, Neighbour, Situation
from gpumem_tui.analysis.oomtext.facts import Family, OomFailure, Pressure
from gpumem_tui.analysis.oomtext.figures import Figure
from gpumem_tui.units import MIB

_KINDS = {
    Family.ALLOCATOR: Kind.ALLOCATOR,
    Family.ASYNC: Kind.ALLOCATOR,
    Family.REJECTED: Kind.REJECTED,
    Family.EXABYTE: Kind.IMPOSSIBLE,
    Family.MPS: Kind.MPS,
    Family.DRIVER: Kind.OUTSIDE,
    Family.LIBRARY: Kind.OUTSIDE,
    Family.NCCL: Kind.OUTSIDE,
    Family.XLA: Kind.FOREIGN,
    Family.ONNX: Kind.FOREIGN,
    Family.TENSORRT: Kind.FOREIGN,
    Family.PADDLE: Kind.FOREIGN,
    Family.GGML: Kind.FOREIGN,
    Family.CUPY: Kind.FOREIGN,
    Family.SERVER: Kind.REFUSED,
    Family.NVML_ASSERT: Kind.NVML_ASSERT,
    Family.HOST_KILL: Kind.HOST_KILL,
    Family.HOST_ALLOCATION: Kind.HOST_ALLOCATION,
    Family.SHARED_MEMORY: Kind.SHARED_MEMORY,
}


def situation(failure: OomFailure) -> Situation:
    """The facts of one failure. What the text does not print stays None."""
    return Situation(
        kind=_KINDS[failure.family],
        certain=failure.certain,
        backend=failure.backend,
        call="NCCL" if failure.family is Family.NCCL else failure.call,
        phase=failure.phase,
        frame=failure.frame,
        first_optimizer_step=failure.first_optimizer_step,
        device_named=failure.device is not None,
        requested=_amount(failure.requested),
        total=_amount(failure.total),
        free=_amount(failure.free),
        allocated=_amount(failure.allocated),
        idle=_amount(failure.idle),
        reserved=_amount(failure.reserved),
        private_pools=_amount(failure.private_pools),
        cap=_amount(failure.allowed),
        own=_amount(failure.own),
        self_listed=failure.own is not None,
        neighbours=tuple(Neighbour(h.pid, _amount(h.used)) for h in failure.holders),
        other_allocations=_amount(failure.other_allocations),
        hint=failure.hint,
        room=_amount(failure.room),
        setting=failure.setting,
        longest=failure.longest,
        fits=failure.fits,
    )


def pressure_situation(pressure: Pressure) -> Situation:
    """The facts of failed driver allocations that no error followed."""
    return Situation(
        kind=Kind.PRESSURE,
        requested=Amount.exact(pressure.largest_bytes, "log"),
        free=Amount.exact(pressure.least_free_bytes, "log"),
        total=Amount.exact(pressure.total_bytes, "log"),
        pressure_count=pressure.count,
    )


def _amount(figure: Figure | None) -> Amount | None:
    if figure is None or figure.low_bytes is None or figure.high_bytes is None:
        return None
    return Amount(figure.low_bytes, figure.high_bytes, "message", _spoken(figure))


def _spoken(figure: Figure) -> str | None:
    """As printed, with its unit; None where that is a long number of bytes or no number."""
    exact = figure.low_bytes == figure.high_bytes
    if figure.printed.replace(".", "", 1).isdigit():
        return None if exact else f"{figure.printed} GiB"
    if not figure.printed[:1].isdigit() or (exact and (figure.low_bytes or 0) >= MIB):
        return None
    return figure.printed
