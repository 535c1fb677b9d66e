"""Alerts of a run that goes on: threats that have held for a moment, gravest first.

A threat is shown when it was seen at two looks a second apart, and goes when it was not
seen for five: nothing flickers. Owns that patience; the rules are ``findings.threats``.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from gpumem_tui.analysis import trend as trends
from gpumem_tui.analysis.findings import Amount, Finding, Trend, Verdict, threats
from gpumem_tui.analysis.optimizers import first_step_bytes
from gpumem_tui.analysis.state import Alert, DeviceState, Severity
from gpumem_tui.session.course import DeviceCourse, RankCourse
from gpumem_tui.session.endings import name_of
from gpumem_tui.session.failures import Context, FailureBook
from gpumem_tui.session.picture import ordinal_on
from gpumem_tui.session.rank import RankModel

RAISE_NS = 1_000_000_000
HOLD_NS = 5_000_000_000
WINDOW_NS = 60_000_000_000
FRESH_NS = 3_000_000_000
"""A level or a driver's reading that is older says nothing of now."""

AT_ONCE = (Verdict.OPTIMIZER_STATE,)
"""Forecasts from exact figures: there may be no second look before they come true."""

GRAVITY = {Verdict.RESERVED_IDLE: Severity.INFO}

Key = tuple[Verdict, int, int]
"""What, whom (pid), and on which device."""


@dataclass(frozen=True)
class _Seen:
    """A threat as it is now."""

    key: Key
    text: str
    finding: Finding
    rank: int | None
    device: int | None


@dataclass
class _Standing:
    """A threat over time."""

    since_ns: int
    seen_ns: int
    last: _Seen
    raised_ns: int | None = None


@dataclass
class AlertBook:
    """The threats of one run."""

    _standing: dict[Key, _Standing] = field(default_factory=dict)

    def alerts(self, book: FailureBook, now: Context, devices: tuple[DeviceState, ...]) -> tuple[Alert, ...]:
        """What is to be shown now; nothing once the run is over."""
        if now.over:
            self._standing.clear()
            return ()
        for seen in _threats(book, now, devices):
            known = self._standing.get(seen.key)
            if known is None:
                known = self._standing[seen.key] = _Standing(now.now_ns, now.now_ns, seen)
            known.seen_ns, known.last = now.now_ns, seen
            held = now.now_ns - known.since_ns >= RAISE_NS or seen.key[0] in AT_ONCE
            if known.raised_ns is None and held:
                known.raised_ns = now.now_ns
        for key, standing in list(self._standing.items()):
            if now.now_ns - standing.seen_ns > (HOLD_NS if standing.raised_ns is not None else RAISE_NS * 2):
                del self._standing[key]
        shown = [
            Alert(
                t_ns=standing.raised_ns,
                severity=GRAVITY.get(key[0], Severity.WARNING),
                text=standing.last.text,
                finding=standing.last.finding,
                rank=standing.last.rank,
                device=standing.last.device,
            )
            for key, standing in self._standing.items()
            if standing.raised_ns is not None
        ]
        return tuple(sorted(shown, key=lambda alert: (alert.severity is Severity.INFO, alert.t_ns)))


def _threats(book: FailureBook, now: Context, devices: tuple[DeviceState, ...]) -> Iterator[_Seen]:
    for position, device in enumerate(devices):
        free, total = device.ledger.free.bytes, device.ledger.total.bytes
        gpu = next((g for g in now.driver.gpus.values() if g.gpu.uuid == device.uuid), None)
        if gpu is None or free is None or total is None:
            continue
        for who, model in now.ranks.items():
            ordinal = ordinal_on(model, gpu)
            if ordinal is None or model.bye or not model.device(ordinal).used or not now.alive(who):
                continue
            course = book.course(who)
            for finding in _of_rank(model, course, ordinal, free, total, now.now_ns):
                text = f"{name_of(model)} {finding.headline}"
                if finding.verdict in (Verdict.OPTIMIZER_STATE, Verdict.PRESSURE):
                    text = f"{name_of(model)}: {finding.headline}"
                yield _Seen((finding.verdict, model.pid, position), text, finding, model.number, position)
        if device.ours:
            yield from _of_strangers(book.device(gpu.gpu.index), device, position, free, total, now)


def _of_rank(
    model: RankModel, course: RankCourse, ordinal: int, free: int, total: int, now_ns: int
) -> Iterator[Finding]:
    level = model.device(ordinal).nearest(None)
    if level is None or now_ns - level[0] > FRESH_NS:
        return
    _, allocated, reserved = level
    found = [
        _growth(model, course, ordinal, free + reserved, now_ns),
        _forecast(course, ordinal, free + reserved - allocated),
        threats.pressure(course.retries(ordinal, now_ns - WINDOW_NS), WINDOW_NS / 1e9),
        threats.kept_idle(
            _amount(reserved - allocated, "reserved − allocated"),
            _amount(free, "driver"),
            _amount(total, "driver"),
        ),
    ]
    yield from (finding for finding in found if finding is not None)


def _growth(model: RankModel, course: RankCourse, ordinal: int, most: int, now_ns: int) -> Finding | None:
    points = course.latest_steps(ordinal, trends.MOST)
    slope = trends.slope_of(points) if trends.rises(points) else None
    peak = course.step_peak(ordinal)
    if slope is None or peak is None:
        return None
    grown = _amount(slope.grown_bytes, "allocated at the begin of each step")
    trend = Trend("step", slope.bytes_per_unit, slope.units, grown, slope.steady)
    return threats.growth(
        trend,
        _amount(max(0, most - peak), "free + reserved − the last step's peak"),
        model.step_seconds(now_ns),
    )


def _forecast(course: RankCourse, ordinal: int, room: int) -> Finding | None:
    if course.first_optimizer_ns is not None:
        return None
    waiting = [told for told in course.optimizers if told.ordinal == ordinal]
    state = 0
    for told in waiting:
        makes = first_step_bytes(told.name, told.parameters_bytes or 0, told.options)
        if makes is None:
            return None
        state += max(0, makes - (told.state_bytes or 0))
    if not waiting:
        return None
    names = ", ".join(dict.fromkeys(told.name for told in waiting))
    return threats.optimizer_state(
        names,
        _amount(state, "parameters × what this optimizer keeps"),
        _amount(room, "free + reserved − allocated"),
    )


def _of_strangers(
    course: DeviceCourse, device: DeviceState, position: int, free: int, total: int, now: Context
) -> Iterator[_Seen]:
    """Processes that are not ours, by what they took in the last minute."""
    for other in device.ledger.others:
        curve = course.holders.get(other.pid)
        seen_ns = course.seen_ns.get(other.pid)
        if curve is None or seen_ns is None or other.used.bytes is None:
            continue
        points = curve.series()
        first = bisect_left(points.t_ns, now.now_ns - WINDOW_NS)
        recent = [*zip(points.t_ns[first:], points.low[first:], strict=True)]
        if course.first_list_ns is not None and course.first_list_ns < seen_ns >= now.now_ns - WINDOW_NS:
            recent.insert(0, (max(course.first_list_ns, seen_ns - 1_000_000_000), 0))
        if len(recent) < 2:
            continue
        rise = _rise(recent, other.used.bytes, now.now_ns)
        name = f"process {other.pid}" + (f" ({other.name})" if other.name else "")
        finding = threats.neighbour(name, rise, _amount(free, "driver"), _amount(total, "driver"))
        if finding is not None:
            text = f"GPU {device.index}: {finding.headline}"
            yield _Seen((Verdict.OTHER_PROCESS, other.pid, position), text, finding, None, position)


def _rise(readings: list[tuple[int, int]], used: int, now_ns: int) -> threats.Rise:
    """From the latest of the least readings (moment, bytes) on."""
    start = min(range(len(readings)), key=lambda at: (readings[at][1], -at))
    least_ns, least = readings[start]
    rises = [(b[0], b[1] - a[1]) for a, b in pairwise(readings[start:]) if b[1] > a[1]]
    at_once = max((rose for _, rose in rises), default=0)
    last_ns = rises[-1][0] if rises else least_ns
    return threats.Rise(
        _amount(used - least, "driver"),
        (now_ns - least_ns) / 1e9,
        _amount(at_once, "driver"),
        (now_ns - last_ns) / 1e9,
    )


def _amount(value: int, source: str) -> Amount:
    return Amount.exact(value, source)
