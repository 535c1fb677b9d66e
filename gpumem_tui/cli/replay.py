"""``replay``: the same view on a recording, at its end or played from its start.

A run that goes on is simply attached to.
"""

import argparse

from gpumem_tui.cli import attach

FASTEST = 100_000.0


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    attach.describe(parser)
    parser.add_argument(
        "--speed",
        type=float,
        default=None,
        metavar="X",
        help="play it from its start, X times as fast as it was (default: all of it, at its end)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Open the view, or print one picture."""
    from gpumem_tui.errors import BadInput

    if arguments.speed is not None and not 0 < arguments.speed <= FASTEST:
        raise BadInput(f"--speed {arguments.speed:g} is out of range; take a number up to {FASTEST:,.0f}")
    return attach.run(arguments)
