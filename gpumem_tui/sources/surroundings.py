"""Where we stand: machine, container, namespaces, WSL, MPS, device files, variables.

Each is told by a trace that is named; nothing is guessed from what is not there.
"""

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from gpumem_tui.records.environment import Surroundings
from gpumem_tui.sources.host import find_cgroup, read_host
from gpumem_tui.sources.processes import container_of, sanitise

VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "NVIDIA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUDA_MODULE_LOADING",
    "CUDA_MPS_PIPE_DIRECTORY",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
    "LD_LIBRARY_PATH",
    "SLURM_JOB_ID",
)

_INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""The number of the first one is part of the kernel's interface."""

_FILES = ("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-modeset", "dxg", "kfd")


def read_surroundings(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> Surroundings:
    """Everything; raises nothing. ``root`` is where ``proc`` and ``dev`` lie."""
    environ = os.environ if environ is None else environ
    kernel = platform.release()
    host = read_host(find_cgroup(os.getpid()))
    return Surroundings(
        host=platform.node(),
        system=_system(),
        kernel=kernel,
        machine=platform.machine(),
        container=_container(root, environ),
        pid_namespace=_pid_namespace(root),
        wsl="microsoft" in kernel.lower() or (root / "dev/dxg").exists(),
        mps=_mps(environ),
        device_files=_device_files(root),
        memory_bytes=host.total_bytes,
        cgroup_limit_bytes=host.cgroup_limit_bytes,
        root=os.geteuid() == 0,
        hidden_processes=_hides_processes(root),
        variables=tuple(
            (name, sanitise(os.fsencode(environ[name]), 512) if name in environ else None)
            for name in VARIABLES
        ),
    )


def _system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _container(root: Path, environ: Mapping[str, str]) -> str | None:
    for name, what in (
        (".dockerenv", "Docker"),
        ("run/.containerenv", "Podman"),
        (".singularity.d", "Apptainer"),
    ):
        if (root / name).exists():
            return f"{what} (/{name})"
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "Kubernetes (KUBERNETES_SERVICE_HOST)"
    named = environ.get("container")
    if named:
        return f"{sanitise(named.encode(), 64)} (variable container)"
    inside = container_of(_read(root / "proc/self/cgroup"))
    return None if inside is None else f"{inside} (cgroup)"


def _pid_namespace(root: Path) -> str | None:
    try:
        link = os.readlink(root / "proc/self/ns/pid")  # noqa: PTH115 - a text, not a path
    except OSError:
        return None
    return "initial" if link == _INITIAL_PID_NAMESPACE else "own"


def _mps(environ: Mapping[str, str]) -> str | None:
    named = environ.get("CUDA_MPS_PIPE_DIRECTORY")
    pipes = Path(named or "/tmp/nvidia-mps")
    if (pipes / "control").exists():
        return f"a control pipe in {sanitise(str(pipes).encode())}"
    return "CUDA_MPS_PIPE_DIRECTORY is set, and there is no control pipe" if named else None


def _device_files(root: Path) -> tuple[tuple[str, bool], ...]:
    found = []
    for pattern in _FILES:
        for path in sorted((root / "dev").glob(pattern)):
            if pattern == "nvidia[0-9]*" and not re.fullmatch(r"nvidia\d+", path.name):
                continue
            found.append((f"/dev/{path.name}", os.access(path, os.R_OK | os.W_OK)))
    return tuple(found)


def _hides_processes(root: Path) -> bool | None:
    for line in _read(root / "proc/self/mountinfo").splitlines():
        head, _, tail = line.partition(" - ")
        if tail.startswith("proc ") and head.split()[4:5] == ["/proc"]:
            return bool(re.search(r"hidepid=(?!0|off)", f"{head} {tail}"))
    return None
