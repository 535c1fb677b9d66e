"""Where sweeps are kept: a folder of each one's name beside the recordings, with ``sweep.json`` and logs.

Owns that file, written whole and read back; refuses folders that are taken, and two at work on one.
"""

import fcntl
import json
import os
from pathlib import Path

import msgspec

from gpumem_tui.analysis.sweep import VERSION, Sweep
from gpumem_tui.errors import CannotRecord, RecordingExists, UnreadableRecording
from gpumem_tui.journal import rundir

FILE = "sweep.json"


def home() -> Path:
    """Where all of them are."""
    folder: Path = rundir.home() / "sweeps"
    return folder


def create(name: str) -> Path:
    """A new folder for a sweep. Raises :class:`RecordingExists`, :class:`CannotRecord`, :class:`BadInput`."""
    folder: Path = home() / rundir.require_name(name, longest=96)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except FileExistsError:
        raise RecordingExists(
            f"a sweep named {name} exists in {folder.parent}; choose another name"
        ) from None
    except OSError as error:
        raise CannotRecord(f"cannot make {folder}: {error.strerror}") from error
    return folder


def hold(folder: Path) -> int:
    """A descriptor that keeps a sweep ours until this process ends. Raises :class:`RecordingExists`."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RecordingExists(f"the sweep {folder.name} is going on in another process") from None
    except OSError as error:
        raise CannotRecord(f"cannot hold {folder}: {error.strerror}") from error
    return descriptor


def write(folder: Path, sweep: Sweep) -> None:
    """Replace the file whole. Raises :class:`CannotRecord`."""
    temporary = folder / f".{FILE}.tmp"
    try:
        with temporary.open("wb") as file:
            file.write(_text(sweep))
            file.flush()
            os.fsync(file.fileno())  # a machine that is lost leaves the one before, never an empty one
        temporary.rename(folder / FILE)
    except OSError as error:
        raise CannotRecord(f"cannot write {folder}/{FILE}: {error.strerror}") from error


def _text(sweep: Sweep) -> bytes:
    """As JSON; bytes of a command that are no UTF-8 as the escapes that Python carries them by."""
    return json.dumps(msgspec.to_builtins(sweep), indent=1).encode() + b"\n"


def find(name: str) -> Path | None:
    """The folder of the sweep of exactly that name or path; None where there is none, or a run is meant."""
    folder = Path(name) if os.sep in name else home() / name
    try:
        is_run = os.sep not in name and (rundir.home() / "runs" / name).is_dir()
        return folder if name and not is_run and (folder / FILE).is_file() else None
    except OSError:  # no file may have such a name
        return None


def read(folder: Path) -> Sweep:
    """What is kept of it. Raises :class:`UnreadableRecording`."""
    file = folder / FILE
    try:
        sweep = msgspec.convert(json.loads(file.read_bytes()), type=Sweep)
    except (OSError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UnreadableRecording(f"{file} is damaged, or no sweep at all") from error
    if sweep.gpumem_tui_sweep > VERSION:
        raise UnreadableRecording(f"{file} was written by a newer gpumem-tui")
    return sweep
