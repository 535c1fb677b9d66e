"""A sweep: one variable at a time, every value in a process of its own, and what the outcomes say. Pure.

Owns which value is tried next and how the outcomes are told. Keeps failures as
observations. Refuses to call the last success a need, or the peaks of an attempt
that failed the peaks of its value: the boundary is an interval, told as such, and
only where every outcome agrees with one.

``sweep.json``, in a folder of the sweep's name beside the recordings, is one :class:`Sweep`
with the fields of the classes below: sizes are raw bytes, times nanoseconds, what was not
read is null. It is replaced whole after each attempt. Fields and values are only ever added.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum

import msgspec

from gpumem_tui.errors import BadInput, UsageError
from gpumem_tui.records.revision import Revision

MOST_VALUES = 1000
MOST_NUMBER = 1 << 40


class Outcome(str, Enum):
    """How an attempt ended. The values are stable."""

    PASSED = "passed"
    CAUGHT = "passed, out of memory caught"
    """It ended in order, and met an out-of-memory error on its way that it caught."""
    OUT_OF_MEMORY = "out of memory"
    FAILED = "failed"
    """It ended otherwise: evidence of nothing about memory."""
    INTERRUPTED = "interrupted"
    """The sweep was ended, or lost, while it ran: made again when the sweep is resumed."""


_BY_WEIGHT = (
    Outcome.PASSED, Outcome.CAUGHT, Outcome.INTERRUPTED, Outcome.FAILED, Outcome.OUT_OF_MEMORY,
)  # fmt: skip
"""Of the cases of a value, the last of these speaks for it: one that ran out is enough."""


class Variable(msgspec.Struct, frozen=True):
    """What is varied, and its values in order."""

    name: str
    values: tuple[str, ...]


class Step(msgspec.Struct, frozen=True):
    """One attempt that is to be made."""

    variable: str
    value: str
    case: tuple[tuple[str, str], ...]
    """Values of the names that every value of the series is tried with."""
    settings: tuple[tuple[str, str], ...]
    """Every placeholder with its value."""
    bisecting: bool = False
    base: bool = False
    """Every variable at its first value: tried once, it belongs to the series of each."""

    def said(self) -> str:
        """``batch=2 input=long``: all settings, in their order."""
        return " ".join(f"{name}={value}" for name, value in self.settings)

    def value_of(self, name: str) -> str | None:
        """The value of a variable, if this step is one of its series."""
        return dict(self.settings)[name] if self.base else self.value if self.variable == name else None


class Peak(msgspec.Struct, frozen=True):
    """The highest that one process was on one device; two maxima of two counters."""

    rank: int | None
    pid: int
    ordinal: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int


class Attempt(msgspec.Struct, frozen=True):
    """What became of a step. Peaks of a failed attempt are those it reached, not those of its value."""

    order: int
    step: Step
    outcome: Outcome
    exit_code: int | None
    """None where nobody saw its end: the machine was lost."""
    run: str
    duration_ns: int | None = None
    peaks: tuple[Peak, ...] = ()
    device_used_bytes: tuple[int | None, ...] = ()
    """The highest reading of total − free for each device, of all processes and the driver's own
    share; None where there was none."""
    failed_phase: str | None = None
    inputs: tuple[str, ...] = ()
    """The largest tensors that really entered root modules."""


class Verdict(str, Enum):
    """What the outcomes of a series say. The values are stable."""

    BETWEEN = "between"
    NOT_REACHED = "not reached"
    BELOW = "below the smallest tried"
    NOT_MONOTONIC = "not monotonic"
    UNKNOWN = "unknown"


class Boundary(msgspec.Struct, frozen=True):
    """Where memory runs out, as far as the attempts tell."""

    verdict: Verdict
    sentence: str
    largest_passed: int | None = None
    smallest_out_of_memory: int | None = None


_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def variable_of(text: str, option: str = "--vary") -> Variable:
    """``batch=1,2,4`` as a variable. Raises :class:`BadInput`."""
    name, sign, rest = text.partition("=")
    values = [value.strip() for value in rest.split(",")]
    if not sign or not _WORD.fullmatch(name) or not all(values):
        raise BadInput(f"{option} {text!r} is not understood; write it as batch=1,2,4,8")
    if len(set(values)) < len(values):
        raise BadInput(f"{option} {text!r} names a value twice; every value is tried once")
    if len(values) > MOST_VALUES:
        raise BadInput(f"{option} {name} has {len(values)} values; take at most {MOST_VALUES}")
    return Variable(name, tuple(values))


def check_placeholders(command: Sequence[str], names: Iterable[str]) -> None:
    """Every name stands in the command as ``{name}``. Raises :class:`UsageError` where one does not."""
    text = " ".join(command)
    for name in names:
        if f"{{{name}}}" not in text:
            raise UsageError(f"the command does not use {{{name}}}; write it where its value belongs")


def fill(command: Sequence[str], settings: Mapping[str, str]) -> list[str]:
    """The command with every ``{name}`` of ``settings`` replaced; other braces stay."""
    pattern = re.compile("|".join(re.escape(f"{{{name}}}") for name in settings))
    return [pattern.sub(lambda found: settings[found[0][1:-1]], word) for word in command]


def numbers_of(variable: Variable) -> list[int]:
    """Its values as rising whole numbers, for bisection. Raises :class:`BadInput`."""
    try:
        numbers = [int(value) for value in variable.values]
    except ValueError:
        raise BadInput(
            f"--until-oom needs whole numbers, and {variable.name} has {', '.join(variable.values)}"
        ) from None
    if any(not 0 < number <= MOST_NUMBER for number in numbers) or numbers != sorted(numbers):
        raise BadInput(
            f"--until-oom needs rising values from 1 on, and {variable.name} has {', '.join(variable.values)}"
        )
    return numbers


def planned(variables: Sequence[Variable], cases: Sequence[Variable]) -> Iterator[Step]:
    """The listed values, one variable at a time in order; the others stay at their first value.

    What all series begin with is made once: the same command again would tell nothing of a variable.
    """
    for number, variable in enumerate(variables):
        for value in variable.values[1 if number else 0 :]:
            yield from steps_of(variable.name, value, variables, cases)


def steps_of(
    name: str, value: str, variables: Sequence[Variable], cases: Sequence[Variable], bisecting: bool = False
) -> Iterator[Step]:
    """One value of one variable, with every case that is kept through the series."""
    first = {variable.name: variable.values[0] for variable in variables}
    settings = first | {name: value}
    for case in _cases(cases):
        yield Step(
            name, value, case, tuple((settings | dict(case)).items()), bisecting, base=settings == first
        )


def _cases(cases: Sequence[Variable]) -> list[tuple[tuple[str, str], ...]]:
    found: list[tuple[tuple[str, str], ...]] = [()]
    for case in cases:
        found = [(*before, (case.name, value)) for before in found for value in case.values]
    return found


def next_number(attempts: Sequence[Attempt], name: str, most: int, grain: int = 1) -> int | None:
    """The next value to try on the way to the boundary; None where there is nothing left to learn.

    Doubles while nothing ran out of memory, up to ``most``; then halves the interval
    down to ``grain``; then looks beside it, for halving alone takes for granted that
    there is one boundary. Stops at a failure that is not memory, and where outcomes
    do not agree with one boundary.
    """
    by_value = outcomes(attempts, name)
    if Outcome.FAILED in by_value.values() or not by_value:
        return None
    passed = [value for value, outcome in by_value.items() if outcome is not Outcome.OUT_OF_MEMORY]
    ran_out = [value for value, outcome in by_value.items() if outcome is Outcome.OUT_OF_MEMORY]
    low, high = max(passed, default=0), min(ran_out, default=None)
    if high is None:
        return min(2 * low, most) if low < most else None
    if low > high:
        return None
    if high - low > grain:
        return low + (high - low) // 2
    beside = (2 * high, high + grain, low - grain) if passed else ()
    return next((value for value in beside if 0 < value <= most and value not in by_value), None)


def cut_short(attempts: Sequence[Attempt], name: str) -> str | None:
    """Why a search can say nothing more of a boundary: the attempt that failed for another reason."""
    failed = next((a for _, a in _series(attempts, name) if a.outcome is Outcome.FAILED), None)
    if failed is None:
        return None
    said = f"{failed.step.said()} failed for another reason (its output: {failed.order:02d}.log)"
    return f"the search for {name} ended as {said}"


def standing(attempts: Sequence[Attempt]) -> list[Attempt]:
    """The attempts that speak for their step: one that was interrupted does not, once it was made again."""
    last = {attempt.step.settings: attempt for attempt in attempts}
    return [a for a in attempts if a.outcome is not Outcome.INTERRUPTED or last[a.step.settings] is a]


def is_done(attempts: Sequence[Attempt], step: Step) -> bool:
    """Whether nothing more is to be learned from a step: it was made, and not interrupted."""
    return any(a.step.settings == step.settings and a.outcome is not Outcome.INTERRUPTED for a in attempts)


def searched(attempts: Sequence[Attempt], name: str) -> list[str]:
    """The values that a search for the boundary has begun with, each once, in their order."""
    steps = [attempt.step for attempt in attempts if attempt.step.variable == name]
    return list(dict.fromkeys(step.value for step in steps if step.bisecting))


def outcomes(attempts: Sequence[Attempt], name: str) -> dict[int, Outcome]:
    """The outcome of each value of a variable: it passed only if it did in all its cases."""
    found: dict[int, Outcome] = {}
    for value, attempt in _series(attempts, name):
        if value.isdecimal():
            known = found.get(int(value), Outcome.PASSED)
            found[int(value)] = max(known, attempt.outcome, key=_BY_WEIGHT.index)
    return found


def _series(attempts: Sequence[Attempt], name: str) -> list[tuple[str, Attempt]]:
    """The attempts of one variable, each with its value."""
    valued = [(attempt.step.value_of(name), attempt) for attempt in standing(attempts)]
    return [(value, attempt) for value, attempt in valued if value is not None]


def boundary(attempts: Sequence[Attempt], name: str) -> Boundary:
    """What the attempts say of one variable; never that the largest success is what is needed."""
    by_value = outcomes(attempts, name)
    if not by_value or not all(value.isdecimal() for value, _ in _series(attempts, name)):
        return Boundary(Verdict.UNKNOWN, f"{name}: values without an order have no boundary")
    passed = sorted(v for v, outcome in by_value.items() if outcome in (Outcome.PASSED, Outcome.CAUGHT))
    low = max(passed, default=None)
    high = min((v for v, outcome in by_value.items() if outcome is Outcome.OUT_OF_MEMORY), default=None)
    note = _notes(by_value, name)
    ran_out = "" if high is None else f"{high} ran out of memory{_in_cases(attempts, name, high)}"
    if low is not None and high is not None and low > high:
        above = ", ".join(str(v) for v in passed if v > high)
        said = f"{name} is not monotonic: {ran_out}, and {above} passed; there is no one boundary{note}"
        return Boundary(Verdict.NOT_MONOTONIC, said, low, high)
    if high is None and low is None:
        return Boundary(Verdict.UNKNOWN, f"{name}: no value passed or ran out of memory{note}")
    if high is None:
        return Boundary(Verdict.NOT_REACHED, f"{name}: nothing ran out of memory up to {low}{note}", low)
    if low is None:
        said = f"{name}: already the smallest that was tried, {ran_out}{note}"
        return Boundary(Verdict.BELOW, said, None, high)
    said = f"{name}: {low} passed and {ran_out}, in these runs{note}"
    return Boundary(Verdict.BETWEEN, said, low, high)


def _notes(by_value: Mapping[int, Outcome], name: str) -> str:
    """What is to be known of the other values."""

    def values(outcome: Outcome) -> str:
        return ", ".join(str(value) for value in sorted(by_value) if by_value[value] is outcome)

    notes = (
        (Outcome.CAUGHT, "passed after an out-of-memory error that the program caught"),
        (Outcome.FAILED, "failed for another reason and says nothing about memory"),
        (Outcome.INTERRUPTED, "was interrupted"),
    )
    return "".join(f"; {name}={values(o)} {said}" for o, said in notes if o in by_value.values())


def _in_cases(attempts: Sequence[Attempt], name: str, number: int) -> str:
    """In which of its cases a value ran out of memory, where not in all."""
    tried = [attempt for value, attempt in _series(attempts, name) if int(value) == number]
    out = [attempt for attempt in tried if attempt.outcome is Outcome.OUT_OF_MEMORY]
    if len(out) == len(tried):
        return ""
    return " with " + ", ".join(" ".join(f"{n}={v}" for n, v in attempt.step.case) for attempt in out)


class Options(msgspec.Struct, frozen=True):
    """How the attempts are run and how far a search goes, so that a sweep can be resumed."""

    cwd: str
    protocol: str
    kernel_us: str | None
    sim_set: tuple[str, ...]
    no_peak_reset: bool
    anyway: bool
    until_oom: bool
    grain: int
    most: int
    attempts: int
    """Attempts after which a search ends."""


class Resumption(msgspec.Struct, frozen=True):
    """Where an interrupted sweep was gone on with."""

    after: int
    """Attempts that there were."""
    wall_ns: int
    host: str
    version: str
    """Of gpumem-tui."""
    revision: Revision
    """Of the code then."""


VERSION = 1
"""Version of the JSON document, as ``gpumem_tui_sweep``."""


class Sweep(msgspec.Struct, frozen=True):
    """All of it, as ``sweep.json`` keeps it. Rewritten after each attempt."""

    name: str
    command: tuple[str, ...]
    """With its placeholders."""
    variables: tuple[Variable, ...]
    cases: tuple[Variable, ...]
    simulated: str | None
    """Sizes of the simulated cards; null for real ones."""
    labels: dict[str, str]
    started_wall_ns: int
    attempts: tuple[Attempt, ...] = ()
    boundaries: tuple[Boundary, ...] = ()
    """One for each variable."""
    stopped: str | None = None
    """Why attempts are missing: ``interrupted``, that there were as many as were asked for, or that
    one failed for another reason than memory."""
    gpumem_tui_sweep: int = VERSION
    host: str | None = None
    version: str | None = None
    """Of gpumem-tui."""
    revision: Revision | None = None
    """Of the code where the sweep was started; the recording of each attempt has its whole identity."""
    options: Options | None = None
    """Null in files of before there was resuming."""
    resumed: tuple[Resumption, ...] = ()
