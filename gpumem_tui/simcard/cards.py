"""What a context takes on a card, by its architecture.

Owns that one piece of arithmetic and the figures it rests on; the simulated machine starts
from it, and ``context_bytes`` overrides it. Refuses to know products: an architecture stands
for its largest card, because more multiprocessors mean a larger context.
"""

MIB = 1 << 20

MULTIPROCESSORS = {
    (7, 0): (80, 2048),  # V100
    (7, 5): (72, 1024),  # Quadro RTX 8000; T4 has 40
    (8, 0): (108, 2048),  # A100
    (8, 6): (84, 1536),  # A40, RTX 3090 Ti
    (8, 9): (142, 1536),  # L40, RTX 6000 Ada; RTX 4090 has 128
    (9, 0): (132, 2048),  # H100, H200
    (10, 0): (148, 2048),  # B200
    (12, 0): (188, 1536),  # RTX PRO 6000 Blackwell
}
"""Multiprocessors and resident threads of each, by compute capability: NVIDIA's data sheets and the
table of compute capabilities in the CUDA programming guide."""

STACK_BYTES = 1024
"""Of each resident thread, set aside with the context: the default of ``cudaLimitStackSize``."""

BASE_BYTES = 168 * MIB
"""All else in a context whose kernels are loaded lazily. The mean of what three measurements leave
beside the stacks: Titan V 320 MiB (pytorch#28394, without PyTorch), RTX 3090 256 MiB (InvokeAI#9413,
CUDA 12.8), RTX 6000 Ada 426 MiB (unsloth-zoo#1053, CUDA 13.0). Each is within 45 MiB of it."""


def context_bytes(compute_capability: tuple[int, int]) -> int:
    """A context before any kernel; of the nearest older architecture where this one is not known."""
    known = [each for each in MULTIPROCESSORS if each <= compute_capability] or [min(MULTIPROCESSORS)]
    multiprocessors, threads = MULTIPROCESSORS[max(known)]
    return (BASE_BYTES + multiprocessors * threads * STACK_BYTES) // (2 * MIB) * 2 * MIB
