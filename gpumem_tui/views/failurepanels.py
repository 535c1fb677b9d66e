"""One failure as sections of lines: headline, request against holes, findings, and all that was kept.

Owns the order of the sections and their layout; refuses verdicts (``analysis.findings``)
and colours. What a record lacks is said where it would stand, with its reason.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.failurestate import FailureState, Outcome, Part
from gpumem_tui.analysis.findings.finding import Finding, Strength, Verdict
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import RunState, Severity
from gpumem_tui.views import panels, present
from gpumem_tui.views.failureparts import (
    composition_lines,
    holders_lines,
    missing_lines,
    settings_lines,
    stack_lines,
)
from gpumem_tui.views.failurepast import past
from gpumem_tui.views.memorymappanel import hole_bytes, idle_bytes, pool_lines
from gpumem_tui.views.prose import wrapped
from gpumem_tui.views.text import TEXTURE, Line, Span, clean, fit, left, right

FAILURE_WORDS = {
    "asked for": "what the allocator asked the driver for: a segment, no tensor",
    "largest hole": "no request above it fits into the pools that could serve it",
    "idle": "reserved by PyTorch, in no live block",
    "stuck": "idle, in a segment that a live block keeps",
    "releasable": "idle, in segments without a live block",
    "first cause": "the failure that came first and ended its process",
    "victim": "ended because another rank had failed",
    "verdict": "supported by figures, possible, or undecided: what is lacking",
}
"""What the words of this screen mean, in a clause."""

_LABEL, _FIGURE = 15, 9
"""Cells of a bar's name and figure."""


class Section(NamedTuple):
    """A part of the screen: its heading and rows."""

    title: str
    rows: list[Line]
    main: bool = True
    """Left of two columns where it is wide."""


def sections(state: RunState, failure: FailureState, cells: int) -> list[Section]:
    """Everything about a failure, what matters most first; ``cells`` is the width of every row."""
    record = failure.record
    made = [
        Section(_title(state, failure), _headline(state, failure, cells)),
        Section("why, and what to try next", lead_lines(failure.findings, cells)),
        Section("what was asked, and what was there", _reach(failure, cells)),
        Section(*_ledger(state, failure, cells)),
        Section(_rests(failure.findings), rest_lines(failure.findings, cells), False),
        Section(*past(state, failure, cells), False),
        Section("ranks", _ranks(state, failure, cells), False),
        Section("the other ranks at that instant", _others(failure, cells), False),
        Section("what allocated was made of", composition_lines(record, cells)),
        Section("pools after the last flush", pool_lines(record.pools, cells) if record else []),
        Section("processes, as the driver listed them then", holders_lines(state, failure, cells), False),
        Section("Python stack, innermost first", stack_lines(record, cells), False),
        Section("settings and host", settings_lines(record, cells)),
        Section("not known, and why", missing_lines(failure, cells), False),
    ]
    return [section for section in made if section.rows]


def _title(state: RunState, failure: FailureState) -> str:
    count = len(state.failures)
    number = next((n for n, one in enumerate(state.failures, 1) if one is failure), 1)
    return f"failure {number} of {count}" if count > 1 else "failure"


def _headline(state: RunState, failure: FailureState, cells: int) -> list[Line]:
    lines = wrapped(failure.headline, cells, "failure", first="   ")
    lines += wrapped("  ".join(who(state, failure)), cells, "text", first="   ")
    role = "warning" if failure.part is Part.FIRST else "dim"
    alone = len(state.ranks) < 2 or failure.outcome is Outcome.CAUGHT
    part = "" if alone else f"{_PARTS[failure.part]}; "
    became = _OUTCOMES[failure.outcome] + _code(failure)
    if failure.thread is not None and failure.outcome is not Outcome.ENDED:
        went = "; the program went on" if failure.outcome is Outcome.CAUGHT else f"; {became}"
        became = f"it ended thread {clean(failure.thread)}{went}"
    return [*lines, *wrapped(f"{part}{became}", cells, role, first="   ")]


_PARTS = {
    Part.FIRST: "the first cause",
    Part.VICTIM: "a victim of another rank's failure",
    Part.ALONE: "its own failure, beside another rank's",
}
_OUTCOMES = {
    Outcome.ENDED: "it ended the process",
    Outcome.CAUGHT: "the program caught it and went on",
    Outcome.LEFT: "the program caught it, and ended by itself soon after",
    Outcome.QUIT: "the program handled it, and left by itself",
    Outcome.GONE: "the process was gone after it, whether by it is not told",
    Outcome.OPEN: "whether it ends the process is not known",
}
_WITH_CODE = frozenset({Outcome.LEFT, Outcome.QUIT, Outcome.GONE})


def _code(failure: FailureState) -> str:
    """The exit code, where it says more than what became of the failure."""
    if failure.exit_code is None or failure.outcome not in _WITH_CODE:
        return ""
    return f" (exit code {failure.exit_code})"


def who(state: RunState, failure: FailureState) -> list[str]:
    """``rank 0``, ``GPU 0 (cuda:0)``, ``step 118``, ``train › forward``, ``14:02:31``."""
    parts = [present.rank_name(failure.rank, failure.pid)]
    place = "" if failure.ordinal is None else f"cuda:{failure.ordinal}"
    if failure.device is not None and failure.device < len(state.devices):
        card = f"GPU {state.devices[failure.device].index}"
        parts.append(f"{card} ({place})" if place else card)
    elif place:
        parts.append(place)
    if failure.step is not None:
        parts.append(f"step {failure.step}")
    parts.append(clean(failure.phase).replace(" > ", " › ") if failure.phase else "in no phase")
    parts.append(present.wall_clock(state.facts, failure.t_ns))
    return parts


# --- what was asked, and what was there --------------------------------------------------------------


def _reach(failure: FailureState, cells: int) -> list[Line]:
    record, asked = failure.record, failure.requested_bytes
    if record is None and asked is None:
        return []
    hole, idle = hole_bytes(record), idle_bytes(record)
    free = record.free_bytes if record is not None else None
    why = record.missing.get("pools", "") if record is not None else failure.record_reason or ""
    rows = (
        ("asked for", asked, "allocated", ""),
        ("largest hole", hole, "cached", why),
        ("idle in pools", idle, "cached", why),
        ("free on the GPU", free, "free", ""),
    )
    most = max((size for _, size, _, _ in rows if size is not None), default=0)
    room = max(1, cells - _LABEL - _FIGURE - 7)
    goal = None if asked is None or not most else max(1, round(asked * room / most))
    lines = [_bar_row(name, size, role, reason, most, room, goal, cells) for name, size, role, reason in rows]
    return lines + [
        line for text in _reach_remarks(failure) for line in wrapped(text, cells, "remark", first="   ")
    ]


def _bar_row(
    name: str,
    size: int | None,
    role: str,
    reason: str,
    most: int,
    room: int,
    goal: int | None,
    cells: int,
) -> Line:
    start = [Span(f"   {left(name, _LABEL)} "), Span(right(units.format_bytes(size), _FIGURE), "strong")]
    if size is None:
        return fit((*start, Span(f"  {clean(reason) or 'not recorded'}", "missing")), cells)
    long = min(room, max(1, round(size * room / most))) if size and most else 0
    spans = [*start, Span("  "), Span(TEXTURE[role] * long, role)]
    if goal is not None and long < goal:
        spans += [Span(" " * (goal - long - 1)), Span("│", "rule")]
    return fit(spans, cells)


_SEGMENTS = {2 * units.MIB: "any tensor of up to 1 MiB", 20 * units.MIB: "any tensor of 1 to 10 MiB"}


def _reach_remarks(failure: FailureState) -> list[str]:
    remarks = []
    record = failure.record
    expandable = record is not None and record.settings is not None and record.settings.expandable_segments
    if failure.requested_bytes in _SEGMENTS and not expandable:
        remarks.append(
            f"asked is the allocator's segment: it stands for {_SEGMENTS[failure.requested_bytes]}"
        )
    if record is None:
        return remarks
    fraction = record.settings.memory_fraction if record.settings is not None else None
    if fraction is not None and fraction < 1:
        allowed = units.format_bytes(record.allowed_total_bytes)
        remarks.append(f"this process may reserve {allowed}: a memory fraction of {fraction:g} is set")
    return remarks


def _ledger(state: RunState, failure: FailureState, cells: int) -> tuple[str, list[Line]]:
    title = "the card at that instant"
    if failure.ledger is None or failure.device is None or failure.device >= len(state.devices):
        return title, []
    device = msgspec.structs.replace(state.devices[failure.device], ledger=failure.ledger)
    then = msgspec.structs.replace(state, now_ns=failure.t_ns)
    _, *lines = panels.device_block(device, then, cells)
    return f"{present.device_title(device)} at that instant: {present.device_usage(device)}", lines


# --- findings ----------------------------------------------------------------------------------------


def lead_lines(findings: Sequence[Finding], cells: int) -> list[Line]:
    """What a hurried reader needs of the first finding: verdict, next trial, check, and what it lacks."""
    return _verdict(findings[0], cells, "strong") if findings else []


def _rests(findings: Sequence[Finding]) -> str:
    return "what that rests on" + (", and what else it may be" if len(findings) > 1 else "")


def rest_lines(findings: Sequence[Finding], cells: int) -> list[Line]:
    """The evidence of the first finding, and all of the others."""
    told: set[str] = set()
    lines = _evidence(findings[0], cells, told) if findings else []
    for finding in findings[1:]:
        lines += [*_verdict(finding, cells, "text"), *_evidence(finding, cells, told)]
    return lines


def finding_lines(findings: Sequence[Finding], cells: int) -> list[Line]:
    """Each finding with everything about it."""
    told: set[str] = set()
    lines: list[Line] = []
    for number, finding in enumerate(findings):
        lines += _verdict(finding, cells, "text" if number else "strong")
        lines += _evidence(finding, cells, told)
    return lines


def _verdict(finding: Finding, cells: int, role: str) -> list[Line]:
    unknown = finding.verdict is Verdict.UNKNOWN or finding.strength is Strength.UNDECIDED
    strength = "" if finding.strength is Strength.SUPPORTED else f" ({finding.strength.value})"
    says = f"{finding.verdict.value}{strength}: {finding.headline}"
    lines = wrapped(says, cells, "warning" if unknown else role, first="   ")
    for word, text, strong in (("try    ", finding.trial, "key"), ("check  ", finding.check, "text")):
        if text:
            lines += wrapped(text, cells, strong, first=f"     {word}")
    for what in finding.missing:
        lines += wrapped(what, cells, "missing", first="     lacks  ")
    return lines


def _evidence(finding: Finding, cells: int, told: set[str]) -> list[Line]:
    """What two findings rest on is said once."""
    says = [f"{one.says} ({one.source})" for one in finding.evidence]
    new = [each for each in dict.fromkeys(says) if each not in told]
    told.update(new)
    return [line for each in new for line in wrapped(each, cells, "dim", first="     · ")]


# --- ranks -------------------------------------------------------------------------------------------


def _ranks(state: RunState, failure: FailureState, cells: int) -> list[Line]:
    """Each rank's part in it, by time; ranks that did not fail last."""
    if len(state.ranks) + len(state.failures) < 3:
        return []
    lines = []
    failed = set()
    for one in state.failures:
        if one.pid in failed and one is not failure:
            continue
        failed.add(one.pid)
        at = present.wall_clock(state.facts, one.t_ns)
        role = "failure" if one.part is Part.FIRST else "text"
        mark = "▸" if one is failure else " "
        name = present.rank_name(one.rank, one.pid)
        what = f"{one.part.value}: {one.kind}" if one.outcome is not Outcome.CAUGHT else "caught: " + one.kind
        asked = (
            "" if one.requested_bytes is None else f", asked for {units.format_bytes(one.requested_bytes)}"
        )
        place = f" in {clean(one.phase).replace(' > ', ' › ')}" if one.phase else ""
        lines.append(
            fit(
                (
                    Span(f" {mark} {at}  ", "dim"),
                    Span(f"{name}  ", "strong"),
                    Span(what + asked + place, role),
                ),
                cells,
            )
        )
    for rank in state.ranks:
        if rank.pid in failed:
            continue
        told = {Life.RUNNING: "running", Life.ENDED: "ended in order"}
        words = present.end_word(rank) or told.get(rank.life, rank.life.value)
        phase = " › ".join(clean(span.phase) for span in rank.spans)
        spoke = present.wall_clock(state.facts, rank.spoke_ns)
        tail = f", last heard at {spoke}" + (f" in {phase}" if phase else "")
        name = present.rank_name(rank.rank, rank.pid)
        lines.append(
            fit((Span(f"   {'':8}  "), Span(f"{name}  ", "strong"), Span(words + tail, "dim")), cells)
        )
    return lines


def _others(failure: FailureState, cells: int) -> list[Line]:
    """What every other rank was in, and what it held where it held most."""
    lines = []
    for other in failure.others:
        place = clean(other.phase).replace(" > ", " › ") if other.phase else "in no phase"
        step = "" if other.step is None else f", step {other.step}"
        held = ", nothing held"
        if other.reserved_bytes is not None:
            allocated, reserved = map(units.format_bytes, (other.allocated_bytes, other.reserved_bytes))
            held = f": allocated {allocated} of {reserved} reserved on cuda:{other.ordinal}"
        name = present.rank_name(other.rank, other.pid)
        lines += wrapped(f"{place}{step}{held}", cells, "text", first=f"   {left(name, 8)} ")
    return lines


def alert_lines(state: RunState, cells: int) -> list[Line]:
    """What threatens the run, or has ended it, in a line each; the overview shows the first."""
    first = state.failures[0] if state.failures else None
    told = []
    if first is not None and first.outcome is not Outcome.CAUGHT and not _was_asked_for(first):
        told.append(("failure", first.headline))
    told += [(_LOUDNESS[alert.severity], alert.text) for alert in state.alerts]
    return [fit((Span(f" ▲ {clean(text)}", role),), cells) for role, text in told]


def _was_asked_for(failure: FailureState) -> bool:
    """Whether people have interrupted it: its screen tells, but nothing is wrong."""
    error = failure.record.error if failure.record is not None else None
    return error is not None and error.partition(":")[0] == "KeyboardInterrupt"


_LOUDNESS = {Severity.INFO: "text", Severity.WARNING: "warning", Severity.FAILURE: "failure"}


def failure_lines(state: RunState, failure: FailureState, cells: int) -> list[Line]:
    """Everything as one column, each section under its heading."""
    lines: list[Line] = []
    for section in sections(state, failure, cells):
        lines += [panels.rule(section.title, cells), *section.rows]
    return lines
