"""``compare``: runs side by side, by what they are and by what each phase held.

The JSON (``--json``) is one object: ``gpumem_tui_compare`` (1), ``runs`` (name, simulated,
recorded, ending), ``factors`` (name, values by run or null where not known, seen,
differs, unknown), ``warnings``, ``phases`` (rank, phase, name, ordinal, cold, and in ``runs``
for each run null or its figures, with ``differences`` against the first run where one says
something), ``wholes`` (by run: peaks of each rank over its life), ``constraints``. Sizes are
raw bytes, durations nanoseconds. Fields are only ever added.
"""

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpumem_tui.analysis.comparison import Comparison

SCHEMA = 1
MOST = 16
"""Runs at once; more is what a sweep is for."""

_COUNTERS = (
    "start_allocated_bytes",
    "peak_allocated_bytes",
    "end_allocated_bytes",
    "start_reserved_bytes",
    "peak_reserved_bytes",
    "end_reserved_bytes",
)

_EPILOG = """\
  gpumem-tui compare before after
  gpumem-tui compare batch-4 batch-8 --capacity 24GiB -o compared.html

Says first what differs between the runs, and warns where more than one thing does."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("runs", nargs="*", metavar="RUN", help="two runs or more; the first is what others are held against")
    add(
        "--capacity",
        action="append",
        default=[],
        metavar="SIZE[,SIZE…]",
        help="memory of other cards, e.g. 24GiB: what was seen may exclude it; repeatable",
    )
    add("--format", choices=("text", "md", "json", "html"), help="default: by the file's ending, else text")
    add("--json", action="store_true", help="same as --format json: stable schema, raw bytes")
    add("-o", "--output", metavar="FILE", help="write to a new file instead of standard output")
    add("--ascii", action="store_true", help="text in ASCII only")
    add(
        "--redact",
        action="store_true",
        help="for sharing: no users, hosts, folders, command lines, strangers",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the comparison."""
    from gpumem_tui.analysis.comparison import compare
    from gpumem_tui.cli.newfile import new_file
    from gpumem_tui.cli.report import format_of, write_sheet
    from gpumem_tui.errors import BadInput, UsageError
    from gpumem_tui.journal import rundir
    from gpumem_tui.session import Recording
    from gpumem_tui.units import parse_card
    from gpumem_tui.views.report.compared import sheet_of

    if len(arguments.runs) < 2:
        raise UsageError("compare takes two runs or more, as in: gpumem-tui compare before after")
    if len(arguments.runs) > MOST:
        raise UsageError(f"compare takes {MOST} runs at most, not {len(arguments.runs)}")
    kind = format_of(arguments)
    capacities = [
        parse_card(size, what="--capacity") for sizes in arguments.capacity for size in sizes.split(",")
    ]
    found = [rundir.find(name) for name in arguments.runs]
    twice = next((run.name for n, run in enumerate(found) if run in found[:n]), None)
    if twice is not None:
        raise BadInput(f"{twice} is named twice; compare takes different runs")
    states = [Recording(run).read() for run in found]
    comparison = compare(states, capacities)
    if arguments.redact:
        from gpumem_tui.analysis.redact import redacted_comparison

        comparison = redacted_comparison(states, comparison)
    with new_file(arguments.output) as file:
        if kind == "json":
            file.write(_json(comparison))
        else:
            sheet = sheet_of(comparison)
            file.write(
                write_sheet(
                    sheet, kind, to_file=arguments.output is not None, ascii_only=arguments.ascii
                ).encode()
            )
    return 0


def _json(comparison: "Comparison") -> bytes:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(comparison)
    columns = [plain.pop(name) for name in ("names", "simulated", "recorded", "endings")]
    keys = ("name", "simulated", "recorded", "ending")
    runs = [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]
    for entry, factor in zip(plain["factors"], comparison.factors, strict=True):
        entry |= {"differs": factor.differs, "unknown": factor.unknown}
    for entry, pair in zip(plain["phases"], comparison.phases, strict=True):
        entry["differences"] = [
            {**{field: pair.difference(n, field) for field in _COUNTERS}, "slowdown": pair.slowdown(n)}
            for n in range(1, len(runs))
        ]
    document = {"gpumem_tui_compare": SCHEMA, "runs": runs, **plain}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
