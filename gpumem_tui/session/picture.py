"""From the models to one frozen ``RunState``: joins ranks with devices, and pairs their readings."""

from collections.abc import Callable, Mapping

from gpumem_tui.analysis.ledger import Counters, ledger
from gpumem_tui.analysis.state import (
    Curve,
    DeviceState,
    Life,
    PhaseRow,
    ProcessRow,
    RankState,
    RunFacts,
    Series,
)
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.records import Reason
from gpumem_tui.session.driver import DriverModel, GpuModel, missing_reading, reason_of
from gpumem_tui.session.life import RunLife
from gpumem_tui.session.rank import RankModel
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
    ) -> None:
        self._now_ns, self._over, self._moment_ns = now_ns, moment_ns is not None, moment_ns
        self._driver = driver
        ordered = sorted(
            ranks.items(), key=lambda item: (item[1].number is None, item[1].number or 0, item[0][0])
        )
        self._models = [model for _, model in ordered]
        self._alive = {id(model): moment_ns is None and alive(who) for who, model in ordered}
        self._inner = {  # what we call a process, for pids of another namespace
            known.namespace_pid: pid
            for pid, known in driver.names.items()
            if known.namespace_pid is not None and known.namespace_pid != pid
        }

    def ranks(self) -> tuple[RankState, ...]:
        """Every process that has a journal, by rank."""
        return tuple(m.state(self._now_ns, self._alive[id(m)], self._over) for m in self._models)

    def phases(self) -> tuple[PhaseRow, ...]:
        """The phase tables of all ranks."""
        return tuple(row for model in self._models for row in model.rows())

    # --- devices ------------------------------------------------------------------------------

    def devices(self) -> tuple[DeviceState, ...]:
        """The driver's devices, then those that only a rank knows of."""
        found = [self._device(gpu) for _, gpu in sorted(self._driver.gpus.items())]
        return (*found, *self._unjoined())

    def _driver_pid(self, model: RankModel) -> int:
        return self._inner.get(model.pid, model.pid)

    def _shares(self, gpu: GpuModel, moment_ns: int | None) -> list[Counters]:
        """Our processes on a device: those that use it, and those that the driver names there."""
        processes = gpu.list_at(self._moment_ns)
        listed = {row[0] for row in processes.rows} if processes is not None else set()
        shares = []
        for model in self._models:
            ordinal = ordinal_on(model, gpu)
            there = self._driver_pid(model) in listed
            uses = ordinal is not None and model.device(ordinal).used
            if not (there or (uses and self._still_holds(model))):
                continue
            if ordinal is None:
                counters = Counters(model.pid, model.number, None, None, None, Reason.NOT_READ_YET)
            else:
                counters = model.counters(ordinal, moment_ns)
            shares.append(self._as_listed(counters, model))
        ours = {self._driver_pid(model) for model in self._models}
        shares += [
            Counters(pid, None, None, None, None, Reason.UNKNOWN)
            for pid in sorted((self._driver.tree_pids() & listed) - ours)
        ]
        return shares

    def _still_holds(self, model: RankModel) -> bool:
        """Whether it counts where the driver cannot say: a process that is over holds nothing."""
        if self._moment_ns is not None:
            return model.spoke_ns >= self._moment_ns
        return self._alive[id(model)] and not model.bye

    def _as_listed(self, counters: Counters, model: RankModel) -> Counters:
        """Under the pid by which the driver knows the process."""
        pid = self._driver_pid(model)
        if pid == counters.pid:
            return counters
        return Counters(
            pid,
            counters.rank,
            counters.t_ns,
            counters.allocated_bytes,
            counters.reserved_bytes,
            counters.reason,
        )

    def _device(self, gpu: GpuModel) -> DeviceState:
        reading = gpu.reading(self._now_ns, self._moment_ns, self._driver.names)
        moment_ns = reading.processes_t_ns if reading.processes_t_ns is not None else reading.t_ns
        book = ledger(reading, self._shares(gpu, moment_ns), TOLERANCE_NS)
        curves: list[Curve] = []
        total = None
        for model in self._models:
            ordinal = ordinal_on(model, gpu)
            if ordinal is not None and model.device(ordinal).used:
                curves.append(model.curve(ordinal))
                facts = model.device(ordinal).facts
                total = facts.total_bytes if facts is not None else total
        load = gpu.load
        return DeviceState(
            index=gpu.gpu.index,
            uuid=gpu.gpu.uuid,
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
        )

    def _unjoined(self) -> list[DeviceState]:
        """Devices of ranks that no reading of the driver belongs to."""
        reason = self._driver.reason or (Reason.UNKNOWN if self._driver.gpus else Reason.NOT_READ_YET)
        groups: dict[tuple[str | None, int], list[tuple[RankModel, int]]] = {}
        for model in self._models:
            for ordinal, device in sorted(model.devices.items()):
                joined = any(ordinal_on(model, gpu) == ordinal for gpu in self._driver.gpus.values())
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
        ours = {self._driver_pid(model): model for model in self._models}
        rows = []
        for index, gpu in sorted(self._driver.gpus.items()):
            listed = gpu.listed if self._moment_ns is None else gpu.list_at(self._moment_ns)
            if listed is None:
                continue
            for pid, used, kind, reason in listed.rows:
                known = self._driver.names.get(pid)
                model = ours.get(pid)
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
                        since_ns=holding.since_ns if holding is not None else listed.t_ns,
                        visible=known.visible if known else True,
                        kind=kind,
                        rss_bytes=self._driver.rss_bytes(pid),
                    )
                )
        return tuple(rows)


def ordinal_on(model: RankModel, gpu: GpuModel) -> int | None:
    """What a process calls that device; on evidence only: UUID, else PCI address."""
    for ordinal, device in model.devices.items():
        facts = device.facts
        if facts is None:
            continue
        if facts.uuid and gpu.gpu.uuid:
            if facts.uuid.lower() == gpu.gpu.uuid.lower():
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
    )


def _cards(devices: list[int]) -> str:
    """``2 × 24 GiB``, or a list where they differ."""

    def size(value: int) -> str:
        return f"{value // GIB} GiB" if value % GIB == 0 else format_bytes(value)

    if len(set(devices)) == 1:
        return f"{len(devices)} × {size(devices[0])}"
    return ", ".join(map(size, devices))
