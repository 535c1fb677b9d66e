"""What can and cannot be measured on a machine, and why: from facts that were read.

Every verdict has its evidence. Where a reading was not tried (nobody is on the card), it
is *not known*, never yes.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from gpumem_tui.records import Reason
from gpumem_tui.records.environment import CardFacts, DriverFacts, Surroundings, TorchFacts

ROCM = "ROCm: the system side reads NVIDIA's driver only; PyTorch's own counters work"
"""Why the driver's side is not available beside a HIP build."""


class Verdict(str, Enum):
    """Whether something can be measured. The values are stable."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    UNKNOWN = "not known"


class Ability(msgspec.Struct, frozen=True):
    """One thing that the product measures, and whether it can here."""

    what: str
    verdict: Verdict
    why: str
    """The evidence, or what stands in the way."""


class Report(msgspec.Struct, frozen=True):
    """The environment, and what follows from it."""

    surroundings: Surroundings
    driver: DriverFacts
    torch: TorchFacts
    abilities: tuple[Ability, ...]
    missing: tuple[str, ...]
    """What a measurement on a GPU needs and is not here, a sentence each; empty if all is there."""


def report(surroundings: Surroundings, driver: DriverFacts, torch: TorchFacts) -> Report:
    """Draw the conclusions."""
    abilities: tuple[Ability, ...] = (
        _counters(torch),
        _memory(driver),
        _reserved(driver),
        _processes(driver, surroundings),
        _identity(surroundings),
        _others(surroundings),
        _load(driver),
        _host(surroundings),
    )
    if torch.backend == "hip" and not driver.cards:
        abilities = tuple(
            msgspec.structs.replace(a, why=ROCM) if a.why == _no_cards(driver) else a for a in abilities
        )
    return Report(surroundings, driver, torch, abilities, tuple(_missing(surroundings, driver, torch)))


def _missing(surroundings: Surroundings, driver: DriverFacts, torch: TorchFacts) -> list[str]:
    found = []
    amd = any(path == "/dev/kfd" for path, _ in surroundings.device_files)
    if not driver.cards and not (amd and torch.backend == "hip"):
        found.append(f"no GPU: {_no_cards(driver)}")
    if torch.version is None:
        found.append(f"no PyTorch: {torch.python}: {torch.error or 'it has none'}")
    elif torch.backend == "cpu":
        found.append(
            f"PyTorch {torch.version} of {torch.python} is a CPU-only build: no memory of a GPU to show"
        )
    return found


def _no_cards(driver: DriverFacts) -> str:
    if driver.reason is None:
        return "the driver names no card"
    word = f": {driver.word}" if driver.word else ""
    mismatch = ""
    if driver.reason is Reason.DRIVER_MISMATCH and driver.module_version:
        mismatch = f" (the kernel module is {driver.module_version}; reboot, or reload it)"
    return f"{driver.reason.value}{word}{mismatch}"


def _counters(torch: TorchFacts) -> Ability:
    what = "allocated, cached, phases"
    if torch.version is None:
        return Ability(what, Verdict.NO, f"no PyTorch in {torch.python}: {torch.error or 'none'}")
    if torch.backend == "cpu":
        return Ability(what, Verdict.NO, f"PyTorch {torch.version} is a CPU-only build")
    if torch.devices == 0:
        return Ability(what, Verdict.NO, "PyTorch finds no device: torch.cuda.device_count() is 0")
    if torch.allocator == "pluggable":
        return Ability(what, Verdict.NO, "a pluggable allocator has no counters")
    name = "HIP" if torch.backend == "hip" else "CUDA"
    return Ability(
        what, Verdict.YES, f"PyTorch {torch.version} ({name}), allocator {torch.allocator or 'native'}"
    )


def _of_cards(
    what: str, driver: DriverFacts, faults: Sequence[tuple[CardFacts, str | None]], good: str
) -> Ability:
    """A reading of every card, by how each of them answered."""
    if not driver.cards:
        return Ability(what, Verdict.NO, _no_cards(driver))
    bad = [(card, why) for card, why in faults if why is not None]
    if not bad:
        return Ability(what, Verdict.YES, good)
    said = "; ".join(f"GPU {card.index}: {why}" for card, why in bad[:3])
    verdict = Verdict.NO if len(bad) == len(faults) else Verdict.PARTLY
    return Ability(what, verdict, said)


def _memory(driver: DriverFacts) -> Ability:
    cards = [card for card in driver.cards if not (card.mig and card.parent is None)] or list(driver.cards)
    ability = _of_cards(
        "memory of the cards", driver, [(card, card.memory_reason) for card in cards], "NVML memory"
    )
    if ability.verdict is not Verdict.YES and "not supported" in ability.why:
        hint = "; as on machines whose GPU shares the host's memory, which is never shown as the card's"
        return msgspec.structs.replace(ability, why=ability.why + hint)
    return ability


def _reserved(driver: DriverFacts) -> Ability:
    old = [
        (
            card,
            "the driver is older than version 2 of the call"
            if card.memory_version == 1
            else card.memory_reason,
        )
        for card in driver.cards
    ]
    return _of_cards("driver-reserved apart", driver, old, "NVML memory version 2")


def _processes(driver: DriverFacts, surroundings: Surroundings) -> Ability:
    what = "memory of each process"
    ability = _of_cards(what, driver, [(card, card.processes_reason) for card in driver.cards], "NVML")
    if ability.verdict is Verdict.NO and any(card.processes is not None for card in driver.cards):
        return msgspec.structs.replace(ability, verdict=Verdict.PARTLY)  # some of its lists can be read
    if ability.verdict is not Verdict.YES:
        return ability
    if surroundings.wsl:
        return Ability(
            what, Verdict.NO, "WSL: the Windows host does not tell; it is merged with what is outside"
        )
    listed = sum(card.processes or 0 for card in driver.cards)
    figures = sum(card.figures or 0 for card in driver.cards)
    if not listed:
        return Ability(what, Verdict.UNKNOWN, "the lists can be read, and nobody is on a card to be listed")
    if figures < listed:
        verdict = Verdict.PARTLY if figures else Verdict.NO
        return Ability(what, verdict, f"{figures} of {listed} listed processes have a figure")
    return Ability(what, Verdict.YES, f"{listed} listed, each with its figure")


def _identity(surroundings: Surroundings) -> Ability:
    what = "which process is ours"
    if surroundings.pid_namespace == "initial":
        return Ability(what, Verdict.YES, "the first pid namespace: pids are the driver's")
    if surroundings.pid_namespace is None:
        return Ability(what, Verdict.UNKNOWN, "/proc does not tell our pid namespace")
    why = (
        "a pid namespace of its own: where the driver names the host's pids, ranks are recognised by evidence"
    )
    return Ability(what, Verdict.PARTLY, why)


def _others(surroundings: Surroundings) -> Ability:
    what = "who others are"
    if surroundings.hidden_processes:
        return Ability(what, Verdict.NO, "/proc hides other users' processes (hidepid)")
    if surroundings.pid_namespace is None:
        return Ability(what, Verdict.NO, "/proc does not show even this process")
    if surroundings.pid_namespace == "own":
        return Ability(what, Verdict.PARTLY, "of this container only; others are kept as rows without a name")
    if not surroundings.root:
        return Ability(
            what, Verdict.PARTLY, "user and command, yes; their open device files and Slurm job as root only"
        )
    return Ability(what, Verdict.YES, "/proc")


def _load(driver: DriverFacts) -> Ability:
    return _of_cards(
        "utilisation, temperature, power, clocks",
        driver,
        [(card, card.load_reason) for card in driver.cards],
        "NVML",
    )


def _host(surroundings: Surroundings) -> Ability:
    if surroundings.memory_bytes is None:
        return Ability("host memory and its limit", Verdict.NO, "/proc/meminfo cannot be read")
    limit = "cgroup" if surroundings.cgroup_limit_bytes is not None else "no cgroup limit is visible"
    return Ability("host memory and its limit", Verdict.YES, f"/proc/meminfo, {limit}")
