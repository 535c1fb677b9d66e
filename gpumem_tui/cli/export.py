"""``export``: a recording as NDJSON, CSV, a Chrome or Perfetto trace, or Prometheus metrics."""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumem_tui.journal.rundir import RunDirectory

FORMATS = ("ndjson", "csv", "perfetto", "prometheus")
TABLES = ("timeline", "spans", "phases", "ledger", "identity")

_EPILOG = """\
  gpumem-tui export --format ndjson | jq 'select(.record == "sample")'
  gpumem-tui export my-run --format csv --table spans -o spans.csv
  gpumem-tui export my-run --format perfetto -o trace.json     open it in ui.perfetto.dev
  gpumem-tui export --format prometheus --serve                one run, live, on 127.0.0.1:9435
  gpumem-tui export --format prometheus --serve --all     every run on this machine

Sizes are raw bytes, times nanoseconds of the node's monotonic clock (wall_ns: since
1970). A missing reading is null or empty, with its reason; never 0. Columns and fields
are described in gpumem_tui/views/export/ and are only ever added to."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("run", nargs="?", help="name, unique start of a name, or path (default: the latest)")
    add("--format", choices=FORMATS, required=True, help="what to write")
    add("--table", choices=TABLES, help="of csv (default timeline)")
    add("-o", "--output", metavar="FILE", help="write to a new file instead of standard output")
    add(
        "--serve",
        nargs="?",
        const="",
        metavar="[ADDRESS:]PORT",
        help="prometheus only: serve /metrics until interrupted (default 127.0.0.1:9435)",
    )
    add("--all", action="store_true", help="with --serve: every run that goes on here, as they come and go")
    add(
        "--redact",
        action="store_true",
        help="for sharing: no users, hosts, folders, command lines, strangers",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the export, or serve it."""
    from gpumem_tui.cli.newfile import new_file
    from gpumem_tui.errors import UsageError
    from gpumem_tui.journal import rundir

    if arguments.table is not None and arguments.format != "csv":
        raise UsageError("--table belongs to --format csv")
    if arguments.serve is not None and arguments.format != "prometheus":
        raise UsageError("--serve belongs to --format prometheus")
    if arguments.serve is not None and arguments.output is not None:
        raise UsageError("--serve and --output exclude each other")
    if arguments.all and (arguments.serve is None or arguments.run is not None):
        raise UsageError("--all belongs to --serve, and names every run: give none")
    if arguments.redact and arguments.serve is not None:
        raise UsageError("--redact is for files to hand on: leave out --serve")
    if arguments.all:
        return _serve(None, arguments.serve)
    found = rundir.find(arguments.run or rundir.LATEST)
    if arguments.serve is not None:
        return _serve(found, arguments.serve)
    with new_file(arguments.output) as file:
        for chunk in _chunks(found, arguments.format, arguments.table or TABLES[0], arguments.redact):
            file.write(chunk)
    return 0


def _chunks(found: "RunDirectory", kind: str, table: str, redact: bool) -> "Iterable[bytes]":
    from gpumem_tui.analysis.redact import redacted, redacted_records
    from gpumem_tui.session import Recording
    from gpumem_tui.session.stream import records_of
    from gpumem_tui.views.export import ndjson, tables, trace

    state = Recording(found).read()
    stream = records_of(found)
    if redact:
        stream, state = redacted_records(state, stream), redacted(state)
    if kind == "prometheus":
        from gpumem_tui.cli.exporter import registry_of, text_of

        return [text_of(registry_of(lambda: [state]))]
    if kind == "ndjson":
        return ndjson.lines(state, stream)
    if kind == "perfetto":
        return trace.chunks(state, stream)
    return (text.encode("utf-8", "replace") for text in tables.lines(table, state, stream))


def _serve(found: "RunDirectory | None", address: str) -> int:
    """One run, or with None every live one."""
    from gpumem_tui.cli import exporter
    from gpumem_tui.session import Recording

    host, port = exporter.address_of(address) if address else (exporter.HOST, exporter.PORT)
    if found is None:
        who, registry = "every live run", exporter.registry_of(exporter.LiveRuns().read)
    else:
        recording = Recording(found)
        recording.read()  # a recording that cannot be read is one line, before anything listens
        who, registry = found.name, exporter.registry_of(lambda: [recording.read()])

    def ready(url: str) -> None:
        print(f"{who}: serving {url} until interrupted", file=sys.stderr, flush=True)

    exporter.serve(registry, host, port, ready)
    return 0
