"""``run``: start a command under a keeper, with a recorder beside it, and open the live view."""

import argparse
import os
import sys
from pathlib import Path

from gpumem_tui.cli.simulation import Simulation
from gpumem_tui.errors import BadInput, MissingRequirement, UsageError

_EPILOG = """\
  gpumem-tui run train.py --epochs 3
  gpumem-tui run -m package.train
  gpumem-tui run -- torchrun --nproc-per-node 2 train.py
  gpumem-tui run --simulate 24GiB,24GiB -- torchrun --nproc-per-node 2 train.py

In a terminal, the run goes on when you quit the view or lose the line; come back with
`gpumem-tui attach`. Elsewhere (a batch job, a pipe) the command keeps its own streams,
byte for byte, and nothing of ours is written to them."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.usage = "gpumem-tui run [options] [--] COMMAND…"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--name", help="name of the recording (default: date, time and script)")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="kept in the recording; repeatable")
    add(
        "--declare",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a size that you mean to run, such as batch=4; stands beside the shapes really seen; repeatable",
    )
    add("--warmup", metavar="TEXT", help="what you call warm-up, as reports say it (default: first spans)")
    add(
        "--simulate",
        metavar="SIZE[,SIZE…]",
        help="run on simulated cards of this memory: 24GiB,40GiB or 8x24GiB",
    )
    add("--kernel-us", type=float, metavar="N", help="microseconds a simulated kernel takes (default: none)")
    add(
        "--sim-set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the simulated card"
    )
    add("--foresight", action="store_true", help="with --simulate in batch: say the peak on standard error")
    add("--batch", action="store_true", help="keep the command's streams even in a terminal; open no view")
    add(
        "--detach", action="store_true", help="start in the background on a terminal of its own; open no view"
    )
    add("--hertz", type=float, default=10.0, metavar="N", help="samples a second and rank (default 10)")
    add(
        "--protocol",
        choices=("observe", "strict"),
        default="observe",
        help="strict waits for the device at every phase boundary: exact in time, but it changes overlap",
    )
    add(
        "--history",
        action="store_true",
        help="record PyTorch's history of allocations, and dump it into failures/ where memory runs out",
    )
    add("--no-peak-reset", action="store_true", help="leave PyTorch's peak counters alone; peaks become ≥")
    add("--disk-budget", default="512MiB", metavar="SIZE", help="for the journals (default 512MiB)")
    add("--anyway", action="store_true", help="start even where no GPU is found")


FLAGS = frozenset(
    {"-h", "--help", "--batch", "--detach", "--no-peak-reset", "--anyway", "--history", "--foresight"}
)
"""Options of ours that take no value."""


def split(words: list[str], flags: frozenset[str] = FLAGS) -> tuple[list[str], list[str]]:
    """Our options, and the command from its first word on: none of its options is taken for ours."""
    at = 0
    while at < len(words):
        word = words[at]
        if word == "--":
            return words[:at], words[at + 1 :]
        if not word.startswith("--") and word != "-h":
            break
        at += 1 if word in flags or "=" in word else 2
    return words[:at], words[at:]


def command_of(words: list[str]) -> list[str]:
    """The command as it is executed: a ``.py`` file or ``-m`` implies Python."""
    if not words:
        raise UsageError(
            "nothing to run; give a .py file, -m MODULE, or a command, as in: gpumem-tui run train.py"
        )
    if words[0] == "-m":
        if len(words) < 2:
            raise UsageError("-m needs the name of a module")
        return [sys.executable, *words]
    if words[0].endswith(".py") and not os.access(words[0], os.X_OK):
        if not Path(words[0]).is_file():
            raise BadInput(f"{words[0]}: no such file")
        return [sys.executable, *words]
    return words


def is_a_terminal() -> bool:
    """Whether a person sits here: stdin, stdout and stderr are all terminals that can be drawn on."""
    return all(os.isatty(stream) for stream in (0, 1, 2)) and os.environ.get("TERM", "dumb") != "dumb"


def labels_of(words: list[str], what: str = "label") -> dict[str, str]:
    """``KEY=VALUE`` words as a dict."""
    labels = {}
    for word in words:
        key, sign, value = word.partition("=")
        if not sign or not key:
            raise BadInput(f"{what} {word!r} is not of the form KEY=VALUE")
        labels[key] = value
    return labels


def run(arguments: argparse.Namespace) -> int:
    """Run the command; its exit code, or 0 after a detach."""
    from gpumem_tui.cli.launch import Plan, launch

    if not 0.1 <= arguments.hertz <= 100:
        raise BadInput(f"--hertz {arguments.hertz:g} is out of range; take 0.1 to 100")
    command = command_of(arguments.command)
    simulation = None
    if arguments.simulate is not None:
        simulation = Simulation.of(arguments.simulate, arguments.kernel_us, arguments.sim_set)
    elif arguments.kernel_us is not None or arguments.sim_set:
        raise UsageError("--kernel-us and --sim-set belong to --simulate SIZE")
    elif not arguments.anyway:
        require_gpu()
    how = "batch" if arguments.batch or not is_a_terminal() else "terminal"
    if arguments.detach:
        if arguments.batch:
            raise UsageError("--batch and --detach exclude each other")
        how = "detached"
    return launch(
        Plan(
            command=command,
            how=how,
            name=arguments.name,
            labels=labels_of(arguments.label),
            simulation=simulation,
            hertz=arguments.hertz,
            reset_peaks=not arguments.no_peak_reset,
            strict=arguments.protocol == "strict",
            history=arguments.history,
            disk_budget=arguments.disk_budget,
            declared=labels_of(arguments.declare, what="declared size"),
            warmup=arguments.warmup,
            foresight=arguments.foresight and simulation is not None,
        )
    )


def require_gpu(otherwise: str = ", or --anyway") -> None:
    """Raise :class:`MissingRequirement` where no GPU is found: nothing could be measured.

    ``otherwise``: what else the verb can do then, beside simulated cards.
    """
    from gpumem_tui.sources.probe import probe

    found = probe()
    if not found.present:
        raise MissingRequirement(
            f"{found.line}; nothing was run. Use --simulate 24GiB for simulated cards{otherwise}"
        )
