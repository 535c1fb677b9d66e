"""The driver's live view as lines: how the rows of a screen are shared out. Arithmetic and layout only.

At 80×24 with sixteen cards the processes stay on the screen: cards that have no row
each are drawn several to a line, and what is out of view is counted.
"""

from collections.abc import Sequence

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.family import Branch, flat, forest
from gpumem_tui.analysis.state import Severity
from gpumem_tui.analysis.top import TopProcess, TopState, ordered
from gpumem_tui.views import toppanels, toprows
from gpumem_tui.views.panels import rule
from gpumem_tui.views.text import Line, Span, clean, ends, fit, left, line_width

Row = tuple[int, int]
"""A process on a device: (device, pid)."""

PROCESS_ROWS = 6
"""Rows that processes keep, whatever else there is."""

REMARKS = 3
"""Remarks shown on a small screen; how many more there are is said."""

KEYS = (
    ("↑ ↓ PgUp PgDn home end", "choose a process"),
    ("enter", "everything that is known of it; again to close"),
    ("s", "order: memory, device, growth, user, pid, start, rss"),
    ("m", "only your processes; again for all"),
    ("d", "only the processes of one card after the other"),
    ("f", "tree: who was started by whom; again for the list"),
    ("/", "only processes with a word in user, command, run …"),
    ("x", "end the chosen process; asks first, and how"),
    ("space", "hold the picture still"),
    ("t", "colours"),
    ("ctrl+l  ctrl+z", "draw everything again; to the shell, until fg"),
    ("q", "leave; nothing is touched"),
)

SHORT_KEYS = (
    ("?", "help"),
    ("s", "sort"),
    ("m", "mine"),
    ("d", "card"),
    ("f", "tree"),
    ("/", "filter"),
    ("enter", "details"),
    ("x", "end"),
    ("space", "pause"),
    ("q", "leave"),
)
"""What the footer has room for; where it has less, those before the last go first."""

MEANINGS = (
    ("used", "total − free − driver-reserved, as the driver says"),
    ("driver", "what the driver keeps for itself; part of neither used nor free"),
    ("nobody", "used, and held by no process that the driver lists"),
    ("change", "of a process's memory over the last minute; — while not known"),
    ("host", "its resident host memory, never device memory"),
    ("—", "not known; the reason is said beside it or below the cards"),
    ("▸ name", "a rank of a run that gpumem-tui records, by its recording"),
    ("not visible", "named by the driver, not shown by this container or pid namespace"),
)


class Place(msgspec.Struct, frozen=True):
    """What people have chosen."""

    sort: str = "memory"
    chosen: Row | None = None
    first: int = 0
    """First process in view."""
    mine: bool = False
    device: int | None = None
    word: str = ""
    """Processes without it are not shown; empty shows all."""
    tree: bool = False
    """Processes below who started them."""
    details: bool = False
    help: bool = False


class Sheet(msgspec.Struct, frozen=True):
    """The lines of one screen, and where things are on it."""

    lines: tuple[Line, ...]
    place: Place
    """As it was asked for, within what there is."""
    rows: tuple[TopProcess, ...] = ()
    """All processes in their order."""
    branches: tuple[Branch, ...] = ()
    """All rows in their order: the processes, and in a tree who started several of them."""
    first_row: int = 0
    """Screen row of the first process in view."""
    page: int = 1


def draw(state: TopState, place: Place, cells: int, height: int) -> Sheet:
    """One screen of ``height`` rows below the header."""
    if place.help:
        return Sheet(tuple(_help(cells)[:height]), place)
    shown = tuple(ordered((p for p in state.processes if _is_wanted(p, place)), place.sort))
    branches = forest(shown) if place.tree else flat(shown)
    shown = tuple(branch.process for branch in branches if branch.process is not None)
    at = None
    if place.chosen is not None:
        at = next((i for i, branch in enumerate(branches) if _row(branch) == place.chosen), None)
    chosen = None if at is None else branches[at].process
    details = _details(chosen, state, cells) if place.details and chosen is not None else []
    remarks = toppanels.remark_lines(state, cells)
    if len(remarks) > REMARKS and height < 40:
        more = len(remarks) - REMARKS + 1
        remarks = [*remarks[: REMARKS - 1], fit((Span(f"   … and {more} more remarks", "dim"),), cells)]
    keep = min(PROCESS_ROWS, len(branches) + 1) + 2 + len(details) + len(remarks)
    lines = [*_cards(state, place, cells, max(2, height - keep)), *remarks]
    page = max(1, height - len(lines) - 2 - len(details))
    first = max(0, min(place.first, len(branches) - page))
    if at is not None:
        first = max(at - page + 1, min(first, at))
    head, rows = toppanels.process_table(
        state, branches[first : first + page], cells, None if at is None else at - first
    )
    above, below = first, max(0, len(branches) - first - page)
    lines += [_rule(state, place, shown, above, below, cells), head]
    first_row = len(lines)
    lines += rows if shown else [toppanels.nothing_line(state, cells)]
    lines += [()] * (height - len(details) - len(lines))
    place = msgspec.structs.replace(place, first=first, chosen=place.chosen if at is not None else None)
    return Sheet(tuple([*lines, *details][:height]), place, shown, branches, first_row, page)


def _is_wanted(process: TopProcess, place: Place) -> bool:
    if (place.mine and not process.mine) or place.device not in (None, process.device):
        return False
    if not place.word:
        return True
    run = process.run.run if process.run is not None else ""
    texts = (process.user, process.command, process.name, str(process.pid), run, toprows.place(process))
    return any(place.word.lower() in text.lower() for text in texts)


def _row(branch: Branch) -> Row | None:
    return None if branch.process is None else (branch.process.device, branch.process.pid)


def move(sheet: Sheet, step: int) -> Place:
    """The choice moved by so many rows, within what there is."""
    place = sheet.place
    if not sheet.rows:
        return place
    at = next((i for i, p in enumerate(sheet.rows) if (p.device, p.pid) == place.chosen), None)
    if at is None:
        to = (
            min(place.first, len(sheet.rows) - 1)
            if abs(step) < 1000
            else (len(sheet.rows) - 1 if step > 0 else 0)
        )
    else:
        to = max(0, min(at + step, len(sheet.rows) - 1))
    row = sheet.rows[to]
    return msgspec.structs.replace(place, chosen=(row.device, row.pid))


def choose_at(sheet: Sheet, screen_row: int) -> Place:
    """The choice on a row of the screen; unchanged where there is no process."""
    at = screen_row - sheet.first_row + sheet.place.first
    if screen_row < sheet.first_row or not 0 <= at < len(sheet.branches):
        return sheet.place
    row = _row(sheet.branches[at])
    return sheet.place if row is None else msgspec.structs.replace(sheet.place, chosen=row)


def chosen(sheet: Sheet) -> TopProcess | None:
    """The chosen process."""
    return next((p for p in sheet.rows if (p.device, p.pid) == sheet.place.chosen), None)


def _cards(state: TopState, place: Place, cells: int, room: int) -> list[Line]:
    """A row for each card, or several to a line, or as many as there is room for."""
    if not state.devices:
        told = toprows.driver_sentence(state) or ("no card" if state.complete else "reading …")
        return [fit((Span(f"   {told}", "warning"),), cells)]
    head, blocks = toppanels.device_table(state, cells, place.device)
    if len(blocks) + 1 <= room:
        return [*head, *(block[0] for block in blocks)]
    for least in toppanels.GRIDS:
        grid = toppanels.device_grid(state, cells, least)
        if len(grid) <= room:
            return grid
    cut = max(1, room - 1)
    hidden = len(state.devices) - (cut - 1) * max(1, cells // least)
    return [*grid[:cut], fit((Span(f"   … and {hidden} more cards", "key"),), cells)]


def _rule(
    state: TopState, place: Place, shown: Sequence[TopProcess], above: int, below: int, cells: int
) -> Line:
    count, of = len({p.pid for p in shown}), len({p.pid for p in state.processes})
    title = f"{count} {'process' if count == 1 else 'processes'}"
    if count < of:
        title += f" of {of}"
    title += f" by {place.sort}"
    if place.tree:
        title += ", as a tree"
    if place.mine:
        title += ", yours"
    if place.device is not None:
        label = next((d.label for d in state.devices if d.index == place.device), str(place.device))
        title += f", GPU {label}"
    if place.word:
        title += f", with “{clean(place.word)}”"
    remark = "  ".join([f"{above} above: ↑"] * bool(above) + [f"{below} more: ↓"] * bool(below))
    return rule(title, cells, remark)


def _details(process: TopProcess, state: TopState, cells: int) -> list[Line]:
    """Everything that is known of one process."""
    device = next((d for d in state.devices if d.index == process.device), None)
    facts = [
        ("memory", _known(process)),
        ("since", _since(process, state)),
        ("host", f"{units.format_bytes(process.rss_bytes)} of host memory"),
    ]
    if process.run is not None:
        run = process.run
        held = (
            f"{units.format_gib(run.allocated_bytes)} of {units.format_gib(run.reserved_bytes)} GiB reserved"
        )
        rank = f" {words}" if (words := toprows.rank_words(run)) else ""
        by = f", recognised by {run.identified_by}" if run.identified_by and not process.visible else ""
        step = "" if run.step is None else f", step {run.step}"
        facts.append(("run", f"{clean(run.run)}{rank}{step}"))
        facts.append(("tensors", f"allocated {held}{by}"))
    place = toprows.place(process)
    if process.namespace_pid is not None:
        place += f"  pid {process.namespace_pid} in its own namespace"
    if place:
        facts.append(("where", place.strip()))
    command = process.visible and clean(process.command or process.name)
    if process.ancestors:
        by_whom = " ← ".join(f"{clean(a.name)} {a.pid}" for a in process.ancestors)
        facts.append(("started by", by_whom))
    facts.append(("command", command or "not shown by this pid namespace"))
    label = device.label if device is not None else str(process.device)
    title = rule(f"pid {process.pid} on GPU {label}  {toprows.who(process)}", cells, "enter closes")
    return [
        title,
        *(fit((Span(f"   {left(name, 11)}", "dim"), Span(text)), cells) for name, text in facts),
    ]


def _known(process: TopProcess) -> str:
    if process.used.bytes is None:
        return f"— {toprows.reason(process.used)}"
    grown = toprows.growth(process)
    change = f", {grown} in the last minute" if process.growth_bytes else ""
    return f"{units.format_bytes(process.used.bytes)} on this card{change}"


def _since(process: TopProcess, state: TopState) -> str:
    if process.started_wall_ns is None:
        return "start not known"
    took = (state.wall_ns - process.started_wall_ns) // 60_000_000_000 * 60
    ago = f", {units.format_seconds(took)} ago" if took >= 60 else ""
    return f"started {toprows.started(process, state)}{ago}"


def footer(status: Line, paused: bool, cells: int) -> Line:
    """The keys, and what there is to say at the other end; a narrow screen says it instead of them."""
    if status and cells < 60:
        return status
    keys = [
        (Span(f" {key}", "key"), Span(f" {'go on' if key == 'space' and paused else word}", "dim"))
        for key, word in SHORT_KEYS
    ]
    while len(keys) > 2 and sum(map(line_width, keys)) > cells - line_width(status):
        del keys[-2]
    return ends([span for pair in keys for span in pair], status, cells)


def question(process: TopProcess) -> Line:
    """Whether to end a process."""
    who = f"{process.pid} ({clean(process.user)}, {clean(process.name)})"
    return (
        Span(f" end process {who}? ", "prompt"),
        *(Span("  y", "key"), Span(" SIGTERM")),
        *(Span("   K", "key"), Span(" SIGKILL")),
        *(Span("   esc", "key"), Span(" no")),
    )


def latest_event(state: TopState, recent_s: float) -> Line:
    """What the driver's readings went through just now."""
    if not state.events or state.now_ns - state.events[-1].t_ns > recent_s * 1e9:
        return ()
    latest = state.events[-1]
    role = "remark" if latest.severity is Severity.INFO else "warning"
    return (Span(f" {clean(latest.text)} ", role),)


def _help(cells: int) -> list[Line]:
    lines = [rule("keys", cells, "? closes")]
    lines += [fit((Span(f"   {left(key, 24)}", "key"), Span(text)), cells) for key, text in KEYS]
    lines.append(rule("words", cells))
    lines += [fit((Span(f"   {left(word, 12)}", "strong"), Span(text)), cells) for word, text in MEANINGS]
    return lines
