"""``python -m gpumem_tui.simcard``: the simulated card by hand.

A small tool for tests and the curious; the product's own verb is ``gpumem-tui run
--simulate``. The machine is the state file that ``--state`` or SIMCARD_STATE names.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpumem_tui.errors import BadInput, CommandNotFound, GpumemError
from gpumem_tui.simcard import Libraries, SimulatedMachine, build, find_python, launch
from gpumem_tui.units import parse_size


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m gpumem_tui.simcard", description="The simulated card.")
    parser.add_argument("--state", type=Path, help="state file of the machine (default: $SIMCARD_STATE)")
    parser.add_argument("--python", type=Path, help="whose torch to simulate (default: from the command)")
    verbs = parser.add_subparsers(dest="verb", required=True)

    verbs.add_parser("lib", help="print the folder of the built libraries")
    verbs.add_parser("status", help="devices, processes, settings as JSON")

    reset = verbs.add_parser("reset", help="make the machine, or make it anew")
    reset.add_argument("--devices", default="24GiB", help="24GiB,24GiB (default: one of 24GiB)")
    reset.add_argument("--name", default="Simulated card")
    reset.add_argument("--cc", default="8.6", help="compute capability (default: 8.6)")

    fault = verbs.add_parser("fault", help="change settings at run time; without any: list them")
    fault.add_argument("settings", nargs="*", metavar="NAME=VALUE")

    hold = verbs.add_parser("hold", help="hold memory as another process, until the input ends")
    hold.add_argument("--device", type=int, default=0)
    hold.add_argument("--bytes", default="1GiB")
    hold.add_argument("--name", default="holder")

    run = verbs.add_parser("run", help="run a command on the machine")
    run.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for this command only")
    run.add_argument("--no-nvml", action="store_true", help="leave the NVML library out")
    run.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _pairs(items: Sequence[str]) -> dict[str, str]:
    found = {}
    for item in items:
        name, sign, value = item.partition("=")
        if not sign:
            raise BadInput(f"expected NAME=VALUE, not {item!r}")
        found[name] = value
    return found


def _replace_by(program: str, argv: list[str], env: dict[str, str]) -> None:
    try:
        os.execvpe(program, argv, env)
    except OSError as error:
        raise CommandNotFound(f"{program}: {error.strerror}") from None


def _state(args: argparse.Namespace) -> Path:
    named = args.state or os.environ.get(launch.STATE)
    if not named:
        raise BadInput(f"which machine? give --state, or set {launch.STATE}")
    return Path(named)


def _act(args: argparse.Namespace, libraries: Libraries) -> None:
    if args.verb == "lib":
        sys.stdout.write(f"{libraries.folder}\n")
        return
    if args.verb == "reset":
        devices = [parse_size(size) for size in args.devices.split(",")]
        SimulatedMachine.create(
            libraries, _state(args), devices=devices, name=args.name, compute_capability=args.cc
        )
        return
    machine = SimulatedMachine(libraries, _state(args))
    if args.verb == "status":
        sys.stdout.write(json.dumps(dataclasses.asdict(machine.status()), indent=2) + "\n")
    elif args.verb == "fault":
        machine.set(**_pairs(args.settings))
        for name, value in machine.settings().items() if not args.settings else ():
            sys.stdout.write(f"{name}={value:g}\n")
    elif args.verb == "hold":
        argv = [args.name, str(args.device), str(parse_size(args.bytes)), args.name]
        _replace_by(str(libraries.hold), argv, machine.monitor_environment())
    else:
        environment = machine.environment(nvml=not args.no_nvml, settings=_pairs(args.set))
        _replace_by(args.command[0], args.command, environment)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    args = _parser().parse_args(argv)
    command = getattr(args, "command", [])
    if command[:1] == ["--"]:
        command.pop(0)
    try:
        if args.verb == "run" and not command:
            raise BadInput("run what?")
        python = args.python or find_python(command)
        _act(args, build(python, nvml_only=args.verb != "run" and not args.python))
    except GpumemError as error:
        sys.stderr.write(f"simcard: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
