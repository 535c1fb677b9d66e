"""A measurement: the spans of a run's named phases one by one, in order, with raw bytes. Pure.

Refuses to average: each repeat is a row of its own, cold and warm apart, a failed one
with its error. Peaks are maxima of two counters and are never subtracted.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from gpumem_tui.analysis.rankstate import Levels, RankState
from gpumem_tui.analysis.state import RunState

VERSION = 1
"""Version of the JSON document, as ``gpumem_tui_measurement``."""

DEFINITIONS = {
    "allocated_bytes": "held by live tensors (allocated_bytes.all.current)",
    "reserved_bytes": "managed by the caching allocator (reserved_bytes.all.current); contains allocated",
    "peak_allocated_bytes": "maximum of allocated within the span (allocated_bytes.all.peak)",
    "peak_reserved_bytes": "maximum of reserved within the span (reserved_bytes.all.peak)",
    "process_used_bytes": "what the driver says the process holds on the device (NVML)",
}
"""Counters of the document. Two peaks need not have happened together."""


class Span(msgspec.Struct, frozen=True):
    """One finished span of one phase on one device."""

    pid: int
    rank: int | None
    phase: str
    ordinal: int
    number: int
    """Counts the spans of this phase from 1."""
    cold: bool
    """The first time that this process did the work of this phase."""
    began_ns: int
    duration_ns: int
    start_allocated_bytes: int | None
    start_reserved_bytes: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    exact: bool
    """Otherwise the peaks are lower bounds."""
    end_allocated_bytes: int
    end_reserved_bytes: int
    error: str | None


def document(state: RunState, spans: Sequence[Span], configuration: dict[str, Any]) -> dict[str, Any]:
    """The measurement as plain values: what was asked, what ran, what was observed, what was assumed."""
    facts = state.facts
    return {
        "gpumem_tui_measurement": VERSION,
        "run": facts.run,
        "host": facts.host,
        "started_wall_ns": facts.started_wall_ns,
        "simulated": facts.simulated,
        "protocol": "strict",
        "configuration": configuration,
        "labels": dict(facts.labels),
        "identity": msgspec.to_builtins(facts.identity),
        "outcome": {"exit_code": facts.exit_code, "ending": facts.ending},
        "devices": [
            {"index": device.index, "name": device.name, "uuid": device.uuid,
             "total_bytes": device.ledger.total.bytes}
            for device in state.devices
        ],
        "processes": [_process(rank) for rank in state.ranks],
        "definitions": DEFINITIONS,
        "observed": [msgspec.to_builtins(span) for span in spans],
        "assumed": dict(facts.assumptions),
    }  # fmt: skip


def _process(rank: RankState) -> dict[str, Any]:
    return {
        "pid": rank.pid,
        "rank": rank.rank,
        "backend": rank.backend,
        "torch": rank.torch_version,
        "allocator": rank.allocator,
        "peaks": [msgspec.to_builtins(peak) for peak in rank.peaks],
        "last_levels": [_levels(levels) for levels in rank.levels],
        "words": list(rank.words),
    }


def _levels(levels: Levels) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(levels)
    return plain
