"""The driver's view in words: terms of a card, what must be known about it, who a process is.

Shared by the live view, its text and its waiting. Owns the words; refuses widths,
colours and figures of its own: a missing one stays missing, with its reason.
"""

import time
from collections.abc import Sequence

from gpumem_tui import units
from gpumem_tui.analysis.ledger import Term
from gpumem_tui.analysis.top import RunShare, TopDevice, TopProcess, TopState, nobodys_bytes
from gpumem_tui.views.text import brief_command, clean

MERGED = {
    "other processes": "processes",
    "other processes without a figure": "processes without a figure",
    "driver-reserved": "driver-reserved",
    "processes that are not listed": "processes that are not listed",
    "unattributed": "unattributed",
}


KINDS = {
    "C": "compute",
    "G": "graphics",
    "M": "MPS",
    "CG": "compute and graphics",
    "CM": "compute and MPS",
    "GM": "graphics and MPS",
}
"""Lists of processes that were refused while another was not."""


def reason(term: Term) -> str:
    """Why a figure is missing, with the driver's own word; empty where it is there."""
    if term.bytes is not None or term.reason is None:
        return ""
    said = term.reason.value
    return f"{said}: {clean(term.detail)}" if term.detail else said


def bar_parts(device: TopDevice, rows: Sequence[TopProcess]) -> list[tuple[str, int | None]]:
    """What the bar of a card shows: ranks of our runs, other processes, driver, nobody's, free."""
    of_runs = {row.pid for row in rows if row.run is not None}
    ours = others = 0
    for share in device.ledger.others:
        if share.pid in of_runs:
            ours += share.used.bytes or 0
        else:
            others += share.used.bytes or 0
    ledger = device.ledger
    rest = ledger.merged if ledger.merged is not None else ledger.unattributed
    return [
        ("opaque", ours),
        ("others", others),
        ("driver", ledger.driver_reserved.bytes),
        ("used" if ledger.merged is not None else "unattributed", rest.bytes),
        ("free", ledger.free.bytes),
    ]


def remarks(device: TopDevice) -> list[tuple[str, str]]:
    """What must be known to read a card's row, as (role, sentence)."""
    name = f"GPU {device.label}"
    ledger = device.ledger
    found: list[tuple[str, str]] = []
    if ledger.total.bytes is None and ledger.total.reason is not None:
        found.append(("warning", f"{name}: memory — {reason(ledger.total)}"))
    if device.processes_reason is not None and device.processes_reason != ledger.total.reason:
        of_kind = f"{KINDS[device.processes_missing]} " if device.processes_missing else ""
        found.append(("warning", f"{name}: {of_kind}processes — {device.processes_reason.value}"))
    if device.load_reason is not None and device.load_reason != ledger.total.reason:
        found.append(("remark", f"{name}: load — {device.load_reason.value}"))
    if ledger.device_used.bytes is not None and ledger.device_used.detail:
        found.append(("remark", f"{name}: used {ledger.device_used.detail}, which its driver does not tell"))
    nobodys = nobodys_bytes(device)
    if nobodys is not None:
        found.append(
            ("warning", f"{name}: {units.format_bytes(nobodys)} used by nobody listed; {_files(device)}")
        )
    elif ledger.merged is not None and ledger.merged.bytes and not device.split:
        parts = [MERGED.get(part, part) for part in ledger.merged_label.split(" + ")]
        if parts != ["driver-reserved", "unattributed"]:
            size = units.format_bytes(ledger.merged.bytes)
            found.append(("remark", f"{name}: {size} not told apart: {' + '.join(parts)}"))
    rest = ledger.unattributed.bytes
    if rest is not None and rest < -(1 << 20) and not device.split:
        found.append(
            ("remark", f"{name}: processes hold {units.format_bytes(-rest)} more than is used in all")
        )
    return found


def _files(device: TopDevice) -> str:
    """Who may hold what nobody is listed for."""
    if device.file_holders is None:
        return "who has its device file open is not known"
    unseen = ""
    if device.unreadable:
        unseen = f" ({device.unreadable} processes may not be looked at)"
    if not device.file_holders:
        return f"no process that we may look at has its device file open{unseen}"
    shown = device.file_holders[:3]
    who = ", ".join(f"{h.pid} ({', '.join(clean(p) for p in (h.name, h.user) if p)})" for h in shown)
    more = f" and {len(device.file_holders) - 3} more" if len(device.file_holders) > 3 else ""
    return f"its device file is open in {who}{more}{unseen}"


def who(process: TopProcess) -> str:
    """The user; where this namespace does not show the process, that."""
    if not process.visible:
        return "not visible"
    return clean(process.user) or "—"


def what(process: TopProcess) -> str:
    """The run and rank where it is one of ours, the command otherwise; what is odd about it first."""
    words = []
    if process.zombie:
        words.append("zombie, still holds this;")
    if process.run is not None:
        words.append(f"▸ {clean(process.run.run)} {rank_words(process.run)}".rstrip())
        if not process.visible and process.run.identified_by:
            words.append(f"({process.run.identified_by})")
    elif not process.visible:
        return "another container/namespace"
    if process.visible:
        words.append(brief_command(process.command or process.name))
    return " ".join(words)


def lead(lasts: Sequence[bool]) -> str:
    """What stands before a row of a tree; nothing before a root."""
    if not lasts:
        return ""
    above = "".join("  " if last else "│ " for last in lasts[:-1])
    return above + ("└ " if lasts[-1] else "├ ")


def rank_words(run: RunShare) -> str:
    """``rank 0 forward``, as far as known."""
    words = [] if run.rank is None else [f"rank {run.rank}"]
    return " ".join([*words, clean(run.phase)] if run.phase else words)


def growth(process: TopProcess) -> str:
    """``+1.2 GiB``; empty where nothing changed, ``—`` where it was not watched for a minute."""
    if process.growth_bytes is None:
        return units.MISSING
    if process.growth_bytes == 0:
        return ""
    return f"{'+' if process.growth_bytes > 0 else ''}{units.format_bytes(process.growth_bytes)}"


def started(process: TopProcess, state: TopState) -> str:
    """When it started: time of day, or the date where that is not today."""
    if process.started_wall_ns is None:
        return units.MISSING
    then, now = (time.localtime(t / 1e9) for t in (process.started_wall_ns, state.wall_ns))
    return time.strftime("%H:%M" if then[:3] == now[:3] else "%b %d", then)


def place(process: TopProcess) -> str:
    """Container and Slurm job, where known."""
    parts = []
    if process.job is not None:
        parts.append(f"job {clean(process.job)}")
    if process.container is not None:
        parts.append(clean(process.container))
    return " ".join(parts)


def driver_sentence(state: TopState) -> str:
    """Why there are no cards; empty where there are some."""
    if state.devices or state.driver_reason is None:
        return ""
    word = f": {clean(state.driver_word)}" if state.driver_word else ""
    return f"{state.driver_reason.value}{word}"
