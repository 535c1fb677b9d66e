"""What a real card would need at the peak of a run on simulated ones: a point, and a safe bound.

Pure arithmetic on what the simulation counted. The allocator's share is PyTorch's own;
what the constants below stand for is assumed, each with where it comes from. Refuses
to know models: no constant belongs to one. How well it does on peaks of real cards, and
how to repeat that, is in ``tests/foresight/README.md``.
"""

import msgspec

from gpumem_tui.records.simpeak import PeakCounts

MIB = 1 << 20

KERNELS_BYTES = 1280 * MIB
"""Kernels of cuBLAS, cuDNN and PyTorch in a process that has run cuDNN (``cudnn_bytes`` of the simulated
card). Fitted, on real peaks of one A100 (``tests/foresight/crossvalidation.py``)."""

OUTSIDE_BYTES = 384 * MIB + KERNELS_BYTES
"""All of a process that PyTorch's allocator does not know, on that card."""

PLANS = 1.5
"""How many times the tensors of the largest NCHW convolution are in the point beside the plan's own
workspace. Fitted: cuDNN keeps workspaces for forward and both directions of backward, of other sizes,
and the memory around them is cut up."""

SPREADS = 3.8
"""How many spreads the bound is above the point. Fitted, on residuals of rows that were left out."""

UNSEEN_SHARE = 0.02
UNSEEN_BYTES = 32 * MIB

GROUPED_BYTES = 1757 * MIB
"""What the one row with grouped convolutions needs beyond that. Fitted on it alone."""


def spread_bytes(pytorch_bytes: int, convolution_bytes: int) -> float:
    """The unit in which the bound is above the point, in bytes.

    A fixed part for kernels of other versions, a share of what PyTorch holds for activations of
    other versions and for fragmentation, and the largest convolution's tensors once: which plan
    cuDNN takes is decided by measuring.
    """
    return UNSEEN_BYTES + UNSEEN_SHARE * max(0, pytorch_bytes) + convolution_bytes


class Foresight(msgspec.Struct, frozen=True):
    """Peak memory of one device: point, safe bound, and what the latter adds."""

    index: int
    capacity_bytes: int
    """What programs can have of the card: total − driver-reserved."""
    point_bytes: int
    plans_bytes: int
    """Within the point, what cuDNN's plans take beside what the simulated card held."""
    bound_bytes: int
    additions: tuple[tuple[str, int], ...]
    """(what for, bytes), from point to bound."""
    refused: int
    """Requests that did not fit; where it is not 0, the run would have needed more than these figures."""
    invented_reads: int
    """Values that the program read back although nothing had computed them: it may go another way."""
    invented_counts: int = 0
    """Those of them that say how much a mask or the like picks: memory for it is in no figure."""

    @property
    def fits(self) -> bool:
        """Whether even the safe bound fits, and nothing was refused; as far as values decide nothing."""
        return not self.refused and self.bound_bytes <= self.capacity_bytes


def foresee(peak: PeakCounts) -> Foresight:
    """Point and safe bound of one device; both are 0 where nothing was held."""
    plans = round(PLANS * peak.convolution_bytes)
    point = peak.used_bytes + plans
    unloaded = max(0, peak.processes * OUTSIDE_BYTES - peak.outside_bytes)
    spread = SPREADS * spread_bytes(peak.used_bytes - peak.outside_bytes, 0) if peak.used_bytes else 0
    additions = (
        ("context and libraries as large as with cuDNN", unloaded),
        ("kernels, fragmentation and activations of other versions", round(spread)),
        (
            f"{SPREADS:g} × the tensors of the largest convolution",
            round(SPREADS * peak.convolution_bytes),
        ),
        ("grouped convolutions", GROUPED_BYTES if peak.grouped_plans else 0),
    )
    return Foresight(
        index=peak.index,
        capacity_bytes=peak.total_bytes - peak.driver_reserved_bytes,
        point_bytes=point,
        plans_bytes=plans,
        bound_bytes=point + sum(size for _, size in additions),
        additions=tuple((what, size) for what, size in additions if size),
        refused=peak.refused,
        invented_reads=peak.invented_reads,
        invented_counts=peak.invented_counts,
    )
