"""The command line: parses, calls one verb, and is alone in printing errors.

Each verb is a module with ``describe(parser)`` and ``run(arguments) -> exit code``,
and imports its layer inside ``run``, so that ``--help`` and ``runs`` never load a
terminal library.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import gpumem_tui
from gpumem_tui.errors import GpumemError, UsageError

VERBS = {
    "run": "run a command, record it, and watch it live",
    "attach": "watch a run that is going on, or that has ended",
    "replay": "open the recording of a run that has ended",
    "report": "what a run held, by rank and device",
    "explain": "every out-of-memory failure in a message or a log, and what its figures say",
    "runs": "list live and past runs",
    "estimate": "what a model needs before anything runs, line by line",
    "demo": "a real two-rank fine-tune on simulated cards, watched live",
}
"""Verb → one line of help; the module is ``gpumem_tui.cli.<verb>``."""

_EXITS = """\
exit codes: the workload's own where there is one; 0 done; 2 usage, bad input, or
missing GPU, PyTorch or compiler; 3 no such run; 4 unreadable recording; 5 the name
is taken; 6 cannot record; 70 a bug of gpumem-tui; 126, 127 command not executable,
not found"""


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
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 gets a ? and no traceback
    words = list(sys.argv[1:] if argv is None else argv)
    verb = words[0] if words else None
    command: list[str] = []
    try:
        if verb == "run":
            own, command = importlib.import_module("gpumem_tui.cli.run").split(words[1:])
            words = ["run", *own]
        arguments, rest = parser(verb if verb in VERBS else None).parse_known_args(words)
        if rest:
            raise UsageError(f"unknown option {rest[0]}; see gpumem-tui {arguments.verb or ''} --help")
        if arguments.verb is None:
            parser().print_help()
            return UsageError.exit_code
        arguments.command = command
        code: int = importlib.import_module(f"gpumem_tui.cli.{arguments.verb}").run(arguments)
        sys.stdout.flush()
    except GpumemError as error:
        print(f"gpumem-tui: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has gone: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return code
