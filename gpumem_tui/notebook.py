"""``%load_ext gpumem_tui``: cells of a notebook as measured phases, with their ledger.

``%%gpumem [name]`` runs a cell as a phase and shows, for each device of this kernel, what the
phases within it held and where every byte is after it; ``%gpumem`` shows the ledger now. A
kernel that was started under ``gpumem-tui run`` (the simulated card included) is measured
into that recording; any other gets a recording of its own when the extension is loaded, to be
watched with ``gpumem-tui attach`` like every run. The cell's own outcome stays: its last
value is displayed, its error raised.

A magic is called while the event loop waits for it, so a cell that awaits never gets to one:
it is rewritten, line for line, into a plain cell whose statements stand within the phase.
"""

import ast
import atexit
import getpass
import inspect
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
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
from gpumem_tui.journal.runfile import RunFile, namespaces
from gpumem_tui.keeper.log import KeeperLog
from gpumem_tui.records.ending import Ending
from gpumem_tui.session import Recording
from gpumem_tui.session.cell import devices_of, phases_since, settled
from gpumem_tui.sources.revision import revision_of, working_folder
from gpumem_tui.views.report import cell as cells
from gpumem_tui.views.report import html, text
from gpumem_tui.views.report.sheet import Sheet
from gpumem_tui.workload import phase

DRIVER_WAIT_S = 2.0
"""How long a cell waits for driver readings of after its end; they come about once a second."""

MAGIC = "gpumem"

_VALUE = "_gpumem_value"
"""Where a rewritten cell keeps its last value until the phase has ended."""

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
        with self._measured(name):
            return self._execute(body, last)

    @contextmanager
    def _measured(self, name: str) -> Iterator[None]:
        """A phase that is shown at its end; where it failed as well: what it held then is the question."""
        __tracebackhide__ = True
        since_ns = wire.now_ns()
        try:
            with phase(name):
                yield
        finally:
            self._show(name, since_ns, wire.now_ns())

    def awaiting(self, line: str) -> AbstractContextManager[None]:
        """What the statements of a rewritten cell stand in; ``line`` is that of the magic."""
        number = len(self._shell.history_manager.input_hist_parsed) - 1
        return self._measured(line.strip() or f"cell {number}")

    def rewritten(self, lines: list[str]) -> list[str]:
        """An input transformer: of a measured cell that awaits, the magic becomes a call, for the tree."""
        words = lines[0].split(None, 1) if lines else []
        if not words or words[0] != f"%%{MAGIC}" or not self._shell.autoawait:
            return lines
        try:
            if not _awaits(self._shell.transform_cell("".join(lines[1:]))):
                return lines
        except SyntaxError:  # told by the cell itself as it runs
            return lines
        line = words[1].rstrip("\n") if len(words) > 1 else ""
        return [f"get_ipython().run_cell_magic({MAGIC!r}, {line!r}, '')\n", *lines[1:]]

    def _compiled(self, cell: str, number: int) -> tuple[CodeType, CodeType | None]:
        """The cell as IPython would compile it; apart from the rest, a last expression, which has a value.

        Raises :class:`UsageError` for an ``await`` that was not rewritten: within another magic, say.
        """
        __tracebackhide__ = True
        shell = self._shell
        source = shell.transform_cell(cell)
        name = shell.compile.cache(source, number)
        tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
        if _awaits(source):
            raise UsageError(
                '%%gpumem cannot await here; write "with gpumem_tui.phase(NAME):" around it in a plain '
                "cell, then %gpumem"
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


class _AwaitingCells(ast.NodeTransformer):
    """Puts the statements of a rewritten cell into the phase; a last expression keeps its place as such."""

    def visit_Module(self, tree: ast.Module) -> ast.Module:
        """``with …awaiting(line): statements``, then the value, at the lines where they were written."""
        match tree.body:
            case [
                ast.Expr(
                    ast.Call(
                        ast.Attribute(attr="run_cell_magic"), [ast.Constant(magic), line, ast.Constant("")]
                    )
                ),
                first,
                *others,
            ] if magic == MAGIC:
                body = [first, *others]
            case _:
                return tree
        value: list[ast.stmt] = []
        if isinstance(body[-1], ast.Expr):
            last = body[-1]
            body[-1] = ast.copy_location(ast.Assign([ast.Name(_VALUE, ast.Store())], last.value), last)
            value = [ast.copy_location(ast.Expr(ast.Name(_VALUE, ast.Load())), last)]
        call = ast.parse(f"get_ipython().find_cell_magic({MAGIC!r}).__self__.awaiting()", mode="eval").body
        assert isinstance(call, ast.Call)
        call.args.append(line)
        within = ast.copy_location(ast.With([ast.withitem(call)], body), first)
        return ast.fix_missing_locations(ast.Module([within, *value], tree.type_ignores))


def _awaits(source: str) -> bool:
    """Whether Python code awaits outside functions. Raises :class:`SyntaxError`."""
    code = compile(source, "<cell>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return bool(code.co_flags & inspect.CO_COROUTINE)


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
    shell.register_magic_function(monitor.magic, magic_kind="line_cell", magic_name=MAGIC)
    shell.input_transformers_cleanup.append(monitor.rewritten)
    shell.ast_transformers.append(_AwaitingCells())
    print(f"gpumem-tui: {said}")


def _start_recording() -> RunDirectory:
    """A run of which this kernel is keeper and workload in one, with a recorder beside it."""
    run = rundir.create(rundir.new_name(["notebook"]))
    pid = os.getpid()
    run.write_facts(
        RunFile(
            namespaces=namespaces(),
            run=run.name,
            command=[sys.executable, *sys.argv],
            cwd=str(working_folder()),
            host=platform.node(),
            user=getpass.getuser(),
            boot=wire.boot_id(),
            wall_ns=time.time_ns(),
            t_ns=wire.now_ns(),
            version=gpumem_tui.__version__,
            interactive=False,
            keeper_pid=pid,
            keeper_ticks=wire.started_ticks(pid),
            revision=revision_of(working_folder()),
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
