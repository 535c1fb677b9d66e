"""A run as JSON, for scripts: ``attach --once --json``. The schema is this module's promise.

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
- ``run.moment`` says what the ledgers of an ended run show, ``run.moment_ns`` when that was.
- ``phases`` are finished spans by process, phase, name, device and cold (the first span) or
  warm (all later ones): ``{"pid": n, "rank": n | null, "phase": text, "name": text,
  "ordinal": CUDA's number of the device, "cold": bool, "count": spans, "errors": spans,
  "duration_ns": median, "start_allocated_bytes": n | null, "start_reserved_bytes",
  "peak_allocated_bytes", "peak_reserved_bytes", "exact": false where the peaks are lower
  bounds, "end_allocated_bytes", "end_reserved_bytes", "last_ns": end of the latest span}``.
  Start and end are of the latest span, peaks are maxima over all of them.
- ``ranks[].composition`` is what allocated was made of at the end of a step, for each device;
  lower bounds where ``complete`` is false. ``ranks[].inputs`` are the tensors that entered
  root modules.
- Fields may be added; none is renamed, removed or given another meaning within a version.
"""

from typing import Any

import msgspec

from gpumem_tui.analysis.ledger import Ledger, Term
from gpumem_tui.analysis.state import DeviceState, ProcessRow, RankState, RunState

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
            "recorded": facts.recorded,
            "labels": dict(facts.labels),
            "recorder": facts.recorder.value,
            "keeper": facts.keeper.value,
        },
        "driver_reason": None if state.driver_reason is None else state.driver_reason.value,
        "devices": [_device(device) for device in state.devices],
        "ranks": [_rank(rank) for rank in state.ranks],
        "phases": [msgspec.to_builtins(row) for row in state.phases],
        "processes": [_process(row) for row in state.processes],
        "events": [msgspec.to_builtins(event) for event in state.events],
        "host": None if state.host is None else msgspec.to_builtins(state.host),
        "output_bytes": state.output_bytes,
        "health": msgspec.to_builtins(state.health),
    }


def render(state: RunState) -> str:
    """The document as text, indented, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(document(state)), indent=2).decode() + "\n"


def _device(device: DeviceState) -> dict[str, Any]:
    return {
        "index": device.index,
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


def _rank(rank: RankState) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(rank)
    return plain


def _process(row: ProcessRow) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(row)
    plain["started_here_ns"] = plain.pop("since_ns")
    return plain
