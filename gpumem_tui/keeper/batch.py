"""Keeps a workload in the foreground: its descriptors, process group and terminal are the caller's own.

The workload is started with the signal mask and dispositions that it would have had
without us. Signals that the kernel sends to the whole group (Ctrl-C) reach it
directly and are not repeated; those that are sent to us alone are passed on.
"""

import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpumem_tui.errors import CommandNotExecutable, CommandNotFound
from gpumem_tui.keeper.log import KeeperLog
from gpumem_tui.records.ending import Ending

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that are waited for, and passed on where they were not sent to the group anyway."""

_SI_USER = 0  # siginfo si_code of kill(); the terminal's own signals have SI_KERNEL (128)
_SI_TKILL = -6
_SI_QUEUE = -1


def find_program(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The file that ``command[0]`` names. Raises :class:`CommandNotFound` or ``CommandNotExecutable``."""
    name = command[0]
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if found is not None:
        return found
    if os.sep in name and Path(name).is_file():
        raise CommandNotExecutable(f"{name} cannot be executed; make it executable or name its interpreter")
    raise CommandNotFound(f"{name}: no such command; give a .py file, -m MODULE, or a program on PATH")


def keep_batch(
    run: Path, command: Sequence[str], environment: Mapping[str, str], ready: Callable[[], None]
) -> Ending:
    """Start ``command`` and stay until it has ended.

    ``ready`` is called when this keeper has its journal, before the workload is started.
    Raises :class:`CommandNotFound` before anything is started.
    """
    program = find_program(command, environment)
    log = KeeperLog(run)
    ready()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would take the exit status with it
    waited = {signal.SIGCHLD, *PASSED_ON}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    try:
        pid = os.posix_spawn(
            program,
            list(command),
            dict(environment),
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores these two for itself alone
        )
    except PermissionError as error:
        raise CommandNotExecutable(f"{command[0]} cannot be executed: {error.strerror}") from error
    except OSError as error:
        raise CommandNotFound(f"{command[0]} cannot be started: {error.strerror}") from error
    log.started(pid)
    ending = await_end(pid, waited, log.signalled)
    log.ended(ending)
    return ending


def await_end(pid: int, waited: set[signal.Signals], told: Callable[[int, str], None]) -> Ending:
    """Wait for a child; ``waited`` are blocked, SIGCHLD among them, and ``told`` hears of the others."""
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended == pid:
            return Ending.of(status)
        info = signal.sigwaitinfo(waited)
        if info.si_signo == signal.SIGCHLD:
            continue
        if info.si_code in (_SI_USER, _SI_TKILL, _SI_QUEUE):
            told(info.si_signo, "passed on")
            try:
                os.kill(pid, info.si_signo)
            except ProcessLookupError:
                continue
        else:
            told(info.si_signo, "reached the workload by itself")
