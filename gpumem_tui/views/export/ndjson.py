r"""NDJSON: the whole recording, one JSON object a line. The schema is this module's promise.

The first line is ``{"record": "run", "gpumem_tui_export": 1, "run": name, "cards": "real" or
"SIMULATED …", "recorded": bool, "command": […], "host": …, "started_ns", "started_wall_ns",
"ending", "exit_code", "assumptions": {…}, "labels": {…}, "identity": {…}}``. Every other line is
one record: ``record`` is its kind, ``writer`` is ``{"role": "rank" | "driver" | "keeper", "pid",
"rank"}``, and the fields are those of ``gpumem_tui/agent/wire.py``, by name. Times are nanoseconds
of the node's monotonic clock, sizes raw bytes, null where there was no reading (``reason``
says why). Lines of one writer are in order; writers come one after another in blocks.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from gpumem_tui.analysis.state import RunState
from gpumem_tui.views.export.source import Names, Records, names_of

VERSION = 1

RESERVED = ("record", "writer")
"""Keys of ours; no field of the wire has such a name."""

_encode = msgspec.json.Encoder().encode


def lines(state: RunState, records: Records) -> Iterator[bytes]:
    """Every line, with its newline."""
    names = names_of(state)
    yield _line(_head(state, names))
    for head, record in records:
        kind = record.__struct_config__.tag
        writer = {"role": head.journal, "pid": head.pid, "rank": names.ranks.get(head.pid)}
        fields = {name: getattr(record, name) for name in record.__struct_fields__}
        yield _line({"record": kind, "writer": writer, **fields})


def _head(state: RunState, names: Names) -> dict[str, Any]:
    facts = state.facts
    return {
        "record": "run",
        "gpumem_tui_export": VERSION,
        "run": names.run,
        "cards": names.cards,
        "recorded": names.recorded,
        "command": facts.command,
        "host": facts.host,
        "started_ns": facts.started_ns,
        "started_wall_ns": facts.started_wall_ns,
        "ending": facts.ending,
        "exit_code": facts.exit_code,
        "assumptions": dict(facts.assumptions),
        "labels": dict(facts.labels),
        "identity": facts.identity,
    }


def _line(value: dict[str, Any]) -> bytes:
    return _encode(value) + b"\n"
