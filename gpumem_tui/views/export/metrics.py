"""A run's state as Prometheus metrics. Names, labels and units are this module's promise.

Every sample has ``run`` and ``cards`` (``real`` or ``SIMULATED …``). Sizes are bytes. A missing reading
has no sample: ``gpumem_missing`` is 1 for it, with the name of its metric and the reason.
Of a run that has ended, what it held is no longer true, so only its facts and peaks stay.

``reserved`` contains ``allocated``; ``cached`` and ``outside`` are computed from them. Never
sum metrics of different names over a card: ``gpumem_ledger_bytes`` has the terms that do sum
to its total.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from gpumem_tui.analysis.ledger import Term
from gpumem_tui.analysis.rankstate import RankState
from gpumem_tui.analysis.state import DeviceState, RunFacts, RunState

Labels = tuple[tuple[str, str], ...]


class Sample(msgspec.Struct, frozen=True):
    """One value. ``labels`` come after ``run`` and ``cards``."""

    name: str
    value: float
    labels: Labels = ()


METRICS: dict[str, tuple[str, str]] = {
    "gpumem_run_info": ("gauge", "1; who the run is"),
    "gpumem_run_up": ("gauge", "1 while the run goes on, 0 when it has ended or is lost"),
    "gpumem_run_exit_code": ("gauge", "exit code of a run that has ended, as a shell says it"),
    "gpumem_missing": ("gauge", "1; a reading that is missing, and why"),
    "gpumem_rank_allocated_bytes": ("gauge", "live tensors of a rank on a device"),
    "gpumem_rank_reserved_bytes": ("gauge", "held by PyTorch's allocator, allocated included"),
    "gpumem_rank_peak_allocated_bytes": ("gauge", "highest allocated over the life of a process"),
    "gpumem_rank_peak_reserved_bytes": ("gauge", "highest reserved over the life of a process"),
    "gpumem_rank_allocation_retries_total": ("counter", "times the allocator emptied its cache to try again"),
    "gpumem_rank_out_of_memory_total": ("counter", "allocations of a rank that failed"),
    "gpumem_rank_step": ("gauge", "step that a rank has come to"),
    "gpumem_ledger_bytes": ("gauge", "a term of a device's ledger; they sum to the device's total"),
    "gpumem_device_total_bytes": ("gauge", "memory of a device, as the driver says"),
    "gpumem_device_used_bytes": ("gauge", "used on a device by all processes, as the driver says"),
    "gpumem_process_used_bytes": ("gauge", "held by one process on a device, as the driver says"),
    "gpumem_reading_age_seconds": ("gauge", "age of the driver's reading of a device"),
    "gpumem_phase_spans_total": ("counter", "finished spans of a phase"),
    "gpumem_phase_failed_spans_total": ("counter", "spans of a phase that an error ended"),
    "gpumem_phase_peak_allocated_bytes": ("gauge", "highest allocated in a phase (exact=false: at least)"),
    "gpumem_phase_peak_reserved_bytes": ("gauge", "highest reserved in a phase (exact=false: at least)"),
}  # fmt: skip
"""Type and meaning of every metric, by name."""


def samples(state: RunState) -> Iterator[Sample]:
    """Every sample of one moment."""
    facts = state.facts
    over = facts.ended_ns is not None or not facts.live
    told = {"command": " ".join(facts.command), "host": facts.host, "recorded": str(facts.recorded).lower()}
    if facts.identity is not None:
        told |= {"revision": facts.identity.revision.commit or "", "seed": facts.identity.seed or ""}
    yield Sample("gpumem_run_info", 1, (*told.items(), *((f"label_{n}", v) for n, v in _labels(facts))))
    yield Sample("gpumem_run_up", 0 if over else 1)
    if facts.exit_code is not None:
        yield Sample("gpumem_run_exit_code", facts.exit_code)
    for rank in state.ranks:
        yield from _rank(rank, over)
    yield from _phases(state)
    if over:
        return
    for device in state.devices:
        yield from _device(device, state)
    if state.driver_reason is not None:
        yield _missing("gpumem_device_used_bytes", state.driver_reason.value)


def _labels(facts: RunFacts) -> Iterator[tuple[str, str]]:
    """The user's labels, under names that Prometheus takes."""
    for name, value in facts.labels:
        yield re.sub(r"[^A-Za-z0-9_]", "_", name), value


def _missing(metric: str, reason: str, *labels: tuple[str, str]) -> Sample:
    return Sample("gpumem_missing", 1, (("metric", metric), ("reason", reason), *labels))


def _who(pid: int, rank: int | None) -> Labels:
    return (("pid", str(pid)), ("rank", "" if rank is None else str(rank)))


def _rank(rank: RankState, over: bool) -> Iterator[Sample]:
    who = _who(rank.pid, rank.rank)
    if rank.step is not None:
        yield Sample("gpumem_rank_step", rank.step, who)
    for level in rank.levels:
        place = (*who, ("ordinal", str(level.ordinal)), ("uuid", level.uuid or ""))
        if not over:
            yield from _value("gpumem_rank_allocated_bytes", level.allocated_bytes, place)
            yield from _value("gpumem_rank_reserved_bytes", level.reserved_bytes, place)
        yield from _value("gpumem_rank_allocation_retries_total", level.alloc_retries, place)
        yield from _value("gpumem_rank_out_of_memory_total", level.ooms, place)
    for peak in rank.peaks:
        place = (*who, ("ordinal", str(peak.ordinal)))
        yield Sample("gpumem_rank_peak_allocated_bytes", peak.peak_allocated_bytes, place)
        yield Sample("gpumem_rank_peak_reserved_bytes", peak.peak_reserved_bytes, place)


def _value(name: str, value: int | None, labels: Labels) -> Iterable[Sample]:
    return [_missing(name, "not read", *labels)] if value is None else [Sample(name, value, labels)]


def _phases(state: RunState) -> Iterator[Sample]:
    for row in state.phases:
        labels = (
            *_who(row.pid, row.rank),
            ("ordinal", str(row.ordinal)),
            ("phase", row.phase),
            ("name", row.name),
            ("kind", "cold" if row.cold else "warm"),
        )
        exact = (*labels, ("exact", str(row.exact).lower()))
        yield Sample("gpumem_phase_spans_total", row.count, labels)
        yield Sample("gpumem_phase_failed_spans_total", row.errors, labels)
        yield from _value("gpumem_phase_peak_allocated_bytes", row.peak_allocated_bytes, exact)
        yield from _value("gpumem_phase_peak_reserved_bytes", row.peak_reserved_bytes, exact)


def _device(device: DeviceState, state: RunState) -> Iterator[Sample]:
    place = (("device", str(device.index)), ("uuid", device.uuid or ""))
    ledger = device.ledger

    def term(name: str, figure: Term, *who: tuple[str, str]) -> Sample:
        holder = who or (("pid", ""), ("rank", ""))
        labels = (*place, ("term", name), ("basis", figure.basis.value), *holder)
        if figure.bytes is None:
            reason = "" if figure.reason is None else figure.reason.value
            return _missing("gpumem_ledger_bytes", reason, *place, ("term", name), *holder)
        return Sample("gpumem_ledger_bytes", figure.bytes, labels)

    for share in ledger.ranks:
        who = _who(share.pid, share.rank)
        if share.opaque:
            yield term("used", share.used, *who)
            continue
        yield term("allocated", share.allocated, *who)
        yield term("cached", share.cached, *who)
        yield term("outside", share.outside, *who)
    for other in ledger.others:
        yield term("other", other.used, *_who(other.pid, None))
    yield term("driver_reserved", ledger.driver_reserved)
    yield term("unattributed", ledger.unattributed)
    if ledger.merged is not None:
        yield term("merged", ledger.merged)
    yield term("free", ledger.free)
    for name, figure in (
        ("gpumem_device_total_bytes", ledger.total),
        ("gpumem_device_used_bytes", ledger.device_used),
    ):
        if figure.bytes is None:
            yield _missing(name, "" if figure.reason is None else figure.reason.value, *place)
        else:
            yield Sample(name, figure.bytes, place)
    if ledger.t_ns is not None:
        yield Sample("gpumem_reading_age_seconds", max(0, state.now_ns - ledger.t_ns) / 1e9, place)
    for row in state.processes:
        if row.device != device.index:
            continue
        labels = (*place, *_who(row.pid, row.rank), ("process", row.name), ("ours", str(row.ours).lower()))
        if row.used_bytes is None:
            yield _missing(
                "gpumem_process_used_bytes", "" if row.reason is None else row.reason.value, *labels
            )
        else:
            yield Sample("gpumem_process_used_bytes", row.used_bytes, labels)
