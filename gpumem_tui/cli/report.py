"""``report``: a run as a sheet to hand on, as text, Markdown, JSON or one self-contained HTML page."""

import argparse
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumem_tui.views.report import Sheet

FORMATS = {"text": ".txt", "md": ".md", "json": ".json", "html": ".html"}
"""Format → the ending by which the name of a file asks for it."""

_FILE_CELLS = 120
"""Width of a text report that goes into a file."""

_EPILOG = """\
  gpumem-tui report                          the latest run, as text
  gpumem-tui report my-run -o my-run.html    one file: charts, no network, no script
  gpumem-tui report my-sweep -o sweep.md     the table of a sweep

Three parts: what was computed, what was observed, what is assumed; then what the run
does not show. A run that goes on is reported as it stands. A file is never overwritten."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add(
        "run",
        nargs="?",
        default="latest",
        help="name, unique start of a name, or path (default: the latest); or the name of a sweep",
    )
    add("--format", choices=tuple(FORMATS), help="default: by the ending of the file, else text")
    add("--json", action="store_true", help="same as --format json: stable schema, raw bytes")
    add("-o", "--output", metavar="FILE", help="write to a new file instead of standard output")
    add("--ascii", action="store_true", help="text in ASCII only")
    add(
        "--redact",
        action="store_true",
        help="for sharing: no users, hosts, folders, command lines, strangers",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the report."""
    from gpumem_tui.cli import sweepfile
    from gpumem_tui.cli.newfile import new_file
    from gpumem_tui.journal import rundir
    from gpumem_tui.session import Recording
    from gpumem_tui.views import jsonview
    from gpumem_tui.views.report import sheet_of

    kind = format_of(arguments)
    folder = sweepfile.find(arguments.run)
    if folder is not None:
        return _sweep(folder, arguments, kind)
    state = Recording(rundir.find(arguments.run)).read()
    if arguments.redact:
        from gpumem_tui.analysis.redact import redacted

        state = redacted(state)
    if kind == "json":
        text = jsonview.render_report(state)
    else:
        to_file = arguments.output is not None
        text = write_sheet(sheet_of(state), kind, to_file=to_file, ascii_only=arguments.ascii)
    with new_file(arguments.output) as file:
        file.write(text.encode("utf-8", "replace"))
    return 0


def _sweep(folder: Path, arguments: argparse.Namespace, kind: str) -> int:
    """The table of a sweep, as ``sweep`` has shown it. Raises :class:`UsageError`."""
    from gpumem_tui.cli import sweepfile
    from gpumem_tui.cli.newfile import new_file
    from gpumem_tui.errors import UsageError
    from gpumem_tui.views.sweep import sheet_of

    if arguments.redact:
        raise UsageError(f"--redact is for reports of runs, and {folder.name} is a sweep")
    sheet = sheet_of(sweepfile.read(folder), str(folder))
    if kind == "json":
        data = (folder / sweepfile.FILE).read_bytes()
    else:
        to_file = arguments.output is not None
        data = write_sheet(sheet, kind, to_file=to_file, ascii_only=arguments.ascii).encode(
            "utf-8", "replace"
        )
    with new_file(arguments.output) as file:
        file.write(data)
    return 0


def format_of(arguments: argparse.Namespace) -> str:
    """What ``--format``, ``--json`` or the ending of the file ask for. Raises :class:`UsageError`.

    An ending that names something else (``.pdf``) is refused: a file is what its name says.
    """
    from gpumem_tui.errors import UsageError

    if arguments.json and arguments.format not in (None, "json"):
        raise UsageError(f"--json and --format {arguments.format} exclude each other")
    if arguments.json:
        return "json"
    ending = PurePath(arguments.output).suffix.lower() if arguments.output is not None else ""
    if arguments.format is not None:
        return str(arguments.format)
    if ending in ("", ".log"):
        return "text"
    by_ending = {known: name for name, known in FORMATS.items()}
    if ending not in by_ending:
        raise UsageError(
            f"{arguments.output}: nothing is written as {ending}; "
            f"end the name in {', '.join(by_ending)}, or say what is meant with --format"
        )
    return by_ending[ending]


def write_sheet(sheet: "Sheet", kind: str, *, to_file: bool, ascii_only: bool) -> str:
    """A sheet as text, Markdown or HTML; text in a terminal is as wide as that."""
    import shutil
    import sys

    from gpumem_tui.views.report import html, markdown, text

    if kind == "html":
        return html.render(sheet)
    if kind == "md":
        return markdown.render(sheet)
    if to_file:
        return text.render(sheet, cells=_FILE_CELLS, ascii=ascii_only)
    ascii_only = ascii_only or "utf" not in (sys.stdout.encoding or "").lower()
    return text.render(sheet, cells=shutil.get_terminal_size((100, 24)).columns, ascii=ascii_only)
