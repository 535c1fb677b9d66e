"""The driver once, for a report: versions, cards, and which of its readings succeed here.

Asked in a thread with a deadline, since a broken driver may hang in any call. Creates
no CUDA context.
"""

import re
from pathlib import Path
from typing import Any

from gpumem_tui.records import Reason
from gpumem_tui.records.environment import CardFacts, DriverFacts
from gpumem_tui.sources.faults import Fault
from gpumem_tui.sources.nvml import Found, Nvml
from gpumem_tui.sources.worker import ask_within

DEADLINE_S = 20.0
"""Opening the driver may take seconds where it has to be loaded first."""

_MODULE = re.compile(r"Module.*?\s(\d+\.\d+(?:\.\d+)?)\s")


def read_cards(
    library: Path | None = None, root: Path = Path("/"), deadline_s: float = DEADLINE_S
) -> DriverFacts:
    """Everything in one go; raises nothing. After the deadline, that the driver does not answer."""
    module = _module_version(root)
    answer = ask_within(deadline_s, lambda: _ask(library, module))
    if answer is not None:
        return answer
    word = f"a driver call has not returned for {deadline_s:.0f} s"
    return DriverFacts(None, None, None, module, Reason.STALE, word)


def _module_version(root: Path) -> str | None:
    try:
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return None
    found = _MODULE.search(text)
    return found[1] if found else None


def _ask(library: Path | None, module: str | None) -> DriverFacts:
    nvml = Nvml(library)
    try:
        version = nvml.open()
    except Fault as fault:
        return DriverFacts(None, None, None, module, fault.reason, fault.word or None)
    try:
        nvml_version, cuda_version = nvml.versions()
        cards = tuple(_card(nvml, found) for found in nvml.devices())
    except Fault as fault:
        return DriverFacts(version, None, None, module, fault.reason, fault.word or None)
    finally:
        _close(nvml)
    return DriverFacts(version, nvml_version, cuda_version, module, None, None, cards)


def _close(nvml: Nvml) -> None:
    try:
        nvml.close()
    except Fault:  # it is going away by itself
        return


def _card(nvml: Nvml, found: Found) -> CardFacts:
    if found.handle is None:
        why = found.fault.text if found.fault is not None else Reason.UNKNOWN.value
        return CardFacts(
            index=found.index,
            parent=found.parent,
            name=found.name,
            uuid=found.uuid,
            pci=found.pci,
            memory_reason=why,
            processes_reason=why,
            load_reason=why,
            reason=why,
        )
    memory, memory_reason = _try(nvml.memory, found.handle)
    processes, processes_reason = _try(nvml.processes, found.handle)
    if processes is not None and processes.fault is not None:
        processes_reason = processes.fault.text
    load, load_reason = _try(nvml.load, found.handle)
    if load is not None and load.fault is not None:
        load_reason = load.fault.text
    capability, mig = nvml.traits(found.handle)
    return CardFacts(
        index=found.index,
        parent=found.parent,
        name=found.name,
        uuid=found.uuid,
        pci=found.pci,
        total_bytes=memory.total_bytes if memory else None,
        reserved_bytes=memory.reserved_bytes if memory else None,
        memory_version=memory.version if memory else None,
        memory_reason=memory_reason,
        processes=len(processes.rows) if processes else None,
        figures=sum(1 for row in processes.rows if row[1] is not None) if processes else None,
        processes_reason=processes_reason,
        load_reason=load_reason,
        capability=capability,
        mig=mig,
        reason=found.fault.text if found.fault is not None else None,
    )


def _try(call: Any, handle: Any) -> tuple[Any, str | None]:
    try:
        return call(handle), None
    except Fault as fault:
        return None, fault.text
