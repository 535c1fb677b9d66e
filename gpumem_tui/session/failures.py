"""The failures of a run: each with its record, its device at that instant, its part, its findings.

Takes the same records as the other models, as they come. A failing allocation is a
candidate until it is known what became of it: a program that computes on has caught
it. A process that was killed says nothing; that it did not say goodbye, how its keeper
saw it end, and what the kernel counted is what tells of it (``endings``).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpumem_tui import records
from gpumem_tui.analysis.failurestate import ENDS, FailureState, Outcome, Part
from gpumem_tui.analysis.findings import Kind, Situation, diagnose
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import DeviceState, ProcessRow
from gpumem_tui.errors import UnreadableRecording
from gpumem_tui.journal.failurefile import read_failure
from gpumem_tui.records.ending import Ending
from gpumem_tui.records.failure import FailureRecord
from gpumem_tui.session import echoes, endings, lost, outcomes, scenes, situations
from gpumem_tui.session.course import DeviceCourse, RankCourse
from gpumem_tui.session.driver import DriverModel, GpuModel
from gpumem_tui.session.echoes import Failed
from gpumem_tui.session.kept import kept_since
from gpumem_tui.session.life import KeeperModel
from gpumem_tui.session.outside import Outside
from gpumem_tui.session.picture import ordinal_on
from gpumem_tui.session.rank import RankModel
from gpumem_tui.session.recognition import Recognition
from gpumem_tui.session.said import said_by
from gpumem_tui.session.scenes import Scene

Who = tuple[int, int | None]

MOST = 100
"""Failures kept: the latest."""

PROCESSES = 4096
"""Processes of the workload's tree that are remembered."""

SETTLED_NS = 3_000_000_000
"""So long after a failure, nothing more comes that would change what is known of its moment."""

_ON_DEVICE = (Kind.ALLOCATOR, Kind.REJECTED, Kind.IMPOSSIBLE, Kind.OUTSIDE, Kind.NVML_ASSERT)
"""Kinds that are of a device."""


@dataclass(frozen=True)
class Context:
    """What the book needs to know of the run now."""

    ranks: Mapping[Who, RankModel]
    driver: DriverModel
    recognition: Recognition
    outside: Mapping[tuple[int, Who], Outside]
    keepers: Sequence[KeeperModel]
    life: Life
    now_ns: int
    alive: Callable[[Who], bool]

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.life in (Life.ENDED, Life.FAILED, Life.LOST)


@dataclass
class FailureBook:
    """All failures of one run; asked for a picture, it says what is known now."""

    run: Path
    courses: dict[Who, RankCourse] = field(default_factory=dict)
    devices: dict[int, DeviceCourse] = field(default_factory=dict)
    tree_ns: dict[int, int] = field(default_factory=dict)
    """When a process was last seen in the workload's tree."""
    _failed: list[Failed] = field(default_factory=list)
    _signs: endings.Signs = field(default_factory=endings.Signs)
    _raised_ns: dict[Who, int] = field(default_factory=dict)
    """When a process ended by an exception that nobody caught."""

    # --- as records come ----------------------------------------------------------------------

    def of_rank(self, who: Who, record: object) -> None:
        """A line of a rank's journal."""
        if isinstance(record, records.Sample):  # most of what there is, and nothing here is made of it
            return
        self.course(who).take(record)
        if isinstance(record, records.Begin | records.End | records.Spans):
            self.moved(who, record.t_ns)
        elif isinstance(record, records.Stall):
            self._signs.stalls[who] = record
        elif isinstance(record, records.Failure):
            self._keep(Failed(record, who))
        elif isinstance(record, records.UncaughtException):
            if record.thread is None and not echoes.is_retold(record):
                self._raised_ns[who] = record.t_ns
            known = [f for f in self._failed if f.who == who and f.line.path == record.path]
            if known and record.path is not None:
                known[-1].uncaught, known[-1].thread = record.thread is None, record.thread
            else:
                self._keep(Failed(record, who, uncaught=record.thread is None, thread=record.thread))

    def moved(self, who: Who, t_ns: int) -> None:
        """A phase of a process began or ended."""
        if self._signs.stalls:
            self._signs.moved(who, t_ns)

    def _keep(self, failed: Failed) -> None:
        self._failed.append(failed)
        if len(self._failed) > 2 * MOST:
            del self._failed[: len(self._failed) - MOST]

    def of_driver(self, record: object) -> None:
        """A line of the driver's journal."""
        match record:
            case records.Processes():
                self.device(record.index).take_list(record)
            case records.Tree():
                for row in record.rows:
                    self.tree_ns.pop(row[0], None)  # so that the oldest stand first
                    self.tree_ns[row[0]] = record.t_ns
                while len(self.tree_ns) > max(PROCESSES, len(record.rows)):
                    del self.tree_ns[next(iter(self.tree_ns))]
            case records.Kill():
                self._signs.kills.append(record)
            case records.Gone():
                self._signs.gone[record.pid, record.started_ticks] = record
                if len(self._signs.gone) > PROCESSES:
                    del self._signs.gone[next(iter(self._signs.gone))]

    def course(self, who: Who) -> RankCourse:
        """Of a process."""
        found = self.courses.get(who)
        if found is None:
            found = self.courses[who] = RankCourse()
        return found

    def device(self, index: int) -> DeviceCourse:
        """Of a device, by the driver's index."""
        return self.devices.setdefault(index, DeviceCourse())

    # --- what is known now --------------------------------------------------------------------

    def first_end(self, now: Context) -> tuple[int, RankModel] | None:
        """When and where memory first ran out for good; None where it did not, or was caught."""
        ended = [
            failed
            for failed in self._failed
            if failed.line_kind != Kind.EXCEPTION.value and self._outcome(failed, now) in ENDS
        ]
        first = min(ended, key=lambda failed: failed.line.t_ns, default=None)
        return None if first is None else (first.line.t_ns, now.ranks[first.who])

    def ending(self, who: Who, now: Context) -> Ending | None:
        """How its keeper or the kernel saw a process end; None where neither tells."""
        end = endings.exit_of(who, now.ranks[who], now.keepers, self._signs)
        return Ending(end.code, end.signal) if end is not None else None

    def states(self, now: Context, devices: Sequence[DeviceState]) -> tuple[FailureState, ...]:
        """By time, each with its part among the ranks. ``devices`` are those of the picture."""
        latest = sorted(self._failed[-MOST:], key=lambda failed: failed.line.t_ns)
        latest = echoes.joined(latest)
        found = [self._failure(each, now, devices) for each in latest]
        found = [endings.as_victim(state, found) for state in found]
        found = outcomes.without_doubtful(latest, found)
        dead = lost.killed(now.ranks, now.driver, self._signs) if now.life is not Life.ENDED else []
        found = [lost.as_following(state, dead) for state in found]

        def silent() -> list[FailureState]:
            return endings.silent_ends(now.ranks, now.driver, now.keepers, self._signs, found, now)

        by_themselves = [state for state in silent() if not endings.was_asked(state)]
        found += lost.failures(dead, [*found, *by_themselves], now.life is Life.FAILED, now.driver)
        found += silent()  # of those that a worker without a journal took along, too
        gone = {model.pid for who, model in now.ranks.items() if model.bye or not now.alive(who)}
        return outcomes.with_parts(sorted(found, key=lambda state: state.t_ns), gone)

    def _failure(self, failed: Failed, now: Context, devices: Sequence[DeviceState]) -> FailureState:
        outcome, ending = self._outcome(failed, now), self.ending(failed.who, now)
        code = ending.code if ending is not None else None
        if failed.state is not None:
            return msgspec.structs.replace(failed.state, outcome=outcome, exit_code=code)
        self._read(failed)
        state = msgspec.structs.replace(self._look(failed, outcome, now, devices), exit_code=code)
        after_ns = failed.line.t_ns + SETTLED_NS
        settled = now.over or now.driver.spoke_ns >= after_ns
        if settled and (failed.complete or now.now_ns >= after_ns):
            failed.state = state
        return state

    def _read(self, failed: Failed) -> None:
        """The record's file; read again while it is not yet whole."""
        path = failed.line.path
        if failed.complete:
            return
        if path is None:
            failed.file_reason = "not written: the disk refused it, or there were too many"
            return
        if Path(path).parent != Path("failures"):  # a journal is data: it does not choose what we open
            failed.file_reason = f"{path}: not in failures/"
            return
        try:
            failed.file = read_failure(self.run / path)
        except UnreadableRecording as error:
            failed.file_reason = str(error)
            return
        failed.file_reason = None
        failed.complete = "not looked into yet" not in failed.file.missing.values()

    def _look(
        self, failed: Failed, outcome: Outcome, now: Context, devices: Sequence[DeviceState]
    ) -> FailureState:
        line, model, file = failed.line, now.ranks[failed.who], failed.file
        ordinal, requested, said = None, None, None
        if isinstance(line, records.Failure):
            ordinal, requested = line.ordinal, line.requested_bytes
        else:
            ordinal = file.ordinal if file is not None else None
            said = said_by(line) if failed.source is None else echoes.told_again(failed, failed.source)
        gpu = _gpu_of(model, ordinal, now.driver)
        phases = _phases(line, file, model)
        scene = Scene(
            t_ns=line.t_ns,
            model=model,
            course=self.course(failed.who),
            ordinal=ordinal,
            gpu=gpu,
            device=self.device(gpu.gpu.index) if gpu is not None else DeviceCourse(),
            driver=now.driver,
            tree_ns=self.tree_ns,
            others=[m for m in scenes.models_of(now.ranks) if m is not model],
            record=file,
            requested_bytes=requested,
            said=said,
            phases=phases,
            free_elsewhere=_unused(now, gpu),
            recognition=now.recognition,
            outside=now.outside.get((gpu.gpu.index, failed.who)) if gpu is not None else None,
        )
        reading = scenes.reading_of(scene)
        book = scenes.ledger_of(scene, reading)
        facts = situations.situation_of(scene, reading, book)
        if ordinal is not None:
            kept = kept_since(failed, self._failed, scene.course, model, ordinal)
            facts = msgspec.structs.replace(facts, kept=kept)
        if facts.kind is Kind.EXCEPTION:
            facts = msgspec.structs.replace(facts, caught_seconds=self._caught_before(failed))
        return FailureState(
            t_ns=line.t_ns,
            kind=failed.line_kind,
            headline=_headline(model, gpu, line, facts, ordinal),
            pid=model.pid,
            rank=model.number,
            part=Part.ALONE if failed.source is None else Part.VICTIM,
            outcome=outcome,
            device=_position(devices, gpu, model),
            ordinal=ordinal,
            requested_bytes=requested,
            phase=" > ".join(phases) or None,
            step=line.step,
            record=file,
            record_reason=failed.file_reason,
            ledger=book if gpu is not None else None,
            others=scenes.others_of(scene),
            findings=diagnose(facts),
            thread=failed.thread,
        )

    def _caught_before(self, failed: Failed) -> float | None:
        """How long before an exception memory had run out, where no phase of work has begun since."""
        worked_ns, until_ns = self.course(failed.who).worked_ns, failed.line.t_ns
        past = [each.line for each in self._failed if each.who == failed.who]
        told = [line.t_ns for line in past if isinstance(line, records.Failure)]
        last_ns = max((t_ns for t_ns in told if worked_ns <= t_ns < until_ns), default=None)
        return (until_ns - last_ns) / 1e9 if last_ns is not None else None

    def _outcome(self, failed: Failed, now: Context) -> Outcome:
        who, model = failed.who, now.ranks[failed.who]
        return outcomes.of(
            failed,
            outcomes.Afterwards(
                went_on=self.course(who).worked_ns > failed.line.t_ns,
                spoke_ns=model.spoke_ns,
                ended_well=now.life is Life.ENDED,
                raised_ns=self._raised_ns.get(who),
                said_goodbye=model.bye,
                gone=now.over or not now.alive(who),
                end=endings.exit_of(who, model, now.keepers, self._signs),
                last_word=model.last_word,
            ),
        )


def as_it_was_read(
    failures: Sequence[FailureState],
    moment_ns: int | None,
    devices: tuple[DeviceState, ...],
    processes: tuple[ProcessRow, ...],
) -> tuple[tuple[DeviceState, ...], tuple[ProcessRow, ...]]:
    """At the moment of a failure, its device is shown as the failing process itself has read it just then."""
    for failure in failures:
        read = failure.record is not None and failure.record.driver is not None
        if failure.t_ns != moment_ns or not read or failure.device is None or failure.ledger is None:
            continue
        at, book = failure.device, failure.ledger
        device = msgspec.structs.replace(devices[at], ledger=book)
        devices = (*devices[:at], device, *devices[at + 1 :])
        used = {share.pid: share.used.bytes for share in book.ranks}
        used |= {share.pid: share.used.bytes for share in book.others}
        processes = tuple(
            msgspec.structs.replace(row, used_bytes=used[row.pid], reason=None)
            if row.device == device.index and used.get(row.pid) is not None
            else row
            for row in processes
        )
    return devices, processes


def _phases(
    line: records.Failure | records.UncaughtException, file: FailureRecord | None, model: RankModel
) -> tuple[str, ...]:
    """Open phases, outermost first."""
    if file is not None and file.phases:
        return tuple(phase.phase for phase in file.phases)
    if line.phase:
        return tuple(line.phase.split(" > "))
    # a phase in which CUDA was initialised is known only when it has ended
    return tuple(band.phase for band in model.bands.open_at(line.t_ns))


def _gpu_of(model: RankModel, ordinal: int | None, driver: DriverModel) -> GpuModel | None:
    if ordinal is None:
        return None
    return next((gpu for _, gpu in sorted(driver.gpus.items()) if ordinal_on(model, gpu) == ordinal), None)


def _position(devices: Sequence[DeviceState], gpu: GpuModel | None, model: RankModel) -> int | None:
    for position, device in enumerate(devices):
        if gpu is not None:
            if (device.index, device.uuid) == (gpu.gpu.index, gpu.gpu.uuid):
                return position
        elif any(curve.pid == model.pid for curve in device.curves):
            return position
    return None


def _unused(now: Context, here: GpuModel | None) -> int:
    """Devices of the node on which no rank of this run has had memory."""
    found = 0
    for gpu in now.driver.gpus.values():
        ordinals = [(model, ordinal_on(model, gpu)) for model in now.ranks.values()]
        used = any(o is not None and model.device(o).used for model, o in ordinals)
        found += not used and gpu is not here
    return found


def _headline(
    model: RankModel,
    gpu: GpuModel | None,
    line: records.Failure | records.UncaughtException,
    s: Situation,
    ordinal: int | None,
) -> str:
    """Who, where, what was asked, what was in the way."""
    where = (f" in {s.phase}" if s.phase else "") + (f", step {line.step}" if line.step is not None else "")
    if s.kind not in _ON_DEVICE:
        return f"{endings.name_of(model)} ended by an error{where}: {s.error}"
    device = f"GPU {gpu.gpu.index}" if gpu is not None else f"device {ordinal}"
    parts = [f"{s.requested.say()} wanted"] if s.requested is not None else []
    if s.free is not None:
        parts.append(f"{s.free.say()} free")
    if s.cap is not None:
        parts.append(f"{s.cap.say()} allowed")
    if s.holes is not None:
        parts.append(f"largest hole {s.holes.largest.say()}")
    what = "found no memory outside PyTorch" if s.kind is Kind.OUTSIDE else "ran out of memory"
    told = f": {', '.join(parts)}" if parts else ""
    return f"{endings.name_of(model)} {what} on {device}{where}{told}"
