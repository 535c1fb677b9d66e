"""``runs``: live and past runs, the latest first."""

import argparse
import json
import sys


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("--json", action="store_true", help="one JSON array")
    parser.add_argument("-n", type=int, default=20, metavar="N", help="at most N (default 20; 0: all)")


def run(arguments: argparse.Namespace) -> int:
    """Print the list."""
    from gpumem_tui.journal import rundir
    from gpumem_tui.session import glance

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
    width = max(len(row.name) for row in rows)
    for row in rows:
        simulated = "SIMULATED  " if row.simulated else ""
        print(f"{row.name:{width}}  {row.state:22}  {row.age:>12}  {simulated}{row.command}")
    if len(entries) > len(shown):
        print(f"… and {len(entries) - len(shown)} older; -n 0 lists all")
    return 0
