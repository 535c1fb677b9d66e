"""What a simulated card counts at its peak, as its state file tells it."""

import msgspec


class PeakCounts(msgspec.Struct, frozen=True):
    """One simulated device at its peak, in bytes."""

    index: int
    total_bytes: int
    driver_reserved_bytes: int
    used_bytes: int
    """The most that all processes held at once."""
    outside_bytes: int
    """Contexts and library kernels within it."""
    processes: int
    """How many processes had a context then."""
    convolution_bytes: int
    """Weights, input and output of the largest convolution on NCHW tensors that is not grouped."""
    refused: int
    """Requests for memory that did not fit."""
    invented_reads: int
    """Numbers that the program read back although no kernel had computed them."""
    invented_counts: int = 0
    """Those of them that count what a boolean mask, ``nonzero`` or ``unique`` picks: shapes follow them."""
    grouped_plans: int = 0
    """Plans that cuDNN was asked for grouped convolutions that are not depthwise."""
