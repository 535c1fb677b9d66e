"""Ranks × GPUs as cells of what people read: who holds what where, since when, and what stands out.

Owns what a cell is (a rank at home, a context alone, tensors astray, a stranger), the order
of rows and the remarks. Refuses widths and glyphs (``matrixpanels``), and never makes a
figure of its own: bytes are the driver's, reserved is PyTorch's.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.rankstate import RankState
from gpumem_tui.analysis.state import ProcessRow, RunState
from gpumem_tui.views import present
from gpumem_tui.views.text import brief_command, clean

NEW_NS = 30_000_000_000
"""A cell that appeared less than this before the picture is new."""

_GOOD_PART = 0.1
"""Of what a process has on its fullest card: as much on a card that nobody else has makes it its own too."""

_ALIKE = 0.02
"""Contexts of one card differ by less than this share."""


class Stand(str, Enum):
    """What a process is doing on a card."""

    HOME = "home"
    """A card on which this process has a good part of its reserved memory, and no other of ours has."""
    SHARED = "shared"
    """The same, but it is another one's as well."""
    STRAY = "stray"
    """Reserved memory of a process on a card that is not its home."""
    CONTEXT = "context"
    """The driver says it holds the card, and PyTorch has reserved nothing there."""
    FOREIGN = "foreign"
    """A process that is not ours."""


class Cell(msgspec.Struct, frozen=True):
    """One process on one card."""

    stand: Stand
    used_bytes: int | None
    """What the driver says it holds."""
    why: str
    """Why the driver gives no figure; empty where it does."""
    reserved_bytes: int | None
    """What PyTorch has reserved there; None where it is not ours, or cannot be read."""
    since_ns: int | None
    """When the driver first listed it on this card; None where it never did."""

    @property
    def bytes(self) -> int | None:
        """The driver's figure; where it has none, what is reserved, which is a lower bound."""
        return self.used_bytes if self.used_bytes is not None else self.reserved_bytes


class Row(msgspec.Struct, frozen=True):
    """One process over all cards."""

    title: str
    pid: int
    rank: int | None
    ours: bool
    says: str
    """Step and phase of a rank, the command of a stranger."""
    cells: dict[int, Cell]
    """By position of the card in ``RunState.devices``."""


class Matrix(msgspec.Struct, frozen=True):
    """All of it."""

    heads: tuple[int, ...]
    """Index of each card, in the order of ``RunState.devices``."""
    rows: tuple[Row, ...]
    """Ranks first, by number; then our other processes; then strangers, largest first."""
    remarks: tuple[tuple[str, str], ...]
    """(role, sentence), the gravest first."""


def matrix(state: RunState, wanted: str = "") -> Matrix:
    """The matrix of a picture; ``wanted`` keeps the rows whose title, command or pid has it."""
    heads = tuple(device.index for device in state.devices)
    rows = [row for row in _rows(state) if row.cells or row.ours]
    remarks = tuple(_remarks(rows, heads, state))
    word = wanted.lower()
    kept = tuple(r for r in rows if not word or word in f"{r.title} {r.says} {r.pid}".lower())
    return Matrix(heads, kept, remarks)


def _rows(state: RunState) -> list[Row]:
    places = {device.index: position for position, device in enumerate(state.devices)}
    by_uuid = {device.uuid: position for position, device in enumerate(state.devices) if device.uuid}
    reserved = {rank.pid: _reserved(rank, by_uuid, len(state.devices)) for rank in state.ranks}
    homes = _homes(reserved)
    listed: dict[int, dict[int, ProcessRow]] = {}
    for process in state.processes:
        if process.device in places:
            listed.setdefault(process.pid, {})[places[process.device]] = process
    # A container's driver may know a rank by another number; a row's own rank joins them.
    numbers = {rank.rank: rank.pid for rank in state.ranks if rank.rank is not None}
    for pid, held_by in list(listed.items()):
        one = next(iter(held_by.values()))
        mine = numbers.get(one.rank) if one.ours and one.rank is not None else None
        if mine is not None and mine != pid:
            listed.setdefault(mine, {}).update(listed.pop(pid))

    rows = []
    for rank in sorted(state.ranks, key=lambda r: (r.rank is None, r.rank or 0, r.pid)):
        seen = listed.pop(rank.pid, {})
        held = reserved[rank.pid]
        cells = {
            place: _ours(seen.get(place), held.get(place), place, rank.pid, homes)
            for place in sorted({*seen, *(p for p, size in held.items() if size)})
        }
        phase = " › ".join(clean(span.phase) for span in rank.spans)
        says = "  ".join(part for part in ("" if rank.step is None else f"step {rank.step}", phase) if part)
        title = present.rank_name(rank.rank, rank.pid)
        rows.append(Row(title, rank.pid, rank.rank, True, says, cells))
    rest = [_listed_row(pid, seen) for pid, seen in listed.items()]
    rest.sort(key=lambda row: (not row.ours, -sum(c.bytes or 0 for c in row.cells.values()), row.pid))
    return [_known(row, state.unread_before_ns) for row in rows + rest]


def _known(row: Row, unread_before_ns: int | None) -> Row:
    """A row without times of arrival that may have been earlier, in what has not been read yet."""
    if unread_before_ns is None:
        return row
    cells = {
        place: cell
        if cell.since_ns is None or cell.since_ns > unread_before_ns
        else msgspec.structs.replace(cell, since_ns=None)
        for place, cell in row.cells.items()
    }
    return msgspec.structs.replace(row, cells=cells)


def _reserved(rank: RankState, by_uuid: dict[str, int], count: int) -> dict[int, int]:
    """What a rank has reserved, by the card's position; by its ordinal where no card has a name."""
    held = {}
    for level in rank.levels:
        place = by_uuid.get(level.uuid) if level.uuid is not None else None
        if place is None and not by_uuid and level.ordinal < count:
            place = level.ordinal
        if place is not None and level.reserved_bytes is not None:
            held[place] = level.reserved_bytes
    return held


def _homes(reserved: dict[int, dict[int, int]]) -> dict[int, set[int]]:
    """The cards of each process: its fullest, and those of a model that is spread over several."""
    most = {pid: max(held.values(), default=0) for pid, held in reserved.items()}
    first = {
        pid: next(place for place, size in held.items() if size == most[pid])
        for pid, held in reserved.items()
        if most[pid]
    }
    return {
        pid: {home}
        | {
            place
            for place, size in reserved[pid].items()
            if size >= most[pid] * _GOOD_PART and place not in first.values()
        }
        for pid, home in first.items()
    }


def _ours(
    listed: ProcessRow | None, reserved: int | None, place: int, pid: int, homes: dict[int, set[int]]
) -> Cell:
    stand = Stand.STRAY
    if place in homes.get(pid, ()):
        others = any(place in theirs for other, theirs in homes.items() if other != pid)
        stand = Stand.SHARED if others else Stand.HOME
    elif not reserved:
        stand = Stand.CONTEXT
    if listed is None:
        return Cell(stand, None, "hidden", reserved, None)
    why = "" if listed.used_bytes is not None else (listed.reason.value if listed.reason else "unknown")
    return Cell(stand, listed.used_bytes, why, reserved, listed.since_ns)


def _listed_row(pid: int, seen: dict[int, ProcessRow]) -> Row:
    one = next(iter(seen.values()))
    cells = {
        place: Cell(
            Stand.CONTEXT if process.ours else Stand.FOREIGN,
            process.used_bytes,
            "" if process.used_bytes is not None else (process.reason.value if process.reason else "unknown"),
            None,
            process.since_ns,
        )
        for place, process in sorted(seen.items())
    }
    title = f"pid {pid}" if one.ours else f"{clean(one.user) or 'other'} {pid}"
    says = brief_command(one.command or one.name) if one.visible else "not visible from here"
    return Row(title, pid, one.rank, one.ours, says, cells)


# --- remarks -----------------------------------------------------------------------------------------


def _remarks(rows: Sequence[Row], heads: Sequence[int], state: RunState) -> Iterable[tuple[str, str]]:
    """What stands out, in sentences; one calm sentence where nothing does."""
    ranks = [row for row in rows if row.ours and row.rank is not None]
    told = 0
    for place, head in enumerate(heads):
        shared = [r for r in ranks if r.cells.get(place) and r.cells[place].stand is Stand.SHARED]
        if shared:
            told += 1
            yield "warning", _shared(shared, head, ranks, heads)
        stray = [r for r in rows if r.cells.get(place) and r.cells[place].stand is Stand.STRAY]
        for row in stray:
            told += 1
            cell = row.cells[place]
            held = f"{row.title} holds {units.format_bytes(cell.bytes)} on GPU {head}, which is not its card"
            yield "warning", f"{held}: {units.format_bytes(cell.reserved_bytes)} reserved"
        alone = [r for r in rows if r.cells.get(place) and r.cells[place].stand is Stand.CONTEXT]
        if alone:
            told += 1
            yield "warning", _contexts(alone, place, head, state)
    strangers = [row for row in rows if not row.ours]
    if strangers:
        told += 1
        yield "others", _strangers(strangers)
    calm = "" if told else _calm(rows, ranks)
    if calm:
        yield "dim", calm
    if not rows:
        why = state.driver_reason.value if state.driver_reason is not None else "nobody holds a card yet"
        yield "dim", why


def _calm(rows: Sequence[Row], ranks: Sequence[Row]) -> str:
    """One sentence where nothing stands out; empty where there is nothing to say either."""
    homes = [sum(cell.stand is Stand.HOME for cell in row.cells.values()) for row in rows]
    if len(ranks) > 1:
        own = "a card" if max(homes) < 2 else "cards"
        return f"{len(ranks)} ranks, each on {own} of its own; nobody else"
    if len(rows) == 1 and homes[0] > 1:
        return f"{rows[0].title} is spread over {homes[0]} cards; nobody else"
    return ""


def _shared(shared: Sequence[Row], head: int, ranks: Sequence[Row], heads: Sequence[int]) -> str:
    who = listing([row.rank for row in shared if row.rank is not None])
    idle = len(heads) - len({place for row in ranks for place, c in row.cells.items() if c.reserved_bytes})
    rest = f"; {idle} of {len(heads)} cards have no rank" if idle else ""
    return f"{who} share GPU {head}{rest}"


def _contexts(alone: Sequence[Row], place: int, head: int, state: RunState) -> str:
    """``ranks 1–3 hold a context on GPU 0, 3 × 460 MiB, and nothing in it; since 14:02:11``."""
    numbers = [row.rank for row in alone if row.rank is not None]
    who = listing(numbers) if len(numbers) == len(alone) else f"{len(alone)} of our processes"
    sizes = [size for row in alone if (size := row.cells[place].used_bytes) is not None]
    held = ""
    if sizes and len(sizes) == len(alone):
        if len(sizes) > 1 and max(sizes) - min(sizes) <= max(sizes) * _ALIKE:
            held = f", {len(sizes)} × {units.format_bytes(max(sizes))}"
        else:
            held = f", {units.format_bytes(sum(sizes))}" + (" together" if len(sizes) > 1 else "")
    since = [t for row in alone if (t := row.cells[place].since_ns) is not None]
    when = f"; since {present.wall_clock(state.facts, min(since))}" if since else ""
    verb = "holds" if len(alone) == 1 else "hold"
    return f"{who} {verb} a context on GPU {head}{held}, and nothing reserved in it{when}"


def _strangers(strangers: Sequence[Row]) -> str:
    known = [c.used_bytes for row in strangers for c in row.cells.values() if c.used_bytes is not None]
    size = units.format_bytes(sum(known)) if known else "an unknown size"
    count = len(strangers)
    return f"{count} {'process' if count == 1 else 'processes'} of others, {size} on our node's cards"


def listing(numbers: Sequence[int]) -> str:
    """``rank 3``, ``ranks 0, 2``, ``ranks 0–7``."""
    numbers = sorted(numbers)
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    parts = [str(s[0]) if len(s) == 1 else f"{s[0]}–{s[-1]}" for s in spans]
    return f"ranks {', '.join(parts)}"


def cell_sentence(row: Row, place: int, matrix_: Matrix, state: RunState) -> str:
    """Everything about one cell, for the line below the matrix."""
    head = matrix_.heads[place]
    cell = row.cells.get(place)
    if cell is None:
        return f"{row.title} holds nothing on GPU {head}"
    held = "held size unknown" if cell.used_bytes is None else f"{units.format_bytes(cell.used_bytes)} held"
    if cell.why:
        held += f" ({cell.why})"
    parts = [held]
    if row.ours:
        parts.append(f"{units.format_bytes(cell.reserved_bytes)} reserved")
    if cell.since_ns is not None:
        parts.append(f"since {present.wall_clock(state.facts, cell.since_ns)}")
    meaning = MEANINGS[cell.stand]
    return f"{row.title} on GPU {head}: {', '.join(parts)}; {meaning}"


MEANINGS = {
    Stand.HOME: "its card",
    Stand.SHARED: "another rank lives here too",
    Stand.STRAY: "not its card",
    Stand.CONTEXT: "a context alone",
    Stand.FOREIGN: "not of this run",
}
"""What a cell means, in a clause."""
