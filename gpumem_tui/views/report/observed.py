"""The observed part of a report: levels, phases, composition, loads, holders, events, identity."""

from collections.abc import Iterable

from gpumem_tui import units
from gpumem_tui.analysis.loads import largest_loads
from gpumem_tui.analysis.provenance import Identity
from gpumem_tui.analysis.rankstate import PhaseRow, RankState
from gpumem_tui.analysis.spread import spreads
from gpumem_tui.analysis.state import RunState, Severity
from gpumem_tui.views import holders, phases, present
from gpumem_tui.views.report.sheet import Cell, Column, Item, Section, Words, raw, size, table
from gpumem_tui.views.text import clean

EVENTS = 40
"""The latest events, and all warnings and failures among the others."""

_PAIR = (Column("what"), Column("said"))


def level_section(state: RunState) -> Section:
    """Last counters and life-long peaks of every rank on every device."""
    columns = (
        Column("rank"),
        Column("device"),
        Column("allocated, last", right=True, keep=5),
        Column("reserved, last", right=True, keep=4),
        Column("peak allocated", right=True),
        Column("peak reserved", right=True),
        Column("retries", right=True, keep=2),
        Column("out of memory", right=True, keep=3),
        Column("empty_cache", right=True, keep=1),
    )
    where = phases.places(state)
    rows: list[list[Cell | str]] = []
    for rank in _by_rank(state):
        peaks = {peak.ordinal: peak for peak in rank.peaks}
        flushes = dict(rank.marks).get("empty_cache", 0)
        for level in rank.levels:
            peak = peaks.get(level.ordinal)
            rows.append(
                [
                    present.rank_name(rank.rank, rank.pid),
                    _place(rank.pid, level.ordinal, where),
                    size(level.allocated_bytes, "not read"),
                    size(level.reserved_bytes, "not read"),
                    size(None if peak is None else peak.peak_allocated_bytes, "not read yet"),
                    size(None if peak is None else peak.peak_reserved_bytes, "not read yet"),
                    _count(level.alloc_retries),
                    _count(level.ooms),
                    f"≥ {flushes:,}" if flushes else "0",
                ]
            )
    if not rows:
        return Section(
            "Counters of the ranks", (Words("No process of this run has used PyTorch's allocator."),)
        )
    return Section(
        "Counters of the ranks",
        (
            table("Last values, and the highest over the life of each process", columns, rows),
            Words("Two peaks are maxima of two counters; they need not have happened together."),
            *_ends(state),
        ),
    )


def _ends(state: RunState) -> list[Item]:
    """Processes that did not end in order, and when they last spoke."""
    rows: list[list[Cell | str]] = [
        [present.rank_name(rank.rank, rank.pid), word, present.wall_clock(state.facts, rank.spoke_ns)]
        for rank in _by_rank(state)
        if (word := present.end_word(rank))
    ]
    if not rows:
        return []
    columns = (Column("rank"), Column("how it ended"), Column("last heard"))
    return [table("Processes that did not end in order", columns, rows)]


_CUT_SHORT = "≥ of a phase that failed: reached before the error; what it would have needed is not known."


def phase_section(state: RunState) -> Section:
    """Phases that passed and failed, cold and warm apart, and those that never ended."""
    where = phases.places(state)
    rows = [_phase_row(row, where) for row in phases.ordered(state.phases)]
    items: list[Item] = []
    if rows:
        columns = (
            Column("rank", keep=8),
            Column("phase"),
            Column("name", keep=3),
            Column("device", keep=5),
            Column(""),
            Column("spans", right=True, keep=6),
            Column("outcome", keep=8),
            Column("allocated at start", right=True, keep=2),
            Column("peak allocated", right=True),
            Column("allocated at end", right=True, keep=4),
            Column("reserved at start", right=True, keep=1),
            Column("peak reserved", right=True),
            Column("reserved at end", right=True, keep=4),
            Column("median", right=True, keep=7),
            Column("growth a span", right=True, keep=6),
        )
        items.append(
            table(
                "Finished spans by phase; cold is the first of a process, warm all later ones", columns, rows
            )
        )
        items += [Words(remark) for remark in phases.phase_remarks(state)]
        if any(row.errors for row in state.phases):
            items.append(Words(_CUT_SHORT))
        items += _compared(state)
    open_spans = [
        [
            present.rank_name(rank.rank, rank.pid),
            clean(holders.span_name(span.phase, span.name)),
            _count(span.step),
        ]
        for rank in _by_rank(state)
        for span in rank.spans
    ]
    if open_spans:
        over = state.facts.ended_ns is not None
        caption = "Spans that never ended: they failed with their process" if over else "Open spans"
        items.append(
            table(caption, (Column("rank"), Column("phase"), Column("step", right=True)), open_spans)
        )
    return Section("Phases", tuple(items) or (Words("No phase was seen."),))


def _phase_row(row: PhaseRow, where: dict[tuple[int, int], str]) -> list[Cell | str]:
    failed = Cell(f"{row.errors} of {row.count} failed", role="failure")
    bound = not row.exact or row.errors > 0
    return [
        f"{row.rank}" if row.rank is not None else f"pid {row.pid}",
        clean(row.phase),
        "" if row.name == row.phase else clean(row.name),
        _place(row.pid, row.ordinal, where),
        "cold" if row.cold else "warm",
        f"{row.count:,}",
        failed if row.errors else "passed",
        size(row.start_allocated_bytes),
        size(row.peak_allocated_bytes, bound=bound),
        size(row.end_allocated_bytes),
        size(row.start_reserved_bytes),
        size(row.peak_reserved_bytes, bound=bound),
        size(row.end_reserved_bytes),
        units.format_seconds(None if row.duration_ns is None else row.duration_ns / 1e9),
        _growth(row),
    ]


def _growth(row: PhaseRow) -> Cell | str:
    growth = row.end_growth_bytes or row.peak_growth_bytes
    if growth:
        return Cell(f"+{units.format_bytes(growth)}", growth, "warning")
    return "none" if row.end_growth_bytes is not None else ""


def _compared(state: RunState) -> list[Item]:
    """The same phase on several ranks; nothing where there is one rank only."""
    rows: list[list[Cell | str]] = []
    for spread in spreads(phases.ordered(state.phases)):
        row: list[Cell | str] = [
            clean(holders.span_name(spread.phase, spread.name)),
            "cold" if spread.cold else "warm",
            f"{spread.ranks}",
        ]
        for most, least in (
            (spread.most_allocated, spread.least_allocated),
            (spread.most_reserved, spread.least_reserved),
        ):
            for holder in (most, least):
                alike = holder is least and least.bytes == most.bytes
                who = "all" if alike else present.rank_name(holder.rank, holder.pid)
                row += [size(holder.bytes, bound=not spread.exact), who]
        rows.append(row)
    columns = (
        Column("phase"),
        Column("", keep=3),
        Column("ranks", right=True, keep=2),
        Column("most allocated", right=True),
        Column("by"),
        Column("least allocated", right=True),
        Column("by"),
        Column("most reserved", right=True, keep=5),
        Column("by", keep=5),
        Column("least reserved", right=True, keep=4),
        Column("by", keep=4),
    )
    return [table("Peaks of the same phase on several ranks", columns, rows)] if rows else []


def composition_section(state: RunState) -> Section | None:
    """What allocated was made of; None where nobody has looked."""
    items: list[Item] = []
    for view in phases.composition_views(state):
        columns = (
            Column("kind"),
            Column("size", right=True),
            Column("bytes", right=True, keep=3),
            Column("basis"),
        )
        rows: list[list[Cell | str]] = [
            [part.label, size(part.bytes, part.note, bound=part.bound), raw(part.bytes), part.basis.value]
            for part in view.parts
        ]
        items.append(table(view.title, columns, rows, [part.key for part in view.parts]))
        if view.note:
            items.append(Words(view.note, "warning"))
    return Section("What allocated is made of", tuple(items)) if items else None


def load_section(state: RunState) -> Section:
    """The largest load that each phase was given, beside what was declared."""
    identity = state.facts.identity
    items: list[Item] = []
    if identity is not None and identity.declared:
        rows = [[clean(name), clean(value)] for name, value in identity.declared]
        items.append(
            table("Declared by the user (assumed, not checked)", (Column("size"), Column("value")), rows)
        )
    loads = largest_loads(state.ranks)
    if loads:
        columns = (
            Column("phase"),
            Column("largest input seen"),
            Column("elements", right=True),
            Column("times", right=True),
            Column("different inputs", right=True, keep=2),
        )
        found: list[list[Cell | str]] = [
            [
                clean(holders.span_name(load.phase, load.name)),
                clean(load.input) or Cell("no tensor", role="missing"),
                _count(load.elements),
                f"{load.count:,}",
                f"{load.kinds:,}",
            ]
            for load in loads
        ]
        items.append(table("Tensors that really entered root modules", columns, found))
    return Section(
        "Largest load tried", tuple(items) or (Words("No root module was seen to take a tensor."),)
    )


def process_section(state: RunState) -> Section:
    """Every process that the driver names, ours or not."""
    rows: list[list[Cell | str]] = [
        [
            f"GPU {row.device}",
            row.who,
            f"{row.pid}",
            size(row.used_bytes, row.why),
            clean(row.command),
        ]
        for row in holders.process_rows(state)
    ]
    columns = (
        Column("device"),
        Column("who"),
        Column("pid", right=True),
        Column("used", right=True),
        Column("command", keep=2),
    )
    if not rows:
        why = "the driver names none" if state.driver_reason is None else state.driver_reason.value
        return Section("Processes on the cards", (Words(f"No process: {why}."),))
    return Section("Processes on the cards", (table("As the driver names them", columns, rows),))


def event_section(state: RunState) -> Section | None:
    """The latest events; None where nothing happened."""
    shown = [e for e in state.events[:-EVENTS] if e.severity is not Severity.INFO] + list(
        state.events[-EVENTS:]
    )
    if not shown:
        return None
    rows: list[list[Cell | str]] = [
        [
            present.wall_clock(state.facts, event.t_ns),
            Cell(
                present.event_sentence(event),
                role="" if event.severity is Severity.INFO else event.severity.value,
            ),
        ]
        for event in shown
    ]
    return Section("Events", (table("The latest last", (Column("time"), Column("event")), rows),))


def environment_section(state: RunState) -> Section:
    """Versions, cards, and the variables that are kept."""
    rows: list[list[Cell | str]] = [["host", clean(state.facts.host)]]
    for name, values in (
        ("Python", (rank.python for rank in state.ranks)),
        ("PyTorch", (rank.torch_version for rank in state.ranks)),
        ("backend", (_backend(rank) for rank in state.ranks)),
        ("allocator", (rank.allocator for rank in state.ranks)),
        ("allocator settings", (_settings(rank) for rank in state.ranks)),
        ("world size", (str(rank.world_size) if rank.world_size else None for rank in state.ranks)),
        ("card", (device.name for device in state.devices)),
        ("driver", (device.driver_version for device in state.devices)),
    ):
        rows.append([name, _one(values)])
    identity = state.facts.identity
    if identity is not None:
        rows += [[f"${name}", clean(value)] for name, value in identity.environment]
    return Section("Environment", (table("Where it ran", _PAIR, rows),))


def identity_section(state: RunState) -> Section:
    """What was run, to tell it from another run."""
    facts = state.facts
    rows: list[list[Cell | str]] = [
        ["run", clean(facts.run)],
        ["command", clean(" ".join(facts.command))],
        ["user", clean(facts.user)],
    ]
    identity = facts.identity
    if identity is not None:
        rows += _of_identity(identity)
    rows += [[f"label {clean(name)}", clean(value)] for name, value in facts.labels]
    return Section("Identity", (table("What was run", _PAIR, rows),))


def _of_identity(identity: Identity) -> list[list[Cell | str]]:
    revision = identity.revision
    missing = Cell(f"{units.MISSING} ({clean(revision.reason or 'not known')})", role="missing")
    rows: list[list[Cell | str]] = [
        ["working directory", clean(identity.cwd)],
        ["code revision", missing if revision.commit is None else clean(revision.commit)],
    ]
    if revision.commit is not None:
        changed: dict[bool | None, Cell | str] = {
            True: "yes: the files differ from the commit",
            False: "no",
            None: missing,
        }
        rows += [["branch", clean(revision.branch or "none")], ["changed since", changed[revision.dirty]]]
    seed = Cell(f"{units.MISSING} (nobody says)", role="missing")
    rows += [
        ["seed", f"{clean(identity.seed)} ({identity.seed_source})" if identity.seed is not None else seed],
        ["protocol", identity.protocol],
        ["peak counters", "reset at phase boundaries" if identity.reset_peaks else "left alone: peaks are ≥"],
        ["samples", f"{identity.hertz:g} a second and rank"],
        ["warm-up", clean(identity.warmup)],
        ["gpumem-tui", identity.version],
    ]
    return rows


def _place(pid: int, ordinal: int, where: dict[tuple[int, int], str]) -> str:
    """``GPU 3`` where a UUID ties the process's device to the driver's, else CUDA's own number."""
    index = where.get((pid, ordinal))
    return f"cuda:{ordinal}" if index is None else f"GPU {index}"


def _settings(rank: RankState) -> str | None:
    return "none set" if rank.allocator_settings == "" else rank.allocator_settings


def _backend(rank: RankState) -> str | None:
    return None if rank.backend is None else " ".join(filter(None, (rank.backend, rank.backend_version)))


def _one(values: Iterable[str | None]) -> Cell | str:
    """What all say, or each of several."""
    found = list(dict.fromkeys(clean(value) for value in values if value))
    return "; ".join(found) if found else Cell(f"{units.MISSING} (not known)", role="missing")


def _count(value: int | None) -> Cell | str:
    return Cell(units.MISSING, role="missing") if value is None else f"{value:,}"


def _by_rank(state: RunState) -> list[RankState]:
    return sorted(state.ranks, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.pid))
