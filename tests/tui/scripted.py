"""A scripted feed and the pictures it hands out: any number of devices, ranks, faults, at any moment."""

import array
import math
import threading

import msgspec

from gpumem_tui.analysis import ledger as books
from gpumem_tui.analysis.ledger import Counters, DriverProcess, DriverReading
from gpumem_tui.analysis.rankstate import (
    CompositionState,
    InputRow,
    Levels,
    Life,
    OpenSpan,
    PhaseRow,
    RankState,
    Series,
)
from gpumem_tui.analysis.state import (
    Band,
    Curve,
    DeviceState,
    Event,
    Health,
    ProcessRow,
    RunFacts,
    RunState,
    Severity,
)
from gpumem_tui.records import Reason
from gpumem_tui.units import GIB, MIB
from gpumem_tui.views.feed import Stop

SECOND = 1_000_000_000
START = 1_000 * SECOND
CONTEXT = 460 * MIB
DRIVER_RESERVED = 512 * MIB
FOREIGN = 6 * GIB


def facts(**changes) -> RunFacts:
    base = RunFacts(
        run="bert-ft",
        path="/runs/bert-ft",
        command=("python", "train.py", "--bf16"),
        host="node17",
        user="ada",
        started_wall_ns=1_796_000_400 * SECOND,
        started_ns=START,
        life=Life.RUNNING,
        ending=None,
        exit_code=None,
        ended_ns=None,
        interactive=True,
        simulated=None,
        assumptions=(),
        recorded=False,
        labels=(),
        recorder=Life.RUNNING,
        keeper=Life.RUNNING,
        live=True,
    )
    return msgspec.structs.replace(base, **changes)


def levels_at(second: float, rank: int) -> tuple[int, int]:
    """Allocated and reserved bytes of a training that breathes with its steps."""
    wave = (math.sin(second * 1.3 + rank) + 1) / 2
    growth = min(1.0, second / 40)
    allocated = int((3.2 + 6.4 * growth * (0.55 + 0.45 * wave)) * GIB)
    reserved = int((3.6 + 8.0 * growth) * GIB) // (2 * MIB) * 2 * MIB
    return min(allocated, reserved), reserved


def series(seconds: int, value, every: float = 0.5, gap: tuple[int, int] = (0, 0)) -> Series:
    moments = [i * every for i in range(int(seconds / every) + 1)]
    moments = [m for m in moments if not gap[0] <= m < gap[1]]
    times = array.array("q", [START + int(m * SECOND) for m in moments])
    values = array.array("q", [value(m) for m in moments])
    return Series(times, times, values, values, values)


def device(
    index: int, seconds: int, *, foreign: int = 0, gap: tuple[int, int] = (0, 0), **reading
) -> DeviceState:
    total = 24 * GIB
    now = START + seconds * SECOND
    allocated, reserved = levels_at(seconds, index)
    pid = 4700 + index
    processes = [DriverProcess(pid, reserved + CONTEXT, name="python", user="ada")]
    if foreign:
        processes.append(DriverProcess(9000 + index, foreign, name="notebook", user="bob"))
    used = sum(p.used_bytes for p in processes)
    driver = DriverReading(
        t_ns=now,
        total_bytes=total,
        free_bytes=total - used - DRIVER_RESERVED,
        driver_reserved_bytes=DRIVER_RESERVED,
        processes_t_ns=now,
        processes=tuple(processes),
    )
    driver = msgspec.structs.replace(driver, **reading)
    counters = Counters(pid, index, now, allocated, reserved)
    return DeviceState(
        index=index,
        uuid=f"uuid-{index}",
        name="NVIDIA A10G",
        pci=None,
        ledger=books.ledger(driver, [counters]),
        utilization=97,
        temperature=61,
        power_mw=None,
        load_reason=None,
        driver_used=series(
            seconds, lambda m: levels_at(m, index)[1] + CONTEXT + DRIVER_RESERVED + foreign, gap=gap
        )
        if driver.total_bytes is not None
        else Series.empty(),
        curves=(
            Curve(
                pid,
                index,
                series(seconds, lambda m: levels_at(m, index)[0], gap=gap),
                series(seconds, lambda m: levels_at(m, index)[1], gap=gap),
            ),
        ),
        ours=True,
        torch_total_bytes=total - DRIVER_RESERVED,
    )


def rank(index: int, seconds: int, **changes) -> RankState:
    now = START + seconds * SECOND
    allocated, reserved = levels_at(seconds, index)
    base = RankState(
        pid=4700 + index,
        started_ticks=1,
        rank=index,
        local_rank=index,
        world_size=None,
        life=Life.RUNNING,
        spoke_ns=now,
        spans=(
            OpenSpan("train", "", START, None),
            OpenSpan(("forward", "backward", "optimizer")[seconds % 3], "", now - SECOND, seconds * 2),
        ),
        step=seconds * 2,
        steps_per_second=2.0,
        levels=(Levels(0, f"uuid-{index}", now, allocated, reserved, 0, 0),),
        backend="cuda",
        torch_version="2.9.0",
        allocator="native",
        words=(),
    )
    return msgspec.structs.replace(base, **changes)


def picture(seconds: int = 60, count: int = 1, *, foreign: int = FOREIGN, gap=(0, 0), **changes) -> RunState:
    """A run of ``count`` ranks on as many cards, ``seconds`` after its start, a stranger on card 0."""
    devices = tuple(device(i, seconds, foreign=foreign if i == 0 else 0, gap=gap) for i in range(count))
    processes = tuple(row for one in devices for row in _rows(one))
    events = [
        Event(START, Severity.INFO, "started"),
        Event(START + 8 * SECOND, Severity.INFO, "first optimizer step", rank=0),
    ]
    if foreign:
        events.append(
            Event(START + 30 * SECOND, Severity.WARNING, "bob's notebook appeared with 6.00 GiB", device=0)
        )
    base = RunState(
        facts=facts(),
        now_ns=START + seconds * SECOND,
        devices=devices,
        ranks=tuple(rank(i, seconds) for i in range(count)),
        phases=(),
        processes=processes,
        events=tuple(e for e in events if e.t_ns <= START + seconds * SECOND),
        host=None,
        output_bytes=0,
        health=Health(),
        driver_reason=None,
        bands=tuple(band for i in range(count) for band in bands(i, seconds)),
    )
    return msgspec.structs.replace(base, **changes)


def bands(index: int, seconds: int) -> list[Band]:
    """A training within which each step takes three seconds, one for each of its phases."""
    pid, now = 4700 + index, START + seconds * SECOND
    made = [Band(pid, index, "train", "", 0, START, None, None)]
    for second in range(seconds):
        phase = ("forward", "backward", "optimizer")[second % 3]
        since = START + second * SECOND
        made.append(Band(pid, index, phase, "", 1, since, min(now, since + SECOND), second // 3))
    return made


def _rows(one: DeviceState) -> list[ProcessRow]:
    ours = [
        _row(one.index, s.pid, s.rank, True, "python train.py --bf16", "ada", s.used.bytes)
        for s in one.ledger.ranks
    ]
    others = [
        _row(one.index, o.pid, None, False, "jupyter-lab", o.user, o.used.bytes, 512 * MIB)
        for o in one.ledger.others
    ]
    return ours + others


def _row(device_index, pid, rank_number, ours, command, user, used, growth=None) -> ProcessRow:
    return ProcessRow(
        device=device_index,
        pid=pid,
        rank=rank_number,
        ours=ours,
        name=command.split()[0],
        user=user,
        command=command,
        used_bytes=used,
        reason=None if used is not None else Reason.HIDDEN,
        growth_bytes=growth,
        since_ns=START,
        visible=True,
        kind="C",
        rss_bytes=None,
    )


def ended(seconds: int = 60, count: int = 1, *, code: int = 0) -> RunState:
    """The same run after its end."""
    state = picture(seconds, count)
    over = facts(
        life=Life.FAILED if code else Life.ENDED,
        ending=f"exit code {code}",
        exit_code=code,
        ended_ns=state.now_ns,
    )
    event = Event(state.now_ns, Severity.FAILURE if code else Severity.INFO, f"ended with exit code {code}")
    return msgspec.structs.replace(state, facts=over, events=(*state.events, event))


def simulated(seconds: int = 60, count: int = 1) -> RunState:
    """The same run on simulated cards."""
    assumed = (("CUDA context", "460 MiB"), ("driver reserved", "512 MiB"))
    return picture(seconds, count, facts=facts(simulated=f"{count} × 24 GiB", assumptions=assumed))


def without_driver(seconds: int = 60) -> RunState:
    """A machine where no driver can be asked."""
    one = device(
        0,
        seconds,
        t_ns=None,
        total_bytes=None,
        free_bytes=None,
        driver_reserved_bytes=None,
        reason=Reason.NO_DRIVER,
        processes=(),
        processes_t_ns=None,
    )
    return picture(seconds, foreign=0, devices=(one,), processes=(), driver_reason=Reason.NO_DRIVER)


def hidden_processes(seconds: int = 60) -> RunState:
    """A container: the driver tells how much is used, and not by whom."""
    one = device(0, seconds, processes=(), processes_reason=Reason.HIDDEN)
    return picture(seconds, foreign=0, devices=(one,), processes=())


def phase(index: int, phase: str, name: str, cold: bool, **changes) -> PhaseRow:
    """A row of the phase table, its figures told apart by their order of size."""
    base = PhaseRow(
        pid=4700 + index,
        rank=index,
        phase=phase,
        name=name,
        ordinal=0,
        cold=cold,
        count=1 if cold else 119,
        errors=0,
        duration_ns=22_000_000 if cold else 3_000_000,
        start_allocated_bytes=1 * GIB,
        start_reserved_bytes=4 * GIB,
        peak_allocated_bytes=3 * GIB,
        peak_reserved_bytes=6 * GIB,
        exact=True,
        end_allocated_bytes=2 * GIB,
        end_reserved_bytes=5 * GIB,
        last_ns=START + 50 * SECOND,
    )
    return msgspec.structs.replace(base, **changes)


def phases(index: int) -> tuple[PhaseRow, ...]:
    """A training's phases, in the order in which they first ended."""
    names = (("forward", "Bert"), ("backward", ""), ("optimizer", "AdamW"))
    return tuple(phase(index, *name, cold) for cold in (True, False) for name in names)


def composition(seconds: int = 60, **changes) -> CompositionState:
    """What a rank's 8.75 GiB are made of."""
    base = CompositionState(
        ordinal=0,
        t_ns=START + seconds * SECOND,
        step=118,
        parameters_bytes=GIB,
        gradients_bytes=GIB // 2,
        optimizer_bytes=2 * GIB,
        buffers_bytes=GIB // 4,
        other_bytes=5 * GIB,
        allocated_bytes=8 * GIB + 3 * GIB // 4,
        complete=True,
    )
    return msgspec.structs.replace(base, **changes)


def with_phases(seconds: int = 60, count: int = 1, **changes) -> RunState:
    """The same run with finished phases, composition and inputs."""
    seen = (InputRow("forward", "Bert", "int64[8,512] int64[8,512]", 119), InputRow("eval", "Bert", "x", 7))
    ranks = tuple(rank(i, seconds, composition=(composition(seconds),), inputs=seen) for i in range(count))
    rows = tuple(row for i in range(count) for row in phases(i))
    return picture(seconds, count, **{"ranks": ranks, "phases": rows, **changes})


def opaque(seconds: int = 60) -> RunState:
    """A rank whose allocator cannot be read, while the driver says what it holds: 12 GiB."""
    state = picture(seconds, foreign=0)
    reading = DriverReading(
        t_ns=state.now_ns,
        total_bytes=24 * GIB,
        free_bytes=12 * GIB - DRIVER_RESERVED,
        driver_reserved_bytes=DRIVER_RESERVED,
        processes_t_ns=state.now_ns,
        processes=(DriverProcess(4700, 12 * GIB, name="python", user="ada"),),
    )
    blind = Counters(4700, 0, None, None, None, Reason.UNAVAILABLE)
    one = msgspec.structs.replace(state.devices[0], ledger=books.ledger(reading, [blind]))
    return msgspec.structs.replace(state, devices=(one,), processes=tuple(_rows(one)))


class ScriptedFeed:
    """Hands out pictures in turn, then the last one for ever; remembers what it was asked to do."""

    def __init__(self, *pictures: RunState, output: bytes = b"", error: Exception | None = None):
        self.pictures = list(pictures)
        self.output = output
        self.error = error
        self.stopped: list[Stop] = []
        self.typed = b""
        self.snapshot = None
        self.asked_for_maps = 0
        self.reads = 0
        self.past = picture
        self.coarse = False
        self.past_error: Exception | None = None
        self.asked: list[tuple[int, int, int]] = []
        self.read_sizes: list[int] = []
        self.lock = threading.Lock()
        self.reach = self

    def read(self) -> RunState:
        with self.lock:
            self.reads += 1
            if self.error is not None:
                raise self.error
            state = self.pictures.pop(0) if len(self.pictures) > 1 else self.pictures[0]
            if state.output_bytes is None:
                return state
            return msgspec.structs.replace(state, output_bytes=len(self.output))

    def read_at(self, moment_ns: int, since_ns: int, until_ns: int, thorough: bool = False) -> RunState:
        """The picture of that second; its curves go on to the newest."""
        self.asked.append((moment_ns, since_ns, until_ns))
        if self.past_error is not None:
            raise self.past_error
        newest = self.pictures[0]
        then = self.past(max(0, (moment_ns - START) // SECOND), len(newest.devices))
        devices = tuple(
            msgspec.structs.replace(old, curves=new.curves, driver_used=new.driver_used)
            for old, new in zip(then.devices, newest.devices, strict=True)
        )
        return msgspec.structs.replace(
            then,
            now_ns=moment_ns,
            coarse=self.coarse and not thorough,
            devices=devices,
            bands=newest.bands,
            events=tuple(event for event in newest.events if event.t_ns <= moment_ns),
        )

    def read_output(self, start: int, size: int) -> bytes:
        self.read_sizes.append(size)
        return self.output[start : start + size]

    def read_snapshot(self, name):
        if isinstance(self.snapshot, Exception):
            raise self.snapshot
        return self.snapshot

    def ask_map(self) -> str:
        self.asked_for_maps += 1
        return "every rank was asked for a map; it takes about a second"

    def stop(self, how: Stop) -> str:
        self.stopped.append(how)
        return f"sent {how.value} to the workload"

    def type_in(self, data: bytes) -> None:
        self.typed += data
