"""From a run's state to what people read: terms, rows, sentences. Shared by every view.

Owns the words, the sums over ranks and the reasons; formats figures through
``units`` only. Refuses widths, colours and layout, and never makes a figure of its
own: a missing one stays missing, with its reason.
"""

import time
from collections.abc import Iterable, Sequence

import msgspec

from gpumem_tui import units
from gpumem_tui.analysis.ledger import Basis, Ledger, Term
from gpumem_tui.analysis.rankstate import Life, RankState
from gpumem_tui.analysis.state import DeviceState, Event, RunFacts, RunState, Severity
from gpumem_tui.records import Reason
from gpumem_tui.views.foresight import invented_sentences
from gpumem_tui.views.text import clean

STALE_NS = 5_000_000_000
"""A figure older than this is shown with its age; younger ones stand for now."""

LABELS = {
    "allocated": "allocated",
    "cached": "cached",
    "outside": "outside",
    "opaque": "used",
    "others": "others",
    "driver": "driver",
    "unattributed": "unattributed",
    "free": "free",
}

_MERGED = {
    "outside PyTorch of our ranks": "outside",
    "allocators of our ranks": "allocated + cached",
    "other processes": "others",
    "other processes without a figure": "others without a figure",
    "processes that are not listed": "processes not listed",
    "driver-reserved": "driver",
}

_UNTOLD = {"other processes", "processes that are not listed"}
"""Parts of a merged term with which nobody knows that there is no other process."""

MEANINGS = {
    "allocated": "live tensors of our ranks (PyTorch allocated_bytes)",
    "cached": "reserved by PyTorch's allocator, in no live tensor",
    "outside": "our processes beyond the allocator: CUDA context, NCCL, …",
    "opaque": "a rank whose allocator cannot be read, as the driver says",
    "others": "other processes on this card, as the driver names them",
    "driver": "reserved by the driver for itself",
    "unattributed": "used, and named by nobody: the residual of everything else",
    "free": "free, as the driver says",
}
"""What each term means, in one clause."""

MERGED = "several of these as one: the driver does not tell which"
"""What a merged term means; which ones it stands for is said below the figures."""

PHASE_WORDS = {
    "cold, warm": "the first span of a phase in a process, and all later ones",
    "start, end": "levels of the latest span",
    "peak": "the highest of all spans, exact; ≥ where it is a lower bound",
    "growth": "of allocated, from one span to the next, where it is steady",
    "compiled": "a function under torch.compile, whatever is in it",
    "no-grad": "a forward without gradients within a training step: a teacher",
    "recompute": "a checkpointed forward once more, in backward",
}
"""Words of the phase table, each in one clause."""

MADE_OF = {
    "parameters": ("parameters", "of modules, as they are held here"),
    "gradients": ("gradients", "of these parameters"),
    "optimizer": ("optimizer", "state of optimizers: moments, masters"),
    "buffers": ("buffers", "of modules: running statistics, …"),
    "caches": ("KV cache", "keys and values kept by Hugging Face's caches"),
    "live": ("other live", "activations and all else: allocated − the parts above"),
}
"""What allocated is made of: how the help calls it, and what it means."""


class TermView(msgspec.Struct, frozen=True):
    """One term of a device's ledger, summed over our ranks or the other processes."""

    key: str
    label: str
    bytes: int | None
    note: str
    """Why it is missing, how many of several are known, or what was merged; empty if all is well."""
    source: str
    basis: Basis
    age_ns: int | None
    """Age of the oldest figure in it, at the moment of the state; None where nothing was read."""
    missing: bool
    bound: bool = False
    """Whether it is at least that much, and how much is not known."""
    decimals: int = 2
    rough: bool = False
    """Whether it joins readings between which memory may have moved; ``skew_remarks`` say of whom."""

    @property
    def figure(self) -> str:
        """In GiB, without the unit; ``—`` where missing, with ``≥`` where it is a lower bound."""
        return gib(self.bytes, self.decimals, bound=self.bound)


def gib(value: int | None, decimals: int, *, bound: bool = False) -> str:
    """A figure in GiB without its unit; with ``≥`` where it is a lower bound."""
    return f"{'≥' if bound and value is not None else ''}{units.format_gib(value, precision=decimals)}"


def decimals_for(values: Iterable[int | None]) -> int:
    """Two decimals of a GiB; four where every figure is below one, so that small ones are not 0.00."""
    return 2 if any(value is not None and abs(value) >= units.GIB for value in values) else 4


def device_terms(device: DeviceState, state: RunState) -> tuple[TermView, ...]:
    """The seven terms of a device, always all and in the same order.

    Ranks whose allocator cannot be read add an eighth, what the driver says they use.
    Where the driver does not tell processes apart, *unattributed* is the one merged
    term, its note says of what, and the terms in it are missing with their reason.
    """
    ledger = device.ledger
    merged = ledger.merged_label.split(" + ") if ledger.merged is not None else []
    ours = [(rank_name(s.rank, s.pid), s) for s in ledger.ranks]
    no_rank = Reason.NOT_READ_YET if not state.ranks and state.facts.ended_ns is None else None

    def rank_sum(key: str) -> TermView:
        named = [(who, getattr(share, key)) for who, share in ours]
        return _sum(key, named, state.now_ns, no_rank, "no rank of this run on this card")

    nobody = None
    if ledger.total.bytes is None:
        nobody = ledger.total.reason
    elif not _UNTOLD.isdisjoint(merged):
        nobody = next((s.used.reason for s in ledger.ranks if s.used.reason is not None), Reason.HIDDEN)
    others = [(clean(o.name) or f"pid {o.pid}", o.used) for o in ledger.others]
    reserved = ledger.driver_reserved
    rest, label = ledger.unattributed, LABELS["unattributed"]
    note = _note(rest)
    if ledger.merged is not None:
        rest, label = ledger.merged, "merged"
        note = " + ".join(_MERGED.get(name, name) for name in merged)
    return (
        rank_sum("allocated"),
        rank_sum("cached"),
        _roughly(rank_sum("outside"), ledger),
        *_opaque(ledger, state.now_ns),
        _sum("others", others, state.now_ns, nobody, "no other process"),
        _term("driver", LABELS["driver"], reserved, _note(reserved), state.now_ns),
        _term("unattributed", label, rest, note, state.now_ns),
        _term("free", LABELS["free"], ledger.free, _note(ledger.free), state.now_ns),
    )


def _roughly(term: TermView, ledger: Ledger) -> TermView:
    rough = any(share.skewed and share.outside.bytes is not None for share in ledger.ranks)
    return msgspec.structs.replace(term, rough=rough)


def _opaque(ledger: Ledger, now_ns: int) -> list[TermView]:
    """What ranks use whose allocator cannot be read: one figure of the driver's, if there are such ranks."""
    shares = [share for share in ledger.ranks if share.opaque]
    if not shares:
        return []
    term = _sum("opaque", [("", share.used) for share in shares], now_ns, None, "")
    who = ", ".join(rank_name(share.rank, share.pid) for share in shares)
    return [msgspec.structs.replace(term, note=f"by {who}, allocator not readable")]


def rank_name(rank: int | None, pid: int) -> str:
    """``rank 0``; the pid of a process without a rank."""
    return f"pid {pid}" if rank is None else f"rank {rank}"


def _note(term: Term) -> str:
    reason = term.reason.value if term.reason is not None else ""
    return ": ".join(clean(part) for part in (reason, term.detail or "") if part)


def _term(key: str, label: str, term: Term, note: str, now_ns: int) -> TermView:
    age = None if term.t_ns is None else max(0, now_ns - term.t_ns)
    return TermView(key, label, term.bytes, note, term.source, term.basis, age, term.bytes is None)


def _sum(
    key: str, terms: Sequence[tuple[str, Term]], now_ns: int, absent: Reason | None, nothing: str
) -> TermView:
    """A sum over holders. ``absent`` tells why there may be holders that nobody names."""
    if not terms:
        if absent is not None:
            return TermView(key, LABELS[key], None, absent.value, "", Basis.OBSERVED, None, True)
        return TermView(key, LABELS[key], 0, "", nothing, Basis.OBSERVED, None, False)
    known = [term for _, term in terms if term.bytes is not None]
    unknown = [(who, term) for who, term in terms if term.bytes is None]
    times = [term.t_ns for term in known if term.t_ns is not None]
    age = max(0, now_ns - min(times)) if times else None
    first = terms[0][1] if not known else known[0]
    source = first.source if len(known) < 2 else f"Σ {first.source}"
    if not known:
        return TermView(key, LABELS[key], None, _note(first), source, first.basis, None, True)
    note = ""
    if unknown:
        note = f"{len(known)} of {len(terms)} known; {unknown[0][0]}: {_note(unknown[0][1])}"
    elif absent is not None:
        note = absent.value
    total = sum(term.bytes for term in known if term.bytes is not None)
    return TermView(key, LABELS[key], total, note, source, first.basis, age, False)


def device_total(device: DeviceState) -> tuple[int | None, str]:
    """Bytes of the whole card and whose word it is; PyTorch's where the driver gives none."""
    if device.ledger.total.bytes is not None:
        return device.ledger.total.bytes, "driver"
    return device.torch_total_bytes, "PyTorch"


def device_title(device: DeviceState) -> str:
    """``GPU 0  NVIDIA A100-SXM4-40GB``."""
    instance = "" if device.parent is None else f", an instance of GPU {device.parent}"
    return f"GPU {device.index}  {clean(device.name or device.uuid or 'name not known')}{instance}"


def device_words(device: DeviceState, state: RunState) -> str:
    """A device in one paragraph, to the byte: for a clipboard."""
    lines = [f"{device_title(device)}: {device_usage(device)}"]
    for term in device_terms(device, state):
        size = term.note if term.bytes is None else f"{term.bytes:,} bytes, {units.format_bytes(term.bytes)}"
        lines.append(f"{term.label}: {size}")
    return "\n".join(lines)


def device_usage(device: DeviceState) -> str:
    """How full the card is, in words: ``31.20 of 39.50 GiB used``."""
    total, whose = device_total(device)
    used = device.ledger.device_used
    if used.bytes is None:
        why = f"device used — ({_note(used)})"
        return why if total is None else f"{why} of {units.format_gib(total)} GiB ({whose})"
    share = units.format_share(used.bytes, total)
    text = f"{units.format_gib(used.bytes)} of {units.format_gib(total)} GiB used  {share}"
    return f"{text}  {used.detail}" if used.detail else text


def device_remarks(device: DeviceState, state: RunState, *, skew: bool = True) -> list[str]:
    """What must be known to read this device's figures: reasons, merges, skew, staleness.

    Without ``skew`` for views that come every second and mark rough figures in place.
    """
    remarks = []
    terms = device_terms(device, state)
    by_note: dict[str, list[str]] = {}
    for term in terms:
        if term.note and not (term.key == "driver" and device.ledger.merged is not None):
            by_note.setdefault(term.note, []).append(term.label)
    for note, labels in by_note.items():
        if labels == ["merged"]:
            remarks.append(f"merged, not told apart here: {note}")
        elif labels == [LABELS["opaque"]]:
            remarks.append(f"used {note}")
        else:
            remarks.append(f"{', '.join(labels)}: {note}")
    if skew:
        remarks += skew_remarks(device.ledger)
    if state.facts.live and state.facts.ended_ns is None:
        stale = [t for t in terms if t.age_ns is not None and t.age_ns > STALE_NS]
        if stale:
            oldest = max(t.age_ns for t in stale if t.age_ns is not None)
            names = "figures" if len(stale) == len(terms) else ", ".join(t.label for t in stale)
            remarks.append(f"{names}: read {coarse(oldest)} ago")
    return remarks


def skew_remarks(ledger: Ledger) -> list[str]:
    """Of each rank whose *outside*, or what it is merged into, may be off by what changed meanwhile: why."""
    remarks = []
    for share in ledger.ranks:
        if not share.skewed or share.skew_ns is None:
            continue
        if share.outside.bytes is None and ledger.merged is None:
            continue
        term = "outside" if share.outside.bytes is not None else "merged"
        why = f"{term}: memory was moving while it was read"
        if abs(share.skew_ns) > ledger.tolerance_ns:
            why = f"{term} joins readings {units.format_seconds(abs(share.skew_ns) / 1e9)} apart"
        remarks.append(f"{rank_name(share.rank, share.pid)}: {why}")
    return remarks


def coarse(span_ns: int) -> str:
    """A duration in steps that rarely change, for screens that must not tick."""
    seconds = span_ns // 1_000_000_000
    if seconds < 60:
        return units.format_seconds(max(seconds // 10 * 10, 5)) if seconds >= 5 else "some seconds"
    if seconds < 3600:
        return f"{seconds // 60} min"
    return units.format_seconds(seconds // 60 * 60)


def behind(held_ns: int, now_ns: int) -> str:
    """How far a held picture is from now: exact when it came to be held, then in steps; else empty.

    The seconds that pass are not counted: each would be sent to a terminal that shows nothing new.
    """
    seconds = now_ns // 1_000_000_000
    step = 10 if seconds < 60 else 60
    stepped_ns = seconds // step * step * 1_000_000_000
    if stepped_ns > held_ns:
        return coarse(stepped_ns)
    return units.format_seconds(held_ns / 1_000_000_000) if held_ns else ""


def badge(facts: RunFacts) -> str:
    """SIMULATED or RECORDED, with what; empty for real cards."""
    words = []
    if facts.simulated is not None:
        words.append(f"SIMULATED {clean(facts.simulated)}")
    if facts.recorded:
        words.append("RECORDED")
    return "  ".join(words)


def assumptions(facts: RunFacts) -> list[str]:
    """What the simulated card assumes, one to a line."""
    given = [f"{clean(name)}: {clean(value)}" for name, value in facts.assumptions]
    return given + invented_sentences(facts.foresight)


def wall_clock(facts: RunFacts, t_ns: int, *, seconds: bool = True) -> str:
    """A moment of the run as the local time of day."""
    moment = time.localtime((facts.started_wall_ns + t_ns - facts.started_ns) / 1e9)
    return time.strftime("%H:%M:%S" if seconds else "%H:%M", moment)


def run_sentence(state: RunState) -> str:
    """How far the run is, without a ticking clock: ``running since 14:02``."""
    facts = state.facts
    if facts.ended_ns is not None:
        took = units.format_seconds((facts.ended_ns - facts.started_ns) / 1e9)
        ending = clean(facts.ending) if facts.ending else facts.life.value
        return f"{ending}, after {took}"
    life = {Life.STARTING: "starting", Life.SILENT: "silent", Life.LOST: "lost without a word"}
    word = life.get(facts.life, "running")
    elapsed = state.now_ns - facts.started_ns
    since = f" since {wall_clock(facts, facts.started_ns, seconds=False)}"
    return word + since + (f", {coarse(elapsed)}" if elapsed >= 60_000_000_000 else "")


def moment_sentence(facts: RunFacts) -> str:
    """What the ledgers of an ended run show: ``ledgers: at the …, 19:31:38``; empty while it runs."""
    if facts.moment is None:
        return ""
    at = "" if facts.moment_ns is None else f", {wall_clock(facts, facts.moment_ns)}"
    return f"ledgers: {clean(facts.moment)}{at}"


def end_word(rank: RankState) -> str:
    """How a process ended that did not end in order: ``killed by SIGKILL``; empty for all others."""
    if rank.life is Life.FAILED:
        return clean(rank.ending or rank.life.value)
    return "gone without a word" if rank.life is Life.LOST else ""


def life_role(life: Life) -> str:
    """The role in which a life is drawn."""
    if life in (Life.FAILED, Life.LOST):
        return "failure"
    return "warning" if life is Life.SILENT else "text"


def run_notes(state: RunState) -> list[tuple[str, str]]:
    """What people must know about this recording, as (role, sentence); usually nothing."""
    notes = []
    facts, health = state.facts, state.health
    if state.driver_reason is not None:
        notes.append(("warning", f"no driver readings: {state.driver_reason.value}"))
    if facts.ended_ns is None and facts.recorder in (Life.LOST, Life.FAILED, Life.SILENT):
        notes.append(
            (
                "warning",
                f"the recorder is {facts.recorder.value}: driver figures stand still",
            )
        )
    if facts.ended_ns is None and facts.keeper in (Life.LOST, Life.FAILED):
        notes.append(("warning", "the keeper is gone: how this run ends will not be known"))
    if health.corrupt_lines:
        notes.append(("warning", f"{health.corrupt_lines} unreadable lines in the recording, skipped"))
    if health.unknown_lines:
        notes.append(("dim", f"{health.unknown_lines} lines of a newer version, skipped"))
    if health.dropped:
        notes.append(("warning", f"{health.dropped} readings could not be written"))
    notes.extend(("warning", clean(note)) for note in health.notes)
    return notes


def event_role(event: Event) -> str:
    """The role in which an event is drawn."""
    return {Severity.INFO: "text", Severity.WARNING: "warning", Severity.FAILURE: "failure"}[event.severity]


def event_sentence(event: Event) -> str:
    """What happened and to whom."""
    where = []
    if event.rank is not None:
        where.append(f"rank {event.rank}")
    if event.device is not None:
        where.append(f"GPU {event.device}")
    text = clean(event.text)
    return f"{', '.join(where)}: {text}" if where else text
