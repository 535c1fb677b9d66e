"""Who this process is: its rank as launchers tell it, and its devices as the driver would name them.

A device's identity is its UUID or PCI address, read from PyTorch *after* the user's
CUDA initialisation; ``CUDA_VISIBLE_DEVICES`` is never parsed to guess it. Where
neither is known, the record says so and nobody joins it with a driver's device.
"""

from __future__ import annotations

import os
from typing import Any, List, Mapping, Optional, Tuple

_LAUNCHERS = (
    # rank, local rank, world size, local world size; the first that is set wins
    ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"),
)


def _number(text: Optional[str]) -> Optional[int]:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def rank_of(
    environment: Mapping[str, str],
) -> Optional[Tuple[int, Optional[int], Optional[int], Optional[int]]]:
    """Rank, local rank, world size and local world size that a launcher set; None outside one.

    Slurm's variables count only where a step has several tasks: a plain job step of
    one task is no rank.
    """
    for names in _LAUNCHERS:
        values = [_number(environment.get(name)) for name in names]
        if values[0] is None:
            continue
        if names[0] == "SLURM_PROCID" and (values[2] or 1) < 2:
            continue
        return values[0], values[1], values[2], values[3]
    return None


def torch_facts(torch: Any) -> Tuple[str, str, Optional[str], str, Optional[str], bool]:
    """Version, backend, its version, allocator, its settings, whether it caches.

    The backend is named as what it is: a ROCm build answers to torch.cuda and is hip.
    """
    version = torch.version
    if getattr(version, "hip", None):
        backend, backend_version = "hip", str(version.hip)
    elif getattr(version, "cuda", None):
        backend, backend_version = "cuda", str(version.cuda)
    else:
        return str(torch.__version__), "cpu", None, "none", None, False
    name = getattr(torch._C, "_cuda_getAllocatorBackend", None)
    allocator = str(name()) if name is not None else "native"
    settings = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    text = str(settings()) if settings is not None else _settings_from(os.environ)
    caching = not os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING")
    return str(torch.__version__), backend, backend_version, allocator, text, caching


def _settings_from(environment: Mapping[str, str]) -> Optional[str]:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        if environment.get(name):
            return environment[name]
    return None


class DeviceFacts:
    """One device of this process. ``identified_by`` is uuid, pci or nothing."""

    __slots__ = ("identified_by", "name", "ordinal", "pci", "total_bytes", "uuid")

    def __init__(self, ordinal: int, properties: Any) -> None:
        self.ordinal = ordinal
        self.name: Optional[str] = getattr(properties, "name", None)
        self.total_bytes: Optional[int] = getattr(properties, "total_memory", None)
        uuid = getattr(properties, "uuid", None)
        self.uuid: Optional[str] = str(uuid) if uuid is not None else None
        self.pci = _pci_of(properties)
        self.identified_by = "uuid" if self.uuid else "pci" if self.pci else "nothing"


def _pci_of(properties: Any) -> Optional[str]:
    """``00000000:65:00.0``, as NVML writes it, in lower case."""
    bus = getattr(properties, "pci_bus_id", None)
    if bus is None:
        return None
    domain = getattr(properties, "pci_domain_id", 0)
    return "%08x:%02x:%02x.0" % (domain, bus, getattr(properties, "pci_device_id", 0))


def devices_of(torch: Any) -> List[DeviceFacts]:
    """Every device that is visible to this process. Only after CUDA was initialised; makes no context."""
    count = torch.cuda.device_count()
    return [DeviceFacts(i, torch.cuda.get_device_properties(i)) for i in range(count)]
