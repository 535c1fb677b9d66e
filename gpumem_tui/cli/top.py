"""``top``: every card and every process on it, by the driver; no run is needed."""

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpumem_tui.errors import BadInput, MissingRequirement, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumem_tui.analysis.top import TopState, Wanted
    from gpumem_tui.analysis.waiting import Alarms, Condition, Waiting
    from gpumem_tui.session.top import Top

THEMES = ("dark", "light", "ansi", "mono", "contrast", "safe")
SOON_S = 3.0
OPENING_S = 20.0
"""How long a first picture is waited for before that is said, and in all: where no program keeps
the driver loaded, opening it takes seconds."""

SORTS = ("memory", "device", "growth", "user", "pid", "start", "rss")

_EPILOG = """\
  gpumem-tui top                                    live; --once for text, --json for scripts
  gpumem-tui top --user alice,bob --device 0,1      their processes on these cards
  gpumem-tui top --until 'free>20GiB on 0' --then 'python train.py'
  gpumem-tui top --until 'free>70GiB on any for 60s' --then './start.sh'
  gpumem-tui top --on-growth 2GiB                   rings when a process takes so much in a minute
  gpumem-tui top --on-oom --do 'notify-send "$GPUMEM_TUI_ALARM"'

--until compares free, used (bytes), utilization (percent) or processes (how many) on
cards: 0 or 0,1 (each of them), any (the default) or all, optionally "for 30s". A
missing reading fulfils nothing. The command of --then is run by the shell, with
GPUMEM_TUI_DEVICES set to the UUIDs of the cards that fulfil it; its exit code is ours.

It reads and does no more: no CUDA context, no setting of a card is changed, no signal
is sent but by the key x, for the chosen process, after a question.

where figures differ from other tools':
  used     is total - free - driver-reserved; tools that read version 1 of the call
           (and nvidia-smi before driver 510) count the driver's share as used
  nobody   used memory that no listed process accounts for; others do not show it
  -        a figure that the driver does not give, never 0 and never host memory
  rows     processes of other containers are kept, as the driver names them"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--once", action="store_true", help="print one picture as text and end")
    add("--json", action="store_true", help="print one picture as JSON and end")
    add("--device", metavar="N,…", help="only these cards: 0, 0:1 (a MIG instance), or a UUID")
    add("--user", metavar="NAME,…", help="only processes of these users")
    add("--pid", metavar="PID,…", help="only these processes")
    add("--mine", action="store_true", help="only processes of yours")
    add("--sort", choices=SORTS, default=None, help="order of the processes (default memory; --once: device)")
    add("--tree", action="store_true", help="processes below who started them (the key f in the view)")
    add("--until", metavar="CONDITION", help="end when it is fulfilled, e.g. 'free>20GiB on 0 for 30s'")
    add("--then", metavar="COMMAND", help="with --until: run this when it is fulfilled")
    add("--timeout", type=float, metavar="S", help="with --until: give up after so long, with code 1")
    add("--on-growth", metavar="SIZE", help="ring when a process takes so much within a minute")
    add("--on-oom", action="store_true", help="ring when a live run of yours runs out of memory")
    add("--do", metavar="COMMAND", help="with --on-growth, --on-oom: run this instead of ringing")
    add("--run", metavar="RUN", help="look at the simulated cards of this run")
    add("--ascii", action="store_true", help="draw with ASCII only")
    add(
        "--theme",
        default=None,
        choices=THEMES,
        help="colours (default: as set in the view of a run, else by the terminal)",
    )
    add("--interval", type=float, default=1.0, metavar="S", help="seconds between pictures (default 1)")


def run(arguments: argparse.Namespace) -> int:
    """Open the view, print one picture, or wait."""
    from gpumem_tui.analysis.waiting import Alarms, Waiting, parse_condition
    from gpumem_tui.units import parse_size

    if not 0.5 <= arguments.interval <= 60:
        raise BadInput(f"--interval {arguments.interval:g} is out of range; take 0.5 to 60 seconds")
    condition = None if arguments.until is None else parse_condition(arguments.until)
    for option, given in (("--then", arguments.then), ("--timeout", arguments.timeout)):
        if given is not None and condition is None:
            raise UsageError(f"{option} needs --until CONDITION")
    ringing = arguments.on_growth is not None or arguments.on_oom
    if arguments.do is not None and not ringing:
        raise UsageError("--do needs --on-growth SIZE or --on-oom")
    once = arguments.once or arguments.json
    if once and (condition is not None or ringing):
        raise UsageError("--once and --json print one picture; they do not wait")
    growth = None if arguments.on_growth is None else parse_size(arguments.on_growth, what="--on-growth")
    alarms = Alarms(growth, oom=arguments.on_oom) if ringing else None
    wanted = _wanted(arguments)
    top = _open(arguments.run)
    try:
        waiting = None if condition is None else Waiting(condition)
        if condition is not None:
            _require_devices(condition, top)
        if once or not (_is_watched() or waiting or alarms):
            return _print(top, wanted, arguments)
        if _is_watched():
            return _watch(top, wanted, arguments, waiting, alarms)
        return _wait(top, wanted, arguments, waiting, alarms)
    finally:
        top.close()


def _is_watched() -> bool:
    """Whether a person looks. Where errors go does not matter: the view draws on the terminal itself."""
    import os

    return all(os.isatty(stream) for stream in (0, 1)) and os.environ.get("TERM", "dumb") != "dumb"


def _wanted(arguments: argparse.Namespace) -> "Wanted":
    from gpumem_tui.analysis.top import Wanted

    def words(text: str | None) -> list[str]:
        return [word.strip() for word in (text or "").split(",") if word.strip()]

    users = set(words(arguments.user))
    if arguments.mine:
        from gpumem_tui.session.top import viewer

        users.add(viewer())
    pids = words(arguments.pid)
    wrong = [word for word in pids if not word.isdigit()]
    if wrong:
        raise BadInput(f"--pid {wrong[0]!r} is no number")
    return Wanted(frozenset(words(arguments.device)), frozenset(users), frozenset(map(int, pids)))


def _open(run: str | None) -> "Top":
    """The driver of this machine, or that of a run's simulated cards."""
    import os

    from gpumem_tui.session.top import Top
    from gpumem_tui.sources.driver import Driver

    if run is None:
        state = os.environ.get("SIMCARD_STATE")  # NVML is a simulated machine's where this is set
        return Top(Driver(), simulated_state=None if state is None else Path(state))
    from gpumem_tui.journal import rundir
    from gpumem_tui.simcard import Libraries, build, find_python, load_nvml

    found = rundir.find(run)
    facts = found.read_facts()
    if facts.simulated is None:
        raise BadInput(f"{found.name} runs on real cards: leave --run out")
    libraries: Libraries = build(find_python(facts.command), nvml_only=True)
    state_file = found.path / "simcard.state"
    load_nvml(libraries, state_file)
    return Top(Driver(), simulated_state=state_file)


def _first(top: "Top") -> "TopState":
    """The first whole picture. Raises :class:`MissingRequirement` where there is no card at all."""
    state = _whole(top)
    if state.driver_reason is not None or (state.complete and not state.devices):
        raise MissingRequirement(_why(state))
    return state


def _whole(top: "Top") -> "TopState":
    """The picture once every card was asked, or what there is when that takes too long."""
    state = top.read_whole(SOON_S)
    if not state.complete:
        if sys.stderr.isatty():
            print("waiting for the driver to answer", file=sys.stderr, flush=True)
        state = top.read_whole(OPENING_S - SOON_S)
    return state


def _why(state: "TopState") -> str:
    from gpumem_tui.views.toprows import driver_sentence

    advice = {
        "driver and library versions differ": "after a driver update, reboot or reload the kernel module",
        "no driver": "see gpumem-tui env; for the cards of a simulated run: top --run RUN",
    }
    reason = state.driver_reason.value if state.driver_reason is not None else ""
    told = driver_sentence(state) or "the driver names none"
    return f"no card: {told.rstrip('.')}; {advice.get(reason, 'see gpumem-tui env')}"


def _require_devices(condition: "Condition", top: "Top") -> None:
    from gpumem_tui.analysis.waiting import missing_devices

    state = _first(top)
    missing = missing_devices(condition, state)
    if missing:
        there = ", ".join(device.label for device in state.devices) or "none"
        raise BadInput(f"--until: there is no card {missing[0]}; there are {there}")


def _print(top: "Top", wanted: "Wanted", arguments: argparse.Namespace) -> int:
    import shutil

    from gpumem_tui.analysis.top import select

    state = _whole(top)
    shown = select(state, wanted)
    if wanted.devices and state.devices and not shown.devices:
        there = ", ".join(device.label for device in state.devices)
        raise BadInput(f"--device {','.join(sorted(wanted.devices))}: no such card; there are {there}")
    if arguments.json:
        from gpumem_tui.views import topjson

        sys.stdout.write(topjson.render(shown, arguments.sort or "device"))
        return 0 if state.devices else MissingRequirement.exit_code
    if not state.devices:
        raise MissingRequirement(_why(state))
    from gpumem_tui.views import toptext

    ascii_only = arguments.ascii or "utf" not in (sys.stdout.encoding or "").lower()
    cells = shutil.get_terminal_size((120, 24)).columns
    sys.stdout.write(
        toptext.render(
            shown, cells=cells, ascii=ascii_only, sort=arguments.sort or "device", tree=arguments.tree
        )
    )
    return 0


def _wait(
    top: "Top",
    wanted: "Wanted",
    arguments: argparse.Namespace,
    waiting: "Waiting | None",
    alarms: "Alarms | None",
) -> int:
    """Without a terminal: wait, say alarms as lines, and do what was asked."""
    from gpumem_tui.analysis.top import select

    tell = None if arguments.do is None else _teller(arguments.do)
    until_s = None if arguments.timeout is None else time.monotonic() + arguments.timeout
    if waiting is not None:
        print(f"waiting for {waiting.condition.text}", file=sys.stderr, flush=True)
    else:
        _first(top)
    while True:
        began_s = time.monotonic()
        state = top.read()
        for sentence in alarms.take(select(state, wanted)) if alarms is not None else ():
            print(sentence, flush=True)
            if tell is not None:
                tell(sentence)
        if waiting is not None and waiting.take(state):
            return _fulfilled(waiting, arguments.then)
        if until_s is not None and time.monotonic() > until_s:
            assert waiting is not None
            return _given_up(waiting)
        time.sleep(max(0.05, arguments.interval - (time.monotonic() - began_s)))


def _teller(command: str) -> "Callable[[str], None]":
    from gpumem_tui.cli.ringing import teller

    return teller(command)


def _given_up(waiting: "Waiting") -> int:
    print(f"gpumem-tui: not fulfilled: {waiting.condition.text}; {waiting.verdict.now}", file=sys.stderr)
    return 1


def _fulfilled(waiting: "Waiting", then: str | None) -> int:
    """Say it, and become the command. Its exit code is ours."""
    import os
    import subprocess

    print(f"{waiting.condition.text}: {waiting.verdict.now}", file=sys.stderr, flush=True)
    if then is None:
        return 0
    uuids = [
        f"{'' if uuid.startswith('MIG-') else 'GPU-'}{uuid}"
        for d in waiting.verdict.devices
        if (uuid := d.uuid)
    ]
    code = subprocess.run(
        ["/bin/sh", "-c", then], env={**os.environ, "GPUMEM_TUI_DEVICES": ",".join(uuids)}, check=False
    ).returncode
    return code if code >= 0 else 128 - code


def _watch(
    top: "Top",
    wanted: "Wanted",
    arguments: argparse.Namespace,
    waiting: "Waiting | None",
    alarms: "Alarms | None",
) -> int:
    """The live view; when what was waited for is fulfilled, it ends by itself."""
    import gc
    from concurrent.futures import ThreadPoolExecutor

    gc.disable()  # nothing of what is imported is garbage
    with ThreadPoolExecutor(1) as pool:  # the driver is read while Textual is imported
        first = pool.submit(top.read_whole, SOON_S)
        from gpumem_tui.journal import rundir
        from gpumem_tui.views.tui.top import run_top
    first.result()
    _first(top)
    gc.freeze()
    gc.enable()
    result = run_top(
        top,
        wanted=wanted,
        sort=arguments.sort or "memory",
        tree=arguments.tree,
        waiting=waiting,
        alarms=alarms,
        tell=None if arguments.do is None else _teller(arguments.do),
        timeout_s=arguments.timeout,
        theme=arguments.theme,
        ascii=arguments.ascii or None,
        interval_s=arguments.interval,
        report_dir=rundir.home(),
    )
    if result.sentence:
        print(result.sentence, file=sys.stderr)
    if result.outcome == "fulfilled" and waiting is not None:
        return _fulfilled(waiting, arguments.then)
    if result.outcome == "timeout" and waiting is not None:
        return _given_up(waiting)
    return result.exit_code
