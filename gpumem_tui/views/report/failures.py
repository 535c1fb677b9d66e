"""Failures and findings of a report: what was observed, and what its figures say."""

from collections import Counter
from collections.abc import Sequence

from gpumem_tui import units
from gpumem_tui.analysis.failurestate import ENDS, FailureState
from gpumem_tui.analysis.findings.finding import Finding
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import RunState
from gpumem_tui.records.failure import Pool, Tensor
from gpumem_tui.views import before, present
from gpumem_tui.views.report.charts import chart_before
from gpumem_tui.views.report.sheet import Cell, Column, Item, Section, Table, Words, raw, size, table
from gpumem_tui.views.text import clean

MOST = 20
"""Failures told in full; caught ones may be many."""

WITH_PAST = 3
"""Failures of which the last seconds are told; later ones mostly follow from the first. JSON has them all."""

PARTS = 15
"""The last seconds before a failure are told in so many parts."""

_PAIR = (Column("what"), Column("said"))


def headline(state: RunState) -> Words | None:
    """The first failure in one sentence; None where nothing failed."""
    if not state.failures:
        return None
    first = state.failures[0]
    return Words(f"{clean(first.headline)} ({first.outcome.value})", "failure")


def failure_section(state: RunState) -> Section:
    """What failed, as it was recorded; says so where nothing did."""
    if not state.failures:
        over = state.facts.life in (Life.FAILED, Life.LOST)
        said = f"The run ended ({state.facts.ending or state.facts.life.value}); " if over else ""
        return Section("Failures", (Words(f"{said}{'no' if said else 'No'} failure was recorded."),))
    items: list[Item] = []
    for number, failure in enumerate(state.failures[:MOST], 1):
        items += _observed(number, failure, state)
    if len(state.failures) > MOST:
        items.append(Words(f"… and {len(state.failures) - MOST} more; the JSON report has them all."))
    return Section("Failures", tuple(items))


def finding_sections(state: RunState) -> list[Section]:
    """What the figures of failures say, and of alerts where the run goes on."""
    sections = []
    for number, failure in enumerate(state.failures[:MOST], 1):
        if failure.findings:
            title = f"What the figures of failure {number} say"
            sections.append(Section(title, (Words(clean(failure.headline)), *_findings(failure.findings))))
    if state.alerts:
        items: list[Item] = []
        for alert in state.alerts:
            items += [Words(clean(alert.text), alert.severity.value), *_findings((alert.finding,))]
        sections.append(Section("Trends that threaten the run", tuple(items)))
    return sections


def _observed(number: int, failure: FailureState, state: RunState) -> list[Item]:
    rows: list[list[Cell | str]] = [
        ["when", present.wall_clock(state.facts, failure.t_ns)],
        ["who", f"{present.rank_name(failure.rank, failure.pid)} ({failure.part.value})"],
        ["kind", failure.kind],
        ["what became of it", failure.outcome.value],
    ]
    if failure.exit_code is not None and failure.outcome in ENDS:
        rows.append(["exit code", str(failure.exit_code)])
    if failure.device is not None and failure.device < len(state.devices):
        rows.append(["device", present.device_title(state.devices[failure.device])])
    if failure.phase is not None:
        rows.append(["phase", clean(failure.phase)])
    if failure.step is not None:
        rows.append(["step", f"{failure.step:,}"])
    if failure.requested_bytes is not None:
        rows.append(["requested", _exact(failure.requested_bytes)])
    items: list[Item] = [Words(clean(failure.headline), "failure")]
    items.append(table(f"Failure {number}", _PAIR, rows + _of_record(failure)))
    return items + _before(failure, number, state) + _details(failure, number)


def _before(failure: FailureState, number: int, state: RunState) -> list[Item]:
    """The levels and phases that led to it: highest and last of each part, and drawn where a page can."""
    parts = before.stretches(state, failure, PARTS) if number <= WITH_PAST else []
    if not parts:
        return []
    columns = (
        Column("before", right=True),
        Column("phases", keep=8),
        Column("allocated, highest", right=True),
        Column("reserved, highest", right=True, keep=7),
        Column("device used, highest", right=True, keep=8),
    )
    rows: list[list[Cell | str]] = []
    for part in parts:
        seconds = (failure.t_ns + 1 - part.since_ns) / 1e9
        levels = (part.allocated, part.reserved, part.used)
        cells = [size(None if level is None else level[1], "not read") for level in levels]
        rows.append([units.format_seconds(seconds), ", ".join(part.phases) or "none", *cells])
    each = units.format_seconds((parts[0].until_ns - parts[0].since_ns) / 1e9)
    who = present.rank_name(failure.rank, failure.pid)
    caption = f"Failure {number}, {before.title(state, failure)}: {who}, in parts of {each}"
    drawn = chart_before(state, failure, f"Before failure {number}")
    return [table(caption, columns, rows), *([] if drawn is None else [drawn])]


def _of_record(failure: FailureState) -> list[list[Cell | str]]:
    record = failure.record
    if record is None:
        why = failure.record_reason or "none was written"
        return [["record", Cell(f"{units.MISSING} ({clean(why)})", role="missing")]]
    rows: list[list[Cell | str]] = []
    figures = (("allowed in total", record.allowed_total_bytes), ("free then", record.free_bytes))
    for name, value in figures:
        if value is not None:
            rows.append([name, _exact(value)])
    if record.stack:
        rows.append(["innermost frame", clean(record.stack[-1])])
    rows += [
        [f"{name}, missing", Cell(clean(why), role="missing")] for name, why in sorted(record.missing.items())
    ]
    return rows


def _details(failure: FailureState, number: int) -> list[Item]:
    """Pools and the largest tensors, where the record has them."""
    record = failure.record
    if record is None:
        return []
    items: list[Item] = []
    if record.pools:
        items.append(_pools(record.pools, number))
    if record.parts is not None and record.parts.largest:
        items.append(_tensors(record.parts.largest, number))
    return items


def _pools(pools: Sequence[Pool], number: int) -> Table:
    columns = (
        Column("pool"),
        Column("mapped", right=True, keep=4),
        Column("allocated", right=True, keep=5),
        Column("idle", right=True),
        Column("largest hole", right=True),
        Column("releasable", right=True, keep=2),
        Column("stuck", right=True, keep=3),
    )
    rows: list[list[Cell | str]] = [
        [
            clean(pool.pool),
            size(pool.total_bytes),
            size(pool.allocated_bytes),
            size(pool.idle_bytes),
            size(pool.largest_idle_bytes),
            size(pool.releasable_bytes),
            size(pool.stuck_bytes),
        ]
        for pool in pools
    ]
    return table(f"Pools of the allocator at failure {number}, after its flush", columns, rows)


def _tensors(tensors: Sequence[Tensor], number: int) -> Table:
    """Those that are alike in everything are one row, in the place of the first."""
    columns = (
        Column("tensor"),
        Column("number", right=True, keep=3),
        Column("size of each", right=True),
        Column("shape"),
        Column("kind", keep=2),
    )
    alike = Counter((each.name, each.size_bytes, f"{each.dtype}{each.shape}", each.kind) for each in tensors)
    rows: list[list[Cell | str]] = [
        [clean(name or "no name"), f"{number:,}", size(each_bytes), shape, kind]
        for (name, each_bytes, shape, kind), number in alike.items()
    ]
    return table(f"Largest live tensors at failure {number}", columns, rows)


def _findings(findings: Sequence[Finding]) -> list[Item]:
    items: list[Item] = []
    for finding in findings:
        rows = [["because", f"{clean(each.says)} ({clean(each.source)})"] for each in finding.evidence]
        rows += [["missing", clean(each)] for each in finding.missing]
        if finding.check:
            rows.append(["check", clean(finding.check)])
        if finding.trial:
            rows.append(["next trial", clean(finding.trial)])
        caption = f"{finding.verdict.value} ({finding.strength.value}): {clean(finding.headline)}"
        items.append(table(caption, _PAIR, rows))
    return items


def _exact(value: int) -> Cell:
    return Cell(f"{size(value).text} ({raw(value).text} bytes)", value)
