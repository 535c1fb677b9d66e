"""``attach``: the live view on a run, or its picture as text or JSON."""

import argparse
import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumem_tui.analysis.waiting import RunAlarms
    from gpumem_tui.journal.rundir import RunDirectory
    from gpumem_tui.views.feed import Feed

    Bell = tuple[RunAlarms, Callable[[str], None]]


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    from gpumem_tui.views.tui import THEMES

    add = parser.add_argument
    add(
        "run", nargs="?", default="latest", help="name, unique start of a name, or path (default: the latest)"
    )
    add("--once", action="store_true", help="print one picture as text and end")
    add("--json", action="store_true", help="print one picture as JSON and end")
    add("--ascii", action="store_true", default=None, help="draw with ASCII only")
    add(
        "--theme",
        default=None,
        choices=tuple(THEMES),
        help="colours (default: as set in the view, else by the terminal)",
    )
    add("--interval", type=float, default=None, metavar="S", help="seconds between pictures (default 1)")
    add(
        "--low-bandwidth",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="spare a slow line: fewer pictures (by itself where the line turns out to be slow)",
    )
    add(
        "--mouse",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="let the view take the mouse (default), or leave it to the terminal",
    )
    add("--on-growth", metavar="SIZE", help="ring when a stranger on the cards takes so much within a minute")
    add("--on-oom", action="store_true", help="ring when the run runs out of memory")
    add("--do", metavar="COMMAND", help="with these: run this instead, with the word in GPUMEM_TUI_ALARM")


def run(arguments: argparse.Namespace) -> int:
    """Open the view, or print one picture."""
    from gpumem_tui.cli.run import is_a_terminal
    from gpumem_tui.errors import BadInput
    from gpumem_tui.journal import rundir

    if arguments.interval is not None and not 0.5 <= arguments.interval <= 60:
        raise BadInput(f"--interval {arguments.interval:g} is out of range; take 0.5 to 60 seconds")
    bell = _bell(arguments)
    found = rundir.find(arguments.run)
    if arguments.json or arguments.once or not is_a_terminal():
        return show_once(found, as_json=arguments.json, ascii_only=bool(arguments.ascii))
    return watch(
        found,
        theme=arguments.theme,
        ascii_only=arguments.ascii,
        interval_s=arguments.interval,
        mouse=arguments.mouse,
        low_bandwidth=arguments.low_bandwidth,
        speed=getattr(arguments, "speed", None),
        bell=bell,
    )


def _bell(arguments: argparse.Namespace) -> "Bell | None":
    """What is to ring, and how; None where nothing was asked for. Raises :class:`UsageError`."""
    from gpumem_tui.cli.run import is_a_terminal
    from gpumem_tui.errors import UsageError

    growth, oom, command = (getattr(arguments, name, None) for name in ("on_growth", "on_oom", "do"))
    if growth is None and not oom:
        if command is not None:
            raise UsageError("--do needs --on-growth SIZE or --on-oom")
        return None
    if arguments.json or arguments.once or not is_a_terminal():
        raise UsageError(
            "--on-growth and --on-oom ring beside a live view; without one: gpumem-tui top --on-oom"
        )
    from gpumem_tui.analysis.waiting import RunAlarms
    from gpumem_tui.cli.ringing import ring, teller
    from gpumem_tui.units import parse_size

    size = None if growth is None else parse_size(growth, what="--on-growth")
    return RunAlarms(size, oom=bool(oom)), ring if command is None else teller(command)


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
    ascii_only: bool | None = None,
    interval_s: float | None = None,
    mouse: bool | None = None,
    low_bandwidth: bool | None = None,
    speed: float | None = None,
    bell: "Bell | None" = None,
) -> int:
    """The live view, or with ``speed`` a recording played from its start. None: as it was set before.

    Its exit code: the workload's own if it was started here and has ended, else 0.
    """
    gc.disable()  # until the first frame, which the app puts aside for good
    from gpumem_tui.journal import rundir
    from gpumem_tui.session import Playback, Staged
    from gpumem_tui.views.tui import run_app

    recording = Staged(run) if speed is None else Playback(run, speed)
    recording.read()  # a recording that cannot be read is one line, before the screen is taken
    feed: Feed = recording
    if bell is not None:
        from gpumem_tui.cli.ringing import Ringing

        feed = Ringing(recording, *bell)
    result = run_app(
        feed,
        theme=theme,
        ascii=ascii_only,
        interval_s=interval_s,
        mouse=mouse,
        low_bandwidth=low_bandwidth,
        report_dir=rundir.home(),
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
