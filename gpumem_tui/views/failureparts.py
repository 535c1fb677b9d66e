"""What a failure's record kept, as lines: tensors, processes, the stack, settings, and what it lacks.

Owns the columns; refuses the order of the parts (``failurepanels``).
"""

import re
from collections import Counter
from collections.abc import Sequence

from gpumem_tui import units
from gpumem_tui.analysis.failurestate import FailureState
from gpumem_tui.analysis.ledger import Basis
from gpumem_tui.analysis.state import RunState
from gpumem_tui.records.failure import FailureRecord, Holder, Parts, Tensor
from gpumem_tui.views import panels, present
from gpumem_tui.views.bar import bar
from gpumem_tui.views.prose import wrapped
from gpumem_tui.views.text import Line, Span, clean, cut, fit, left, right, width

_LIBRARY = re.compile(r".*/(?:site|dist)-packages/|.*/lib(?:64)?/python3[.\d]*/")
"""How the path of a frame begins that is not people's own code."""

# --- composition -------------------------------------------------------------------------------------

_KINDS = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer state": "optimizer",
    "buffers": "buffers",
    "KV cache": "caches",
    "other": "live",
}
"""A record's kinds of tensors, and the roles in which they are drawn."""


def composition_lines(record: FailureRecord | None, cells: int) -> list[Line]:
    """What allocated was made of, and its largest tensors; nothing where nobody has looked."""
    parts = record.parts if record is not None else None
    if record is None or parts is None:
        return []
    allocated = (record.counters or {}).get("allocated_bytes.all.current")
    lines = _kind_lines(parts, allocated, cells)
    if not parts.complete:
        lines += wrapped("the walk hit its time budget: these are lower bounds", cells, "remark", first="   ")
    if parts.dtypes:
        told = sorted(parts.dtypes.items(), key=lambda item: -item[1])[:6]
        lines += wrapped(
            ", ".join(f"{clean(name)} {units.format_bytes(size)}" for name, size in told),
            cells,
            "dim",
            first="   by dtype: ",
        )
    return lines + tensor_lines(parts.largest, cells)


def _kind_lines(parts: Parts, allocated: int | None, cells: int) -> list[Line]:
    figures = [(role, name, parts.kinds[name]) for name, role in _KINDS.items() if parts.kinds.get(name)]
    # A bound has a sign of its own, which takes the room of a decimal.
    decimals = min(3, present.decimals_for(size for _, _, size in figures))
    known = sum(size for _, _, size in figures)
    whole = max(known, allocated or 0)
    made_of = bar([(role, size) for role, _, size in figures], whole, cells - 2)
    terms = [
        present.TermView(
            role, name, size, "", "tensors", Basis.OBSERVED, None, False, not parts.complete, decimals
        )
        for role, name, size in figures
    ]
    lines = [fit((Span(" "), *made_of), cells), *panels.term_rows(terms, cells)]
    if allocated is not None and allocated > known and parts.complete:
        rest = units.format_bytes(allocated - known)
        lines += wrapped(
            f"blank: {rest} of allocated is in no tensor that Python knows (saved by autograd, or rounding)",
            cells,
            "remark",
            first="   ",
        )
    return lines


def tensor_lines(tensors: Sequence[Tensor], cells: int) -> list[Line]:
    """The largest live tensors: size, how many of them are alike, kind, type and shape, name."""
    if not tensors:
        return []
    rows = Counter(
        (
            units.format_bytes(one.size_bytes),
            clean(one.kind),
            f"{clean(one.dtype)}[{','.join(map(str, one.shape))}]",
            clean(one.name) if one.name else "no name",
        )
        for one in tensors
    )
    times = {row: f"{count} × " if count > 1 else "" for row, count in rows.items()}
    count = max(len(told) for told in times.values())
    kind = max(len(row[1]) for row in rows)
    shape = min(28, max(width(row[2]) for row in rows))
    return [
        fit(
            (
                Span(f"   {right(times[size, of, kept, name], count)}", "text"),
                Span(f"{right(size, 8)}  ", "strong"),
                Span(f"{left(of, kind)}  ", "text"),
                Span(f"{left(kept, shape)}  ", "dim"),
                Span(
                    cut_start(name, max(1, cells - 17 - count - kind - shape)),
                    "missing" if name == "no name" else "text",
                ),
            ),
            cells,
        )
        for size, of, kept, name in rows
    ]


def cut_start(text: str, cells: int) -> str:
    """The end of a text: of a module's path, the last parts tell most."""
    if width(text) <= cells:
        return text
    return "…" + cut(text[::-1], cells)[::-1].lstrip("…")


# --- the rest ----------------------------------------------------------------------------------------


def holders_lines(state: RunState, failure: FailureState, cells: int) -> list[Line]:
    """Every process that the failing one saw on its card, largest first."""
    record = failure.record
    driver = record.driver if record is not None else None
    if driver is None or driver.processes is None:
        return []
    numbers = {rank.pid: rank.rank for rank in state.ranks}
    rows = sorted(driver.processes, key=lambda p: -(p.used_bytes or 0))
    return [_holder(one, failure, numbers, cells) for one in rows]


def _holder(one: Holder, failure: FailureState, numbers: dict[int, int | None], cells: int) -> Line:
    if one.pid == failure.pid:
        name, role = "this process", "strong"
    elif one.pid in numbers:
        name, role = present.rank_name(numbers[one.pid], one.pid), "text"
    else:
        name, role = "not of this run", "others"
    known = clean(one.name) if one.name is not None else "not visible from here"
    figure = units.format_bytes(one.used_bytes)
    return fit(
        (
            Span(f"   {right(figure, 9)}  ", "strong" if one.used_bytes is not None else "missing"),
            Span(f"{left(name, 15)}  ", role),
            Span(f"pid {one.pid}  ", "dim"),
            Span(known, "dim"),
        ),
        cells,
    )


def stack_lines(record: FailureRecord | None, cells: int) -> list[Line]:
    """The Python stack, innermost first, then the exception's own words.

    The innermost frame of people's own code is marked; those of libraries are told by their package.
    """
    if record is None:
        return []
    lines = []
    own = next((frame for frame in reversed(record.stack) if not _LIBRARY.search(frame)), None)
    for frame in reversed(record.stack):
        library = _LIBRARY.search(frame)
        if library is None:
            lines += wrapped(frame, cells, "strong" if frame is own else "text", first="   ")
        else:
            lines.append(
                fit((Span(f"   {cut_start(clean(frame[library.end() :]), cells - 3)}", "dim"),), cells)
            )
    if record.error:
        lines += [
            line
            for text in record.error.splitlines()[:6]
            for line in wrapped(text, cells, "failure", first="   ")
        ]
    return lines


def settings_lines(record: FailureRecord | None, cells: int) -> list[Line]:
    """How the allocator was set up, and memory of the host."""
    if record is None:
        return []
    told = []
    if record.settings is not None:
        settings = record.settings
        if settings.backend:
            told.append(f"allocator: {settings.backend}")
        if settings.expandable_segments is not None:
            told.append(f"expandable segments: {'on' if settings.expandable_segments else 'off'}")
        if settings.text:
            told.append(f"settings: {settings.text}")
    if record.host is not None:
        host = record.host
        for name, size in (
            ("process in host memory", host.rss_bytes),
            ("pinned by PyTorch", host.pinned_bytes),
            ("available on the node", host.available_bytes),
            ("cgroup", host.cgroup_bytes),
            ("limit of the cgroup", host.cgroup_limit_bytes),
        ):
            if size is not None:
                told.append(f"{name}: {units.format_bytes(size)}")
    if record.history:
        told.append(f"every block of every pool: gpumem-tui explain on {record.history} in the recording")
    return [line for text in told for line in wrapped(text, cells, "text", first="   ")]


def missing_lines(failure: FailureState, cells: int) -> list[Line]:
    """What the record lacks, each with its reason."""
    record = failure.record
    if record is None:
        why = failure.record_reason or "the process left none"
        return wrapped(f"no record of its own: {why}", cells, "missing", first="   ")
    lines = []
    for name, why in sorted(record.missing.items()):
        lines += wrapped(f"{name}: {why}", cells, "missing", first="   ")
    if failure.ledger is None:
        lines += wrapped("the card at that instant: no paired reading", cells, "missing", first="   ")
    return lines
