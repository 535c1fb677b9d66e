"""``--simulate``: the simulated machine of one run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpumem_tui.errors import BadInput
from gpumem_tui.units import format_bytes, parse_card

if TYPE_CHECKING:
    from gpumem_tui.journal.runfile import Simulated
    from gpumem_tui.simcard import SimulatedMachine


MOST = 16
"""Cards of one simulated machine."""

_SEVERAL = re.compile(r"\s*(\d{1,9})\s*[xX×]\s*(\S.*)")
"""``2x24GiB``, and as screens write it: ``2 × 24 GiB``."""

A100_BYTES = (40 << 30, 80 << 30)
"""Sizes that are taken for an A100, unless ``--sim-set compute_capability=…`` says otherwise."""


@dataclass(frozen=True)
class Simulation:
    """What was asked for."""

    devices: tuple[int, ...]
    kernel_us: float | None = None
    settings: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(sizes: str, kernel_us: float | None, settings: Sequence[str]) -> "Simulation":
        """From ``24GiB,24GiB`` or ``2x24GiB``, and NAME=VALUE words. Raises :class:`BadInput`."""
        devices: list[int] = []
        for word in sizes.split(","):
            several = _SEVERAL.fullmatch(word)
            number, size = (int(several[1]), several[2]) if several is not None else (1, word)
            if not 1 <= len(devices) + number <= MOST:
                raise BadInput(f"--simulate takes 1 to {MOST} cards, not {len(devices) + number}")
            devices += [parse_card(size, what="--simulate size")] * number
        if kernel_us is not None and not 0 <= kernel_us <= 1e6:
            raise BadInput(f"--kernel-us {kernel_us:g} is out of range; take 0 to 1000000")
        pairs: dict[str, str] = {}
        for word in settings:
            name, sign, value = word.partition("=")
            if not sign:
                raise BadInput(f"--sim-set {word!r} is not of the form NAME=VALUE")
            pairs[name] = value
        return Simulation(tuple(devices), kernel_us, pairs)

    def machine(self, command: Sequence[str], state: Path) -> "SimulatedMachine":
        """Build the libraries for the command's PyTorch (once), and make the machine.

        Raises :class:`MissingRequirement` naming what is missing.
        """
        from gpumem_tui.simcard import SimulatedMachine, build, find_python

        libraries = build(find_python(command))
        settings = dict(self.settings)
        a100 = all(size in A100_BYTES for size in self.devices)
        capability = settings.pop("compute_capability", "8.0" if a100 else "8.6")
        if self.kernel_us is not None:
            settings["kernel_us"] = f"{self.kernel_us:g}"
        return SimulatedMachine.create(
            libraries, state, devices=self.devices, compute_capability=capability, **settings
        )

    def facts(self, machine: "SimulatedMachine") -> "Simulated":
        """What ``run.json`` and every screen say of it."""
        from gpumem_tui.journal.runfile import Simulated

        return Simulated(
            devices=list(self.devices),
            kernel_us=self.kernel_us,
            settings=self.settings,
            assumptions=[(a.name, f"{format_bytes(a.bytes)}: {a.note}") for a in machine.assumptions()],
        )
