"""``runs``: live and past runs, the latest first."""

import argparse
import json
import shutil
import sys

LEAST_CELLS = 40
"""A terminal that leaves a command and its mark less than this gets it in a line of its own."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("--json", action="store_true", help="one JSON array")
    parser.add_argument("-n", type=int, default=20, metavar="N", help="at most N (default 20; 0: all)")


def run(arguments: argparse.Namespace) -> int:
    """Print the list."""
    from gpumem_tui.journal import rundir
    from gpumem_tui.session.glance import glance
    from gpumem_tui.views.text import cut

    entries = rundir.list_runs()
    shown = entries[: arguments.n] if arguments.n > 0 else entries
    rows = [glance(entry) for entry in shown]
    if arguments.json:
        json.dump([row.as_json() for row in rows], sys.stdout, indent=1)
        print()
        return 0
    if not rows:
        print(f"no recordings in {rundir.home()}; make one with: gpumem-tui run train.py")
        return 0
    widths = [max(map(len, column)) for column in zip(*((r.name, r.state, r.age) for r in rows), strict=True)]
    cells = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        name, state, age = widths
        simulated = "SIMULATED  " if row.simulated else ""
        lines = [f"{row.name:{name}}  {row.state:{state}}  {row.age:>{age}}", f"{simulated}{row.command}"]
        if cells is None or sum(widths) + LEAST_CELLS <= cells:
            lines = ["  ".join(lines)]
        print("\n    ".join(lines if cells is None else (cut(line, cells - 4) for line in lines)))
    if len(entries) > len(shown):
        print(f"… and {len(entries) - len(shown)} older; -n 0 lists all")
    return 0
