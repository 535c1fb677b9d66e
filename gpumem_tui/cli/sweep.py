"""``sweep``: the same command once for each value of a variable, each a process and recording of its own."""

import argparse
import contextlib
import platform
import sys
import time
from pathlib import Path

import msgspec

import gpumem_tui
from gpumem_tui.analysis import sweep as plan
from gpumem_tui.cli import sweepfile
from gpumem_tui.errors import BadInput, GpumemError, MissingRequirement, UsageError

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
sweep; both are kept. `gpumem-tui report SWEEP` shows the table again, or writes it as a page."""

_RUNNING = "running…"

FLAGS = frozenset({"-h", "--help", "--until-oom", "--anyway", "--json", "--no-peak-reset"})
"""Options of ours that take no value."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.usage = "gpumem-tui sweep --vary NAME=VALUE,VALUE… [options] -- COMMAND… {NAME}…"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--vary", action="append", default=[], metavar="NAME=VALUES", help="what is varied; repeatable")
    add("--each", action="append", default=[], metavar="NAME=VALUES", help="kept through the series")
    add("--until-oom", action="store_true", help="go on to the boundary by bisection")
    add("--grain", type=int, default=1, metavar="N", help="the interval that is fine enough (default 1)")
    add("--most", type=int, default=1 << 20, metavar="N", help="the largest value tried (default 1048576)")
    add("--attempts", type=int, default=60, metavar="N", help="--until-oom ends after so many (default 60)")
    add("--name", help="name of the sweep (default: date, time and script)")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="kept in every recording")
    add("--json", action="store_true", help="print sweep.json instead of the table")
    add("--simulate", metavar="SIZE[,SIZE…]", help="on simulated cards; everything says so")
    add("--kernel-us", metavar="N", help="as for run")
    add("--sim-set", action="append", default=[], metavar="NAME=VALUE", help="as for run")
    add("--protocol", choices=("observe", "strict"), default="observe", help="as for run")
    add("--no-peak-reset", action="store_true", help="as for run")
    add("--anyway", action="store_true", help="start even where no GPU is found")


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """Our options, and the command from its first word on."""
    from gpumem_tui.cli.run import split as split_words

    return split_words(words, FLAGS)


def run(arguments: argparse.Namespace) -> int:
    """Make the sweep; 0 if it was made, however the attempts ended."""
    from gpumem_tui.cli.run import command_of, labels_of, require_gpu
    from gpumem_tui.cli.simulation import Simulation
    from gpumem_tui.journal import rundir
    from gpumem_tui.sources.revision import revision_of

    variables = [plan.variable_of(text) for text in arguments.vary]
    cases = [plan.variable_of(text, "--each") for text in arguments.each]
    names = [each.name for each in (*variables, *cases)]
    if not variables:
        raise UsageError("nothing to vary; give --vary batch=1,2,4 and write {batch} in the command")
    if len(set(names)) < len(names):
        raise UsageError("a name is varied twice; give all its values at once")
    for option in ("grain", "most", "attempts"):
        if not 1 <= getattr(arguments, option) <= plan.MOST_NUMBER:
            raise BadInput(
                f"--{option} {getattr(arguments, option)} is out of range; take 1 to {plan.MOST_NUMBER}"
            )
    if arguments.until_oom:
        for variable in variables:
            plan.numbers_of(variable)
    command = command_of(arguments.command)
    plan.check_placeholders(command, names)
    if arguments.simulate is not None:
        Simulation.of(arguments.simulate, None, arguments.sim_set)
    elif not arguments.anyway:
        require_gpu()
    sweep = plan.Sweep(
        name=arguments.name or rundir.new_name(command),
        command=tuple(command),
        variables=tuple(variables),
        cases=tuple(cases),
        simulated=arguments.simulate,
        labels=labels_of(arguments.label),
        started_wall_ns=time.time_ns(),
        host=platform.node(),
        version=gpumem_tui.__version__,
        revision=revision_of(Path.cwd()),
    )
    return _Going(sweep, arguments).go()


class _Going:
    """A sweep while it is made: its folder, its attempts so far."""

    def __init__(self, sweep: plan.Sweep, arguments: argparse.Namespace) -> None:
        self._sweep, self._arguments = sweep, arguments
        self._folder = sweepfile.create(sweep.name)
        self._attempts: list[plan.Attempt] = []
        self._ended_by: int | None = None

    def go(self) -> int:
        """All attempts, then the table; 128 and a signal's number where that ended it."""
        variables, cases = self._sweep.variables, self._sweep.cases
        for step in plan.planned(variables, cases):
            self._make(step)
        for variable in variables if self._arguments.until_oom else ():
            self._bisect(variable.name)
        self._keep()
        self._show()
        return 0 if self._ended_by is None else 128 + self._ended_by

    def _bisect(self, name: str) -> None:
        asked = self._arguments
        while self._ended_by is None:
            value = plan.next_number(self._attempts, name, asked.most, asked.grain)
            if value is None:
                why = plan.cut_short(self._attempts, name)
                if why is not None:
                    self._stop(why)
                return
            steps = [
                *plan.steps_of(name, str(value), self._sweep.variables, self._sweep.cases, bisecting=True)
            ]
            if len(self._attempts) + len(steps) > asked.attempts:
                self._stop(f"the search ended after {len(self._attempts)} attempts (--attempts)")
                return
            for step in steps:
                self._make(step)

    def _make(self, step: plan.Step) -> None:
        """One attempt, unless the sweep was ended. Raises :class:`MissingRequirement`."""
        from gpumem_tui.cli.attempt import attempt
        from gpumem_tui.session.attempts import observe

        if self._ended_by is not None:
            return
        order = len(self._attempts) + 1
        log = self._folder / f"{order:02d}.log"
        settings = dict(step.settings)
        labels = self._sweep.labels | {"sweep": self._sweep.name, "attempt": str(order)}
        options = _options(self._arguments)
        for name, value in step.settings:
            options += ["--declare", f"{name}={value}"]
        command = plan.fill(self._sweep.command, settings)
        if sys.stderr.isatty():
            print(f"{order:3}  {step.said()}: {_RUNNING}", end="\r", file=sys.stderr, flush=True)
        try:
            done = attempt(command, f"{self._sweep.name}.{order:02d}", labels, options, log)
            if done.run is None and done.ended_by is None:
                raise MissingRequirement(
                    f"attempt {order} ({step.said()}) could not be started: {_last_line(log)}"
                )
        except GpumemError:
            self._leave_no_trace(log)
            raise
        self._ended_by = done.ended_by
        if done.run is not None:
            interrupted = done.ended_by is not None
            self._attempts.append(observe(done.run, step, order, done.exit_code, log, interrupted))
            seen = self._attempts[-1]
            phase = f" in {seen.failed_phase}" if seen.failed_phase else ""
            told = f"{seen.outcome.value}{phase}"
            over = len(_RUNNING) if sys.stderr.isatty() else 0  # what still stands there
            print(f"{order:3}  {step.said()}: {told.ljust(over)}", file=sys.stderr)
        if done.ended_by is not None:
            self._stop("interrupted")
        self._keep()

    def _leave_no_trace(self, log: Path) -> None:
        """Of an attempt that was none; and of a sweep that has no other, so that its name is free again."""
        with contextlib.suppress(OSError):
            log.unlink(missing_ok=True)
            if not self._attempts:
                self._folder.rmdir()

    def _stop(self, why: str) -> None:
        told = self._sweep.stopped
        self._sweep = msgspec.structs.replace(self._sweep, stopped=f"{told}; {why}" if told else why)

    def _keep(self) -> None:
        boundaries = tuple(plan.boundary(self._attempts, v.name) for v in self._sweep.variables)
        self._sweep = msgspec.structs.replace(
            self._sweep, attempts=tuple(self._attempts), boundaries=boundaries
        )
        sweepfile.write(self._folder, self._sweep)

    def _show(self) -> None:
        from gpumem_tui.cli.newfile import new_file
        from gpumem_tui.cli.report import write_sheet
        from gpumem_tui.views.sweep import sheet_of

        if self._arguments.json:
            with new_file(None) as file:
                file.write((self._folder / sweepfile.FILE).read_bytes())
        else:
            sheet = sheet_of(self._sweep, str(self._folder))
            sys.stdout.write(write_sheet(sheet, "text", to_file=False, ascii_only=False))


def _options(arguments: argparse.Namespace) -> list[str]:
    """What every attempt's ``run`` is told."""
    options = ["--protocol", arguments.protocol]
    for name in ("simulate", "kernel_us"):
        value = getattr(arguments, name)
        if value is not None:
            options += [f"--{name.replace('_', '-')}", value]
    for word in arguments.sim_set:
        options += ["--sim-set", word]
    options += ["--anyway"] if arguments.anyway else []
    options += ["--no-peak-reset"] if arguments.no_peak_reset else []
    return options


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        lines = file.read(1 << 16).decode(errors="replace").split("\n")
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("gpumem-tui: ") if said else "it said nothing"
