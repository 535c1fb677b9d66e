"""An estimate as text for a ticket, and as JSON for a script. Pure: returns text, prints nothing.

The JSON document (``schema`` 1; keys are only ever added; all sizes are whole bytes)::

    {"schema": 1, "kind": "estimate", "measured": false,
     "inputs":  {name: {"value": number or text, "origin": "given|read|assumed", "source": text}},
     "lines":   [{"key", "title", "place": "device|host|disk", "bytes": int or null, "reason": text or null,
                  "basis": "computed|assumed", "formula": text, "notes": [text]}],
     "sum":     {"bytes": of the device's lines, "basis", "complete": false if one of them is null},
     "ranks": int, "split": int,
     "devices": [{"total_bytes", "remaining_bytes": negative if the sum is larger, "basis": "assumed"}],
     "not_included": [{"key", "text"}], "notes": [text]}
"""

import json
import textwrap
from fractions import Fraction
from typing import Any

from gpumem_tui.analysis.estimate.figures import Basis, Estimate, Line, Place, say
from gpumem_tui.units import GIB, MIB, MISSING, format_both, format_bytes

SCHEMA = 1
_WIDTH = 79
_TITLE = 26


def as_json(estimate: Estimate) -> str:
    """The document described above, with a final newline."""
    document = {
        "schema": SCHEMA,
        "kind": "estimate",
        "measured": False,
        "inputs": {
            name: {"value": _plain(entry.value), "origin": entry.origin.value, "source": entry.source}
            for name, entry in estimate.inputs.items()
        },
        "lines": [
            {
                "key": line.key,
                "title": line.title,
                "place": line.place.value,
                "bytes": line.bytes,
                "reason": line.reason,
                "basis": line.basis.value,
                "formula": line.formula,
                "notes": list(line.notes),
            }
            for line in estimate.lines
        ],
        "sum": {
            "bytes": estimate.device_bytes,
            "basis": estimate.basis.value,
            "complete": not estimate.unknown,
        },
        "ranks": estimate.ranks,
        "split": estimate.split,
        "devices": [
            {
                "total_bytes": size,
                "remaining_bytes": size - estimate.device_bytes,
                "basis": Basis.ASSUMED.value,
            }
            for size in estimate.devices
        ],
        "not_included": [{"key": entry.key, "text": entry.text} for entry in estimate.omissions],
        "notes": list(estimate.notes),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return int(value) if value.denominator == 1 else float(value)
    return value


def as_text(estimate: Estimate, command: str) -> str:
    """The sheet, at most 79 columns wide unless a path is longer."""
    head = f"ESTIMATE for {_whose(estimate)}: arithmetic on declared sizes; nothing was measured."
    rows = [command, *_wrap(head, ""), ""]
    rows.append(f"{'':{_TITLE}}{'bytes':>18}{'GB':>11}{'GiB':>11}")
    for line in estimate.at(Place.DEVICE):
        rows += _line(line)
    rows += _sum(estimate)
    for place, head in (
        (Place.HOST, "On the host, not in the sum:"),
        (Place.DISK, "On disk, not in the sum:"),
    ):
        if estimate.at(place):
            rows += ["", head]
            for line in estimate.at(place):
                rows += _line(line)
    for size in estimate.devices:
        rows += _against(estimate, size)
    rows += ["", "Inputs:"]
    for name, entry in estimate.inputs.items():
        value = entry.value if isinstance(entry.value, str) else say(entry.value)
        rows += _wrap(f"{name} = {value}  ({entry.origin.value}: {entry.source})", "  ")
    if estimate.notes:
        rows += ["", "Notes:"]
        for note in estimate.notes:
            rows += _wrap(note, "  - ")
    rows += ["", "Not included:"]
    for omission in estimate.omissions:
        rows += _wrap(omission.text, "  - ")
    rows += ["", *_next(estimate)]
    return "\n".join(rows) + "\n"


def _whose(estimate: Estimate) -> str:
    if estimate.ranks > 1:
        return f"each of {estimate.ranks:,} ranks, one device a rank"
    if estimate.split > 1:
        return f"each of {estimate.split:,} devices that share the model"
    return "one device"


def _line(line: Line) -> list[str]:
    rows = [_figures(line.title, line.bytes, line.basis.value)]
    rows += _wrap(f"= {line.formula}", "    ", "      ")
    if line.reason is not None:
        rows += _wrap(f"no figure: {line.reason}", "    ")
    for note in line.notes:
        rows += _wrap(f"({note})", "    ", "     ")
    return rows


def _figures(title: str, size: int | None, label: str) -> str:
    if size is None:
        return f"{title:<{_TITLE}}{MISSING:>18}{MISSING:>11}{MISSING:>11}  no figure"
    raw, gb, gib = (part.rpartition(" ")[0] for part in format_both(abs(size)).split(", "))
    sign = "−" if size < 0 else ""
    return f"{title:<{_TITLE}}{sign + raw:>18}{sign + gb:>11}{sign + gib:>11}  {label}"


def _sum(estimate: Estimate) -> list[str]:
    rule = "─" * (_TITLE + 40)
    title = "sum of the known" if estimate.unknown else "sum"
    rows = [rule, _figures(title, estimate.device_bytes, estimate.basis.value)]
    if estimate.unknown:
        rows += _wrap(f"(at least; without: {', '.join(line.title for line in estimate.unknown)})", "    ")
    return rows


def _against(estimate: Estimate, size: int) -> list[str]:
    left = size - estimate.device_bytes
    rows = ["", f"Against a device of {format_bytes(size, precision=2)} ({size:,} bytes):"]
    rows.append(_figures("would remain", left, Basis.ASSUMED.value))
    if left < 0:
        rows += _wrap("= device − sum; negative: the sum alone is larger than the device", "    ", "      ")
    else:
        most = "at most; " if estimate.unknown else ""
        rows += _wrap(
            f"= device − sum; {most}for all that is not included, on an empty device", "    ", "      "
        )
    return rows


def _next(estimate: Estimate) -> list[str]:
    size = _say_size(estimate.devices[0]) if estimate.devices else "24GiB"
    cards = min(max(estimate.ranks, estimate.split), 16)
    script = f"-- torchrun --nproc-per-node {cards} train.py" if estimate.ranks > 1 else "train.py"
    text = "For activations, workspaces, context and fragmentation, run your own script on a simulated card:"
    return [*_wrap(text, ""), f"  gpumem-tui run --simulate {','.join([size] * cards)} {script}"]


def _say_size(size: int) -> str:
    """As ``--simulate`` takes it, to the byte."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB)):
        if size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def _wrap(text: str, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=" " * len(first) if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
