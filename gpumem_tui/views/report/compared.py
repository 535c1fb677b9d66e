"""A comparison of runs as a sheet: identity first, then phases, then whole runs, then other cards."""

from collections.abc import Iterable

from gpumem_tui import units
from gpumem_tui.analysis.comparison import Comparison, Figures, PhasePair
from gpumem_tui.views.report.sheet import Cell, Column, Item, Part, Section, Sheet, Words, size, table
from gpumem_tui.views.text import clean

_FIELDS = (
    ("peak allocated", "peak_allocated_bytes"),
    ("peak reserved", "peak_reserved_bytes"),
    ("allocated at end", "end_allocated_bytes"),
)


def sheet_of(comparison: Comparison) -> Sheet:
    """The whole comparison in words and tables."""
    badges = dict.fromkeys(f"SIMULATED {clean(cards)}" for cards in comparison.simulated if cards is not None)
    recorded = ["RECORDED"] if any(comparison.recorded) else []
    return Sheet(
        title=" | ".join(clean(name) for name in comparison.names),
        badge="  ".join([*badges, *recorded]),
        summary=tuple(_summary(comparison)),
        parts=tuple(_parts(comparison)),
        foot="Differences are against the first run; — where one would say nothing.",
    )


def _summary(comparison: Comparison) -> Iterable[Item]:
    rows: list[list[Cell | str]] = [
        [_letter(n), clean(name), clean(ending or "going on, or lost"), _kind(comparison, n)]
        for n, (name, ending) in enumerate(zip(comparison.names, comparison.endings, strict=True))
    ]
    columns = (Column("run"), Column("name"), Column("ending"), Column("cards"))
    yield table("Runs", columns, rows)
    differing = [factor.name for factor in comparison.differing]
    told = ", ".join(clean(name) for name in differing) or "nothing that is known"
    yield Words(f"Different: {told}.", "headline")
    for warning in comparison.warnings:
        yield Words(f"{warning[0].upper()}{clean(warning[1:])}.", "warning")


def _parts(comparison: Comparison) -> Iterable[Part]:
    yield Part("Identity", "Everything that could make a difference.", tuple(_identity(comparison)))
    yield Part(
        "Phases",
        "Cold with cold, warm with warm; one counter at a time; durations beside memory.",
        tuple(_phases(comparison)),
    )
    yield Part("Whole runs", "The highest of each process over its life.", (_wholes(comparison),))
    if comparison.constraints:
        lead = "What was seen here excludes, or does not exclude; only a trial there tells that a run fits."
        yield Part("Other cards", lead, (_constraints(comparison),))


def _identity(comparison: Comparison) -> Iterable[Section]:
    each = (Column("factor"), *(Column(_letter(n), serial=True) for n in range(len(comparison.names))))
    same = (Column("factor"), Column("in every run"))
    for title, columns, chosen in (
        ("Different", each, [factor for factor in comparison.factors if factor.differs]),
        ("Known of some runs only", each, [factor for factor in comparison.factors if factor.unknown]),
        (
            "The same",
            same,
            [f for f in comparison.factors if not f.differs and not f.unknown and f.values[0]],
        ),
    ):
        if not chosen:
            continue
        rows: list[list[Cell | str]] = [
            [
                clean(factor.name),
                *(
                    Cell(f"{units.MISSING} (not known)", role="missing") if value is None else clean(value)
                    for value in factor.values[: len(columns) - 1]
                ),
            ]
            for factor in chosen
        ]
        yield Section(title, (table(f"Factors: {title.lower()}", columns, rows),))


def _phases(comparison: Comparison) -> Iterable[Section]:
    if not comparison.phases:
        yield Section("Phases", (Words("No run has a finished phase."),))
        return
    yield Section("Memory beside time", tuple(_trade(comparison, n) for n in range(1, len(comparison.names))))
    for label, field in _FIELDS:
        yield Section(label.capitalize(), (_counter(comparison, label, field),))
    yield Section("Median duration", (_durations(comparison),))


def _trade(comparison: Comparison, n: int) -> Item:
    """What a run takes and gives against the first: checkpointing and the like trade one for the other."""
    first, other = _letter(0), _letter(n)
    columns = (
        *_who(),
        Column(f"peak allocated {other} − {first}", right=True),
        Column(f"peak reserved {other} − {first}", right=True),
        Column(f"median duration {other} ÷ {first}", right=True),
    )
    rows: list[list[Cell | str]] = [
        [
            *_of(pair),
            _signed(pair.difference(n, "peak_allocated_bytes")),
            _signed(pair.difference(n, "peak_reserved_bytes")),
            _ratio(pair.slowdown(n)),
        ]
        for pair in comparison.phases
    ]
    return table(f"{other} against {first}", columns, rows)


def _ratio(value: float | None) -> Cell:
    return Cell(units.MISSING, role="missing") if value is None else Cell(f"{value:.2f}")


def _counter(comparison: Comparison, label: str, field: str) -> Item:
    count = len(comparison.names)
    columns = [*_who(), *(Column(_letter(n), right=True, serial=True) for n in range(count))]
    columns += [Column(f"{_letter(n)} − {_letter(0)}", right=True, serial=True) for n in range(1, count)]
    rows: list[list[Cell | str]] = []
    for pair in comparison.phases:
        figures = [_figure(run, field) for run in pair.runs]
        rows.append([*_of(pair), *figures, *(_signed(pair.difference(n, field)) for n in range(1, count))])
    return table(f"{label.capitalize()} by phase", columns, rows)


def _durations(comparison: Comparison) -> Item:
    count = len(comparison.names)
    columns = [*_who(), *(Column(_letter(n), right=True, serial=True) for n in range(count))]
    columns += [Column(f"{_letter(n)} ÷ {_letter(0)}", right=True, serial=True) for n in range(1, count)]
    rows: list[list[Cell | str]] = []
    for pair in comparison.phases:
        times: list[Cell | str] = [_duration(run) for run in pair.runs]
        ratios = [pair.slowdown(n) for n in range(1, count)]
        rows.append([*_of(pair), *times, *map(_ratio, ratios)])
    return table("Median duration by phase", columns, rows)


def _who() -> list[Column]:
    return [Column("rank"), Column("phase"), Column("name", keep=2), Column("device", keep=1), Column("kind")]


def _of(pair: PhasePair) -> list[Cell | str]:
    name = "" if pair.name == pair.phase else clean(pair.name)
    rank = units.MISSING if pair.rank is None else str(pair.rank)
    return [rank, clean(pair.phase), name, f"cuda:{pair.ordinal}", "cold" if pair.cold else "warm"]


def _figure(run: Figures | None, field: str) -> Cell:
    if run is None:
        return Cell(f"{units.MISSING} (not seen)", role="missing")
    value: int | None = getattr(run, field)
    cell = size(value, "not read", bound=field.startswith("peak") and (not run.exact or run.errors > 0))
    if run.errors:
        return Cell(f"{cell.text} ({run.errors} failed)", cell.bytes, "failure")
    return cell


def _duration(run: Figures | None) -> Cell | str:
    if run is None:
        return Cell(f"{units.MISSING} (not seen)", role="missing")
    return units.format_seconds(None if run.duration_ns is None else run.duration_ns / 1e9)


def _signed(value: int | None) -> Cell:
    if value is None:
        return Cell(units.MISSING, role="missing")
    return Cell(("+" if value > 0 else "") + units.format_bytes(value), value)


def _wholes(comparison: Comparison) -> Section:
    columns = (
        Column("run"),
        Column("rank"),
        Column("device"),
        Column("peak allocated", right=True),
        Column("peak reserved", right=True),
        Column("retries", right=True, keep=3),
        Column("out of memory", right=True, keep=2),
        Column("empty_cache calls", right=True),
    )
    rows: list[list[Cell | str]] = [
        [
            _letter(n),
            units.MISSING if whole.rank is None else str(whole.rank),
            f"cuda:{whole.ordinal}",
            size(whole.peak_allocated_bytes, "not read yet"),
            size(whole.peak_reserved_bytes, "not read yet"),
            units.MISSING if whole.alloc_retries is None else f"{whole.alloc_retries:,}",
            units.MISSING if whole.ooms is None else f"{whole.ooms:,}",
            f"≥ {whole.empty_cache:,}" if whole.empty_cache else "0",
        ]
        for n, wholes in enumerate(comparison.wholes)
        for whole in wholes
    ]
    if not rows:
        return Section("By rank", (Words("No run has used PyTorch's allocator."),))
    return Section("By rank", (table("Two maxima of two counters, not of one moment", columns, rows),))


def _constraints(comparison: Comparison) -> Section:
    columns = (Column("card", right=True), Column("run"), Column("constraint"), Column("because"))
    rows: list[list[Cell | str]] = [
        [size(each.capacity_bytes), _letter(each.run), each.word, each.because]
        for each in comparison.constraints
    ]
    return Section(
        "Capacity as a constraint", (table("No verdict: other cards were not tried", columns, rows),)
    )


def _kind(comparison: Comparison, n: int) -> str:
    cards = comparison.simulated[n]
    words = ["real" if cards is None else f"SIMULATED {clean(cards)}"]
    return " ".join([*words, *(["RECORDED"] if comparison.recorded[n] else [])])


def _letter(n: int) -> str:
    """``A`` to ``Z``, then ``A1`` and so on."""
    return chr(ord("A") + n % 26) + (str(n // 26) if n >= 26 else "")
