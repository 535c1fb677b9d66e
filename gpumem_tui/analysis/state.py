"""What a view receives: one frozen picture of a run at one moment. Data only.

``session`` builds it from a recording; views draw it and reach nothing behind it.
All times are nanoseconds of the recording node's monotonic clock; ``RunState.now_ns``
is the moment the picture stands for, so every age is ``now_ns − t_ns``.
"""

from enum import Enum

import msgspec

from gpumem_tui.analysis.failurestate import FailureState, MapState
from gpumem_tui.analysis.findings.finding import Finding
from gpumem_tui.analysis.foresight import Foresight
from gpumem_tui.analysis.ledger import Ledger
from gpumem_tui.analysis.provenance import Identity
from gpumem_tui.analysis.rankstate import Life, PhaseRow, RankState, Series
from gpumem_tui.records import Reason


class Severity(str, Enum):
    """How loudly an event is shown."""

    INFO = "info"
    WARNING = "warning"
    FAILURE = "failure"


class RunFacts(msgspec.Struct, frozen=True):
    """Who this run is."""

    run: str
    """Name of the run, as ``attach`` takes it."""
    path: str
    command: tuple[str, ...]
    host: str
    user: str
    started_wall_ns: int
    started_ns: int
    life: Life
    ending: str | None
    """One clause on how it ended: "exit code 3", "killed by SIGKILL"; None while it runs."""
    exit_code: int | None
    ended_ns: int | None
    interactive: bool
    """Ran on a pty of its own, with an output log; otherwise its output went where it always goes."""
    simulated: str | None
    """"2 × 24 GiB" where the cards are simulated; every screen says so."""
    assumptions: tuple[tuple[str, str], ...]
    """What the simulated card assumes: (name, value with unit)."""
    recorded: bool
    """A bundled recording that stands in for a live run; every screen says RECORDED."""
    labels: tuple[tuple[str, str], ...]
    recorder: Life
    keeper: Life
    live: bool
    """Followed as it grows, as opposed to replayed."""
    played: bool = False
    """Shown as if it went on, long after: there is nothing to stop, to type into or to come back to."""
    moment: str | None = None
    """What the ledgers of an ended run show: "at the out-of-memory error of rank 0"; None while it runs."""
    moment_ns: int | None = None
    foresight: tuple[Foresight, ...] = ()
    """What a real card would need, for each simulated device; empty where the cards are real."""
    identity: Identity | None = None
    """What run.json says beyond this; None in pictures that no recording stands behind."""

    @property
    def over(self) -> bool:
        """Whether nobody is left who could be asked, stopped or typed to."""
        return self.played or not self.live or self.ended_ns is not None


class Curve(msgspec.Struct, frozen=True):
    """The allocator's history of one rank on one device."""

    pid: int
    rank: int | None
    allocated: Series
    reserved: Series


class DeviceState(msgspec.Struct, frozen=True):
    """One device of the node."""

    index: int
    """NVML's index; None of CUDA's ordinals."""
    uuid: str | None
    name: str | None
    pci: str | None
    ledger: Ledger
    utilization: int | None
    temperature: int | None
    power_mw: int | None
    load_reason: Reason | None
    driver_used: Series
    """total − free, as the driver says."""
    curves: tuple[Curve, ...]
    ours: bool
    """Whether a rank of this run holds it."""
    torch_total_bytes: int | None
    """What cudaMemGetInfo calls total; differs from NVML's by the reserved share."""
    parent: int | None = None
    """Index of the card whose MIG instance this is; None for a card."""
    driver_version: str | None = None


class ProcessRow(msgspec.Struct, frozen=True):
    """A process on one device, ours or not."""

    device: int
    pid: int
    rank: int | None
    ours: bool
    name: str
    user: str
    command: str
    used_bytes: int | None
    reason: Reason | None
    growth_bytes: int | None
    """Change over the last minute; None where it was not seen that long."""
    since_ns: int
    """When it was first seen on this device."""
    visible: bool
    kind: str
    rss_bytes: int | None
    identified_by: str | None = None
    """How a rank was recognised (a value of ``identity.Evidence``); None for everybody else."""
    container: str | None = None
    """Its container's id or kind, by its cgroup."""
    job: str | None = None
    """Its Slurm job, where /proc tells."""


class OutsideStep(msgspec.Struct, frozen=True):
    """A change of memory outside PyTorch, between two quiet readings, and what was going on meanwhile."""

    since_ns: int
    t_ns: int
    bytes: int
    """Signed."""
    phases: tuple[str, ...]
    """Phases that were open in between, outermost and earliest first; empty: outside every phase."""
    marks: tuple[str, ...]


class OutsideState(msgspec.Struct, frozen=True):
    """Memory outside PyTorch of one rank on one device over time, from paired readings at quiet moments.

    Ranks of which the driver gives no figure have none.
    """

    device: int
    pid: int
    rank: int | None
    baseline_bytes: int
    """The first paired reading after CUDA was initialised."""
    baseline_ns: int
    bytes: int
    t_ns: int
    steps: tuple[OutsideStep, ...]
    """Oldest first, the latest few."""


class Event(msgspec.Struct, frozen=True):
    """Something that happened, in one line."""

    t_ns: int
    severity: Severity
    text: str
    rank: int | None = None
    device: int | None = None
    output_offset: int | None = None
    more: int = 0
    """Further events right after it, of a long run, that nobody keeps one by one."""


class HostState(msgspec.Struct, frozen=True):
    """Memory of the node, and of the workload on it. Never shown as device memory."""

    t_ns: int
    total_bytes: int | None
    available_bytes: int | None
    cgroup_bytes: int | None
    cgroup_limit_bytes: int | None
    workload_rss_bytes: int | None


class Health(msgspec.Struct, frozen=True):
    """What the recording itself lost or could not read."""

    corrupt_lines: int = 0
    unknown_lines: int = 0
    dropped: int = 0
    notes: tuple[str, ...] = ()


SEVERAL = "several"
"""The phase of a band that stands for short ones of more than one phase."""


class Band(msgspec.Struct, frozen=True):
    """A span of a phase as the charts show it: one band of one rank.

    Short ones of long ago are joined: a band of ``SEVERAL`` has their phases as its name.
    """

    pid: int
    rank: int | None
    phase: str
    name: str
    depth: int
    """0 is outermost."""
    since_ns: int
    until_ns: int | None
    """None while it is open."""
    step: int | None
    error: str | None = None


class Alert(msgspec.Struct, frozen=True):
    """A trend or a neighbour that threatens a run, while it still runs."""

    t_ns: int
    severity: Severity
    text: str
    """One sentence with numbers: "rank 1 grows by 12.0 MiB a step: 84 steps left"."""
    finding: Finding
    rank: int | None = None
    device: int | None = None
    """Position in ``RunState.devices``."""


class RunState(msgspec.Struct, frozen=True):
    """The whole picture."""

    facts: RunFacts
    now_ns: int
    devices: tuple[DeviceState, ...]
    ranks: tuple[RankState, ...]
    phases: tuple[PhaseRow, ...]
    processes: tuple[ProcessRow, ...]
    events: tuple[Event, ...]
    """Oldest first, the latest few hundred up to the moment of this picture."""
    host: HostState | None
    output_bytes: int | None
    """Size of the output log; None where there is none."""
    health: Health
    driver_reason: Reason | None
    """Why there is no driver reading at all, where that is so."""
    failures: tuple[FailureState, ...] = ()
    """By time; the first cause first where one ended the run. Caught ones too, the latest hundred."""
    alerts: tuple[Alert, ...] = ()
    """Gravest first; empty for a run that has ended."""
    coarse: bool = False
    """Of a moment of the past: its stretch can be read more finely than these curves and bands tell."""
    unread_before_ns: int | None = None
    """Curves and bands before this moment have not been read yet; None where everything has been."""
    bands: tuple[Band, ...] = ()
    """Spans of phases as far back as the charts reach, oldest first."""
    outside: tuple[OutsideState, ...] = ()
    """Memory outside PyTorch over time, one for each rank and device with paired readings."""
    maps: tuple[MapState, ...] = ()
    """The latest of each rank and device, that somebody asked for while it ran."""
    marked: tuple[Event, ...] = ()
    """Warnings and failures alone, oldest first, the latest few hundred; of the past: of its stretch too."""
    earlier_events: int = 0
    """How many events were before the first of ``events``; a look into the past has them."""
    next_event_ns: int | None = None
    """Of a moment of the past: when the first event after it was."""
