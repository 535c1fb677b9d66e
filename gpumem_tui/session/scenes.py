"""Everything around one failure: its process, its device, the driver's reading and the ledger of that moment.

Figures of the failing process come from its own failure record, read within the
failing allocation; where it has none, from the samples and the driver's journal
closest to that moment. Nothing further away than :data:`NEAR_NS` stands for it.
Refuses to explain anything: ``situations`` makes facts of it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from gpumem_tui.analysis.failurestate import RankThen
from gpumem_tui.analysis.findings import Situation
from gpumem_tui.analysis.ledger import Counters, DriverProcess, DriverReading, Ledger, ledger
from gpumem_tui.records import Reason
from gpumem_tui.records.failure import FailureRecord
from gpumem_tui.session.course import DeviceCourse, RankCourse
from gpumem_tui.session.driver import DriverModel, GpuModel, missing_reading
from gpumem_tui.session.outside import Outside
from gpumem_tui.session.picture import TOLERANCE_NS, ordinal_on
from gpumem_tui.session.rank import RankModel
from gpumem_tui.session.recognition import Recognition

NEAR_NS = 3_000_000_000
"""A reading of the driver further from a failure than this does not stand for it."""


@dataclass(frozen=True)
class Scene:
    """Everything around one failure of one process."""

    t_ns: int
    model: RankModel
    course: RankCourse
    ordinal: int | None
    gpu: GpuModel | None
    device: DeviceCourse
    driver: DriverModel
    tree_ns: Mapping[int, int]
    """When a process was last in the workload's tree."""
    others: Sequence[RankModel]
    """The other processes of the workload."""
    record: FailureRecord | None
    requested_bytes: int | None
    said: Situation | None
    """What the exception's message says, where it is all that there is."""
    phases: tuple[str, ...]
    """Open phases, outermost first."""
    free_elsewhere: int
    recognition: Recognition
    outside: Outside | None
    """Of the failing process on this device."""

    def as_listed(self, model: RankModel, pids: Collection[int]) -> int:
        """The pid by which the driver knows a process, among those that it lists."""
        claim = self.recognition.claim(self.gpu, model, pids) if self.gpu is not None else None
        return claim.pid if claim is not None else model.pid

    @property
    def levels(self) -> tuple[int, int, int] | None:
        """(t_ns, allocated, reserved) of the failing process, after the flush where the record tells."""
        counters = self.record.counters if self.record is not None else None
        if counters is not None:
            allocated = counters.get("allocated_bytes.all.current")
            reserved = counters.get("reserved_bytes.all.current")
            if allocated is not None and reserved is not None:
                return self.t_ns, allocated, reserved
        if self.ordinal is None:
            return None
        level = self.model.device(self.ordinal).nearest(self.t_ns)
        return level if level is not None and abs(level[0] - self.t_ns) <= NEAR_NS else None


def reading_of(scene: Scene) -> DriverReading:
    """The driver's reading of that moment: the failing process's own, else the recorder's closest."""
    own = scene.record.driver if scene.record is not None else None
    names = scene.driver.names
    if own is not None and own.total_bytes is not None and own.free_bytes is not None:
        rows = tuple(
            DriverProcess(
                pid=holder.pid,
                used_bytes=holder.used_bytes,
                name=_named(holder.pid, scene) or holder.name or "",
                user=(names[holder.pid].user if holder.pid in names else None) or "",
                kind=holder.kind or "C",
                reason=Reason.NOT_SUPPORTED if holder.used_bytes is None else None,
                visible=names[holder.pid].visible if holder.pid in names else holder.name is not None,
            )
            for holder in own.processes or ()
        )
        return DriverReading(
            t_ns=own.t_ns,
            total_bytes=own.total_bytes,
            free_bytes=own.free_bytes,
            driver_reserved_bytes=own.driver_reserved_bytes,
            processes_t_ns=own.t_ns if own.processes is not None else None,
            processes=rows,
            processes_reason=Reason.NOT_SUPPORTED if own.processes is None else None,
        )
    gpu = scene.gpu
    if gpu is None:
        return missing_reading(scene.driver.reason or Reason.NOT_READ_YET)
    if not any(abs(memory.t_ns - scene.t_ns) <= NEAR_NS for memory in gpu.memories):
        return missing_reading(Reason.STALE, "no driver reading near that moment is kept")
    found = _brought_up(gpu.reading(scene.t_ns, scene.t_ns, names), scene)
    if found.processes_t_ns is None or abs(found.processes_t_ns - scene.t_ns) <= NEAR_NS:
        return found
    return DriverReading(
        t_ns=found.t_ns,
        total_bytes=found.total_bytes,
        free_bytes=found.free_bytes,
        driver_reserved_bytes=found.driver_reserved_bytes,
        reason=found.reason,
        detail=found.detail,
        processes_reason=Reason.STALE,
    )


def _brought_up(reading: DriverReading, scene: Scene) -> DriverReading:
    """A reading of another moment, with what is known of this one: free, and that its own row is too old."""
    free_bytes = scene.record.free_bytes if scene.record is not None else None
    if free_bytes is not None and reading.free_bytes is not None:
        reading = replace(reading, free_bytes=free_bytes)
    mine, level = scene.as_listed(scene.model, [row.pid for row in reading.processes]), scene.levels
    rows = tuple(
        replace(row, used_bytes=None, reason=Reason.STALE)
        if row.pid == mine and level is not None and row.used_bytes is not None and row.used_bytes < level[2]
        else row
        for row in reading.processes
    )
    return replace(reading, processes=rows)


def ledger_of(scene: Scene, reading: DriverReading) -> Ledger:
    """Where every byte of the device was at that moment."""
    listed = {row.pid for row in reading.processes}
    shares: list[Counters] = []
    for model in (scene.model, *scene.others):
        ordinal = scene.ordinal if model is scene.model else ordinal_in(model, scene)
        pid = scene.as_listed(model, listed)
        level = scene.levels if model is scene.model else level_at(model, ordinal, scene.t_ns)
        if model is scene.model or pid in listed or (level is not None and level[2] > 0):
            t_ns, allocated, reserved = level if level is not None else (None, None, None)
            reason = None if level is not None else Reason.STALE
            shares.append(Counters(pid, model.number, t_ns, allocated, reserved, reason))
    known = {share.pid for share in shares}
    shares += [
        Counters(pid, None, None, None, None, Reason.UNKNOWN)
        for pid in sorted(listed & scene.driver.once_in_tree - known)
    ]
    return ledger(reading, shares, TOLERANCE_NS)


def others_of(scene: Scene) -> tuple[RankThen, ...]:
    """The other ranks at that moment: what they were in, and held where they hold most."""
    found = []
    for model in scene.others:
        levels = [(ordinal, level_at(model, ordinal, scene.t_ns)) for ordinal in model.devices]
        held = [(level[2], ordinal, level) for ordinal, level in levels if level is not None and level[2]]
        _, ordinal, level = max(held, default=(0, None, None))
        bands = model.bands.open_at(scene.t_ns)
        found.append(
            RankThen(
                pid=model.pid,
                rank=model.number,
                phase=" > ".join(band.phase for band in bands) or None,
                step=bands[-1].step if bands else None,
                ordinal=ordinal,
                allocated_bytes=level[1] if level is not None else None,
                reserved_bytes=level[2] if level is not None else None,
                spoke_ns=min(model.spoke_ns, scene.t_ns),
            )
        )
    return tuple(found)


def ordinal_in(model: RankModel, scene: Scene) -> int | None:
    """What a process calls the scene's device."""
    return ordinal_on(model, scene.gpu) if scene.gpu is not None else None


def level_at(model: RankModel, ordinal: int | None, t_ns: int) -> tuple[int, int, int] | None:
    """(t_ns, allocated, reserved) of a process near a moment."""
    if ordinal is None:
        return None
    level = model.device(ordinal).nearest(t_ns)
    return level if level is not None and abs(level[0] - t_ns) <= NEAR_NS else None


def _named(pid: int, scene: Scene) -> str | None:
    known = scene.driver.names.get(pid)
    return known.name if known is not None else None


def models_of(ranks: Mapping[tuple[int, int | None], RankModel]) -> list[RankModel]:
    """By rank, those without one last."""
    return sorted(ranks.values(), key=lambda m: (m.number is None, m.number or 0, m.pid))
