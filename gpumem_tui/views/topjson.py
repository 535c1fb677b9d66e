"""The driver's view as JSON: ``top --json``. The schema is this module's promise.

``{"gpumem_tui_top": 1, "now_ns": n, "wall_ns": n, "host": text, "viewer": text,
"driver": {"version": text | null, "reason": text | null, "word": text | null},
"simulated": text | null, "complete": bool, "devices": […], "processes": […], "alarms": […],
"events": […]}``

- Sizes are raw bytes. A figure is ``{"bytes": n | null, "reason": text | null, "source": text,
  "basis": "observed" | "computed", "t_ns": n | null, "detail": text | null}``; exactly one of
  bytes and reason is null: missing is never 0.
- ``driver.reason`` is set where there are no devices at all; the process then ends with code 2.
- ``devices[]``: ``index`` is NVML's (a MIG instance's is ``(card + 1) * 100 + n``), ``label`` is what
  people read and ``--device`` takes (``0``, ``0:1``), ``parent`` the card of an instance, ``split``
  whether a card is in MIG mode; ``uuid`` (without "GPU-"), ``pci`` and ``name`` may be null.
  ``total = free + driver_reserved + Σ processes + unattributed``;
  where a part is not known, ``merged`` stands for it and its ``of`` says for what. ``used`` is
  total − free − driver_reserved, and includes the last where the driver has no version 2 of the
  call (``detail`` says so). ``load`` has percent, °C, mW, MHz, each null where ``load.reason``
  says why. ``processes_reason`` says why the process list is missing or incomplete, ``processes_missing``
  is of which kinds (``["G"]``) it may lack some where others could be read, ``reason`` is the
  driver's own word on the card. ``file_holders`` are processes that have the card's device file
  open while memory of it belongs to nobody listed, null where that was not looked for;
  ``unreadable_processes`` may not be looked at.
- ``processes[]``: one for each process and device; ``used`` is a figure. ``growth`` is the change over
  the last minute: ``{"bytes": n | null, "reason": text | null}``, "not read yet" until it was
  watched for one. ``visible`` is false where this pid namespace does not show the process: its user,
  command and host memory are then null, and the row is kept. ``run`` is
  ``{"run": name, "rank": n | null, "phase": text, "step": n | null, "allocated_bytes": n | null,
  "reserved_bytes": n | null, "identified_by": text | null}`` for a rank of a run that gpumem-tui
  records; allocated is part of reserved. ``ancestors`` are who started it, its parent first, each with
  ``pid``, ``name``, ``user`` and ``command``; init and what is not visible are left out.
- ``alarms[]`` are out-of-memory failures of live runs; ``events[]`` what the driver's readings went
  through since they began: faults and their ends.
- Fields may be added; none is renamed, removed or given another meaning within a version.
"""

from typing import Any

import msgspec

from gpumem_tui.analysis.ledger import Term
from gpumem_tui.analysis.top import TopDevice, TopProcess, TopState, ordered
from gpumem_tui.records import Reason

VERSION = 1
"""Version of this schema, as ``gpumem_tui_top`` in the document."""


def document(state: TopState, sort: str = "device") -> dict[str, Any]:
    """The whole picture as plain Python values, ready for any JSON writer."""
    return {
        "gpumem_tui_top": VERSION,
        "now_ns": state.now_ns,
        "wall_ns": state.wall_ns,
        "host": state.host,
        "viewer": state.viewer,
        "driver": {
            "version": state.driver_version,
            "reason": _reason(state.driver_reason),
            "word": state.driver_word,
        },
        "simulated": state.simulated,
        "complete": state.complete,
        "devices": [_device(device) for device in state.devices],
        "processes": [_process(process) for process in ordered(state.processes, sort)],
        "alarms": [msgspec.to_builtins(alarm) for alarm in state.alarms],
        "events": [
            {"t_ns": event.t_ns, "severity": event.severity.value, "text": event.text}
            for event in state.events
        ],
    }


def render(state: TopState, sort: str = "device") -> str:
    """The document as text, indented, ending with a newline."""
    return msgspec.json.format(msgspec.json.encode(document(state, sort)), indent=2).decode() + "\n"


def _reason(reason: Reason | None) -> str | None:
    return None if reason is None else reason.value


def _figure(term: Term) -> dict[str, Any]:
    return {
        "bytes": term.bytes,
        "reason": _reason(term.reason),
        "source": term.source,
        "basis": term.basis.value,
        "t_ns": term.t_ns,
        "detail": term.detail,
    }


def _device(device: TopDevice) -> dict[str, Any]:
    ledger = device.ledger
    merged = None
    if ledger.merged is not None:
        merged = {**_figure(ledger.merged), "of": ledger.merged_label.split(" + ")}
    return {
        "index": device.index,
        "label": device.label,
        "parent": device.parent,
        "split": device.split,
        "uuid": device.uuid,
        "pci": device.pci,
        "name": device.name,
        "reason": device.reason,
        "total": _figure(ledger.total),
        "used": _figure(ledger.device_used),
        "free": _figure(ledger.free),
        "driver_reserved": _figure(ledger.driver_reserved),
        "unattributed": _figure(ledger.unattributed),
        "merged": merged,
        "load": {
            "utilization_percent": device.utilization,
            "temperature_celsius": device.temperature,
            "power_milliwatts": device.power_mw,
            "clock_mhz": device.clock_mhz,
            "memory_clock_mhz": device.memory_clock_mhz,
            "reason": _reason(device.load_reason),
        },
        "processes_reason": _reason(device.processes_reason),
        "processes_missing": list(device.processes_missing),
        "file_holders": None
        if device.file_holders is None
        else [msgspec.to_builtins(holder) for holder in device.file_holders],
        "unreadable_processes": device.unreadable,
    }


def _process(process: TopProcess) -> dict[str, Any]:
    grown = process.growth_bytes
    return {
        "device": process.device,
        "pid": process.pid,
        "namespace_pid": process.namespace_pid,
        "visible": process.visible,
        "zombie": process.zombie,
        "mine": process.mine,
        "name": process.name or None,
        "user": process.user or None,
        "command": process.command or None,
        "kind": process.kind,
        "used": _figure(process.used),
        "growth": {"bytes": grown, "reason": None if grown is not None else Reason.NOT_READ_YET.value},
        "host_bytes": process.rss_bytes,
        "seen_since_ns": process.since_ns,
        "started_wall_ns": process.started_wall_ns,
        "container": process.container,
        "slurm_job": process.job,
        "run": None if process.run is None else msgspec.to_builtins(process.run),
        "ancestors": [msgspec.to_builtins(ancestor) for ancestor in process.ancestors],
    }
