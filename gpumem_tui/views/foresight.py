"""What a simulated run says of real cards, in sentences. Shared by every view."""

from collections.abc import Sequence

from gpumem_tui.analysis.foresight import PLANS, Foresight
from gpumem_tui.units import format_bytes


def foresight_sentences(foresight: Sequence[Foresight]) -> list[str]:
    """What real cards would need: one sentence a device, then what the bound adds."""
    lines = []
    condition = _condition(foresight)
    for device in foresight:
        card = format_bytes(device.capacity_bytes)
        verdict = f"fits in {card}{condition}" if device.fits else f"may not fit in {card}"
        if device.refused:
            verdict = (
                f"{device.refused:,} requests did not fit in {card}: simulate a larger card for the peak"
            )
        lines.append(
            f"GPU {device.index}: peak device memory {format_bytes(device.point_bytes)} (point), "
            f"{format_bytes(device.bound_bytes)} (safe bound); {verdict}"
        )
        if device.plans_bytes:
            lines.append(
                f"  the point has {format_bytes(device.plans_bytes)} for cuDNN's other plans, "
                f"{PLANS:g} × the tensors of the largest convolution"
            )
        added = ", ".join(f"{what} {format_bytes(size)}" for what, size in device.additions)
        lines.append(f"  the bound adds {added}")
    return lines


def _condition(foresight: Sequence[Foresight]) -> str:
    """On what "fits" hangs where the program went by values that nobody computed, on whichever device."""
    counts = sum(device.invented_counts for device in foresight)
    if counts:
        masks = "a mask" if counts == 1 else f"{counts:,} masks"
        return f" if little is picked where {masks} picked nothing here"
    values = sum(device.invented_reads for device in foresight)
    if values:
        read = "a value" if values == 1 else f"{values:,} values"
        return f" if no more memory hangs on {read} that nothing computed here"
    return ""


def invented_sentences(foresight: Sequence[Foresight]) -> list[str]:
    """That the program went by values nobody computed, on all devices together; none where it did not."""
    values = sum(device.invented_reads for device in foresight)
    counts = sum(device.invented_counts for device in foresight)
    if not values:
        return []
    what = "value read back was 0 (all() true), as no kernel computed it"
    if values > 1:
        what = "values read back were 0 (all() true), as no kernel computed them"
    rest = ""
    if counts:
        rest = (
            f"; {counts:,} of them count what boolean masks, nonzero or unique pick (rows, a mixture's "
            "experts): that is empty here and in no figure"
        )
    return [f"{values:,} {what}{rest}"]


def assumption_sentences(assumptions: Sequence[tuple[str, str]]) -> list[str]:
    """What the figures rest on, each with its source."""
    fitted = (
        "fitted on real peaks of one A100, see tests/foresight: cuDNN's other plans, the bound's additions"
    )
    return [f"  assumed {name}, {text}" for name, text in assumptions] + [f"  {fitted}"]
