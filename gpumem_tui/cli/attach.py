"""``attach``: the live view on a run, or its picture as text or JSON."""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpumem_tui.journal.rundir import RunDirectory


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    add = parser.add_argument
    add(
        "run", nargs="?", default="latest", help="name, unique start of a name, or path (default: the latest)"
    )
    add("--once", action="store_true", help="print one picture as text and end")
    add("--json", action="store_true", help="print one picture as JSON and end")
    add("--ascii", action="store_true", help="draw with ASCII only")
    add(
        "--theme",
        default=None,
        choices=("dark", "light", "ansi", "mono"),
        help="colours (default: by the terminal)",
    )
    add("--interval", type=float, default=1.0, metavar="S", help="seconds between pictures (default 1)")


def run(arguments: argparse.Namespace) -> int:
    """Open the view, or print one picture."""
    from gpumem_tui.cli.run import is_a_terminal
    from gpumem_tui.errors import BadInput
    from gpumem_tui.journal import rundir

    if not 0.5 <= arguments.interval <= 60:
        raise BadInput(f"--interval {arguments.interval:g} is out of range; take 0.5 to 60 seconds")
    found = rundir.find(arguments.run)
    if arguments.json or arguments.once or not is_a_terminal():
        return show_once(found, as_json=arguments.json, ascii_only=arguments.ascii)
    return watch(found, theme=arguments.theme, ascii_only=arguments.ascii, interval_s=arguments.interval)


def show_once(run: "RunDirectory", *, as_json: bool, ascii_only: bool = False) -> int:
    """One picture of the run on stdout."""
    import shutil

    from gpumem_tui.session import Recording

    state = Recording(run).read()
    if as_json:
        from gpumem_tui.views import jsonview

        sys.stdout.write(jsonview.render(state))
    else:
        from gpumem_tui.views import plain

        ascii_only = ascii_only or "utf" not in (sys.stdout.encoding or "").lower()
        cells = shutil.get_terminal_size((100, 24)).columns
        sys.stdout.write(plain.render(state, cells=cells, ascii=ascii_only))
    return 0


def watch(
    run: "RunDirectory",
    *,
    started_here: bool = False,
    theme: str | None = None,
    ascii_only: bool = False,
    interval_s: float = 1.0,
    speed: float | None = None,
) -> int:
    """The live view, or with ``speed`` a recording played from its start.

    Its exit code: the workload's own if it was started here and has ended, else 0.
    """
    from gpumem_tui.journal import rundir
    from gpumem_tui.session import Playback, Staged
    from gpumem_tui.views.tui import run_app

    recording = Staged(run) if speed is None else Playback(run, speed)
    recording.read()  # a recording that cannot be read is one line, before the screen is taken
    result = run_app(
        recording, theme=theme, ascii=ascii_only, interval_s=interval_s, report_dir=rundir.home()
    )
    if result.sentence:
        print(result.sentence, file=sys.stderr)
    if result.exit_code:
        return result.exit_code
    facts = recording.read().facts
    if facts.ending is None:
        return 0
    print(f"{run.name}: {facts.ending}; the recording stays: gpumem-tui attach {run.name}")
    return facts.exit_code or 0 if started_here else 0
