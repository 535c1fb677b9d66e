"""Where recordings live: home, one directory a run, and how a name becomes a directory.

Refuses to share: home and runs must be the user's own, real directories; a run
directory is mode 0700 and is never made twice.
"""

import difflib
import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpumem_tui.agent import wire
from gpumem_tui.errors import BadInput, CannotRecord, RecordingExists, RunNotFound, UnreadableRecording
from gpumem_tui.journal.runfile import RunFile, read_run_file, write_run_file

HOME_VARIABLE = "GPUMEM_TUI_HOME"

LATEST = "latest"
"""Stands for the run that started last wherever a run is named."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@-]{0,127}")
_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*")


def home(environment: Mapping[str, str] | None = None) -> Path:
    """``$GPUMEM_TUI_HOME``, else ``$XDG_STATE_HOME/gpumem-tui``, else ``~/.local/state/gpumem-tui``."""
    environment = os.environ if environment is None else environment
    if named := environment.get(HOME_VARIABLE):
        return Path(named).expanduser().absolute()
    state = environment.get("XDG_STATE_HOME", "")
    if state.startswith("/"):  # the XDG specification: a relative path is to be ignored
        return Path(state) / "gpumem-tui"
    return Path.home() / ".local" / "state" / "gpumem-tui"


@dataclass(frozen=True)
class RunDirectory:
    """The paths of one recording. Says where things are, not that they exist."""

    path: Path

    @property
    def name(self) -> str:
        """Name of the run, as ``attach`` takes it."""
        return self.path.name

    @property
    def run_file(self) -> Path:
        """What was run: see :class:`RunFile`."""
        return self.path / "run.json"

    @property
    def journal(self) -> Path:
        """Folder of the journals' segments."""
        return self.path / "journal"

    @property
    def rings(self) -> Path:
        """Folder of the rings of span edges, one a process."""
        return self.path / "rings"

    @property
    def output_log(self) -> Path:
        """Raw bytes of the pty; interactive runs only."""
        return self.path / "output.log"

    @property
    def failures(self) -> Path:
        """Folder of failure records."""
        return self.path / "failures"

    @property
    def map_request(self) -> Path:
        """Touched by whoever wants a map of the ranks' allocators now."""
        return self.path / wire.MAP_REQUEST

    @property
    def input(self) -> Path:
        """FIFO for bytes typed into the workload; interactive runs only."""
        return self.path / "input"

    def ring(self, pid: int, started_ticks: int | None) -> Path:
        """The ring of one process."""
        return self.rings / f"{pid}-{started_ticks or 0}.ring"

    @property
    def simcard_file(self) -> Path:
        """The state of the simulated cards, in a simulated run."""
        return self.path / "simcard.state"

    def read_facts(self) -> RunFile:
        """``run.json``. Raises :class:`UnreadableRecording`."""
        return read_run_file(self.run_file)

    def write_facts(self, facts: RunFile) -> None:
        """Write ``run.json``, once. Raises :class:`RecordingExists`, :class:`CannotRecord`."""
        write_run_file(self.run_file, facts)


def new_name(command: Sequence[str], wall_ns: int | None = None) -> str:
    """A name for a run of ``command``: local time, stem of the script, four random hex digits."""
    seconds = time.time() if wall_ns is None else wall_ns / 1e9
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(seconds))
    stem = re.sub(r"[^A-Za-z0-9_]+", "-", _stem(command)).strip("-")[:32].strip("-")
    return f"{stamp}-{stem or 'run'}-{os.urandom(2).hex()}"


def _stem(command: Sequence[str]) -> str:
    """What a person would call this command: the script, the module, or the program."""
    for word in command:
        if word.endswith(".py"):
            return Path(word).stem
    launcher = bool(command) and (
        _INTERPRETER.fullmatch(Path(command[0]).name) is not None or Path(command[0]).name == "torchrun"
    )
    if launcher and "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    return Path(command[0]).name if command else ""


def require_name(name: str, longest: int = 128) -> str:
    """The name, if a directory may have it. Raises :class:`BadInput`."""
    if not _NAME.fullmatch(name) or name == LATEST or len(name) > longest:
        raise BadInput(
            f"run name {name!r} cannot be used; "
            f"take up to {longest} letters, digits, '_', '-' and '.', beginning with a letter or digit"
        )
    return name


def create(name: str, environment: Mapping[str, str] | None = None) -> RunDirectory:
    """Make the directory of a new run, with its folders, mode 0700.

    Raises :class:`BadInput` for a name that cannot be one, :class:`RecordingExists`
    if it is taken, and :class:`CannotRecord` if the place cannot be written or is not
    the user's own.
    """
    require_name(name)
    base = home(environment)
    runs = base / "runs"
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(base)
        runs.mkdir(mode=0o700, exist_ok=True)
        _require_own(runs)
    except OSError as error:
        raise _cannot(base, error) from error
    run = RunDirectory(runs / name)
    try:
        run.path.mkdir(mode=0o700)
    except FileExistsError:
        raise RecordingExists(f"a run named {name} exists in {runs}; choose another name") from None
    except OSError as error:
        raise _cannot(runs, error) from error
    made: list[Path] = [run.path]
    try:
        for folder in (run.journal, run.rings, run.failures):
            folder.mkdir(mode=0o700)
            made.append(folder)
    except OSError as error:
        for folder in reversed(made):
            folder.rmdir()
        raise _cannot(runs, error) from error
    return run


def _require_own(folder: Path) -> None:
    facts = folder.lstat()
    if stat.S_ISLNK(facts.st_mode):
        raise CannotRecord(
            f"{folder} is a symbolic link; set {HOME_VARIABLE} to the directory that is really meant"
        )
    if not stat.S_ISDIR(facts.st_mode):
        raise CannotRecord(f"{folder} is not a directory; set {HOME_VARIABLE} to one that you can write")
    if facts.st_uid != os.geteuid():
        raise CannotRecord(
            f"{folder} belongs to another user (uid {facts.st_uid}); set {HOME_VARIABLE} to one of your own"
        )


def _cannot(folder: Path, error: OSError) -> CannotRecord:
    return CannotRecord(
        f"cannot make a run directory in {folder}: {error.strerror}; "
        f"set {HOME_VARIABLE} to a directory that can be written"
    )


@dataclass(frozen=True)
class RunEntry:
    """One directory under ``runs``: its facts, or why it has none."""

    run: RunDirectory
    facts: RunFile | None
    problem: str | None
    """Set exactly if ``facts`` is None."""
    started_wall_ns: int
    """From run.json; of an unreadable directory, when it was last changed."""


def list_runs(environment: Mapping[str, str] | None = None) -> list[RunEntry]:
    """Every directory under ``runs``, the latest first; unreadable ones are listed with the reason."""
    runs = home(environment) / "runs"
    try:
        names = [entry.name for entry in os.scandir(runs) if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UnreadableRecording(f"cannot list {runs}: {error.strerror}") from error
    entries = []
    for name in names:
        run = RunDirectory(runs / name)
        try:
            facts = run.read_facts()
        except UnreadableRecording as error:
            entries.append(RunEntry(run, None, str(error), _changed_ns(run.path)))
        else:
            entries.append(RunEntry(run, facts, None, facts.wall_ns))
    return sorted(entries, key=lambda entry: (entry.started_wall_ns, entry.run.name), reverse=True)


def _changed_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except OSError:  # removed, or closed to us, since it was listed: it sorts last
        return 0


def find(name: str = LATEST, environment: Mapping[str, str] | None = None) -> RunDirectory:
    """The recording that ``name`` means: a path, a name, a unique start of a name, or ``latest``.

    Raises :class:`RunNotFound`, naming what may have been meant.
    """
    if os.sep in name or name in (os.curdir, os.pardir):
        try:
            path = Path(name).expanduser().absolute()
            there = path.is_dir()
        except (OSError, RuntimeError) as error:  # a name that no file may have; a user whom nobody knows
            why = getattr(error, "strerror", None) or error
            raise RunNotFound(f"there is no recording at {name[:80]}: {why}") from None
        if not there:
            raise RunNotFound(f"there is no recording at {path}")
        return RunDirectory(path)
    entries = list_runs(environment)
    if not entries:
        raise RunNotFound(f"there are no recordings in {home(environment)}; make one with: gpumem-tui run …")
    if name == LATEST:
        readable = [entry for entry in entries if entry.facts is not None]
        return (readable or entries)[0].run
    names = [entry.run.name for entry in entries]
    if name in names:
        return entries[names.index(name)].run
    starting = [known for known in names if name and known.startswith(name)]
    if len(starting) == 1:
        return entries[names.index(starting[0])].run
    if starting:
        raise RunNotFound(f"{name!r} may be {_some(starting)}; write more of the name")
    close = [known for known in names if name and name.lower() in known.lower()]
    close = close or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    meant = f"did you mean {_some(close)}?" if close else f"the latest is {names[0]}"
    raise RunNotFound(f"there is no recording named {name!r}; {meant}")


def _some(names: Sequence[str]) -> str:
    shown = " or ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} or {len(names) - 3} more"
