"""The command line: parses, calls one verb, and is alone in printing errors.

Each verb is a module with ``describe(parser)`` and ``run(arguments) -> exit code``,
and imports its layer inside ``run``, so that ``--help`` and ``runs`` never load a
terminal library.
"""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence

import gpumem_tui
from gpumem_tui.errors import CannotRecord, GpumemError, UsageError

VERBS = {
    "run": "run a command, record it, and watch it live",
    "attach": "watch a run that is going on, or that has ended",
    "replay": "open the recording of a run that has ended",
    "report": "a run as a sheet to hand on: text, Markdown, JSON or one HTML page",
    "compare": "runs side by side: what differs, and what each phase held",
    "export": "a recording as NDJSON, CSV, a Perfetto trace or Prometheus metrics",
    "explain": "every out-of-memory failure in a message or a log, and what its figures say",
    "top": "every card and every process on it, live; waits for free memory",
    "env": "driver, cards, PyTorch, and what can be measured here",
    "runs": "list live and past runs",
    "estimate": "what a model needs before anything runs, line by line",
    "measure": "the built-in exercise under the strict protocol, phase by phase",
    "sweep": "the same command once for each value of a variable, and where memory runs out",
    "screenshot": "a screen of the view on a recording, as an SVG file",
    "demo": "a real two-rank fine-tune on simulated cards, watched live",
}
"""Verb → one line of help; the module is ``gpumem_tui.cli.<verb>``."""

_EXITS = """\
exit codes: the workload's own where there is one; 0 done; 2 usage, bad input, or
missing GPU, PyTorch or compiler; 3 no such run; 4 unreadable recording; 5 the name
is taken; 6 cannot record; 70 a bug of gpumem-tui; 126, 127 command not executable,
not found"""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Why a write fails whose file was opened before: files that we open say so themselves, with their name."""


class _Parser(argparse.ArgumentParser):
    """Errors become one line and exit code 2, like every other."""

    def error(self, message: str) -> "NoReturn":  # type: ignore[name-defined]  # noqa: F821
        raise UsageError(f"{message}; see {self.prog} --help")


def parser(verb: str | None = None) -> argparse.ArgumentParser:
    """The parser, with the options of ``verb`` only: the others' modules are not imported."""
    top = _Parser(
        prog="gpumem-tui",
        description="Where is every byte on this card? A live monitor of GPU memory for PyTorch.",
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"gpumem-tui {gpumem_tui.__version__}")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)
    for name, line in VERBS.items():
        sub = verbs.add_parser(
            name,
            help=line,
            description=line[0].upper() + line[1:] + ".",
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == verb:
            importlib.import_module(f"gpumem_tui.cli.{name}").describe(sub)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the process's exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: what goes there is not wanted
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets a ? and no traceback
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else None
    command: list[str] = []
    try:
        if verb in ("run", "sweep"):
            own, command = importlib.import_module(f"gpumem_tui.cli.{verb}").split(words[1:])
            words = [verb, *own]
        arguments, rest = parser(verb if verb in VERBS else None).parse_known_args(words)
        if rest:
            found = "unknown option" if rest[0].startswith("-") else "one thing too many:"
            whose = f" {arguments.verb}" if arguments.verb is not None else ""
            raise UsageError(f"{found} {rest[0]}; see gpumem-tui{whose} --help")
        if arguments.verb is None:
            parser().print_help()
            return UsageError.exit_code
        arguments.command = command
        code: int = importlib.import_module(f"gpumem_tui.cli.{arguments.verb}").run(arguments)
        sys.stdout.flush()
    except GpumemError as error:
        from gpumem_tui.views.text import clean

        print(f"gpumem-tui: {clean(str(error))}", file=sys.stderr)  # it may quote what others have named
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone: nobody to tell
        _discard_output()
        return 141
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        _discard_output()
        print(f"gpumem-tui: cannot write standard output: {error.strerror}", file=sys.stderr)
        return CannotRecord.exit_code
    return code


def _discard_output() -> None:
    """What is still held back for standard output goes nowhere, or the exit would try it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
