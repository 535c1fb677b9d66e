"""Which row of each device's process list is which rank: by pid where pids tell, else by evidence.

A pid is the rank's where process and start time are the same, seen from here or from
within the process's own namespace. Where the driver names other pids, ``analysis``
weighs the evidence; a claim outlives its process, so that an ended run still shows it.
"""

from collections.abc import Collection, Iterable, Mapping

from gpumem_tui import records
from gpumem_tui.analysis.identity import Claim, Evidence, Matcher
from gpumem_tui.session.driver import DriverModel, GpuModel
from gpumem_tui.session.rank import STEADY_NS, RankModel


class Recognition:
    """The claims of one recording. Ranks are told apart by their model."""

    def __init__(self, driver: DriverModel) -> None:
        self._driver = driver
        self._matchers: dict[int, Matcher[RankModel]] = {}
        self._kept: dict[tuple[int, RankModel], Claim] = {}

    def claim(self, gpu: GpuModel, model: RankModel, listed: Collection[int]) -> Claim | None:
        """The row of this rank among the pids of a process list; None where nothing tells."""
        plain = by_pid(model, listed, self._driver.names)
        if plain is not None:
            return plain
        kept = self._kept.get((gpu.gpu.index, model))
        return kept if kept is not None and kept.pid in listed else None

    def last_listed_ns(self, gpu: GpuModel, model: RankModel) -> int | None:
        """When a device's process lists had this rank for the last time; None where none that is kept did."""
        for listed in reversed(gpu.lists):
            if listed.reason is None and self.claim(gpu, model, {row[0] for row in listed.rows}) is not None:
                return listed.t_ns
        return None

    def claimed(self, device: int) -> set[int]:
        """Pids that are ours by evidence, on a device."""
        return {claim.pid for (index, _), claim in self._kept.items() if index == device}

    def adopt(self, other: "Recognition", models: Iterable[RankModel]) -> None:
        """Take over the claims of another reading of the same run, for these models of its processes."""
        ours = {(model.pid, model.started_ticks): model for model in models}
        for (index, model), claim in other._kept.items():
            mine = ours.get((model.pid, model.started_ticks))
            if mine is not None:
                self._kept[index, mine] = claim

    def judge(
        self, gpu: GpuModel, listed: records.Processes, holding: Mapping[RankModel, int]
    ) -> list[tuple[RankModel, Claim]]:
        """Weigh one process list; ``holding`` are the living ranks that hold this device, by ordinal.

        Returns what is newly recognised by evidence.
        """
        used = {row[0]: row[1] for row in listed.rows}
        plain = {model: by_pid(model, used.keys(), self._driver.names) for model in holding}
        lost = [model for model, claim in plain.items() if claim is None]
        index = gpu.gpu.index
        taken = {claim.pid for claim in plain.values() if claim is not None} | self._driver.once_in_tree
        candidates = {pid: size for pid, size in used.items() if pid not in taken and not self._is_seen(pid)}
        reserved, begun = {}, {}
        for model in lost:
            device = model.device(holding[model])
            if device.first_ns is None or device.first_ns > listed.t_ns:
                continue
            reserved[model] = device.settled(listed.t_ns, STEADY_NS)
            seen = device.facts.initialised_ns if device.facts is not None else None
            begun[model] = (seen, device.first_ns)
        matcher = self._matchers.setdefault(index, Matcher[RankModel]())
        matcher.take(listed.t_ns, candidates, reserved, begun)
        return self._keep(index, matcher, reserved.keys(), candidates.keys())

    def _is_seen(self, pid: int) -> bool:
        """Whether this pid namespace shows such a process: then it is what it seems, a stranger."""
        known = self._driver.names.get(pid)
        return known is not None and known.visible

    def _keep(
        self, index: int, matcher: Matcher[RankModel], models: Iterable[RankModel], candidates: Iterable[int]
    ) -> list[tuple[RankModel, Claim]]:
        new = []
        there = set(candidates)
        for model in models:
            now, before = matcher.claims.get(model), self._kept.get((index, model))
            if now is not None:
                self._kept[index, model] = now
                if before is None or (before.pid, before.by) != (now.pid, now.by):
                    new.append((model, now))
            elif before is not None and before.pid in there:
                del self._kept[index, model]  # given up: the figures contradict it
        return new


def by_pid(model: RankModel, listed: Collection[int], names: Mapping[int, records.Process]) -> Claim | None:
    """The rank's row where its pid tells: as seen from here, or from within its own namespace."""
    if model.pid in listed:
        known = names.get(model.pid)
        if known is None or _may_be(known, model):
            return Claim(model.pid, Evidence.PID)
    for pid in listed:
        known = names.get(pid)
        if known is not None and known.namespace_pid == model.pid and _may_be(known, model):
            return Claim(pid, Evidence.NAMESPACE)
    return None


def _may_be(known: records.Process, model: RankModel) -> bool:
    """Pids are used again, and every namespace has its own: the start time must be the same."""
    if known.started_ticks is None or model.started_ticks is None:
        return True
    return known.started_ticks == model.started_ticks
