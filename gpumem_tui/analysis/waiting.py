"""What ``top`` may wait for: a condition on cards, a neighbour's growth, a run out of memory.

A condition is text such as ``free>20GiB on 0 for 30s``. A missing reading fulfils
nothing, and says why. Refuses to act: it tells, and whoever asked rings or runs.
"""

import operator
import re
from collections.abc import Callable, Sequence

import msgspec

from gpumem_tui.analysis.state import ProcessRow, RunState
from gpumem_tui.analysis.top import TopDevice, TopProcess, TopState
from gpumem_tui.errors import BadInput
from gpumem_tui.units import format_bytes, parse_size

_CONDITION = re.compile(
    r"\s*(?P<what>[a-z]+)\s*(?P<sign>>=|<=|>|<|=)\s*(?P<value>[0-9.]+\s*[a-z%]*?)"
    r"(?:\s+on\s+(?P<where>[^\s]+(?:\s*,\s*[^\s]+)*))?(?:\s+for\s+(?P<hold>\d+(?:\.\d+)?)\s*s)?\s*",
    re.IGNORECASE,
)
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
}
_MINUTE_NS = 60_000_000_000

MEMORY_KINDS = ("out of memory", "outside the allocator")
"""Kinds of a run's failures that are one of memory."""

_WHAT = ("free", "used", "utilization", "processes")
_HELP = "write it as 'free>20GiB on 0', 'used<1GiB on any', 'utilization<5% on all' or 'processes<1 on 0,1'"


class Condition(msgspec.Struct, frozen=True):
    """What is waited for."""

    what: str
    """free, used (bytes), utilization (percent) or processes (how many)."""
    sign: str
    value: float
    where: tuple[str, ...]
    """Labels of devices, of which each must fulfil it; ``any`` or ``all``."""
    hold_s: float
    """For how long it must be fulfilled without a break."""
    text: str


class Verdict(msgspec.Struct, frozen=True):
    """How a condition stands."""

    fulfilled: bool
    devices: tuple[TopDevice, ...]
    """Those that fulfil it."""
    now: str
    """The readings, or why there are none: ``GPU 0: free 11.2 GiB``."""


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises :class:`BadInput` with how it is written."""
    found = _CONDITION.fullmatch(text)
    if found is None or found["what"].lower() not in _WHAT:
        raise BadInput(f"--until {text!r} is not understood; {_HELP}")
    what, value = found["what"].lower(), found["value"].strip()
    if what in ("free", "used"):
        number = 0.0 if re.fullmatch(r"0+", value) else float(parse_size(value, what="--until size"))
    elif re.fullmatch(r"\d+(\.\d+)?" + ("%?" if what == "utilization" else ""), value):
        number = float(value.rstrip("%"))
    else:
        raise BadInput(f"--until {text!r}: {value!r} is no number; {_HELP}")
    where = tuple(re.split(r"\s*,\s*", found["where"])) if found["where"] else ("any",)
    if len(where) > 1 and {"any", "all"} & set(where):
        raise BadInput(f"--until {text!r}: any and all stand alone; {_HELP}")
    return Condition(what, found["sign"], number, where, float(found["hold"] or 0), text.strip())


def judge(condition: Condition, state: TopState) -> Verdict:
    """How it stands in this picture."""
    named = {device.label: device for device in state.devices}
    if condition.where in (("any",), ("all",)):
        asked = [device for device in state.devices if not device.split]
    else:
        asked = [named[label] for label in condition.where if label in named]
    fulfilling, said = [], []
    for device in asked:
        value, words = _reading(condition.what, device, state)
        said.append(f"GPU {device.label}: {words}")
        if value is not None and _SIGNS[condition.sign](value, condition.value):
            fulfilling.append(device)
    lacking = [label for label in condition.where if label not in named and label not in ("any", "all")]
    said += [f"GPU {label}: not there" for label in lacking]
    if not asked and not lacking:
        reason = "no device" if state.driver_reason is None else state.driver_reason.value
        said.append(reason)
    if condition.where == ("any",):
        fulfilled = bool(fulfilling)
    else:
        fulfilled = bool(asked) and len(fulfilling) == len(asked) and not lacking
    return Verdict(fulfilled, tuple(fulfilling), "; ".join(said))


def missing_devices(condition: Condition, state: TopState) -> list[str]:
    """Devices that the condition names and that are not there at all."""
    named = {device.label for device in state.devices}
    return [label for label in condition.where if label not in named and label not in ("any", "all")]


def _reading(what: str, device: TopDevice, state: TopState) -> tuple[float | None, str]:
    if what == "utilization":
        if device.utilization is None:
            return None, f"utilization — ({_value(device.load_reason)})"
        return device.utilization, f"utilization {device.utilization} %"
    if what == "processes":
        if device.processes_reason is not None:
            return None, f"processes — ({device.processes_reason.value})"
        count = sum(1 for process in state.processes if process.device == device.index)
        return count, f"{count} {'process' if count == 1 else 'processes'}"
    term = device.ledger.free if what == "free" else device.ledger.device_used
    if term.bytes is None:
        return None, f"{what} — ({_value(term.reason)})"
    return term.bytes, f"{what} {format_bytes(term.bytes)}"


def _value(reason: object) -> str:
    return str(getattr(reason, "value", "unknown"))


class Waiting:
    """A condition over time: fulfilled once it has held long enough without a break."""

    def __init__(self, condition: Condition) -> None:
        self.condition = condition
        self._since_ns: int | None = None
        self.verdict = Verdict(False, (), "not read yet")

    def take(self, state: TopState) -> bool:
        """One picture; whether the waiting is over."""
        self.verdict = judge(self.condition, state)
        if not self.verdict.fulfilled:
            self._since_ns = None
            return False
        if self._since_ns is None:
            self._since_ns = state.now_ns
        return state.now_ns - self._since_ns >= self.condition.hold_s * 1e9


class Alarms:
    """Tells once when a process that is no recorded rank took so much in a minute, or a run ran out of it."""

    def __init__(self, growth_bytes: int | None, *, oom: bool) -> None:
        self._growth_bytes, self._oom = growth_bytes, oom
        self._told: set[tuple[int, int, int]] = set()
        self._heard: set[tuple[str, int]] | None = None

    def take(self, state: TopState) -> Sequence[str]:
        """One picture; what is new in it, a sentence each."""
        return [*self._growths(state), *self._failures(state)]

    def _growths(self, state: TopState) -> list[str]:
        if self._growth_bytes is None:
            return []
        said = []
        for process in state.processes:
            key = (process.device, process.pid, process.since_ns)
            if process.rise_bytes < self._growth_bytes // 2:
                self._told.discard(key)  # it may grow again
            elif process.run is None and process.rise_bytes >= self._growth_bytes:
                if key not in self._told:
                    said.append(growth_sentence(process, state))
                self._told.add(key)
        return said

    def _failures(self, state: TopState) -> list[str]:
        if not self._oom:
            return []
        now = {(alarm.run, alarm.t_ns) for alarm in state.alarms}
        before = now if self._heard is None else self._heard  # what was before we looked is no news
        self._heard = before | now
        return [f"{a.run}: {a.text}" for a in state.alarms if (a.run, a.t_ns) not in before]


def growth_sentence(process: TopProcess, state: TopState) -> str:
    """Who grew, by how much, and what is left."""
    device = next(device for device in state.devices if device.index == process.device)
    who = f"process {process.pid}"
    named = ", ".join(part for part in (process.user, process.name) if part)
    free = device.ledger.free
    left = f"; {format_bytes(free.bytes)} are free" if free.bytes is not None else ""
    return (
        f"GPU {device.label}: {who}{f' ({named})' if named else ''} "
        f"took {format_bytes(process.rise_bytes)} within a minute{left}"
    )


class RunAlarms:
    """The same for one live run: a stranger on its cards that grows, and its own failures of memory."""

    def __init__(self, growth_bytes: int | None, *, oom: bool) -> None:
        self._growth_bytes, self._oom = growth_bytes, oom
        self._told: set[tuple[int, int, int]] = set()
        self._heard: set[tuple[int, int]] | None = None

    def take(self, state: RunState) -> list[str]:
        """One picture; what is new in it, a sentence each."""
        return [*self._growths(state), *self._failures(state)]

    def _growths(self, state: RunState) -> list[str]:
        if self._growth_bytes is None:
            return []
        said = []
        for row in state.processes:
            key = (row.device, row.pid, row.since_ns)
            rise = _rise(row, state)
            if rise < self._growth_bytes // 2:
                self._told.discard(key)
            elif not row.ours and rise >= self._growth_bytes:
                if key not in self._told:
                    named = ", ".join(part for part in (row.user, row.name) if part)
                    who = f"process {row.pid}{f' ({named})' if named else ''}"
                    said.append(f"GPU {row.device}: {who} took {format_bytes(rise)} within a minute")
                self._told.add(key)
        return said

    def _failures(self, state: RunState) -> list[str]:
        if not self._oom:
            return []
        those = [f for f in state.failures if f.kind in MEMORY_KINDS]
        now = {(f.pid, f.t_ns) for f in those}
        before = now if self._heard is None else self._heard
        self._heard = before | now
        return [f.headline for f in those if (f.pid, f.t_ns) not in before]


def _rise(row: ProcessRow, state: RunState) -> int:
    """What a process took within the last minute; all it holds if it came since, and the run was there."""
    if row.growth_bytes is not None:
        return row.growth_bytes
    came = (
        row.since_ns - state.facts.started_ns > _MINUTE_NS // 6 and state.now_ns - row.since_ns < _MINUTE_NS
    )
    return (row.used_bytes or 0) if came else 0
