"""``sweep``: the same command once for each value of a variable, each a process and recording of its own."""

import argparse
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

import gpumem_tui
from gpumem_tui.analysis import sweep as plan
from gpumem_tui.cli import sweepfile
from gpumem_tui.errors import BadInput, UsageError

_EPILOG = """\
  gpumem-tui sweep --vary batch=1,2,4,8 -- python train.py --batch {batch}
  gpumem-tui sweep --vary batch=8 --until-oom --simulate 24GiB -- python train.py --batch {batch}
  gpumem-tui sweep --vary context=1024,4096 --each input=usual,long -- python serve.py {context} {input}

Each value runs in a new process and is a recording of its own, SWEEP.01 and so on. With
several --vary, one variable is varied at a time while the others stay at their first value;
what all begin with is run once. With --each, every value is tried with each of these. An
attempt that fails is an observation: it is kept, the series goes on, and the peaks it reached
are not called the peaks of its value. --until-oom goes on from the listed values, doubling,
then halving the interval, then trying values beside it; a boundary is told as the two values
around it, and only where all outcomes agree with one. The output of each attempt is kept in a
file beside sweep.json (fields: gpumem_tui/analysis/sweep.py). Ctrl-C ends the attempt and the
sweep; both are kept, and `gpumem-tui sweep --resume SWEEP` goes on: what was done is not done
again, what was interrupted is. `gpumem-tui report SWEEP` shows the table again, or writes it as
a page."""

MOST_ATTEMPTS = 60
_GRAIN, _MOST, _PROTOCOL = 1, 1 << 20, "observe"
"""Defaults."""

FLAGS = frozenset({"-h", "--help", "--until-oom", "--anyway", "--json", "--no-peak-reset"})
"""Options of ours that take no value."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.usage = (
        "gpumem-tui sweep --vary NAME=VALUE,VALUE… [options] -- COMMAND… {NAME}…\n"
        "       gpumem-tui sweep --resume SWEEP"
    )
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--vary", action="append", default=[], metavar="NAME=VALUES", help="what is varied; repeatable")
    add("--each", action="append", default=[], metavar="NAME=VALUES", help="kept through the series")
    add("--until-oom", action="store_true", help="go on to the boundary by bisection")
    add(
        "--grain",
        type=int,
        default=_GRAIN,
        metavar="N",
        help=f"the interval that is fine enough (default {_GRAIN})",
    )
    add("--most", type=int, default=_MOST, metavar="N", help=f"the largest value tried (default {_MOST})")
    add("--attempts", type=int, metavar="N", help=f"--until-oom ends after so many (default {MOST_ATTEMPTS})")
    add("--name", help="name of the sweep (default: date, time and script)")
    add(
        "--resume",
        metavar="SWEEP",
        help="go on with a sweep that was interrupted, as it was started; takes --attempts and --json",
    )
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="kept in every recording")
    add("--json", action="store_true", help="print sweep.json instead of the table")
    add("--simulate", metavar="SIZE[,SIZE…]", help="on simulated cards; everything says so")
    add("--kernel-us", metavar="N", help="as for run")
    add("--sim-set", action="append", default=[], metavar="NAME=VALUE", help="as for run")
    add("--protocol", choices=("observe", "strict"), default=_PROTOCOL, help="as for run")
    add("--no-peak-reset", action="store_true", help="as for run")
    add("--anyway", action="store_true", help="start even where no GPU is found")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our options, and the command from its first word on."""
    from gpumem_tui.cli.run import split as split_words

    return split_words(words, FLAGS)


def run(arguments: argparse.Namespace) -> int:
    """Make the sweep, or go on with it; 0 if it was made, however the attempts ended."""
    from gpumem_tui.cli.series import Series

    attempts = MOST_ATTEMPTS if arguments.attempts is None else arguments.attempts
    for option, value in (("grain", arguments.grain), ("most", arguments.most), ("attempts", attempts)):
        if not 1 <= value <= plan.MOST_NUMBER:
            raise BadInput(f"--{option} {value} is out of range; take 1 to {plan.MOST_NUMBER}")
    if arguments.resume is not None:
        return Series.resumed(*_resumed(arguments)).go(arguments.json)
    return Series.new(_new(arguments, attempts)).go(arguments.json)


def _new(arguments: argparse.Namespace, attempts: int) -> plan.Sweep:
    """A sweep as it was asked for. Raises :class:`UsageError`, :class:`BadInput`."""
    from gpumem_tui.cli.run import command_of, labels_of
    from gpumem_tui.journal import rundir
    from gpumem_tui.sources.revision import revision_of, working_folder

    variables = [plan.variable_of(text) for text in arguments.vary]
    cases = [plan.variable_of(text, "--each") for text in arguments.each]
    names = [each.name for each in (*variables, *cases)]
    if not variables:
        raise UsageError("nothing to vary; give --vary batch=1,2,4 and write {batch} in the command")
    if len(set(names)) < len(names):
        raise UsageError("a name is varied twice; give all its values at once")
    if arguments.until_oom:
        for variable in variables:
            plan.numbers_of(variable)
    command = command_of(arguments.command)
    plan.check_placeholders(command, names)
    _require_cards(arguments.simulate, arguments.sim_set, arguments.anyway)
    return plan.Sweep(
        name=arguments.name or rundir.new_name(command),
        command=tuple(command),
        variables=tuple(variables),
        cases=tuple(cases),
        simulated=arguments.simulate,
        labels=labels_of(arguments.label),
        started_wall_ns=time.time_ns(),
        host=platform.node(),
        version=gpumem_tui.__version__,
        revision=revision_of(working_folder()),
        options=plan.Options(
            cwd=str(working_folder()),
            protocol=arguments.protocol,
            kernel_us=arguments.kernel_us,
            sim_set=tuple(arguments.sim_set),
            no_peak_reset=arguments.no_peak_reset,
            anyway=arguments.anyway,
            until_oom=arguments.until_oom,
            grain=arguments.grain,
            most=arguments.most,
            attempts=attempts,
        ),
    )


_NEW: dict[str, object] = {
    **{option: [] for option in ("vary", "each", "label", "sim_set", "command")},
    **dict.fromkeys(("until_oom", "no_peak_reset", "anyway"), False),
    **dict.fromkeys(("name", "simulate", "kernel_us")),
    "grain": _GRAIN,
    "most": _MOST,
    "protocol": _PROTOCOL,
}
"""What a sweep is started with, and cannot be resumed with; each with its default."""


def _resumed(arguments: argparse.Namespace) -> tuple[Path, plan.Sweep]:
    """A sweep that was kept, in its folder and as it goes on from here.

    Raises :class:`UsageError`, :class:`BadInput`, :class:`UnreadableRecording`.
    """
    from gpumem_tui.errors import RunNotFound
    from gpumem_tui.sources.revision import revision_of, working_folder

    given = next((name for name, unset in _NEW.items() if getattr(arguments, name) != unset), None)
    if given is not None:
        word = "a command" if given == "command" else f"--{given.replace('_', '-')}"
        raise UsageError(f"a sweep is resumed as it was started: leave out {word}")
    folder = sweepfile.find(arguments.resume)
    if folder is None:
        raise RunNotFound(f"no sweep named {arguments.resume} in {sweepfile.home()}")
    sweep = sweepfile.read(folder)
    options = sweep.options
    if options is None:
        raise BadInput(f"{sweep.name} was made before sweeps could be resumed; start it again")
    try:
        os.chdir(options.cwd)
    except OSError as error:
        raise BadInput(f"{sweep.name} was started in {options.cwd}: {error.strerror}") from error
    _require_cards(sweep.simulated, options.sim_set, options.anyway)
    now = plan.Resumption(
        len(sweep.attempts),
        time.time_ns(),
        platform.node(),
        gpumem_tui.__version__,
        revision_of(working_folder()),
    )
    return folder, msgspec.structs.replace(
        sweep,
        stopped=None,
        resumed=(*sweep.resumed, now),
        options=msgspec.structs.replace(options, attempts=arguments.attempts or options.attempts),
    )


def _require_cards(simulated: str | None, sim_set: Sequence[str], anyway: bool) -> None:
    """Before anything is made. Raises :class:`MissingRequirement`, :class:`BadInput`."""
    from gpumem_tui.cli.run import require_gpu
    from gpumem_tui.cli.simulation import Simulation

    if simulated is not None:
        Simulation.of(simulated, None, list(sim_set))
    elif not anyway:
        require_gpu()
