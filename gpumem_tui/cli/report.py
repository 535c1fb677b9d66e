"""``report``: ledger, levels and phases of a run as text or JSON."""

import argparse

from gpumem_tui.cli.attach import show_once


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.add_argument("run", nargs="?", default="latest", help="name, unique start of a name, or path")
    parser.add_argument("--json", action="store_true", help="stable schema, raw bytes")
    parser.add_argument("--ascii", action="store_true", help="ASCII only")


def run(arguments: argparse.Namespace) -> int:
    """Print the report."""
    from gpumem_tui.journal import rundir

    return show_once(rundir.find(arguments.run), as_json=arguments.json, ascii_only=arguments.ascii)
