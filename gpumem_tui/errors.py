"""Every error that a user may expect, with its exit code. Only ``cli.main`` prints them.

::

    GpumemError                1   anything else that we know how to say
    ├── UsageError             2   the command line does not say what to do
    ├── BadInput               2   a size, name, file or setting that cannot be used
    ├── MissingRequirement     2   no GPU, no PyTorch, no compiler, no driver
    ├── RunNotFound            3   no recording by that name
    ├── UnreadableRecording    4   a directory that is no recording, or of a newer version
    ├── RecordingExists        5   would overwrite
    ├── CannotRecord           6   directory not writable, disk full before the start
    └── CommandNotFound      127   as a shell says it (126 where it cannot be executed)

Everything else that goes wrong is a bug and ends in a traceback with exit code 70.
A run's own exit code is passed through unchanged and wins over all of these.
"""


class GpumemError(Exception):
    """One clear line: what is wrong, and what to do about it."""

    exit_code = 1


class UsageError(GpumemError):
    """The command line does not say what to do."""

    exit_code = 2


class BadInput(GpumemError):
    """A size, name, file or setting that cannot be used."""

    exit_code = 2


class MissingRequirement(GpumemError):
    """Something that the verb needs is not on this machine; nothing was measured."""

    exit_code = 2


class RunNotFound(GpumemError):
    """No recording by that name."""

    exit_code = 3


class UnreadableRecording(GpumemError):
    """A directory that is no recording, or one that a newer version has written."""

    exit_code = 4


class RecordingExists(GpumemError):
    """Refused: the name is taken, and a recording is never overwritten."""

    exit_code = 5


class CannotRecord(GpumemError):
    """The run directory cannot be made or written."""

    exit_code = 6


class CommandNotFound(GpumemError):
    """The workload's command does not exist (127) or cannot be executed (126)."""

    exit_code = 127


class CommandNotExecutable(CommandNotFound):
    """The workload's command exists but cannot be executed."""

    exit_code = 126
