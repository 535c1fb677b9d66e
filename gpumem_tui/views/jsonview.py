"""A run as JSON, for scripts: ``attach --once --json``, ``report --json``. The schema is its promise.

``{"gpumem_tui": 1, "run": {…}, "devices": […], "ranks": […], "phases": […], "processes": […],
"events": […], "host": {…} | null, "health": {…}}``

- Sizes are raw bytes in fields ending in ``_bytes``; times are nanoseconds of the
  node's monotonic clock in fields ending in ``_ns``; ``wall_ns`` is since 1970.
- A figure is ``{"bytes": n | null, "reason": text | null, "source": text,
  "basis": "observed" | "computed" | "assumed", "t_ns": n | null, "detail": text | null}``.
  Exactly one of bytes and reason is null: missing is never 0.
- ``ledger.terms`` are every known and unknown part of a card, one for each holder; those
  with bytes sum to ``ledger.total`` wherever that is known. A rank whose allocator cannot be
  read has ``used``, the driver's figure, beside its missing allocated, cached and outside.
- ``run.foresight`` is what real cards would need, for each simulated device: ``{"index": n,
  "capacity_bytes": n, "point_bytes": n, "plans_bytes": n (cuDNN's plans within the point),
  "bound_bytes": n, "additions": [[what for, bytes], …],
  "refused": requests that did not fit, "invented_reads": values read that nothing had computed,
  "invented_counts": those of them that say how much masks pick}``; empty where the cards are real.
- ``run.moment`` says what the ledgers of an ended run show, ``run.moment_ns`` when that was.
- ``phases`` are finished spans by process, phase, name, device and cold (the first span) or
  warm (all later ones): ``{"pid": n, "rank": n | null, "phase": text, "name": text,
  "ordinal": CUDA's number of the device, "cold": bool, "count": spans, "errors": spans,
  "duration_ns": median, "start_allocated_bytes": n | null, "start_reserved_bytes",
  "peak_allocated_bytes", "peak_reserved_bytes", "exact": false where the peaks are lower
  bounds, "end_allocated_bytes", "end_reserved_bytes", "last_ns": end of the latest span,
  "end_growth_bytes": growth of allocated at the end from a span to the next (0: it does not grow;
  null: too few spans), "peak_growth_bytes": likewise of its peak, "growth_spans": over how many}``.
  Start and end are of the latest span, peaks are maxima over all of them.
- ``phases_compared`` are phases that several ranks have finished: ``{"phase": text, "name": text,
  "cold": bool, "ranks": n, "exact": bool, "most_allocated": {"bytes": n, "pid": n, "rank": n | null,
  "ordinal": n}, "least_allocated", "most_reserved", "least_reserved"}``; all are peaks.
- ``ranks[].composition`` is what allocated was made of at the end of a step, for each device;
  lower bounds where ``complete`` is false. ``ranks[].inputs`` are the tensors that entered
  root modules.
- ``run.identity`` is what run.json says beside: version, working directory, revision (commit,
  branch, dirty, reason), seed and who says it, declared sizes, warm-up policy, protocol,
  environment; null in pictures that no recording stands behind.
- A report has ``report`` besides: ``counters`` (name, unit, meaning, source), ``loads`` (the
  largest input of each phase), ``open_spans`` by rank, ``outside_scope``, what the run does not show, and
  ``before_failures``, the last 30 s before each of the first 20: ``{"pid": n, "t_ns": of the failure,
  "parts": [{"since_ns": n, "until_ns": n, "phases": [text], "allocated": {"low_bytes": n, "high_bytes": n,
  "last_bytes": n} | null where nothing was read, "reserved", "device_used": by all processes}]}``.
- ``processes[].identified_by`` is how a rank was recognised: ``same pid``, or the evidence where
  the driver names pids of another namespace; null for everybody else.
- ``outside`` is memory outside PyTorch over time, by rank and device: its baseline after CUDA was
  initialised, and each later step with the phases and marks between its two readings.
- ``failures`` are by time: ``kind``, ``headline``, ``part`` and ``outcome`` in words, ``record`` as the
  failing process wrote it (null with ``record_reason``), ``ledger`` of that instant as a device's, and
  ``findings``, the verdict first, each with evidence, check, trial and what is missing. ``alerts`` are
  what threatens a run that goes on. ``maps`` are the pools of ranks that somebody asked for while it ran.
- Fields may be added; none is renamed, removed or given another meaning within a version.
"""

from typing import Any

import msgspec

from gpumem_tui.analysis.failurestate import FailureState
from gpumem_tui.analysis.ledger import Ledger, Term
from gpumem_tui.analysis.loads import largest_loads
from gpumem_tui.analysis.provenance import Identity
from gpumem_tui.analysis.rankstate import RankState
from gpumem_tui.analysis.scope import untested
from gpumem_tui.analysis.spread import spreads
from gpumem_tui.analysis.state import DeviceState, ProcessRow, RunState
from gpumem_tui.views import before
from gpumem_tui.views.report.counters import COUNTERS
from gpumem_tui.views.report.failures import MOST, PARTS

VERSION = 1
"""Version of this schema, as ``gpumem_tui`` in the document."""


def document(state: RunState) -> dict[str, Any]:
    """The whole picture as plain Python values, ready for any JSON writer."""
    facts = state.facts
    return {
        "gpumem_tui": VERSION,
        "now_ns": state.now_ns,
        "run": {
            "name": facts.run,
            "path": facts.path,
            "command": list(facts.command),
            "host": facts.host,
            "user": facts.user,
            "life": facts.life.value,
            "ending": facts.ending,
            "exit_code": facts.exit_code,
            "started_wall_ns": facts.started_wall_ns,
            "started_ns": facts.started_ns,
            "ended_ns": facts.ended_ns,
            "moment": facts.moment,
            "moment_ns": facts.moment_ns,
            "interactive": facts.interactive,
            "simulated": facts.simulated,
            "assumptions": dict(facts.assumptions),
            "foresight": [msgspec.to_builtins(device) for device in facts.foresight],
            "recorded": facts.recorded,
            "labels": dict(facts.labels),
            "recorder": facts.recorder.value,
            "keeper": facts.keeper.value,
            "identity": None if facts.identity is None else _identity(facts.identity),
        },
        "driver_reason": None if state.driver_reason is None else state.driver_reason.value,
        "devices": [_device(device) for device in state.devices],
        "ranks": [_rank(rank) for rank in state.ranks],
        "phases": [msgspec.to_builtins(row) for row in state.phases],
        "phases_compared": [msgspec.to_builtins(spread) for spread in spreads(state.phases)],
        "processes": [_process(row) for row in state.processes],
        "events": [msgspec.to_builtins(event) for event in state.events],
        "failures": [_failure(failure) for failure in state.failures],
        "alerts": [msgspec.to_builtins(alert) for alert in state.alerts],
        "maps": [msgspec.to_builtins(found) for found in state.maps],
        "outside": [msgspec.to_builtins(known) for known in state.outside],
        "host": None if state.host is None else msgspec.to_builtins(state.host),
        "output_bytes": state.output_bytes,
        "health": msgspec.to_builtins(state.health),
    }


def render(state: RunState) -> str:
    """The document as text, indented, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(document(state)), indent=2).decode() + "\n"


def render_report(state: RunState) -> str:
    """The document of a report as text, indented, ending with a newline."""
    told: dict[str, Any] = {
        "counters": [dict(zip(("name", "unit", "meaning", "source"), one, strict=True)) for one in COUNTERS],
        "loads": msgspec.to_builtins(largest_loads(state.ranks)),
        "open_spans": [
            {"pid": rank.pid, "rank": rank.rank, **msgspec.to_builtins(span)}
            for rank in state.ranks
            for span in rank.spans
        ],
        "before_failures": [
            {"pid": failure.pid, "t_ns": failure.t_ns, "parts": [_stretch(part) for part in parts]}
            for failure in state.failures[:MOST]
            if (parts := before.stretches(state, failure, PARTS))
        ],
        "outside_scope": list(untested(state)),
    }
    whole = {**document(state), "report": told}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode() + "\n"


def _identity(identity: Identity) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(identity)
    return {**plain, **{name: dict(plain[name]) for name in ("declared", "environment", "simulation")}}


def _device(device: DeviceState) -> dict[str, Any]:
    return {
        "index": device.index,
        "parent": device.parent,
        "uuid": device.uuid,
        "name": device.name,
        "pci": device.pci,
        "ours": device.ours,
        "torch_total_bytes": device.torch_total_bytes,
        "utilization_percent": device.utilization,
        "temperature_celsius": device.temperature,
        "power_milliwatts": device.power_mw,
        "load_reason": None if device.load_reason is None else device.load_reason.value,
        "ledger": _ledger(device.ledger),
    }


def _ledger(ledger: Ledger) -> dict[str, Any]:
    terms: list[dict[str, Any]] = []
    for share in ledger.ranks:
        holder: dict[str, Any] = {"pid": share.pid, "rank": share.rank}
        holder |= {"skew_ns": share.skew_ns, "skewed": share.skewed}
        ours = {"allocated": share.allocated, "cached": share.cached, "outside": share.outside}
        if share.opaque:
            ours["used"] = share.used
        terms.extend({"term": name, **holder, **_figure(term)} for name, term in ours.items())
    for other in ledger.others:
        holder = {"pid": other.pid, "name": other.name, "user": other.user, "kind": other.kind}
        terms.append({"term": "other", **holder, "visible": other.visible, **_figure(other.used)})
    terms.append({"term": "driver_reserved", **_figure(ledger.driver_reserved)})
    terms.append({"term": "unattributed", **_figure(ledger.unattributed)})
    if ledger.merged is not None:
        terms.append({"term": "merged", "of": ledger.merged_label.split(" + "), **_figure(ledger.merged)})
    terms.append({"term": "free", **_figure(ledger.free)})
    return {
        "t_ns": ledger.t_ns,
        "tolerance_ns": ledger.tolerance_ns,
        "total": _figure(ledger.total),
        "device_used": _figure(ledger.device_used),
        "terms": terms,
    }


def _figure(term: Term) -> dict[str, Any]:
    return {
        "bytes": term.bytes,
        "reason": None if term.reason is None else term.reason.value,
        "source": term.source,
        "basis": term.basis.value,
        "t_ns": term.t_ns,
        "detail": term.detail,
    }


def _failure(failure: FailureState) -> dict[str, Any]:
    ledger = None if failure.ledger is None else _ledger(failure.ledger)
    return {**msgspec.to_builtins(msgspec.structs.replace(failure, ledger=None)), "ledger": ledger}


def _stretch(part: before.Stretch) -> dict[str, Any]:
    levels = {"allocated": part.allocated, "reserved": part.reserved, "device_used": part.used}
    return {
        "since_ns": part.since_ns,
        "until_ns": part.until_ns,
        "phases": part.phases,
        **{
            name: None
            if level is None
            else dict(zip(("low_bytes", "high_bytes", "last_bytes"), level, strict=True))
            for name, level in levels.items()
        },
    }


def _rank(rank: RankState) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(rank)
    return plain


def _process(row: ProcessRow) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(row)
    plain["started_here_ns"] = plain.pop("since_ns")
    return plain
