"""A run as a step of a larger verb: the same ``run --batch`` that users type, in a process of its own.

A signal that ends the larger verb ends the run first: Ctrl-C reaches it by itself, what
is sent to us alone is passed on, and its end is waited for, so that its recording is whole.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpumem_tui.errors import CannotRecord, RecordingExists
from gpumem_tui.journal import rundir
from gpumem_tui.keeper.batch import await_end

ENDED_BY = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the larger verb."""


@dataclass(frozen=True)
class Attempt:
    """A run that has ended."""

    exit_code: int
    run: rundir.RunDirectory | None
    """None where nothing was recorded: it could not be started."""
    ended_by: int | None = None
    """The first signal that came meanwhile, of :data:`ENDED_BY`."""


def attempt(
    command: Sequence[str],
    name: str,
    labels: Mapping[str, str],
    options: Sequence[str],
    log: Path | None = None,
) -> Attempt:
    """Run a command to its end. Its output goes into ``log``, a new file, or where ours goes.

    Raises :class:`BadInput` and :class:`RecordingExists` before anything is started where the name
    cannot be used or is taken, and :class:`CannotRecord` where ``log`` cannot be written.
    """
    if _recorded(rundir.require_name(name)) is not None:
        raise RecordingExists(f"a run named {name} exists; choose another name")
    words = [sys.executable, "-m", "gpumem_tui", "run", "--batch", "--name", name]
    for key, value in labels.items():
        words += ["--label", f"{key}={value}"]
    words += [*options, "--", *command]
    came: list[int] = []
    with contextlib.ExitStack() as opened:
        files: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        ]
        if log is not None:
            try:
                file = opened.enter_context(log.open("xb")).fileno()
            except OSError as error:
                raise CannotRecord(f"cannot write {log}: {error.strerror}") from error
            files += [(os.POSIX_SPAWN_DUP2, file, 1), (os.POSIX_SPAWN_DUP2, file, 2)]
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit status with it
        heard = {number for number in ENDED_BY if signal.getsignal(number) is not signal.SIG_IGN}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *heard})
        try:
            pid = os.posix_spawn(sys.executable, words, os.environ, file_actions=files, setsigmask=mask)
            ending = await_end(pid, {signal.SIGCHLD, *heard}, lambda number, _: came.append(number))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return Attempt(ending.shell_code(), _recorded(name), came[0] if came else None)


def _recorded(name: str) -> rundir.RunDirectory | None:
    """The run of exactly that name."""
    run = rundir.RunDirectory(rundir.home() / "runs" / name)
    return run if run.run_file.exists() else None
