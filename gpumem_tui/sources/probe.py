"""Is there a GPU here at all? One answer for the command line, before anything is started."""

from pathlib import Path

import msgspec

from gpumem_tui.sources.faults import Fault
from gpumem_tui.sources.nvml import Nvml

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


def probe(library: Path | None = None, nodes: Path = Path("/")) -> Probe:
    """Ask NVML, then look for device nodes. ``nodes`` is the root below which ``dev`` is looked for.

    May take seconds where the driver has to be loaded first. Raises nothing.
    """
    nvml = Nvml(library)
    why = ""
    count: int | None = None
    try:
        nvml.open()
        try:
            count = sum(1 for device in nvml.devices() if device.parent is None)
        finally:
            nvml.close()
    except Fault as fault:
        why = fault.word or fault.reason.value
    if count:
        return Probe(True, count, f"NVML names {count} {'GPU' if count == 1 else 'GPUs'}")
    said = "NVML names no GPU" if count == 0 else f"NVML: {why}"
    for node, whose in _NODES:
        if (nodes / node.lstrip("/")).exists():
            return Probe(True, count, f"{node} is there ({whose}), but {said}")
    return Probe(False, count, f"no GPU: {said}, and none of {', '.join(n for n, _ in _NODES)} is there")
