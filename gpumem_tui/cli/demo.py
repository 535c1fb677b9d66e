"""``demo``: a two-rank fine-tune on simulated cards, a neighbour, an evaluation that keeps too much."""

import argparse
import subprocess
import sys

from gpumem_tui.cli.simulation import Simulation
from gpumem_tui.errors import MissingRequirement


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    add = parser.add_argument
    add(
        "--steps",
        type=int,
        default=240,
        metavar="N",
        help="training steps (default 240, about three minutes)",
    )
    add("--recorded", action="store_true", help="play the bundled recording instead")
    add("--batch", action="store_true", help="print the workload's output; open no view")
    add("--detach", action="store_true", help="start it in the background; open no view")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo, or play its recording where it cannot run."""
    from gpumem_tui import demo
    from gpumem_tui.cli.launch import Plan, launch
    from gpumem_tui.cli.run import is_a_terminal

    if arguments.recorded:
        return play()
    how = "terminal" if is_a_terminal() else "batch"
    if arguments.batch or arguments.detach:
        how = "batch" if arguments.batch else "detached"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    try:
        return launch(
            Plan(
                command=[*command, str(demo.SCRIPT), "--steps", str(arguments.steps)],
                how=how,
                simulation=Simulation.of(demo.DEVICES, demo.KERNEL_US, ()),
                beside=start_neighbour,
            )
        )
    except MissingRequirement as error:
        print(f"gpumem-tui: {error}; playing the bundled recording instead", file=sys.stderr)
        return play()


def start_neighbour(machine: object, keeper_pid: int, keeper_ticks: int | None) -> None:
    """Start the foreign process that will come to the second card."""
    from gpumem_tui import demo
    from gpumem_tui.simcard import SimulatedMachine

    assert isinstance(machine, SimulatedMachine)
    words = [
        str(machine.libraries.hold),
        "1",
        str(demo.NEIGHBOUR_BYTES),
        str(demo.NEIGHBOUR_AFTER_S),
        str(keeper_pid),
        str(keeper_ticks or 0),
    ]
    subprocess.Popen(
        [sys.executable, "-m", "gpumem_tui.demo.neighbour", *words],
        env=machine.monitor_environment(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def play() -> int:
    """Play the bundled recording; every screen says RECORDED."""
    from gpumem_tui import demo
    from gpumem_tui.cli.attach import show_once, watch
    from gpumem_tui.cli.run import is_a_terminal
    from gpumem_tui.journal.rundir import RunDirectory

    run = RunDirectory(demo.RECORDING)
    if not is_a_terminal():
        return show_once(run, as_json=False)
    return watch(run, speed=1.0)
