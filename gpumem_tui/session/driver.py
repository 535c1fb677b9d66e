"""What the recorder has said: devices, memory, processes, load, host. One model for the node."""

from collections import deque
from collections.abc import Container

from gpumem_tui import records
from gpumem_tui.analysis.ledger import DriverProcess, DriverReading
from gpumem_tui.analysis.state import HostState
from gpumem_tui.records import Reason
from gpumem_tui.session.curve import Curve
from gpumem_tui.session.times import ended_ns

STALE_NS = 10_000_000_000
"""A driver reading older than this does not stand for now."""

NEAR_NS = 700_000_000
"""A memory reading this close to a process list belongs to the same moment."""

MINUTE_NS = 60_000_000_000

_KINDS = frozenset("CGM")
"""The lists of processes that a driver has: compute, graphics, MPS."""

READINGS = 120
"""Memory readings and process lists kept whole: about a minute, for pairing and for the last moment."""


def reason_of(text: str | None) -> Reason | None:
    """The reason in a record; a detail may follow it after a colon."""
    if text is None:
        return None
    try:
        return Reason(text.partition(":")[0])
    except ValueError:
        return Reason.FAILED


class Holding:
    """One process on one device, over time."""

    def __init__(self, since_ns: int, *, came: bool = True) -> None:
        self.since_ns = since_ns
        self.came = came
        """It was not there when its kind of list was first read."""
        self.kind = ""
        """By which of the driver's lists, as last seen."""
        self.past: deque[tuple[int, int]] = deque(maxlen=90)
        """(t_ns, used bytes) of about the last minute."""
        self.moved_ns = since_ns
        """When its figure was last seen to have changed."""

    def add(self, t_ns: int, used_bytes: int | None) -> None:
        """A reading; a missing one is no point."""
        if used_bytes is None:
            return
        if self.past and self.past[-1][1] != used_bytes:
            self.moved_ns = t_ns
        self.past.append((t_ns, used_bytes))
        while self.past[0][0] < t_ns - MINUTE_NS - STALE_NS:
            self.past.popleft()

    def growth_bytes(self, now_ns: int) -> int | None:
        """Change over the last minute; None where it was not seen that long."""
        if not self.past or now_ns - self.since_ns < MINUTE_NS:
            return None
        then = next((used for t, used in self.past if t >= now_ns - MINUTE_NS), None)
        return None if then is None else self.past[-1][1] - then


class GpuModel:
    """One device as the driver sees it."""

    def __init__(self, gpu: records.Gpu) -> None:
        self.gpu = gpu
        self.memories: deque[records.Memory] = deque(maxlen=READINGS)
        self.lists: deque[records.Processes] = deque(maxlen=READINGS)
        self.listed: records.Processes | None = None
        """The last list that could be read, if only in part."""
        self._kinds_seen: set[str] = set()
        self.load: records.Load | None = None
        self.used = Curve()
        self.holdings: dict[int, Holding] = {}
        self.appeared_ns: dict[int, int] = {}
        """When each process was last seen to come, also of those that have gone."""

    def draw(self, record: "records.Memory | records.Memories") -> None:
        """A reading, or a folded run of them, on the curve alone."""
        if isinstance(record, records.Memory):
            self._draw_memory(record)
        else:
            self._draw_folded(record)

    @property
    def uuid(self) -> str | None:
        """As PyTorch tells it: without ``MIG-``, which the driver puts before an instance's."""
        return self.gpu.uuid.removeprefix("MIG-") if self.gpu.uuid is not None else None

    def add_memory(self, memory: records.Memory) -> None:
        """A memory reading."""
        self.memories.append(memory)
        self._draw_memory(memory)

    def _draw_memory(self, memory: records.Memory) -> None:
        if memory.total_bytes is not None and memory.free_bytes is not None:
            used = memory.total_bytes - memory.free_bytes
            self.used.add(memory.t_ns, memory.t_ns, used, used, used)

    def add_folded(self, bucket: records.Memories) -> None:
        """A folded run of memory readings; its last one is a reading as it was."""
        if bucket.free is not None and bucket.used is not None and not bucket.missing:
            self.memories.append(
                records.Memory(
                    bucket.until_ns,
                    0,
                    bucket.index,
                    bucket.total_bytes,
                    bucket.free[2],
                    bucket.used[2],
                    bucket.driver_reserved_bytes,
                )
            )
        self._draw_folded(bucket)

    def _draw_folded(self, bucket: records.Memories) -> None:
        if bucket.free is not None and bucket.total_bytes is not None:
            low, high, last = (
                bucket.total_bytes - free for free in (bucket.free[1], bucket.free[0], bucket.free[2])
            )
            self.used.add(bucket.t_ns, bucket.until_ns, low, high, last)

    def add_processes(self, processes: records.Processes) -> "tuple[set[int], set[int]]":
        """A process list; which pids have come, and which have gone, since the last readable one.

        Who was listed as of a kind that cannot be read now has not gone; who is listed
        as of a kind that is read for the first time has not come.
        """
        self.lists.append(processes)
        if not processes.is_readable:
            return set(), set()
        self.listed = processes
        now = {row[0] for row in processes.rows}
        new = now - self.holdings.keys()
        gone = {
            pid
            for pid, holding in self.holdings.items()
            if pid not in now and not set(holding.kind) & set(processes.missing)
        }
        for pid in gone:
            del self.holdings[pid]
        self.appeared_ns.update(dict.fromkeys(new, processes.t_ns))
        first_seen = _KINDS - set(processes.missing) - self._kinds_seen
        self._kinds_seen |= first_seen
        for pid, used, kind, _ in processes.rows:
            if pid in new:
                self.holdings[pid] = Holding(processes.t_ns, came=not set(kind) <= first_seen)
            self.holdings[pid].kind = kind
            self.holdings[pid].add(processes.t_ns, used)
        return {pid for pid in new if self.holdings[pid].came}, gone

    def list_at(self, moment_ns: int | None) -> records.Processes | None:
        """The last process list, or the last one up to a moment (the first, where all are later)."""
        if moment_ns is None or not self.lists:
            return self.lists[-1] if self.lists else None
        earlier = [each for each in self.lists if each.t_ns <= moment_ns]
        return earlier[-1] if earlier else self.lists[0]

    def _nearest(self, t_ns: int) -> records.Memory:
        """The memory reading closest to a moment; most moments are of just now."""
        found = self.memories[-1]
        for memory in reversed(self.memories):
            if abs(memory.t_ns - t_ns) > abs(found.t_ns - t_ns):
                break
            found = memory
        return found

    def reading(
        self,
        now_ns: int,
        moment_ns: int | None,
        names: "dict[int, records.Process]",
        stale_ns: int = STALE_NS,
    ) -> DriverReading:
        """Memory and processes of one moment: a process list, and the memory read closest to it.

        ``moment_ns`` None is now: the latest readings, or STALE where they are too old.
        """
        if not self.memories:
            return missing_reading(reason_of(self.gpu.reason) or Reason.NOT_READ_YET)
        latest = self.memories[-1]
        if moment_ns is not None:
            now_ns = moment_ns
            latest = self._nearest(moment_ns)
        processes = self.list_at(moment_ns)
        memory = latest
        if processes is not None and latest.reason is None:
            near = self._nearest(processes.t_ns)
            if near.reason is None and abs(near.t_ns - processes.t_ns) <= NEAR_NS:
                memory = near
        if memory.reason is None and now_ns - latest.t_ns > stale_ns:
            return missing_reading(Reason.STALE, f"last read {(now_ns - latest.t_ns) / 1e9:.0f} s ago")
        detail = (memory.reason or "").partition(":")[2].strip() or None
        rows: tuple[DriverProcess, ...] = ()
        processes_reason = Reason.NOT_READ_YET if processes is None else reason_of(processes.reason)
        lists_t_ns = None
        if processes is not None and processes.is_readable:
            if now_ns - processes.t_ns > stale_ns:
                processes_reason = Reason.STALE
            else:
                rows, lists_t_ns = tuple(_row(row, names) for row in processes.rows), processes.t_ns
        return DriverReading(
            t_ns=memory.t_ns,
            total_bytes=memory.total_bytes,
            free_bytes=memory.free_bytes,
            driver_reserved_bytes=memory.driver_reserved_bytes,
            reason=reason_of(memory.reason),
            detail=detail,
            processes_t_ns=lists_t_ns,
            processes=rows,
            processes_reason=processes_reason,
        )


def _row(
    row: "tuple[int, int | None, str, str | None]", names: "dict[int, records.Process]"
) -> DriverProcess:
    pid, used, kind, reason = row
    known = names.get(pid)
    return DriverProcess(
        pid=pid,
        used_bytes=used,
        name=(known.name if known else None) or "",
        user=(known.user if known else None) or "",
        kind=kind,
        reason=reason_of(reason) if used is None else None,
        visible=known.visible if known else True,
    )


def missing_reading(reason: Reason, detail: str | None = None) -> DriverReading:
    """No reading, and why."""
    return DriverReading(None, None, None, None, reason=reason, detail=detail, processes_reason=reason)


class DriverModel:
    """The mutable model of the driver's journal."""

    def __init__(self) -> None:
        self.gpus: dict[int, GpuModel] = {}
        self.names: dict[int, records.Process] = {}
        self.tree: records.Tree | None = None
        self.once_in_tree: set[int] = set()
        """Every pid that was ever a process of the workload."""
        self._started_in_tree: set[tuple[int, int | None]] = set()
        self.host: records.Host | None = None
        self.words: dict[str, str] = {}
        self.spoke_ns = 0
        self.bye = False
        self.reason: Reason | None = None
        """Why there is no device at all."""

    def take(self, record: object) -> None:
        """One line of the driver's journal. Process lists are taken by ``GpuModel`` (see ``recording``)."""
        match record:
            case records.Gpu():
                self._add_gpu(record)
            case records.Memory():
                if record.index in self.gpus:
                    self.gpus[record.index].add_memory(record)
            case records.Memories():
                if record.index in self.gpus:
                    self.gpus[record.index].add_folded(record)
            case records.Load():
                if record.index in self.gpus:
                    self.gpus[record.index].load = record
            case records.Process():
                self.names[record.pid] = record
            case records.Tree():
                self.tree = record
                self.once_in_tree.update(row[0] for row in record.rows)
                self._started_in_tree.update((row[0], row[1]) for row in record.rows)
            case records.Host():
                self.host = record
            case records.Word():
                self.words[record.code] = record.text
            case records.Bye():
                self.bye = True
        self.spoke_ns = max(self.spoke_ns, ended_ns(record))

    def _add_gpu(self, gpu: records.Gpu) -> None:
        if gpu.index < 0:
            self.reason = reason_of(gpu.reason) or Reason.NO_DRIVER
            return
        self.bye = False
        self.reason = None
        known = self.gpus.get(gpu.index)
        if known is None:
            self.gpus[gpu.index] = GpuModel(gpu)
        else:
            known.gpu = gpu

    def used_again(self, pid: int, ranks: Container[tuple[int, int | None]]) -> bool:
        """Whether a pid that was of these ranks or of the workload's tree is by now another process's."""
        known = self.names.get(pid)
        if known is None or known.started_ticks is None:
            return False
        ours = ((pid, known.started_ticks), (pid, None))
        return not any(who in ranks or who in self._started_in_tree for who in ours)

    def tree_pids(self) -> set[int]:
        """The workload's processes as last seen."""
        return {row[0] for row in self.tree.rows} if self.tree is not None else set()

    def rss_bytes(self, pid: int) -> int | None:
        """Resident host memory of a process of the workload."""
        if self.tree is None:
            return None
        return next((row[3] for row in self.tree.rows if row[0] == pid), None)

    def host_state(self) -> HostState | None:
        """Host memory, and the workload's share of it."""
        host = self.host
        if host is None:
            return None
        rss = [row[3] for row in self.tree.rows] if self.tree is not None else []
        known = [value for value in rss if value is not None]
        return HostState(
            t_ns=host.t_ns,
            total_bytes=host.total_bytes,
            available_bytes=host.available_bytes,
            cgroup_bytes=host.cgroup_bytes,
            cgroup_limit_bytes=host.cgroup_limit_bytes,
            workload_rss_bytes=sum(known) if known else None,
        )
