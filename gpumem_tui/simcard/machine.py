"""One simulated machine: its state file, settings, and what its cards hold.

Owns the state file through the built core library (a mutex shared between processes
guards it, so it is never written by hand). The file is private to its user and a file
of anyone else is refused. It starts no workloads: see :mod:`.launch`; and it never
prints.
"""

import ctypes
import errno
import json
import os
import re
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gpumem_tui.errors import BadInput
from gpumem_tui.simcard import cards, launch
from gpumem_tui.simcard.build import Libraries
from gpumem_tui.units import format_bytes, parse_size

NAME = "Simulated card"
"""What PyTorch and NVML call each card, unless told otherwise."""

MAX_DEVICES = 16

NVML_ERRORS = {
    "UNINITIALIZED": 1,
    "INVALID_ARGUMENT": 2,
    "NOT_SUPPORTED": 3,
    "NO_PERMISSION": 4,
    "NOT_FOUND": 6,
    "DRIVER_NOT_LOADED": 9,
    "TIMEOUT": 10,
    "LIBRARY_NOT_FOUND": 12,
    "FUNCTION_NOT_FOUND": 13,
    "GPU_IS_LOST": 15,
    "RESET_REQUIRED": 16,
    "OPERATING_SYSTEM": 17,
    "LIB_RM_VERSION_MISMATCH": 18,
    "IN_USE": 19,
    "MEMORY": 20,
    "UNKNOWN": 999,
}
"""Names that a setting may be given as a value."""

Value = float | int | str

_IN_USE = 600
_STATUS_ROOM = 1 << 21


@dataclass(frozen=True)
class Holder:
    """What one process holds on one device."""

    pid: int
    name: str
    bytes: int
    """Without the context: what it has allocated."""
    context_bytes: int

    @property
    def total_bytes(self) -> int:
        """What the driver says that the process uses."""
        return self.bytes + self.context_bytes


@dataclass(frozen=True)
class DeviceStatus:
    """One card, by the simulation's own books."""

    index: int
    uuid: str
    total_bytes: int
    """As NVML tells it, with the reserved share."""
    reserved_bytes: int
    used_bytes: int
    """The sum over ``processes``; hidden ones count."""
    peak_bytes: int
    """The most that ``used_bytes`` has been."""
    launches: int
    """Kernels so far."""
    invented_reads: int
    """Numbers that a program read back although no kernel had computed them: they were
    0 (or, by ``true_every``, 1). Where it is not 0, shapes and branches that depend on
    values (boolean masks, ``nonzero``, loops until convergence) are not to be trusted."""
    processes: tuple[Holder, ...]


@dataclass(frozen=True)
class MachineStatus:
    """The whole machine at one moment."""

    name: str
    compute_capability: str
    devices: tuple[DeviceStatus, ...]
    settings: Mapping[str, float]


@dataclass(frozen=True)
class Assumption:
    """A size that a real card's libraries would choose, and that is only assumed here."""

    name: str
    bytes: int
    note: str


def parse_value(value: Value) -> float:
    """Read a setting: a number, a size (``500MiB``), an NVML error's name, ``+5`` (seconds from now)."""
    if not isinstance(value, str):
        return float(value)
    text = value.strip()
    error = NVML_ERRORS.get(text.upper().removeprefix("NVML_ERROR_"))
    if error is not None:
        return float(error)
    if re.fullmatch(r"[+-]?\d+(\.\d*)?", text):
        return time.time() + float(text) if text.startswith("+") else float(text)
    return float(parse_size(text, what="value"))


class SimulatedMachine:
    """A handle on one state file. Several processes may hold one at the same time."""

    def __init__(self, libraries: Libraries, state: Path) -> None:
        """Attach to a machine that was created before; :class:`BadInput` where there is none."""
        self.libraries = libraries
        self.state = state.absolute()
        address = self._core.sc_attach(os.fsencode(self.state))
        if not address:
            raise self._refusal(self.state, ctypes.get_errno())
        self._address = ctypes.c_void_p(address)
        weakref.finalize(self, self._core.sc_detach, self._address)

    @classmethod
    def create(
        cls,
        libraries: Libraries,
        state: Path,
        *,
        devices: Sequence[int],
        name: str = NAME,
        compute_capability: str = "8.6",
        **settings: Value,
    ) -> "SimulatedMachine":
        """Make the machine, or make it anew: ``devices`` are total bytes, one for each card.

        Refused while processes use it, and where the file is not this user's.
        """
        if not 1 <= len(devices) <= MAX_DEVICES or not all(size >= 64 << 20 for size in devices):
            raise BadInput(f"a simulated machine has 1 to {MAX_DEVICES} devices of 64 MiB or more")
        if not re.fullmatch(r"\d{1,2}\.\d", compute_capability):
            raise BadInput(f"compute capability {compute_capability!r} is not of the form 8.6")
        path = state.absolute()
        sizes = ",".join(str(size) for size in devices)
        core = _open_core(libraries.core)
        failed = core.sc_create(os.fsencode(path), sizes.encode(), name.encode(), compute_capability.encode())
        if failed == _IN_USE:
            raise BadInput(f"the simulated machine {path} is in use; end its processes first")
        if failed:
            raise cls._refusal(path, ctypes.get_errno())
        machine = cls(libraries, path)
        major, _, minor = compute_capability.partition(".")
        machine.set(**{"context_bytes": cards.context_bytes((int(major), int(minor))), **settings})
        return machine

    @staticmethod
    def _refusal(state: Path, code: int) -> BadInput:
        reasons = {
            errno.EPERM: "it belongs to another user, or is no regular file",
            errno.EINVAL: "it is no state file of this version",
        }
        return BadInput(f"cannot use the simulated machine {state}: {reasons.get(code) or os.strerror(code)}")

    @cached_property
    def _core(self) -> ctypes.CDLL:
        return _open_core(self.libraries.core)

    def set(self, **settings: Value) -> None:
        """Change settings (see ``src/simcard.h``) for all processes, at once."""
        for name, value in settings.items():
            if self._core.sc_set(self._address, name.encode(), parse_value(value)):
                known = ", ".join(self.settings())
                raise BadInput(f"the simulated card has no setting {name!r}; it has {known}")

    def settings(self) -> dict[str, float]:
        """All settings of the machine; a process may have its own by its environment."""
        return dict(self.status().settings)

    def status(self) -> MachineStatus:
        """Read what the cards hold now. Processes that have ended hold nothing, zombies neither."""
        text = ctypes.create_string_buffer(_STATUS_ROOM)
        if self._core.sc_status(self._address, text, len(text)):
            raise BadInput(f"the simulated machine {self.state} cannot be read")
        raw = json.loads(text.value.decode("utf-8", "replace"))
        return MachineStatus(
            name=raw["name"],
            compute_capability=raw["compute_capability"],
            devices=tuple(_device(entry) for entry in raw["devices"]),
            settings=raw["settings"],
        )

    def environment(
        self,
        base: Mapping[str, str] | None = None,
        *,
        nvml: bool = True,
        settings: Mapping[str, Value] | None = None,
    ) -> dict[str, str]:
        """Make the environment in which a command runs on this machine (default base: ours).

        Without ``nvml`` the process finds no NVML library. ``settings`` are this
        command's only and win over the machine's.
        """
        return launch.workload_environment(
            self.libraries, self.state, base, nvml=nvml, settings=_own_settings(settings)
        )

    def monitor_environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Make the environment for a process that only looks at this machine, through NVML."""
        return launch.monitor_environment(self.libraries, self.state, base)

    def hold(self, device: int, size: int, name: str = "holder") -> "subprocess.Popen[str]":
        """Start another process that holds ``size`` bytes; returns once it does.

        Others see an ordinary foreign process called ``name``. It ends when it is
        killed, when its input is closed, or with us. A number of bytes written to
        its input, as a line, changes what it holds; it answers ``holding N``.
        """
        process = subprocess.Popen(
            [name, str(device), str(size), name],
            executable=self.libraries.hold,
            env=self.monitor_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        if not said.startswith("holding"):
            process.kill()
            process.communicate()
            said = said or "the process ended"
            raise BadInput(f"cannot hold {format_bytes(size)} on device {device}: {said}")
        return process

    def assumptions(self) -> list[Assumption]:
        """List the sizes that are assumed, not observed: to be shown with every figure of this machine."""
        status = self.status()
        given = {name: int(value) for name, value in status.settings.items()}
        found = [
            Assumption(
                "CUDA context",
                given["context_bytes"],
                f"at a process's first use of a device of capability {status.compute_capability}: "
                "1 KiB of stack for each resident thread, and 168 MiB (3 measurements, within 45)",
            ),
            Assumption(
                "libraries' kernels",
                given["cudnn_bytes"],
                "at a process's first use of cuDNN, with the context where CUDA_MODULE_LOADING=EAGER; "
                "fitted on real peaks of one A100, taken for every architecture",
            ),
            Assumption(
                "cuDNN workspace",
                given["cudnn_workspace"],
                "asked of PyTorch by each cuDNN plan; by a dense NCHW convolution instead "
                f"{status.settings['conv_workspace']:g} × its tensors, as tensor cores want them in NHWC",
            ),
            Assumption("NCCL communicator", given["nccl_bytes"], "outside PyTorch's allocator, for each"),
            Assumption("cuBLAS/cuDNN handle", given["handle_bytes"], "outside PyTorch's allocator, for each"),
        ]
        sizes = sorted({device.reserved_bytes for device in status.devices}, reverse=True)
        found += [Assumption("driver-reserved", size, "1/80 of a card's memory") for size in sizes]
        return [each for each in found if each.bytes]


def _open_core(path: Path) -> ctypes.CDLL:
    core = ctypes.CDLL(str(path), use_errno=True)
    core.sc_attach.argtypes = [ctypes.c_char_p]
    core.sc_attach.restype = ctypes.c_void_p
    core.sc_detach.argtypes = [ctypes.c_void_p]
    core.sc_detach.restype = None
    core.sc_create.argtypes = [ctypes.c_char_p] * 4
    core.sc_set.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double]
    core.sc_status.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    return core


def _own_settings(settings: Mapping[str, Value] | None) -> dict[str, float]:
    return {name: parse_value(value) for name, value in (settings or {}).items()}


def _device(raw: Mapping[str, Any]) -> DeviceStatus:
    return DeviceStatus(
        index=raw["index"],
        uuid=raw["uuid"],
        total_bytes=raw["total"],
        reserved_bytes=raw["reserved"],
        used_bytes=raw["used"],
        peak_bytes=raw["peak"],
        launches=raw["launches"],
        invented_reads=raw["invented"],
        processes=tuple(
            Holder(pid=p["pid"], name=p["name"], bytes=p["bytes"], context_bytes=p["context"])
            for p in raw["processes"]
        ),
    )
