"""Is there a GPU here at all? One answer for the command line, before anything is started."""

from pathlib import Path

import msgspec

from gpumem_tui.sources.faults import Fault
from gpumem_tui.sources.nvml import Nvml
from gpumem_tui.sources.worker import ask_within

DEADLINE_S = 5.0
"""A driver that takes longer to be loaded, or never answers, is there: nothing waits longer for its count."""

_NODES = (
    ("/dev/nvidia0", "NVIDIA"),
    ("/dev/dxg", "a GPU of the Windows host (WSL)"),
    ("/dev/kfd", "AMD"),
)


class Probe(msgspec.Struct, frozen=True):
    """What was found, and one line on it."""

    present: bool
    """Whether a workload may find a GPU here."""
    devices: int | None
    """Cards that NVML names; None where NVML does not answer."""
    line: str
    """What there is, or why there is nothing."""


def probe(library: Path | None = None, nodes: Path = Path("/"), deadline_s: float = DEADLINE_S) -> Probe:
    """Ask NVML, then look for device nodes. ``nodes`` is the root below which ``dev`` is looked for.

    May take seconds where the driver has to be loaded first. A driver that does not answer is
    there all the same: what it means for a workload is the workload's to find out. Raises nothing.
    """
    answer = ask_within(deadline_s, lambda: _count(library))
    if answer is None:
        return Probe(True, None, f"NVML has not answered for {deadline_s:.0f} s")
    count, why = answer
    if count:
        return Probe(True, count, f"NVML names {count} {'GPU' if count == 1 else 'GPUs'}")
    said = "NVML names no GPU" if count == 0 else f"NVML: {why}"
    for node, whose in _NODES:
        if (nodes / node.lstrip("/")).exists():
            return Probe(True, count, f"{node} is there ({whose}), but {said}")
    return Probe(False, count, f"no GPU: {said}, and none of {', '.join(n for n, _ in _NODES)} is there")


def _count(library: Path | None) -> tuple[int | None, str]:
    """How many cards NVML names; None and the driver's word where it does not tell."""
    nvml = Nvml(library)
    try:
        nvml.open()
        try:
            return sum(1 for device in nvml.devices() if device.parent is None), ""
        finally:
            nvml.close()
    except Fault as fault:
        return None, fault.word or fault.reason.value
