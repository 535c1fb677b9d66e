"""Options and weights → the training state that is asked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpumem_tui.analysis.estimate.figures import Input, assumed, given, read, say
from gpumem_tui.analysis.estimate.request import Request, option
from gpumem_tui.analysis.estimate.tensors import Shape, is_parameter, largest_block, lora_shapes
from gpumem_tui.analysis.estimate.training import OPTIMIZERS, SHARDS, Shard, Training
from gpumem_tui.errors import BadInput, UsageError

LORA_TARGETS = ("q_proj", "v_proj")


@dataclass(frozen=True)
class Trainee:
    """Which parameters are trained."""

    count: Input[int]
    bits: Input[Fraction]
    shapes: Sequence[Shape] | None
    added: bool
    """Adapters beside the weights."""


def resolve_training(
    request: Request, parameters: Input[int], bits: Input[Fraction], compute: Input[Fraction]
) -> Training:
    """The training state of one rank. Raises :class:`UsageError`, :class:`BadInput`."""
    trainee = _trainee(request, parameters, bits)
    if trainee.bits.value < 8:
        raise UsageError(
            f"weights of {say(trainee.bits.value)} bits are not trained themselves; "
            "add adapters with --lora-params, or give --bits 16"
        )
    wide = trainee.bits if trainee.bits.value >= 16 else compute
    if request.master_weights and trainee.bits.value >= 32:
        raise UsageError(f"--master-weights: what is trained has {say(trainee.bits.value)} bits already")
    name = (
        given(request.optimizer, "--optimizer")
        if request.optimizer is not None
        else assumed("adamw", "no --optimizer")
    )
    kind = OPTIMIZERS[name.value]
    if kind.quantised and request.optimizer_bits is not None:
        raise UsageError(f"--optimizer {name.value} has 8 bits by itself; leave --optimizer-bits out")
    shard = SHARDS[request.shard or "none"]
    ranks = request.ranks or 1
    if request.bucket_view and (shard is not Shard.NONE or ranks == 1):
        raise UsageError("--bucket-view says nothing without --ranks of DDP (--shard none)")
    if request.gathered_params is not None and (shard is not Shard.FULL or ranks == 1):
        raise UsageError("--gathered-params says nothing without --ranks and --shard full")
    return Training(
        trained=trainee.count,
        trained_bits=trainee.bits,
        gradient_bits=_bits(request.grad_bits, "grad_bits", wide),
        optimizer=name,
        state_bits=_state_bits(request, wide, kind.quantised),
        master=request.master_weights,
        ranks=ranks,
        shard=shard,
        adapters=trainee.added,
        shapes=trainee.shapes,
        bucket_view=request.bucket_view,
        gathered=_gathered(request, bits) if shard is Shard.FULL and ranks > 1 else None,
    )


def _bits(value: Fraction | None, name: str, otherwise: Input[Fraction]) -> Input[Fraction]:
    return otherwise if value is None else given(value, option(name))


def _state_bits(request: Request, wide: Input[Fraction], quantised: bool) -> Input[Fraction]:
    """torch.optim keeps its state in the format of what it steps: the master weights where there are some."""
    if quantised:
        return given(Fraction(8), "--optimizer")
    if request.optimizer_bits is not None:
        return given(request.optimizer_bits, "--optimizer-bits")
    if request.master_weights:
        return given(Fraction(32), "--master-weights")
    return wide


def _trainee(request: Request, parameters: Input[int], bits: Input[Fraction]) -> Trainee:
    tensors = request.model.tensors
    if request.has("lora_params") or request.has("lora_rank"):
        why = "no --lora-bits: PEFT keeps adapters in float32"
        lora_bits = (
            given(request.lora_bits, "--lora-bits")
            if request.lora_bits is not None
            else assumed(Fraction(32), why)
        )
        if request.lora_params is not None:
            return Trainee(given(request.lora_params, "--lora-params"), lora_bits, None, added=True)
        shapes, count = _adapters(request)
        return Trainee(count, lora_bits, shapes, added=True)
    if request.trainable_params is not None:
        if request.trainable_params > parameters.value:
            raise BadInput(
                f"--trainable-params {request.trainable_params} is more than {parameters.value} parameters"
            )
        return Trainee(given(request.trainable_params, "--trainable-params"), bits, None, added=False)
    if request.trainable_share is not None:
        count = parameters.but(math.ceil(parameters.value * request.trainable_share))
        return Trainee(count, bits, None, added=False)
    whole = None if tensors is None else [tensor.shape for tensor in tensors if is_parameter(tensor)]
    return Trainee(parameters, bits, whole, added=False)


def _adapters(request: Request) -> tuple[list[Shape], Input[int]]:
    tensors, rank = request.model.tensors, request.lora_rank
    if tensors is None or rank is None:
        raise UsageError("--lora-rank needs the shapes in a safetensors file; without one give --lora-params")
    targets = request.lora_targets or LORA_TARGETS
    shapes = lora_shapes(tensors, rank, targets)
    if not shapes:
        raise BadInput(
            f"{request.model.tensors_path} has no unpacked matrix named {', '.join(targets)}; "
            "name the modules with --lora-targets, or give --lora-params"
        )
    count = sum(math.prod(shape) for shape in shapes)
    if request.lora_targets is None:
        return shapes, assumed(count, "no --lora-targets: q_proj and v_proj")
    if "all-linear" in targets:
        return shapes, assumed(
            count, "all-linear: embeddings, norms and the output layer told by their names"
        )
    return shapes, read(count, f"{request.model.tensors_path}: shapes of {', '.join(targets)}")


def _gathered(request: Request, bits: Input[Fraction]) -> tuple[Input[int], Input[Fraction]] | None:
    computed = bits
    if request.compute_bits is not None and request.compute_bits < bits.value:
        computed = given(request.compute_bits, "--compute-bits")
    if request.gathered_params is not None:
        return given(request.gathered_params, "--gathered-params"), computed
    tensors = request.model.tensors
    if tensors is None:
        return None
    block = largest_block(tensors)
    if block is None:
        return None
    return assumed(block, "the largest block by its name"), computed
