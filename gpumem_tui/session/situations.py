"""From a scene to the facts that the rules weigh: who else was there, and what had changed before."""

from collections.abc import Sequence

from gpumem_tui.analysis import trend as trends
from gpumem_tui.analysis.findings import (
    Amount,
    Growth,
    Holes,
    Host,
    Kind,
    Neighbour,
    Situation,
    Training,
    Trend,
    Who,
)
from gpumem_tui.analysis.fragmentation import holes_for
from gpumem_tui.analysis.ledger import DriverProcess, DriverReading, Ledger
from gpumem_tui.analysis.optimizers import first_step_bytes
from gpumem_tui.analysis.state import SEVERAL
from gpumem_tui.records.failure import FailureRecord, Pool
from gpumem_tui.session.course import AUTOMATIC
from gpumem_tui.session.driver import DriverModel
from gpumem_tui.session.outside import STEP_BYTES
from gpumem_tui.session.rank import RankModel
from gpumem_tui.session.scenes import NEAR_NS, Scene, level_at, ordinal_in

LEFT_NS = 10_000_000_000
"""A process of the workload that was not in its tree for so long before has been left behind."""

STATE_MAKERS = ("_init_group", "_init_state", "init_state")
"""Functions in which optimizers make their state, as the innermost frames of the stack."""


def situation_of(scene: Scene, reading: DriverReading, book: Ledger) -> Situation:
    """The facts of a failing allocation."""
    level = scene.levels
    record, ordinal = scene.record, scene.ordinal
    total = _torch_total(scene) or reading.total_bytes
    seen = record is not None and record.free_bytes is not None
    free = record.free_bytes if record is not None and seen else reading.free_bytes
    t_ns, course = scene.t_ns, scene.course
    steps = course.steps(ordinal, t_ns) if ordinal is not None else []
    batches = course.batches(ordinal, t_ns) if ordinal is not None else []
    mine = scene.as_listed(scene.model, [row.pid for row in reading.processes])
    own = next((row for row in reading.processes if row.pid == mine), None)
    allowed = record.allowed_total_bytes if record is not None else None
    cap = allowed if allowed is not None and total is not None and allowed < total else None
    reserved = _amount(level[2] if level else None, "counters")
    before = record.last_sample[3] if record is not None and record.last_sample else None
    settings = record.settings if record is not None else None
    unlisted = book.unattributed.bytes
    said = scene.said
    asked = _amount(scene.requested_bytes, "failure record")
    return Situation(
        kind=said.kind if said is not None else Kind.ALLOCATOR,
        certain=said.certain if said is not None else True,
        call=said.call if said is not None else None,
        error=said.error if said is not None else None,
        of_memory=said.of_memory if said is not None else None,
        lost=said.lost if said is not None else None,
        first_rank=said.first_rank if said is not None else None,
        first_seconds=said.first_seconds if said is not None else None,
        room=said.room if said is not None else None,
        setting=said.setting if said is not None else None,
        longest=said.longest if said is not None else None,
        fits=said.fits if said is not None else None,
        recorded=True,
        backend={"cuda": "CUDA", "hip": "HIP"}.get(scene.model.torch.backend or "")
        if scene.model.torch
        else None,
        phase=_kind_of(scene.phases),
        requested=said.requested if asked is None and said is not None else asked,
        total=_amount(total, "cudaMemGetInfo" if _torch_total(scene) else "driver"),
        free=_amount(free, "cudaMemGetInfo" if seen else "driver"),
        allocated=_amount(level[1] if level else None, "counters"),
        reserved=reserved,
        cap=_amount(cap, "allowed by the memory fraction"),
        own=_amount(own.used_bytes if own is not None else None, "driver"),
        self_listed=own is not None,
        neighbours=tuple(_neighbours(scene, reading)),
        expandable_segments=settings.expandable_segments if settings is not None else None,
        before_flush=_amount(before, "last sample before the flush"),
        holes=_holes(scene),
        outside_growth=_outside_growth(scene, reading, own),
        unlisted=_amount(max(0, unlisted), "ledger") if unlisted is not None else None,
        list_reason=reading.processes_reason.value if reading.processes_reason is not None else None,
        free_elsewhere=scene.free_elsewhere,
        trend=_trend(steps, "step"),
        eval_trend=_trend(batches, "batch"),
        training=_training(scene),
    )  # fmt: skip


def host_of(driver: DriverModel, kills: int = 0) -> Host:
    """Host memory as last read. ``kills`` were told; none is only a figure where they are counted."""
    host, state = driver.host, driver.host_state()
    if host is None or state is None:
        return Host(kills=kills or None)
    return Host(
        kills=kills or (0 if host.cgroup_oom_kills is not None else None),
        limit=_amount(state.cgroup_limit_bytes, "cgroup"),
        used=_amount(state.cgroup_bytes, "cgroup"),
        rss=_amount(state.workload_rss_bytes, "/proc"),
        available=_amount(state.available_bytes, "/proc/meminfo"),
    )


# --- who else is there --------------------------------------------------------------------------


def _neighbours(scene: Scene, reading: DriverReading) -> list[Neighbour]:
    listed = [row.pid for row in reading.processes]
    mine = scene.as_listed(scene.model, listed)
    models = {scene.as_listed(model, listed): model for model in scene.others}
    found = []
    for row in reading.processes:
        if row.pid == mine:
            continue
        model = models.get(row.pid)
        who = _who(row.pid, model, mine, scene)
        growth = _growth(row, scene) if who is Who.STRANGER else None
        used = _amount(row.used_bytes, "driver")
        found.append(Neighbour(row.pid, used, row.name, who, model.number if model else None, growth))
    return found


def _who(pid: int, model: RankModel | None, own_pid: int, scene: Scene) -> Who:
    if model is not None:
        level = level_at(model, ordinal_in(model, scene), scene.t_ns)
        elsewhere = any(
            device.used for ordinal, device in model.devices.items() if ordinal != ordinal_in(model, scene)
        )
        here = level is not None and level[2] > 0
        return Who.STRAY if elsewhere and not here else Who.RANK
    if pid in scene.tree_ns:
        return Who.RANK if scene.tree_ns[pid] >= scene.t_ns - LEFT_NS else Who.ORPHAN
    known = scene.driver.names.get(pid)
    mine = scene.driver.names.get(own_pid)
    alike = known is not None and mine is not None and known.command and known.command == mine.command
    forked = known is not None and "multiprocessing" in (known.command or "")
    if (
        known is not None
        and known.parent == 1
        and (alike or forked)
        and (mine is None or known.user == mine.user)
    ):
        return Who.ORPHAN
    return Who.STRANGER


def _growth(row: DriverProcess, scene: Scene) -> Growth | None:
    """By how much a process grew since this run could see it, and when that began."""
    if row.used_bytes is None:
        return None
    curve = scene.device.holders.get(row.pid)
    first = scene.device.first_list_ns
    seen = scene.device.seen_ns.get(row.pid)
    if curve is None or seen is None:
        came = first is not None and first < scene.t_ns - NEAR_NS
        return Growth(_exact(row.used_bytes, "driver"), 0.0, None, came=True) if came else None
    past = curve.series()
    points = [(t, low) for t, low in zip(past.t_ns, past.low, strict=True) if t <= scene.t_ns]
    if first is not None and seen > first:
        points.insert(0, (max(first, seen - 1), 0))
    if not points:
        return None
    least = min(low for _, low in points)
    grew = row.used_bytes - least
    if grew <= 0:
        return None
    began = max(t for t, low in points if low <= least + grew // 10)
    came = least == 0
    return Growth(_exact(grew, "driver, its growth"), (scene.t_ns - began) / 1e9, None, came=came)


# --- the failing process ------------------------------------------------------------------------


def _outside_growth(scene: Scene, reading: DriverReading, own: DriverProcess | None) -> Growth | None:
    """What came beyond the baseline before the failure, and in which phase or after which mark most of it."""
    if scene.outside is None:
        return None
    state = scene.outside.state(None)
    jumps = [(s.since_ns, s.t_ns, s.bytes) for s in state.steps if s.t_ns <= scene.t_ns]
    level = scene.levels
    fresh = scene.record is not None and scene.record.driver is not None
    if fresh and own is not None and own.used_bytes is not None and level is not None:
        more = own.used_bytes - level[2] - state.baseline_bytes - sum(change for _, _, change in jumps)
        if abs(more) >= STEP_BYTES:
            since_ns = max((t for _, t, _ in jumps), default=state.baseline_ns)
            jumps.append((max(since_ns, min(state.t_ns, scene.t_ns)), scene.t_ns, more))
    grown = sum(change for _, _, change in jumps)
    if grown <= 0:
        return None
    during: dict[str | None, int] = {}
    for since_ns, t_ns, change in jumps:
        label = _during(scene.model, since_ns, t_ns)
        during[label] = during.get(label, 0) + change
    label = max(during, key=during.__getitem__)
    began_ns = min(since_ns for since_ns, _, change in jumps if change > 0)
    amount = _exact(grown, "driver − reserved")
    return Growth(amount, (scene.t_ns - began_ns) / 1e9, label if 2 * during[label] >= grown else None)


def _during(model: RankModel, since_ns: int, until_ns: int) -> str | None:
    """What a stretch of time belongs to: a mark in it, else the phase that covers half of it at least."""
    marks = [m for m in model.recent_marks if since_ns <= m.t_ns <= until_ns and m.name != "empty_cache"]
    if marks:
        return f"the time of mark {marks[-1].detail or marks[-1].name!r}"
    covered: dict[str, int] = {}
    for band in model.bands.all(model.number):
        end_ns = until_ns if band.until_ns is None else band.until_ns
        overlap = min(end_ns, until_ns) - max(band.since_ns, since_ns)
        if overlap > 0:
            covered[band.phase] = covered.get(band.phase, 0) + overlap
    wide = [phase for phase, part in covered.items() if 2 * part >= until_ns - since_ns]
    named = [phase for phase in wide if phase not in AUTOMATIC and phase != SEVERAL]
    best = max(named or wide, key=covered.__getitem__, default=None)
    return None if best is None or best == SEVERAL else f"phase {best}"


def _holes(scene: Scene) -> Holes | None:
    record = scene.record
    if record is None or record.pools is None or scene.requested_bytes is None:
        return None
    holes = holes_for(record.pools, scene.requested_bytes, record.stream)
    source = "pools after the flush"
    return Holes(
        largest=_exact(holes.largest_bytes, source),
        idle=_exact(holes.idle_bytes, source),
        elsewhere=_exact(holes.elsewhere_bytes, source),
        private=_exact(holes.private_idle_bytes, source),
        other_streams=_exact(holes.other_streams_idle_bytes, source),
        captures=_private_pools(record.pools, shared=False),
        made_pools=_private_pools(record.pools, shared=True),
        streams=holes.streams,
        expandable=holes.expandable or bool(record.settings and record.settings.expandable_segments),
    )


def _private_pools(pools: Sequence[Pool], *, shared: bool) -> int:
    """With something idle: PyTorch numbers captures from the left, pools that were made from the right."""
    idle = {p.pool for p in pools if p.pool.startswith("private ") and p.idle_bytes}
    return sum(name.startswith("private 0,") is shared for name in idle)


def _trend(points: list[tuple[int, int]], unit: str) -> Trend | None:
    slope = trends.slope_of(points)
    if slope is None:
        return None
    grown = _exact(slope.grown_bytes, f"allocated at the same point of each {unit}")
    return Trend(unit, slope.bytes_per_unit, slope.units, grown, slope.steady)


def _training(scene: Scene) -> Training:
    record, course, t_ns, ordinal = scene.record, scene.course, scene.t_ns, scene.ordinal
    kinds = record.parts.kinds if record is not None and record.parts is not None else {}
    source = "live tensors"
    if record is not None and record.parts is not None and not record.parts.complete:
        source = "live tensors, a lower bound"
    optimizer = next((p.name for p in record.phases if p.phase == "optimizer"), None) if record else None
    parameters = kinds.get("parameters")
    told = [o for o in course.optimizers if o.ordinal == ordinal and o.name == optimizer]
    options = told[-1].options if told else ()
    forecast = first_step_bytes(optimizer, parameters, options) if optimizer and parameters else None
    start = None
    if scene.phases and ordinal is not None:
        start = course.started(scene.phases[-1], ordinal, t_ns)
    stack = record.stack if record is not None else []
    return Training(
        steps=record.step if record is not None else scene.model.step,
        computed=course.first_forward_ns is not None and course.first_forward_ns < t_ns,
        optimizer_stepped=course.first_optimizer_ns is not None and course.first_optimizer_ns < t_ns,
        at_phase_start=_amount(start, "counters at the phase's begin"),
        training_peak=_amount(
            course.training_peak(ordinal, t_ns) if ordinal is not None else None, "peaks of training phases"
        ),
        parameters=_amount(parameters, source),
        gradients=_amount(kinds.get("gradients"), source),
        kv_cache=_amount(kinds.get("KV cache"), source),
        largest_other=_amount(_largest_other(record), source),
        optimizer_state=_amount(kinds.get("optimizer state"), source),
        forecast=_amount(forecast, "parameters × what this optimizer keeps"),
        for_each=any(frame.rpartition(" ")[2].startswith("_multi_tensor_") for frame in stack[-6:]),
        live_other=_amount(kinds.get("other"), source),
        largest_other_is=_kind_of_largest(record),
        makes_state=any(frame.rpartition(" ")[2] in STATE_MAKERS for frame in stack[-6:]),
    )


def _kind_of_largest(record: FailureRecord | None) -> str | None:
    """``uint8 [83886080]`` of the largest tensor that is no state."""
    if record is None or record.parts is None:
        return None
    others = [each for each in record.parts.largest if each.kind == "other"]
    largest = max(others, key=lambda each: each.size_bytes, default=None)
    return f"{largest.dtype} {largest.shape}" if largest is not None else None


def _largest_other(record: FailureRecord | None) -> int | None:
    if record is None or record.parts is None:
        return None
    return max((each.size_bytes for each in record.parts.largest if each.kind == "other"), default=None)


def _kind_of(phases: Sequence[str]) -> str | None:
    """The innermost phase that the rules know; a user's name where there is no other."""
    known = [phase for phase in phases if phase in AUTOMATIC]
    if known:
        return {"prefill": "generate", "decode": "generate"}.get(known[-1], known[-1])
    return phases[-1] if phases else None


def _torch_total(scene: Scene) -> int | None:
    if scene.ordinal is None:
        return None
    facts = scene.model.device(scene.ordinal).facts
    return facts.total_bytes if facts is not None else None


def _exact(value: int, source: str) -> Amount:
    return Amount.exact(value, source)


def _amount(value: int | None, source: str) -> Amount | None:
    return None if value is None else Amount.exact(value, source)
