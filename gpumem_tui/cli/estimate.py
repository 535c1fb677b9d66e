"""``estimate``: what a model needs before anything runs, as a sheet for a ticket or as JSON."""

import argparse
import io
import shlex
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from gpumem_tui.analysis.estimate import sheet
from gpumem_tui.analysis.estimate.plan import estimate
from gpumem_tui.analysis.estimate.quantities import (
    parse_bits,
    parse_devices,
    parse_gib,
    parse_parameters,
    parse_share,
    parse_whole,
    shown,
)
from gpumem_tui.analysis.estimate.request import Model, Request
from gpumem_tui.analysis.estimate.training import OPTIMIZERS, SHARDS
from gpumem_tui.errors import BadInput
from gpumem_tui.sources.modelfiles import read_model
from gpumem_tui.views.text import to_ascii

_EPILOG = """\
  gpumem-tui estimate --params 7B --bits 16 --reserve-gib 4 --device 24GiB
  gpumem-tui estimate --layers 32 --kv-heads 8 --head-dim 128 --tokens 8192 --sequences 4
  gpumem-tui estimate ./my-model --tokens 8192 --sequences 4
  gpumem-tui estimate --params 7B --bits 16 --train --optimizer adamw --master-weights --ranks 8 --shard full
  gpumem-tui estimate ./my-model --bits 4 --group-size 64 --train --lora-rank 16

MODEL is a directory, or config.json, .safetensors and .safetensors.index.json files; only headers
are read, nothing is downloaded. Every line is labelled: computed, from what was given or read, or
assumed. Activations, workspaces, CUDA context and fragmentation are not included: for those, run
your own script on a simulated card with `gpumem-tui run --simulate 24GiB train.py`."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    parser.usage = "gpumem-tui estimate [MODEL…] [options]"
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("files", nargs="*", metavar="MODEL", help="a model's directory or files on this machine")
    add("--json", action="store_true", help="stable schema, raw bytes")
    remain = "show what would remain of devices of 24GiB[,80GiB…]"
    add("--device", type=parse_devices, default=(), metavar="SIZE", help=remain)
    _add(parser, "--reserve-gib", parse_gib, "G", "set G GiB aside, as a line of its own")
    _describe_weights(parser.add_argument_group("weights"))
    _describe_cache(parser.add_argument_group("KV cache (with --tokens)"))
    _describe_training(parser.add_argument_group("training (with --train)"))


def _describe_weights(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--params", metavar="N", help="parameters: 7B, 7e9, 350M or the exact count")
    _add(group, "--bits", parse_bits, "BITS", "of a parameter: 16, 8, 4.5, bf16, int4… (default 16)")
    _add(group, "--compute-bits", parse_bits, "BITS", "format computed in, where it is another")
    _add(group, "--group-size", parse_whole, "N", "quantised weights: parameters that share a scale")
    _add(group, "--scale-bits", parse_bits, "BITS", "a scale with its zero point (default 16)")
    _add(group, "--tensor-parallel", parse_whole, "N", "split weights and KV heads over N devices")


def _describe_cache(group: argparse._ArgumentGroup) -> None:
    _add(group, "--tokens", parse_whole, "N", "of each sequence, prompt and answer together")
    _add(group, "--sequences", parse_whole, "N", "held at the same time (default 1)")
    _add(group, "--layers", parse_whole, "N", "that keep a cache")
    _add(group, "--kv-heads", parse_whole, "N", "key/value heads, not query heads")
    _add(group, "--head-dim", parse_whole, "N", "dimension of one head")
    _add(group, "--latent-dim", parse_whole, "N", "values a token and layer, in place of heads (MLA)")
    _add(group, "--kv-bits", parse_bits, "BITS", "a value of the cache (default: the compute format)")
    _add(group, "--window", parse_whole, "N", "sliding window: the last N tokens are kept")
    _add(group, "--window-layers", parse_whole, "N", "layers with the window (default: all)")
    _add(group, "--static-tokens", parse_whole, "N", "static cache: allocated for N tokens a sequence")
    _add(group, "--page-tokens", parse_whole, "N", "paged cache: tokens of a page")
    _add(group, "--shared-prefix", parse_whole, "N", "tokens common to all sequences; whole pages are shared")
    _add(group, "--kv-group-size", parse_whole, "N", "quantised cache: values that share a scale")
    _add(group, "--kv-scale-bits", parse_bits, "BITS", "a scale with its zero point (default 32)")
    _add(group, "--kv-residual-tokens", parse_whole, "N", "quantised cache: last tokens kept unquantised")
    group.add_argument(
        "--kv-offload", action="store_true", help="the cache is on the host, but for some layers"
    )
    _add(group, "--kv-resident-layers", parse_whole, "N", "offloaded cache: layers on the device (default 2)")


def _describe_training(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--train", action="store_true", help="add gradients and optimizer state")
    _add(
        group, "--optimizer", _optimizer, "NAME", "adamw (default), sgd, sgd-momentum, adamw-8bit, adafactor…"
    )
    _add(group, "--optimizer-bits", parse_bits, "BITS", "a value of its state (default: of what it steps)")
    _add(group, "--grad-bits", parse_bits, "BITS", "a gradient (default: of its parameter)")
    group.add_argument("--master-weights", action="store_true", help="a 32-bit copy of what is trained")
    _add(group, "--trainable-params", parse_parameters, "N", "only N of the parameters are trained")
    _add(group, "--trainable-share", parse_share, "SHARE", "only 0.5%% (or 0.005) of them are")
    _add(group, "--lora-params", parse_parameters, "N", "N adapter parameters added, the rest frozen")
    _add(group, "--lora-rank", parse_whole, "R", "adapters of rank R, counted from the shapes in MODEL")
    _add(group, "--lora-targets", _names, "NAMES", "modules (default q_proj,v_proj), or all-linear")
    _add(group, "--lora-bits", parse_bits, "BITS", "an adapter's parameter (default 32)")
    _add(group, "--ranks", parse_whole, "N", "ranks, one device each")
    _add(
        group,
        "--shard",
        _shard,
        "WHAT",
        "none (ddp), optimizer (zero1), gradients (zero2) or full (zero3, fsdp)",
    )
    group.add_argument("--bucket-view", action="store_true", help="DDP with gradient_as_bucket_view=True")
    _add(group, "--gathered-params", parse_parameters, "N", "full shard: parameters of the largest unit")


def _add(
    group: argparse._ActionsContainer, name: str, parse: Callable[..., object], metavar: str, text: str
) -> None:
    """An option whose parser names it in its errors."""
    group.add_argument(name, type=lambda words: parse(words, what=name), metavar=metavar, help=text)


def _names(text: str, *, what: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise BadInput(f"{what} {shown(text)} is not a list of names such as q_proj,v_proj")
    return names


def _optimizer(text: str, *, what: str) -> str:
    return _one_of(text, what, OPTIMIZERS)


def _shard(text: str, *, what: str) -> str:
    return _one_of(text, what, SHARDS)


def _one_of(text: str, what: str, known: Iterable[str]) -> str:
    name = text.strip().lower().replace("_", "-")
    if name not in known:
        raise BadInput(f"{what} {shown(text)} is not known; take one of: {', '.join(known)}")
    return name


def run(arguments: argparse.Namespace) -> int:
    """Print the sheet."""
    names = [field.name for field in fields(Request) if hasattr(arguments, field.name)]
    words: dict[str, Any] = {name: getattr(arguments, name) for name in names}
    if arguments.params is not None:
        words["params"] = parse_parameters(arguments.params)
        words["rounded"] = arguments.params.strip()[-1].isalpha()
    made = estimate(Request(**words, model=_model(arguments.files)))
    if arguments.json:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")  # JSON is UTF-8 whatever the locale
        sys.stdout.write(sheet.as_json(made))
        return 0
    text = sheet.as_text(made, shlex.join(["gpumem-tui", *sys.argv[1:]]))
    sys.stdout.write(text if "utf" in (sys.stdout.encoding or "").lower() else to_ascii(text))
    return 0


def _model(files: list[str]) -> Model:
    """What the named files declare, in the words of the analysis."""
    if not files:
        return Model()
    found = read_model(files)
    return Model(
        config=found.config,
        config_path=found.config_path or "",
        tensors=found.tensors,
        tensors_path=found.tensors_path or "",
        declared_bytes=found.declared.bytes if found.declared else None,
        declared_parameters=found.declared.parameters if found.declared else None,
        missing_shards=found.declared.missing if found.declared else 0,
        notes=found.notes,
    )
