"""``%load_ext gpumem_tui``: cells of a notebook as measured phases, with their ledger.

``%%gpumem [name]`` runs a cell as a phase and shows, for each device of this kernel, what the
phases within it held and where every byte is after it; ``%gpumem`` shows the ledger now. A
kernel that was started under ``gpumem-tui run`` (the simulated card included) is measured
into that recording; any other gets a recording of its own when the extension is loaded, to be
watched with ``gpumem-tui attach`` like every run. The cell's own outcome stays: its last
value is displayed, its error raised.
"""

import ast
import atexit
import getpass
import inspect
import os
import platform
import sys
import time
from pathlib import Path
from types import CodeType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import output_can_be_silenced

import gpumem_tui
from gpumem_tui.agent import wire
from gpumem_tui.cli.launch import start_recorder
from gpumem_tui.errors import GpumemError
from gpumem_tui.journal import rundir
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.journal.runfile import RunFile
from gpumem_tui.keeper.log import KeeperLog
from gpumem_tui.records.ending import Ending
from gpumem_tui.session import Recording
from gpumem_tui.session.cell import devices_of, phases_since, settled
from gpumem_tui.sources.revision import revision_of
from gpumem_tui.views.report import cell as cells
from gpumem_tui.views.report import html, text
from gpumem_tui.views.report.sheet import Sheet
from gpumem_tui.workload import phase

DRIVER_WAIT_S = 2.0
"""How long a cell waits for driver readings of after its end; they come about once a second."""

_OLD = "the driver's readings are older than this moment: they may lack what has just changed"


class Measured:
    """What a cell shows: HTML in a notebook, text in a terminal."""

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet

    def _repr_html_(self) -> str:
        return html.fragment(self.sheet)

    def __repr__(self) -> str:
        return text.render(self.sheet, cells=100).rstrip()


class Monitor:
    """The recording of this kernel, and the magic that looks into it."""

    def __init__(self, shell: Any, run: RunDirectory) -> None:
        self.run = run
        self._shell = shell
        self._recording = Recording(run)

    @output_can_be_silenced  # by a semicolon at the end of the cell
    def magic(self, line: str, cell: str | None = None) -> Any:
        """``%gpumem``: the ledger now. ``%%gpumem [name]``: the cell, as a phase of that name."""
        __tracebackhide__ = True  # a cell's traceback begins at the cell
        if cell is None:
            return self._ledger()
        number = len(self._shell.history_manager.input_hist_parsed) - 1
        name = line.strip() or f"cell {number}"
        body, last = self._compiled(cell, number)
        since_ns = wire.now_ns()
        try:
            with phase(name):
                return self._execute(body, last)
        finally:  # shown for a cell that failed as well: what it held then is the question
            self._show(name, since_ns, wire.now_ns())

    def _compiled(self, cell: str, number: int) -> tuple[CodeType, CodeType | None]:
        """The cell as IPython would compile it; apart from the rest, a last expression, which has a value.

        Raises :class:`UsageError` for an ``await`` outside functions: the loop itself waits for a magic.
        """
        __tracebackhide__ = True
        shell = self._shell
        source = shell.transform_cell(cell)
        name = shell.compile.cache(source, number)
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
        flags = shell.compile.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        if compile(tree, name, "exec", flags, dont_inherit=True).co_flags & inspect.CO_COROUTINE:
            raise UsageError(
                '%%gpumem cannot await; write "with gpumem_tui.phase(NAME):" around it in a plain cell, '
                "then %gpumem"
            )
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        value = None if last is None else shell.compile(ast.Expression(last.value), name, "eval")
        return shell.compile(tree, name, "exec"), value

    def _execute(self, body: CodeType, last: CodeType | None) -> Any:
        """Run it in the user's namespace; the value of the last expression."""
        __tracebackhide__ = True
        shell = self._shell
        exec(body, shell.user_global_ns, shell.user_ns)
        return None if last is None else eval(last, shell.user_global_ns, shell.user_ns)

    def _ledger(self) -> Measured:
        wait_s = DRIVER_WAIT_S if _uses_cuda() else 0.0
        state, fresh = settled(self._recording.read, os.getpid(), wire.now_ns(), wait_s)
        devices = devices_of(state, os.getpid()) or state.devices
        notes = [] if devices else ["no device is known yet"]
        notes += [_OLD] if wait_s and not fresh else []
        return Measured(cells.sheet_of("the ledger now", state, devices, (), None, notes))

    def _show(self, name: str, since_ns: int, ended_ns: int) -> None:
        """Display what the cell held. An error of ours is a line, and never in the place of the cell's."""
        from IPython.display import display

        pid, wait_s = os.getpid(), DRIVER_WAIT_S if _uses_cuda() else 0.0
        try:
            rows = phases_since(self.run, pid, since_ns)
            state, fresh = settled(self._recording.read, pid, ended_ns, wait_s)
        except GpumemError as error:
            print(f"gpumem-tui: {error}", file=sys.stderr)
            return
        devices = devices_of(state, pid)
        notes = [_OLD] if wait_s and not fresh else []
        seconds = (ended_ns - since_ns) / 1e9
        display(Measured(cells.sheet_of(name, state, devices, rows, seconds, notes)))  # type: ignore[no-untyped-call]


def _uses_cuda() -> bool:
    """Whether this kernel has initialised CUDA; never the one to do so."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def load(shell: Any) -> None:
    """Register the magics; start a recording where this kernel has none. Once a kernel."""
    name = os.environ.get("GPUMEM_TUI_RUN")
    if name and Path(name).is_dir():
        run = RunDirectory(Path(name))
        said = f"measured into the run {run.name}"
    else:
        run = _start_recording()
        said = f"recording {run.name}; watch it with: gpumem-tui attach {run.name}"
    _start_agent(run)
    monitor = Monitor(shell, run)
    shell.register_magic_function(monitor.magic, magic_kind="line_cell", magic_name="gpumem")
    print(f"gpumem-tui: {said}")


def _start_recording() -> RunDirectory:
    """A run of which this kernel is keeper and workload in one, with a recorder beside it."""
    run = rundir.create(rundir.new_name(["notebook"]))
    pid = os.getpid()
    run.write_facts(
        RunFile(
            run=run.name,
            command=[sys.executable, *sys.argv],
            cwd=str(Path.cwd()),
            host=platform.node(),
            user=getpass.getuser(),
            boot=wire.boot_id(),
            wall_ns=time.time_ns(),
            t_ns=wire.now_ns(),
            version=gpumem_tui.__version__,
            interactive=False,
            keeper_pid=pid,
            keeper_ticks=wire.started_ticks(pid),
            revision=revision_of(Path.cwd()),
        )
    )
    log = KeeperLog(run.path)
    log.started(pid)
    atexit.register(log.ended, Ending(0, None))
    start_recorder(run, None)
    os.environ["GPUMEM_TUI_RUN"] = str(run.path)
    return run


def _start_agent(run: RunDirectory) -> None:
    """The agent of this process, unless the kernel was started with it."""
    import gpumem_tui.hook  # noqa: F401  registers it; a run in the environment starts it

    sys.modules["_gpumem_tui_agent"].start(str(run.path))
