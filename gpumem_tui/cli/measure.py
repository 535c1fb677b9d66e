"""``measure``: the built-in exercise under the strict protocol; every repeat a row, raw bytes as JSON."""

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from gpumem_tui.errors import BadInput, MissingRequirement, UsageError

PHASES = ("model_load", "inputs", "cold_forward", "warmup", "warm_forward", "backward", "optimizer")
"""Phases of the exercise, in their order."""

_MOST = 1 << 24
_EPILOG = """\
  gpumem-tui measure --batch 8 --context 2048 --width 4096 --backward --optimizer adamw -o a100.json
  gpumem-tui measure --simulate 24GiB --batch 8

A small dense network on synthetic inputs, in a process of its own, under the strict protocol:
the device's work is waited for before the peaks are reset and before they are read. Each
repeat is a row; cold and warm are told apart and nothing is averaged. Your own script gets
the same protocol by `gpumem-tui run --protocol strict`.

Without PyTorch or a GPU it ends with code 2: a CPU's figures are never passed off as a GPU's."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--device", default="0", metavar="N", help="CUDA's number of the device (default 0)")
    add("--batch", type=int, default=8, metavar="N", help="rows of the input (default 8)")
    add("--context", type=int, default=512, metavar="N", help="positions of a row (default 512)")
    add("--width", type=int, default=1024, metavar="N", help="features of a position (default 1024)")
    add("--layers", type=int, default=2, metavar="N", help="blocks width → 4 × width → width (default 2)")
    add("--dtype", choices=("float32", "float16", "bfloat16"), default="bfloat16", help="(default bfloat16)")
    add("--warmup", type=int, default=2, metavar="N", help="repeats that are not measured (default 2)")
    add("--repeats", type=int, default=5, metavar="N", help="repeats that are (default 5)")
    add("--backward", action="store_true", help="measure a backward pass as well")
    add("--optimizer", choices=("sgd", "adam", "adamw"), help="and a step of this optimizer")
    add("--seed", type=int, default=0, metavar="N", help="of the synthetic values (default 0)")
    add("-o", "--output", type=Path, metavar="FILE", help="write the JSON here; refuses to overwrite")
    add("--json", action="store_true", help="print the JSON instead of the table")
    add("--simulate", metavar="SIZE", help="measure on a simulated card; everything says so")
    add("--name", help="name of the recording")
    add("--label", action="append", default=[], metavar="KEY=VALUE", help="kept in the recording; repeatable")


def run(arguments: argparse.Namespace) -> int:
    """Measure; 0, or the exercise's own code where it failed: what it reached is kept and shown."""
    import msgspec

    from gpumem_tui import demo
    from gpumem_tui.analysis.measurement import document
    from gpumem_tui.cli.attempt import attempt
    from gpumem_tui.cli.newfile import new_file, require_new, write_new
    from gpumem_tui.cli.report import write_sheet
    from gpumem_tui.cli.run import labels_of, require_gpu
    from gpumem_tui.journal import rundir
    from gpumem_tui.session import Recording
    from gpumem_tui.session.spans import read_spans
    from gpumem_tui.views.measurement import sheet_of

    asked = configuration_of(arguments)
    if arguments.output is not None:
        require_new(arguments.output)
    if importlib.util.find_spec("torch") is None:
        raise MissingRequirement(
            f"{sys.executable} has no PyTorch; nothing was measured. Install it: pip install torch"
        )
    options = ["--protocol", "strict"]
    if arguments.simulate is not None:
        options += ["--simulate", arguments.simulate]
    else:
        require_gpu(otherwise="")
    for name in ("batch", "context", "width", "layers"):
        options += ["--declare", f"{name}={asked[name]}"]
    options += ["--warmup", f"a cold forward; repeats that are not measured: {asked['warmup']}"]
    words = [f"--{name}={asked[name]}" for name in asked if name not in ("backward", "optimizer")]
    words += ["--backward"] if asked["backward"] else []
    words += [f"--optimizer={asked['optimizer']}"] if asked["optimizer"] else []
    command = [sys.executable, str(demo.EXERCISE), *words]
    name = arguments.name or rundir.new_name(["measure"])
    done = attempt(command, name, labels_of(arguments.label), options)
    if done.run is None:
        return done.exit_code  # it has said why
    state = Recording(done.run).read()
    spans = read_spans(done.run, PHASES, warm=("warmup", "warm_forward"))
    text = msgspec.json.format(msgspec.json.encode(document(state, spans, asked)), indent=1) + b"\n"
    if arguments.json:
        with new_file(None) as file:
            file.write(text)
    else:
        sheet = sheet_of(state, spans, asked)
        sys.stdout.write(write_sheet(sheet, "text", to_file=False, ascii_only=False))
    if arguments.output is not None:
        write_new(arguments.output, text)
    return done.exit_code


def configuration_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """What is asked for, checked. Raises :class:`BadInput`, :class:`UsageError`."""
    device = arguments.device.removeprefix("cuda:")
    if device == "cpu":
        raise UsageError("measure measures GPUs: a CPU has no allocator figures to take for a GPU's")
    if not device.isdecimal() or len(device) > 3:
        raise BadInput(f"--device {arguments.device!r} is not understood; write CUDA's number of it, as in 0")
    asked: dict[str, Any] = {"device": int(device)}
    for name, least in (("batch", 1), ("context", 1), ("width", 1), ("layers", 1), ("warmup", 0),
                        ("repeats", 1), ("seed", 0)):  # fmt: skip
        value = getattr(arguments, name)
        if not least <= value <= _MOST:
            raise BadInput(f"--{name} {value} is out of range; take {least} to {_MOST}")
        asked[name] = value
    asked["dtype"] = arguments.dtype
    asked["backward"] = arguments.backward or arguments.optimizer is not None
    asked["optimizer"] = arguments.optimizer
    return asked
