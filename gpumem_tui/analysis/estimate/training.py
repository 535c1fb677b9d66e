"""Lines for what training adds to the weights: gradients, optimizer state, copies; whole or in shards."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

from gpumem_tui.analysis.estimate.figures import (
    Basis,
    Input,
    Line,
    basis_of,
    bytes_of,
    per_rank,
    say,
    say_split,
)
from gpumem_tui.analysis.estimate.tensors import Shape, factored_values


@dataclass(frozen=True)
class Optimizer:
    """What an optimizer keeps for each trained parameter, beside the parameter."""

    states: int
    """Values a parameter."""
    quantised: bool = False
    """Kept in 8 bits, with one 32-bit scale for a block of values."""
    factored: bool = False
    """A row and a column for each matrix instead of one value a parameter."""


OPTIMIZERS = {
    "sgd": Optimizer(0),
    "sgd-momentum": Optimizer(1),
    "adagrad": Optimizer(1),
    "rmsprop": Optimizer(1),
    "lion": Optimizer(1),
    "adam": Optimizer(2),
    "adamw": Optimizer(2),
    "adamw-amsgrad": Optimizer(3),
    "adamw-8bit": Optimizer(2, quantised=True),
    "lion-8bit": Optimizer(1, quantised=True),
    "adafactor": Optimizer(1, factored=True),
}
"""As in torch.optim with its defaults; ``lion`` and the 8-bit ones as in bitsandbytes."""

BLOCK = 256
"""Values that share a scale in bitsandbytes' 8-bit states."""


class Shard(IntEnum):
    """What is split over the ranks; each step includes the ones before it."""

    NONE = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    FULL = 3


SHARDS = {
    **dict.fromkeys(("none", "ddp"), Shard.NONE),
    **dict.fromkeys(("optimizer", "zero1"), Shard.OPTIMIZER),
    **dict.fromkeys(("gradients", "zero2"), Shard.GRADIENTS),
    **dict.fromkeys(("full", "zero3", "fsdp"), Shard.FULL),
}


@dataclass(frozen=True)
class Training:
    """Everything that the training state depends on."""

    trained: Input[int]
    """Parameters that get a gradient."""
    trained_bits: Input[Fraction]
    gradient_bits: Input[Fraction]
    optimizer: Input[str]
    state_bits: Input[Fraction]
    master: bool
    """A 32-bit copy of what is trained."""
    ranks: int
    shard: Shard
    adapters: bool = False
    """What is trained was added to the weights (LoRA)."""
    shapes: Sequence[Shape] | None = None
    """Of what is trained, where known."""
    bucket_view: bool = False
    gathered: tuple[Input[int], Input[Fraction]] | None = None
    """Parameters and bits of the largest unit that full sharding gathers."""


def training_lines(training: Training) -> list[Line]:
    """What one rank holds beside the weights, at the end of a backward pass with its optimizer's state."""
    t = training
    lines = []
    if t.adapters:
        lines.append(_spread("adapters", "adapter weights", t, t.trained_bits, Shard.FULL))
    lines.append(_spread("gradients", "gradients", t, t.gradient_bits, Shard.GRADIENTS))
    if t.ranks > 1 and t.shard is Shard.NONE and not t.bucket_view:
        lines.append(
            Line(
                "buckets",
                "DDP buckets",
                bytes_of(t.trained.value, t.gradient_bits.value),
                Basis.ASSUMED,
                f"{say(t.trained.value)} parameters × {say(t.gradient_bits.value)} bits ÷ 8",
                notes=("a second copy of the gradients unless gradient_as_bucket_view=True (--bucket-view)",),
            )
        )
    if t.master:
        bits = t.trained_bits.but(Fraction(32))
        lines.append(_spread("master", "master weights", t, bits, Shard.OPTIMIZER))
    lines.append(_optimizer_line(t))
    if t.gathered is not None:
        count, bits = t.gathered
        lines.append(
            Line(
                "gathered",
                "gathered units",
                bytes_of(3 * count.value, bits.value),
                Basis.ASSUMED,
                f"3 × {say(count.value)} parameters × {say(bits.value)} bits ÷ 8",
                notes=(
                    "the largest unit whole, the next one being gathered, and a gradient not yet reduced",
                ),
            )
        )
    return lines


def _spread(key: str, title: str, t: Training, bits: Input[Fraction], split_from: Shard) -> Line:
    """A value for each trained parameter, split over the ranks if the sharding reaches it."""
    ranks = t.ranks if t.shard >= split_from else 1
    return Line(
        key,
        title,
        bytes_of(per_rank(t.trained.value, ranks), bits.value),
        basis_of(t.trained, bits),
        f"{say(t.trained.value)} trained parameters × {say(bits.value)} bits ÷ 8" + say_split(ranks),
    )


def _optimizer_line(t: Training) -> Line:
    name = t.optimizer.value
    kind = OPTIMIZERS[name]
    ranks = t.ranks if t.shard >= Shard.OPTIMIZER else 1
    count = per_rank(t.trained.value, ranks)
    basis = basis_of(t.trained, t.optimizer, t.state_bits)
    title = f"{name} state"
    if kind.factored:
        if t.shapes is None or ranks > 1:
            why = "how the ranks cut them" if t.shapes is not None else "give safetensors files"
            reason = f"depends on the shapes of what is trained: {why}"
            return Line("optimizer", title, None, basis, "a row and a column for each matrix", reason=reason)
        values = factored_values(t.shapes)
        formula = (
            f"{say(values)} values (a row and a column for each matrix) × {say(t.state_bits.value)} bits ÷ 8"
        )
        return Line("optimizer", title, bytes_of(values, t.state_bits.value), basis, formula)
    of = f"{say(t.trained.value)} trained parameters"
    if kind.quantised:
        size = kind.states * (count + 4 * math.ceil(count / BLOCK))
        formula = f"{kind.states} × {of} × (8 bits + 32 bits ÷ {BLOCK}) ÷ 8" + say_split(ranks)
        notes = (f"blocks of {BLOCK} values with a 32-bit scale, as bitsandbytes keeps them",)
        return Line("optimizer", title, size, Basis.ASSUMED, formula, notes=notes)
    formula = f"{kind.states} × {of} × {say(t.state_bits.value)} bits ÷ 8" + say_split(ranks)
    size = bytes_of(kind.states * count, t.state_bits.value)
    return Line("optimizer", title, size, basis, formula)
