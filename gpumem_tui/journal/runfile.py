"""``run.json``: what was run, by whom, where, and on which clock. Written once, never changed.

Refuses to write over an existing file, and to read what it cannot vouch for: every
failure is one :class:`UnreadableRecording` line.
"""

import json
import os
import re
from pathlib import Path

import msgspec

from gpumem_tui.agent import wire
from gpumem_tui.errors import CannotRecord, RecordingExists, UnreadableRecording
from gpumem_tui.records.revision import Revision

DISK_BUDGET_BYTES = 512 << 20
"""What the journals of one run may take on disk unless told otherwise."""

_NO_TEXT = re.compile("[\ud800-\udfff]")
"""What Python carries of bytes in arguments, variables and folders that are no UTF-8: no JSON has it."""

SIZE_LIMIT_BYTES = 16 << 20
"""A larger run.json is garbage and is not read into memory."""


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated cards of a run, and what they assume."""

    devices: list[int]
    """Total memory of each, in bytes."""
    kernel_us: float | None = None
    """How long a kernel is pretended to take, in microseconds."""
    settings: dict[str, str] = {}
    assumptions: list[tuple[str, str]] = []
    """(name, value with unit), as screens show them."""


class Namespaces(msgspec.Struct, frozen=True):
    """What a process shares with who is in its container, and with nobody else: by the kernel's names."""

    pid: str | None
    time: str | None


def namespaces() -> Namespaces:
    """Of this process; None where /proc does not tell."""
    return Namespaces(_namespace("pid"), _namespace("time"))


def _namespace(kind: str) -> str | None:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")  # noqa: PTH115  a text, not a path
    except OSError:
        return None


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of a run that are known before it starts."""

    schema: int = wire.SCHEMA
    run: str
    command: list[str]
    cwd: str
    host: str
    user: str
    boot: str | None
    """Whose monotonic clock ``t_ns`` is."""
    wall_ns: int
    """Calendar time at ``t_ns``, nanoseconds since 1970."""
    t_ns: int
    version: str
    """Of gpumem-tui."""
    interactive: bool
    keeper_pid: int
    keeper_ticks: int | None
    python: str | None = None
    """Interpreter of the workload, where it is one."""
    simulated: Simulated | None = None
    recorded: bool = False
    """A bundled recording that stands in for a live run."""
    labels: dict[str, str] = {}
    environment: dict[str, str] = {}
    """Only variables that were asked for by name."""
    protocol: str = "observe"
    """``strict``: every phase boundary waited for the device."""
    hertz: float = 10.0
    """Samples per second and rank."""
    disk_budget_bytes: int = DISK_BUDGET_BYTES
    reset_peaks: bool = True
    """Otherwise PyTorch's peak counters were left alone."""
    revision: Revision | None = None
    """Of the working directory, when the run was started."""
    seed: str | None = None
    seed_source: str | None = None
    """``label``, ``command line`` or ``PYTHONHASHSEED``."""
    declared: dict[str, str] = {}
    """Sizes that the user declared, as text."""
    warmup: str | None = None
    """What the user calls warm-up; None: the first span of a phase."""
    namespaces: Namespaces | None = None
    """Where its pids and its monotonic clock are those that it says; None in older recordings."""


class _Version(msgspec.Struct):
    schema: int


def write_run_file(path: Path, facts: RunFile) -> None:
    """Write ``run.json``, whole or not at all.

    Raises :class:`RecordingExists` if there is one, :class:`CannotRecord` if the
    directory cannot be written.
    """
    if path.exists():
        raise RecordingExists(f"{path} exists already; a recording is never overwritten")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    told = json.dumps(msgspec.to_builtins(facts), indent=2, ensure_ascii=False)
    text = _NO_TEXT.sub("\ufffd", told).encode() + b"\n"
    try:
        with open(temporary, "xb", opener=privately) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CannotRecord(f"cannot write {path}: {error.strerror}") from error


def read_run_file(path: Path) -> RunFile:
    """Read ``run.json``. Raises :class:`UnreadableRecording`: missing, garbage, or of a newer version."""
    folder = path.parent
    try:
        with path.open("rb") as file:
            text = file.read(SIZE_LIMIT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise UnreadableRecording(f"{folder} is no recording: it has no {path.name}") from None
    except OSError as error:
        raise UnreadableRecording(f"cannot read {path}: {error.strerror}") from error
    if len(text) > SIZE_LIMIT_BYTES:
        raise UnreadableRecording(f"{path} is no run description: it is larger than 16 MiB")
    try:
        schema = msgspec.json.decode(text, type=_Version).schema
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UnreadableRecording(f"{path} is damaged, or no run description at all") from None
    if schema > wire.SCHEMA:
        raise UnreadableRecording(
            f"{folder} has schema {schema}, written by a newer gpumem-tui; "
            f"this version reads up to {wire.SCHEMA}: upgrade to open it"
        )
    try:
        return msgspec.json.decode(text, type=RunFile)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableRecording(f"{path} is damaged: {error}") from None


def privately(path: str, flags: int) -> int:
    """An opener for files that are their user's alone."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def sync_directory(folder: Path) -> None:
    """Make a rename within ``folder`` last through a crash of the machine."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
