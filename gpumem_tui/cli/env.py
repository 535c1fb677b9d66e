"""``env``: the driver, the cards, PyTorch, and what can and cannot be measured here."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpumem_tui.errors import BadInput, MissingRequirement

if TYPE_CHECKING:
    from gpumem_tui.records.environment import TorchFacts

_EPILOG = """\
Ends with code 2 where a measurement on a GPU lacks something, after the full report.
PyTorch is imported in an interpreter of its own, which ends with the answer; nothing here
creates a CUDA context."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.epilog = _EPILOG
    parser.add_argument("--json", action="store_true", help="for scripts; see gpumem_tui/views/envtext.py")
    parser.add_argument(
        "--python", metavar="PATH", help="whose PyTorch (default: that of run, else python on the PATH)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report."""
    import gpumem_tui
    from gpumem_tui.analysis.environment import report
    from gpumem_tui.journal import rundir
    from gpumem_tui.records import Reason
    from gpumem_tui.sources.cards import read_cards
    from gpumem_tui.sources.surroundings import read_surroundings
    from gpumem_tui.views import envtext

    driver = read_cards()
    torch = _torch(arguments.python, count=driver.reason is not Reason.STALE)
    made = report(read_surroundings(), driver, torch)
    about = (made, gpumem_tui.__version__, str(rundir.home()))
    if arguments.json:
        sys.stdout.write(envtext.render_json(*about))
    else:
        cells = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else None
        sys.stdout.write(envtext.render(*about, cells))
    return MissingRequirement.exit_code if made.missing else 0


def _torch(named: str | None, *, count: bool) -> "TorchFacts":
    """That of the interpreter that was named; else the first that has one."""
    from gpumem_tui.sources.torchfacts import ask_torch

    if named is not None:
        program = shutil.which(named)
        if program is None:
            raise BadInput(f"--python {named}: there is no such program")
        return ask_torch(Path(program).absolute(), count=count)
    ours = ask_torch(Path(sys.executable), count=count)
    if ours.version is not None:
        return ours
    for name in ("python", "python3"):
        program = shutil.which(name)
        if program is not None and Path(program).resolve() != Path(sys.executable).resolve():
            found = ask_torch(Path(program), count=count)
            if found.version is not None:
                return found
    return ours
