"""The identity of a run: what it was meant to be, beside what it is seen to do. Data only.

What a run *really* processed and on what is elsewhere in its ``RunState``: inputs,
ranks, devices. Here is what was declared or found before it started.
"""

import msgspec

from gpumem_tui.records.revision import Revision

WARMUP = "the first span of each phase in a process is cold, every later one is warm; never averaged together"
"""How cold and warm are told apart where nothing else is declared."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What run.json says of a run, beyond its name and command."""

    version: str
    """Of gpumem-tui."""
    cwd: str
    protocol: str
    """``observe``, or ``strict``: every phase boundary waited for the device."""
    reset_peaks: bool
    """Otherwise PyTorch's peak counters were left alone, and peaks of phases are lower bounds."""
    hertz: float
    """Samples a second and rank."""
    revision: Revision
    seed: str | None = None
    seed_source: str | None = None
    """``label``, ``command line`` or ``PYTHONHASHSEED``; None where no seed is known."""
    declared: tuple[tuple[str, str], ...] = ()
    """Sizes that the user declared (``--declare batch=4``), beside the shapes that are really seen."""
    warmup: str = WARMUP
    environment: tuple[tuple[str, str], ...] = ()
    """The variables that a recording keeps."""
    kernel_us: float | None = None
    """How long a simulated kernel is pretended to take."""
    simulation: tuple[tuple[str, str], ...] = ()
    """Settings of the simulated card."""
