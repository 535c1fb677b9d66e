"""The recorder as a program: its arguments, its place below the workload, its orderly end."""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

import gpumem_tui
from gpumem_tui.errors import GpumemError
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.recorder.election import Election
from gpumem_tui.recorder.keepers import Keepers
from gpumem_tui.recorder.loop import Recorder
from gpumem_tui.recorder.output import Output
from gpumem_tui.recorder.stop import Stop
from gpumem_tui.sources.driver import Driver

NICENESS = 5


def main(arguments: Sequence[str]) -> int:
    """Record one run to its end; 0 also where another recorder has it already."""
    parser = argparse.ArgumentParser(prog="gpumem-tui-recorder", description=__doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--hertz", type=float, default=2.0, help="memory readings a second (default 2)")
    parser.add_argument("--library", type=Path, help="an NVML library other than the system's")
    options = parser.parse_args(arguments)
    stay_below()
    stop = Stop()
    stop_on_signals(stop)
    try:
        record(RunDirectory(options.run.absolute()), options.hertz, options.library, stop)
    except GpumemError as error:
        print(f"gpumem-tui recorder: {error}", file=sys.stderr)  # noqa: T201 - into the run's recorder.log
        return error.exit_code
    return 0


def record(run: RunDirectory, hertz: float, library: Path | None, stop: Stop) -> None:
    """Record, unless another recorder does, for as long as a keeper is at work.

    Raises :class:`UnreadableRecording` and :class:`CannotRecord`.
    """
    facts = run.read_facts()
    keepers = Keepers(run.journal, facts.keeper_pid, facts.keeper_ticks)
    election = Election(run.path)
    while election.stand():
        Recorder(
            driver=Driver(library, hertz=hertz),
            output=Output(run.journal, run.name, agent=gpumem_tui.__version__),
            keepers=keepers,
            keep_within_budget=budget_keeper(run, facts.disk_budget_bytes),
            stop=stop,
        ).run()
        election.resign()
        # A keeper that joined since the last look has found the lock taken: it counts on this recorder.
        if stop.is_set or not keepers.look():
            return


def stay_below() -> None:
    """Give way to the workload for the processor. Where that is refused, go on.

    Not for host memory: the kernel takes the largest, the recorder is small, and it has
    to be there still to tell who was taken.
    """
    with contextlib.suppress(OSError):
        os.nice(NICENESS)


def stop_on_signals(stop: Stop) -> None:
    """SIGTERM and SIGINT end it in order; a lost terminal and a file-size limit do not end it at all."""

    def request(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, request)
    signal.signal(signal.SIGINT, request)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def budget_keeper(run: RunDirectory, budget_bytes: int) -> Callable[[], object]:
    """Folding, as the loop calls it: a turn that a full disk stops is tried again with the next."""

    def turn() -> None:
        from gpumem_tui.agent import wire
        from gpumem_tui.journal.budget import keep_within

        with contextlib.suppress(OSError):
            keep_within(run, budget_bytes, wire.now_ns())

    return turn
