"""From the models to one frozen ``RunState``: joins ranks with devices, and pairs their readings."""

from collections.abc import Callable, Mapping

import msgspec

from gpumem_tui.analysis.foresight import Foresight, foresee
from gpumem_tui.analysis.identity import Claim
from gpumem_tui.analysis.ledger import Counters, ledger
from gpumem_tui.analysis.rankstate import Life, PhaseRow, RankState, Series
from gpumem_tui.analysis.state import Curve, DeviceState, ProcessRow, RunFacts
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.journal.simstate import read_peaks
from gpumem_tui.records import Processes, Reason
from gpumem_tui.records.ending import Ending
from gpumem_tui.session.driver import STALE_NS, DriverModel, GpuModel, missing_reading, reason_of
from gpumem_tui.session.identity import identity_of
from gpumem_tui.session.life import RunLife
from gpumem_tui.session.rank import RankModel
from gpumem_tui.session.recognition import Recognition
from gpumem_tui.units import GIB, format_bytes

TOLERANCE_NS = 300_000_000
"""An allocator's and a driver's reading further apart than this are not one moment; the skew is shown."""

Who = tuple[int, int | None]


class Picture:
    """Makes the parts of one ``RunState``; thrown away afterwards."""

    def __init__(
        self,
        now_ns: int,
        moment_ns: int | None,
        driver: DriverModel,
        ranks: Mapping[Who, RankModel],
        alive: Callable[[Who], bool],
        recognition: Recognition,
        stale_ns: int = STALE_NS,
        ending: Callable[[Who], Ending | None] = lambda who: None,
    ) -> None:
        self._now_ns, self._over, self._moment_ns = now_ns, moment_ns is not None, moment_ns
        self._driver = driver
        ordered = sorted(
            ranks.items(), key=lambda item: (item[1].number is None, item[1].number or 0, item[0][0])
        )
        self._models = [model for _, model in ordered]
        self._alive = {id(model): moment_ns is None and alive(who) for who, model in ordered}
        self._endings = {id(model): ending(who) for who, model in ordered if not self._alive[id(model)]}
        self._recognition = recognition
        self._stale_ns = stale_ns
        self._ordinals: dict[tuple[int, int], int | None] = {}

    def _ordinal_on(self, model: RankModel, gpu: GpuModel) -> int | None:
        """As ``ordinal_on``, which is asked of every rank and device, several times a picture."""
        key = (id(model), gpu.gpu.index)
        if key not in self._ordinals:
            self._ordinals[key] = ordinal_on(model, gpu)
        return self._ordinals[key]

    def ranks(self) -> tuple[RankState, ...]:
        """Every process that has a journal, by rank."""
        return tuple(
            m.state(self._now_ns, self._alive[id(m)], self._over, self._endings.get(id(m)))
            for m in self._models
        )

    def phases(self) -> tuple[PhaseRow, ...]:
        """The phase tables of all ranks."""
        return tuple(row for model in self._models for row in model.rows())

    # --- devices ------------------------------------------------------------------------------

    def devices(self) -> tuple[DeviceState, ...]:
        """The driver's devices, then those that only a rank knows of."""
        found = [self._device(gpu) for _, gpu in sorted(self._driver.gpus.items())]
        return (*found, *self._unjoined())

    def _shares(self, gpu: GpuModel, moment_ns: int | None) -> list[Counters]:
        """Our processes on a device: those that use it, and those that the driver names there."""
        processes = gpu.list_at(self._moment_ns)
        listed = {row[0] for row in processes.rows} if processes is not None else set()
        shares, ours = [], set()
        for model in self._models:
            claim = self._recognition.claim(gpu, model, listed)
            ordinal = self._ordinal_on(model, gpu)
            if ordinal is None and claim is not None:
                ordinal = self._ordinal_of_kin(model, gpu)
            uses = ordinal is not None and model.device(ordinal).used
            if claim is None and not (uses and self._still_holds(model)):
                continue
            if ordinal is None:
                counters = Counters(model.pid, model.number, None, None, None, Reason.NOT_READ_YET)
            else:
                counters = model.counters(ordinal, moment_ns)
            if claim is not None:
                ours.add(claim.pid)
                counters = _as_listed(counters, claim)
            shares.append(counters)
        shares += [
            Counters(pid, None, None, None, None, Reason.UNKNOWN)
            for pid in sorted((self._driver.tree_pids() & listed) - ours)
        ]
        return shares

    def _ordinal_of_kin(self, model: RankModel, gpu: GpuModel) -> int | None:
        """Of a process that is listed here: its ordinal of this card's instance, or of this one's card."""
        kin = [
            other
            for other in self._driver.gpus.values()
            if gpu.gpu.index == other.gpu.parent or gpu.gpu.parent == other.gpu.index
        ]
        found = {ordinal for other in kin if (ordinal := self._ordinal_on(model, other)) is not None}
        return found.pop() if len(found) == 1 else None

    def _still_holds(self, model: RankModel) -> bool:
        """Whether it counts where the driver cannot say: a process that is over holds nothing."""
        if self._moment_ns is not None:
            return model.spoke_ns >= self._moment_ns
        return self._alive[id(model)] and not model.bye

    def _device(self, gpu: GpuModel) -> DeviceState:
        reading = gpu.reading(self._now_ns, self._moment_ns, self._driver.names, self._stale_ns)
        moment_ns = reading.processes_t_ns if reading.processes_t_ns is not None else reading.t_ns
        book = ledger(reading, self._shares(gpu, moment_ns), TOLERANCE_NS)
        curves: list[Curve] = []
        total = None
        for model in self._models:
            ordinal = self._ordinal_on(model, gpu)
            if ordinal is not None and model.device(ordinal).used:
                curves.append(model.curve(ordinal))
                facts = model.device(ordinal).facts
                total = facts.total_bytes if facts is not None else total
        load = gpu.load
        return DeviceState(
            index=gpu.gpu.index,
            uuid=gpu.uuid,
            parent=gpu.gpu.parent,
            name=gpu.gpu.name,
            pci=gpu.gpu.pci,
            ledger=book,
            utilization=load.utilization if load else None,
            temperature=load.temperature if load else None,
            power_mw=load.power_mw if load else None,
            load_reason=reason_of(load.reason) if load else Reason.NOT_READ_YET,
            driver_used=gpu.used.series(),
            curves=tuple(curves),
            ours=bool(book.ranks),
            torch_total_bytes=total,
            driver_version=gpu.gpu.driver_version,
        )

    def _unjoined(self) -> list[DeviceState]:
        """Devices of ranks that no reading of the driver belongs to."""
        reason = self._driver.reason or (Reason.UNKNOWN if self._driver.gpus else Reason.NOT_READ_YET)
        groups: dict[tuple[str | None, int], list[tuple[RankModel, int]]] = {}
        for model in self._models:
            for ordinal, device in sorted(model.devices.items()):
                joined = any(self._ordinal_on(model, gpu) == ordinal for gpu in self._driver.gpus.values())
                if device.used and not joined:
                    uuid = device.facts.uuid if device.facts else None
                    groups.setdefault((uuid, ordinal if uuid is None else -1), []).append((model, ordinal))
        states = []
        for (uuid, _), members in groups.items():
            model, ordinal = members[0]
            facts = model.device(ordinal).facts
            book = ledger(
                missing_reading(reason),
                [m.counters(o, None) for m, o in members if self._still_holds(m)],
                TOLERANCE_NS,
            )
            states.append(
                DeviceState(
                    index=ordinal,
                    uuid=uuid,
                    name=facts.name if facts else None,
                    pci=facts.pci if facts else None,
                    ledger=book,
                    utilization=None,
                    temperature=None,
                    power_mw=None,
                    load_reason=reason,
                    driver_used=Series.empty(),
                    curves=tuple(m.curve(o) for m, o in members),
                    ours=True,
                    torch_total_bytes=facts.total_bytes if facts else None,
                )
            )
        return states

    # --- processes ----------------------------------------------------------------------------

    def processes(self) -> tuple[ProcessRow, ...]:
        """Every row of every device's last readable process list."""
        tree = self._driver.tree_pids()
        rows = []
        on_instances = {
            (gpu.gpu.parent, pid) for gpu in self._driver.gpus.values() if gpu.gpu.parent is not None
            for pid in gpu.holdings
        }  # fmt: skip
        for index, gpu in sorted(self._driver.gpus.items()):
            listed = gpu.listed if self._moment_ns is None else gpu.list_at(self._moment_ns)
            if listed is None:
                continue
            ours = self._recognised(gpu, listed)
            for pid, used, kind, reason in listed.rows:
                if (index, pid) in on_instances:
                    continue
                known = self._driver.names.get(pid)
                model, claim = ours.get(pid, (None, None))
                holding = gpu.holdings.get(pid)
                rows.append(
                    ProcessRow(
                        device=index,
                        pid=pid,
                        rank=model.number if model is not None else None,
                        ours=model is not None or pid in tree,
                        name=(known.name if known else None) or "",
                        user=(known.user if known else None) or "",
                        command=(known.command if known else None) or "",
                        used_bytes=used,
                        reason=(reason_of(reason) or Reason.NOT_SUPPORTED) if used is None else None,
                        growth_bytes=holding.growth_bytes(self._now_ns) if holding is not None else None,
                        since_ns=min(gpu.appeared_ns.get(pid, listed.t_ns), listed.t_ns),
                        visible=known.visible if known else True,
                        kind=kind,
                        rss_bytes=self._driver.rss_bytes(pid),
                        identified_by=claim.by.value if claim is not None else None,
                        container=known.container if known else None,
                        job=known.job if known else None,
                    )
                )
        return tuple(rows)

    def _recognised(self, gpu: GpuModel, listed: Processes) -> dict[int, tuple[RankModel, Claim]]:
        """Whose each row of a list is, of those that are ranks of ours."""
        pids = {row[0] for row in listed.rows}
        found = {}
        for model in self._models:
            claim = self._recognition.claim(gpu, model, pids)
            if claim is not None:
                found[claim.pid] = (model, claim)
        return found


def _as_listed(counters: Counters, claim: Claim) -> Counters:
    """Under the pid by which the driver knows the process."""
    if claim.pid == counters.pid:
        return counters
    return msgspec.structs.replace(counters, pid=claim.pid, recognised_by=claim.by.value)


def ordinal_on(model: RankModel, gpu: GpuModel) -> int | None:
    """What a process calls that device; on evidence only: UUID, else PCI address."""
    for ordinal, device in model.devices.items():
        facts = device.facts
        if facts is None:
            continue
        if facts.uuid and gpu.uuid:
            if facts.uuid.lower() == gpu.uuid.lower():
                return ordinal
        elif facts.pci and facts.pci == gpu.gpu.pci:
            return ordinal
    return None


def facts_of(
    file: RunFile,
    run: RunDirectory,
    life: RunLife,
    run_life: Life,
    keeper: Life,
    recorder: Life,
    moment: str | None,
    moment_ns: int | None,
) -> RunFacts:
    """Who the run is, from run.json and how far it has come."""
    endings = life.endings()
    over = run_life in (Life.ENDED, Life.FAILED, Life.LOST)
    simulated = None
    if file.simulated is not None:
        simulated = _cards(file.simulated.devices)
    return RunFacts(
        run=file.run,
        path=str(run.path),
        command=tuple(file.command),
        host=file.host,
        user=file.user,
        started_wall_ns=file.wall_ns,
        started_ns=file.t_ns,
        life=run_life,
        ending=life.sentence(),
        exit_code=max((e.shell_code() for _, e in endings), default=None) if over else None,
        ended_ns=max((t for t, _ in endings), default=None) if over else None,
        interactive=file.interactive,
        simulated=simulated,
        assumptions=tuple(file.simulated.assumptions) if file.simulated is not None else (),
        recorded=file.recorded,
        labels=tuple(file.labels.items()),
        recorder=recorder,
        keeper=keeper,
        live=not over,
        moment=moment,
        moment_ns=moment_ns,
        foresight=foresight_of(file, run),
        identity=identity_of(file),
    )


def foresight_of(file: RunFile, run: RunDirectory) -> tuple[Foresight, ...]:
    """What real cards would need, from the peaks that the simulated ones keep."""
    if file.simulated is None:
        return ()
    return tuple(foresee(peak) for peak in read_peaks(run.simcard_file) if peak.used_bytes)


def _cards(devices: list[int]) -> str:
    """``2 × 24 GiB``, or a list where they differ."""

    def size(value: int) -> str:
        return f"{value // GIB} GiB" if value % GIB == 0 else format_bytes(value)

    if len(set(devices)) == 1:
        return f"{len(devices)} × {size(devices[0])}"
    return ", ".join(map(size, devices))
