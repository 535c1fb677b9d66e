"""How a process gets to see the simulated machine: environments, and NVML in-process.

The libraries of a workload are preloaded, because PyTorch's run path comes before
``LD_LIBRARY_PATH``; the driver and NVML are found by the latter. A process that only
monitors needs NVML and no more.
"""

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from gpumem_tui.simcard.build import Libraries

STATE = "SIMCARD_STATE"
"""Environment variable: the state file of the machine that a process sees."""


def _joined(separator: str, *parts: str) -> str:
    return separator.join(part for part in parts if part)


def workload_environment(
    libraries: Libraries,
    state: Path,
    base: Mapping[str, str] | None = None,
    *,
    nvml: bool = True,
    settings: Mapping[str, float] | None = None,
) -> dict[str, str]:
    """For a command that runs on the machine, and for all that it starts."""
    env = dict(os.environ if base is None else base)
    env[STATE] = str(state)
    env["LD_PRELOAD"] = _joined(" ", *map(str, libraries.preload), env.get("LD_PRELOAD", ""))
    search = [str(libraries.core.parent)] + [str(libraries.nvml.parent)] * nvml
    env["LD_LIBRARY_PATH"] = _joined(":", *search, env.get("LD_LIBRARY_PATH", ""))
    # At the end of a process PyTorch waits 10 s for autograd's threads; one that the
    # core library has put to sleep (src/process.c, pthread_exit) would never come.
    env.setdefault("TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT", "1")
    for name, value in (settings or {}).items():
        env[f"SIMCARD_{name.upper()}"] = repr(value)
    return env


def monitor_environment(
    libraries: Libraries, state: Path, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """For a process that only looks, through NVML: nothing is preloaded."""
    env = dict(os.environ if base is None else base)
    env[STATE] = str(state)
    env["LD_LIBRARY_PATH"] = _joined(":", str(libraries.nvml.parent), env.get("LD_LIBRARY_PATH", ""))
    return env


def load_nvml(libraries: Libraries, state: Path) -> ctypes.CDLL:
    """Make this process's NVML the simulated machine's, before pynvml loads it.

    The dynamic linker takes a library that is already loaded for one asked for by
    the same name (``libnvidia-ml.so.1``). The machine is bound at the first call of
    NVML and stays: a process sees one machine in its life.
    """
    os.environ[STATE] = str(state)
    return ctypes.CDLL(str(libraries.nvml), mode=ctypes.RTLD_GLOBAL)
