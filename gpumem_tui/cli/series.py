"""The attempts of a sweep, made one after the other and kept: from its start, or from where it was left.

Owns the folder of a sweep while it is made. An attempt is never made twice: where the sweep
was lost in the middle of one, its recording is taken as it is.
"""

import contextlib
import shutil
import sys
from pathlib import Path

import msgspec

from gpumem_tui.analysis import sweep as plan
from gpumem_tui.cli import sweepfile
from gpumem_tui.errors import BadInput, GpumemError, MissingRequirement
from gpumem_tui.journal import rundir
from gpumem_tui.journal.rundir import RunDirectory

_RUNNING = "running…"

_FROM_OUTSIDE = frozenset({129, 130, 137, 143})
"""Exit codes of what ends a lost sweep and its attempt alike: SIGHUP, SIGINT, SIGKILL, SIGTERM."""


class Series:
    """A sweep while it is made: its folder, its attempts so far."""

    def __init__(self, folder: Path, sweep: plan.Sweep, options: plan.Options) -> None:
        self._folder, self._sweep, self._options = folder, sweep, options
        self._held = sweepfile.hold(folder)
        self._attempts = list(sweep.attempts)
        self._ended_by: int | None = None
        self._keep()

    @classmethod
    def new(cls, sweep: plan.Sweep) -> "Series":
        """One that begins. Raises :class:`RecordingExists`, :class:`CannotRecord`, :class:`BadInput`."""
        assert sweep.options is not None
        folder = sweepfile.create(sweep.name)
        try:
            return cls(folder, sweep, sweep.options)
        except GpumemError:
            shutil.rmtree(folder, ignore_errors=True)  # nothing was tried: leave its name free
            raise

    @classmethod
    def resumed(cls, folder: Path, sweep: plan.Sweep) -> "Series":
        """One that goes on. Raises :class:`RecordingExists` where it goes on already."""
        assert sweep.options is not None
        return cls(folder, sweep, sweep.options)

    def go(self, json: bool) -> int:
        """All attempts, then the table or the document; 128 and a signal's number where that ended it."""
        variables, cases = self._sweep.variables, self._sweep.cases
        for step in plan.planned(variables, cases):
            self._make(step)
        for variable in variables if self._options.until_oom else ():
            self._bisect(variable.name)
        self._keep()
        self._show(json)
        if self._ended_by is None:
            return 0
        print(f"go on with: gpumem-tui sweep --resume {self._sweep.name}", file=sys.stderr)
        return 128 + self._ended_by

    def _bisect(self, name: str) -> None:
        asked = self._options
        for value in plan.searched(self._attempts, name):  # of which an interrupted search lacks cases
            for step in self._steps_of(name, value):
                self._make(step)
        while self._ended_by is None:
            number = plan.next_number(self._attempts, name, asked.most, asked.grain)
            if number is None:
                why = plan.cut_short(self._attempts, name)
                if why is not None:
                    self._stop(why)
                return
            steps = self._steps_of(name, str(number))
            made = len(plan.standing(self._attempts))
            if made + len(steps) > asked.attempts:
                self._stop(f"the search ended after {made} attempts (--attempts)")
                return
            for step in steps:
                self._make(step)

    def _steps_of(self, name: str, value: str) -> list[plan.Step]:
        """A value of a search, with every case."""
        return [*plan.steps_of(name, value, self._sweep.variables, self._sweep.cases, bisecting=True)]

    def _make(self, step: plan.Step) -> None:
        """One attempt, unless there is one or the sweep was ended. Raises :class:`MissingRequirement`."""
        if self._ended_by is not None or plan.is_done(self._attempts, step):
            return
        self._adopt(step)
        if not plan.is_done(self._attempts, step):
            self._attempt(step)

    def _adopt(self, step: plan.Step) -> None:
        """Take the recording that a lost sweep left of a step. Raises :class:`BadInput` while it goes on."""
        from gpumem_tui.session import Recording
        from gpumem_tui.session.attempts import observe

        order = len(self._attempts) + 1
        left = self._left(order)
        if left is None:
            return
        facts = Recording(left).read().facts
        if facts.live:
            raise BadInput(
                f"attempt {order} ({step.said()}) goes on as run {left.name}: "
                "resume the sweep when it has ended"
            )
        declared = {} if facts.identity is None else dict(facts.identity.declared)
        if declared != dict(step.settings):
            raise BadInput(f"the run {left.name} is not {step.said()}: this sweep cannot be resumed")
        lost = facts.exit_code is None or facts.exit_code in _FROM_OUTSIDE
        self._observed(observe(left, step, order, facts.exit_code, self._log(order), lost))
        self._keep()

    def _left(self, order: int) -> RunDirectory | None:
        """The recording of an attempt that is not among ours although it was started by this sweep."""
        run = RunDirectory(rundir.home() / "runs" / self._name(order))
        if not self._sweep.resumed or not run.run_file.exists():
            return None
        labels = run.read_facts().labels
        ours = (labels.get("sweep"), labels.get("attempt")) == (self._sweep.name, str(order))
        return run if ours else None

    def _attempt(self, step: plan.Step) -> None:
        from gpumem_tui.cli.attempt import attempt
        from gpumem_tui.session.attempts import observe

        order = len(self._attempts) + 1
        log, name = self._log(order), self._name(order)
        if self._sweep.resumed:
            log.unlink(missing_ok=True)  # of an attempt that was lost before it was recorded
        labels = self._sweep.labels | {"sweep": self._sweep.name, "attempt": str(order)}
        command = plan.fill(self._sweep.command, dict(step.settings))
        if sys.stderr.isatty():
            print(f"{order:3}  {step.said()}: {_RUNNING}", end="\r", file=sys.stderr, flush=True)
        try:
            done = attempt(command, name, labels, self._words(step), log)
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
            self._observed(observe(done.run, step, order, done.exit_code, log, interrupted))
        if done.ended_by is not None:
            self._stop("interrupted")
        self._keep()

    def _observed(self, seen: plan.Attempt) -> None:
        self._attempts.append(seen)
        phase = f" in {seen.failed_phase}" if seen.failed_phase else ""
        told = f"{seen.outcome.value}{phase}"
        over = len(_RUNNING) if sys.stderr.isatty() else 0  # what still stands there
        print(f"{seen.order:3}  {seen.step.said()}: {told.ljust(over)}", file=sys.stderr)

    def _name(self, order: int) -> str:
        return f"{self._sweep.name}.{order:02d}"

    def _log(self, order: int) -> Path:
        return self._folder / f"{order:02d}.log"

    def _leave_no_trace(self, log: Path) -> None:
        """Of an attempt that was none; and of a sweep that has no other, so that its name is free again."""
        with contextlib.suppress(OSError):
            log.unlink(missing_ok=True)
            if not self._attempts and not self._sweep.resumed:
                (self._folder / sweepfile.FILE).unlink()
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

    def _show(self, json: bool) -> None:
        from gpumem_tui.cli.newfile import new_file
        from gpumem_tui.cli.report import write_sheet
        from gpumem_tui.views.sweep import sheet_of

        if json:
            with new_file(None) as file:
                file.write((self._folder / sweepfile.FILE).read_bytes())
        else:
            sheet = sheet_of(self._sweep, str(self._folder))
            sys.stdout.write(write_sheet(sheet, "text", to_file=False, ascii_only=False))

    def _words(self, step: plan.Step) -> list[str]:
        """What the ``run`` of an attempt is told."""
        asked = self._options
        words = ["--protocol", asked.protocol]
        for option, value in (("--simulate", self._sweep.simulated), ("--kernel-us", asked.kernel_us)):
            words += [option, value] if value is not None else []
        for word in asked.sim_set:
            words += ["--sim-set", word]
        words += ["--anyway"] if asked.anyway else []
        words += ["--no-peak-reset"] if asked.no_peak_reset else []
        for name, value in step.settings:
            words += ["--declare", f"{name}={value}"]
        return words


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        lines = file.read(1 << 16).decode(errors="replace").split("\n")
    said = [line for line in lines if line.strip()]
    return said[-1].removeprefix("gpumem-tui: ") if said else "it said nothing"
