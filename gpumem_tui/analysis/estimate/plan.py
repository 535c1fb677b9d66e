"""From a request to an estimate: what is known and from where, which lines follow, what is left out."""

import math
from dataclasses import fields
from fractions import Fraction
from typing import Any

from gpumem_tui.analysis.estimate.figures import (
    Basis,
    Estimate,
    Input,
    Line,
    Omission,
    Origin,
    assumed,
    bytes_of,
    given,
    per_rank,
    read,
    say_split,
)
from gpumem_tui.analysis.estimate.kvcache import Cache, cache_lines, split_heads
from gpumem_tui.analysis.estimate.request import Model, Request, check
from gpumem_tui.analysis.estimate.resolve_cache import resolve_cache
from gpumem_tui.analysis.estimate.resolve_training import resolve_training
from gpumem_tui.analysis.estimate.shapes import ConfigShape, read_config
from gpumem_tui.analysis.estimate.training import Shard, Training, training_lines
from gpumem_tui.analysis.estimate.weights import (
    LEAST_PLAIN_BITS,
    Group,
    disk_line,
    group_stored,
    scale_line,
    weight_lines,
)
from gpumem_tui.errors import UsageError

_INPUT_NAMES = {
    "bits": "kv_bits",
    "group_size": "kv_group_size",
    "scale_bits": "kv_scale_bits",
    "residual_tokens": "kv_residual_tokens",
    "residual_bits": "kv_residual_bits",
    "resident_layers": "kv_resident_layers",
}
"""Fields of a cache whose input has another name in the estimate."""


def estimate(request: Request) -> Estimate:
    """The estimate. Raises :class:`UsageError` or :class:`BadInput`, never returns a part of one."""
    check(request)
    model = request.model
    shape = ConfigShape()
    if model.config is not None:
        shape = read_config(model.config, model.config_path, cache_needed=request.tokens is not None)
    groups = _groups(request, shape)
    compute = _compute(request, shape, groups)
    cache = resolve_cache(request, shape, compute)
    training = _training(request, groups, compute)
    if not groups and model.declared_bytes is None and cache is None:
        raise UsageError(_nothing(request))
    lines = _weights(request, groups, training)
    if cache is not None:
        lines += cache_lines(split_heads(cache, request.tensor_parallel or 1))
    if training is not None:
        lines += training_lines(training)
    if request.reserve_gib is not None:
        lines.append(Line("reserve", "reserve", request.reserve_gib, Basis.ASSUMED, "given by --reserve-gib"))
    return Estimate(
        inputs=_inputs(request, groups, cache, training, compute),
        lines=tuple(lines),
        omissions=tuple(_omissions(request, groups, shape, cache, training, compute)),
        notes=tuple(_notes(request, groups, shape, cache)),
        ranks=request.ranks or 1,
        split=request.tensor_parallel or 1,
        devices=request.device,
    )


def _nothing(request: Request) -> str:
    if request.model.config is not None:
        return (
            f"{request.model.config_path} does not say how many parameters there are; add the safetensors "
            "files or --params, or --tokens for the KV cache"
        )
    return (
        "nothing to estimate; give --params 7B --bits 16, or a model's directory, or --tokens for a KV cache"
    )


def _groups(request: Request, shape: ConfigShape) -> list[Group]:
    """The weights by format; empty where nobody says how many there are."""
    model = request.model
    bits = None if request.bits is None else given(request.bits, "--bits")
    if model.tensors is not None:
        return group_stored(model.tensors, model.tensors_path, bits)
    if model.declared_bytes is not None:
        if bits is None:
            return []
        if model.declared_parameters is None:
            raise UsageError(
                f"{model.tensors_path} does not say how many parameters its missing shards hold; "
                "leave --bits out, or give --params without the index"
            )
        return [Group("", read(model.declared_parameters, f"{model.tensors_path}: total_parameters"), bits)]
    if request.params is None:
        if bits is not None:
            raise UsageError(
                "--bits says nothing without the number of parameters; give --params, or a safetensors file"
            )
        return []
    count = given(request.params, "--params")
    if bits is None and shape.compute_bits is not None:
        bits = assumed(shape.compute_bits.value, f"no --bits: as in {shape.compute_bits.source}")
    return [Group("", count, bits or assumed(Fraction(16), "no --bits: bfloat16 or float16"))]


def _compute(request: Request, shape: ConfigShape, groups: list[Group]) -> Input[Fraction]:
    """The format that is computed in: a KV cache is in it, and what is not trained in its own."""
    if request.compute_bits is not None:
        return given(request.compute_bits, "--compute-bits")
    if shape.compute_bits is not None:
        return shape.compute_bits
    for group in groups:
        if group.parameters and group.bits.value >= LEAST_PLAIN_BITS:
            return group.bits
    return assumed(Fraction(16), "no --compute-bits")


def _weights(request: Request, groups: list[Group], training: Training | None) -> list[Line]:
    parts, what = request.tensor_parallel or 1, "devices"
    if training is not None and training.shard is Shard.FULL:
        parts, what = training.ranks, "ranks"
    model = request.model
    lines = weight_lines(groups, parts, what, request.group_size is not None)
    if not groups and model.declared_bytes is not None:
        formula = f"total_size of {model.tensors_path}" + say_split(parts, what)
        note = f"{model.missing_shards} of its shards are not here: nobody looked at their headers"
        size = per_rank(model.declared_bytes, parts)
        lines.append(Line("weights", "weights, declared", size, Basis.ASSUMED, formula, notes=(note,)))
    if any(g.stored_bits is not None and g.bits.value != g.stored_bits for g in groups):
        lines.append(disk_line(groups))
    if request.group_size is not None:
        narrow = [g for g in groups if g.parameters and g.bits.value < LEAST_PLAIN_BITS]
        if not narrow or request.bits is None:
            raise UsageError("--group-size says nothing without --bits below 16; give both")
        count = narrow[0].count.but(sum(g.count.value for g in narrow))
        scale_bits = (
            given(request.scale_bits, "--scale-bits")
            if request.scale_bits is not None
            else assumed(Fraction(16), "no --scale-bits: one 16-bit scale, no zero point")
        )
        lines.append(scale_line(count, given(request.group_size, "--group-size"), scale_bits, parts, what))
    return lines


def _training(request: Request, groups: list[Group], compute: Input[Fraction]) -> Training | None:
    if not request.train:
        return None
    counted = [group for group in groups if group.parameters and group.count.value]
    if not counted:
        raise UsageError("--train needs the number of parameters: give --params or safetensors files")
    if _packed(groups) and not (request.has("lora_params") or request.has("lora_rank")):
        raise UsageError(
            f"{request.model.tensors_path} holds packed integers, which are not trained themselves; "
            "add adapters with --lora-params"
        )
    count = sum(group.count.value for group in counted)
    bits = counted[0].bits
    if len({group.bits.value for group in counted}) > 1:
        mean = sum((g.count.value * g.bits.value for g in counted), Fraction(0)) / count
        bits = read(mean, f"{request.model.tensors_path}: mean of the stored formats")
    return resolve_training(request, counted[0].count.but(count), bits, compute)


def _packed(groups: list[Group]) -> bool:
    """Whether most bytes are integers: no model has buffers as large as its weights."""
    integers = sum(bytes_of(g.count.value, g.bits.value) for g in groups if not g.parameters)
    floats = sum(bytes_of(g.count.value, Fraction(g.stored_bits or 0)) for g in groups if g.parameters)
    return integers > floats


def _inputs(
    request: Request,
    groups: list[Group],
    cache: Cache | None,
    training: Training | None,
    compute: Input[Fraction],
) -> dict[str, Input[Any]]:
    found: dict[str, Input[Any]] = {}
    counted = [group for group in groups if group.parameters]
    if counted:
        found["parameters"] = counted[0].count.but(sum(group.count.value for group in counted))
    for group in groups:
        found[f"bits.{group.name}" if group.name else "bits"] = group.bits
    if cache is not None:
        for field in fields(cache):
            value = getattr(cache, field.name)
            if isinstance(value, Input) and not (cache.latent_dim and field.name in ("kv_heads", "head_dim")):
                found[_INPUT_NAMES.get(field.name, field.name)] = value
    if training is not None:
        found |= {
            "optimizer": training.optimizer,
            "trained": training.trained,
            "trained_bits": training.trained_bits,
            "gradient_bits": training.gradient_bits,
            "state_bits": training.state_bits,
        }
        if training.gathered is not None:
            found["gathered_params"] = training.gathered[0]
    if compute.origin is not Origin.ASSUMED and (cache is not None or training is not None):
        found["compute_bits"] = compute
    return found


def _omissions(
    request: Request,
    groups: list[Group],
    shape: ConfigShape,
    cache: Cache | None,
    training: Training | None,
    compute: Input[Fraction],
) -> list[Omission]:
    found = []
    if training is None:
        found.append(Omission("activations", "activations of the forward pass, logits"))
        found.append(Omission("training", "gradients and optimizer state (--train counts them)"))
    else:
        found.append(
            Omission("activations", "activations kept for backward, logits and loss: batch and length decide")
        )
        found += _casts(request, groups, training)
        found.append(_step(training))
        if training.shard is Shard.FULL and training.ranks > 1 and training.gathered is None:
            found.append(
                Omission("gathered", "units gathered from all ranks while they compute (--gathered-params N)")
            )
    if not groups and request.model.declared_bytes is None:
        found.append(Omission("weights", "the weights (--params, or a safetensors file)"))
    if cache is None and training is None:
        found.append(Omission("kv_cache", _without_cache(shape, compute)))
    if groups and request.model.tensors is None:
        found.append(Omission("buffers", "buffers: tensors of the model that are not parameters"))
    found += [
        Omission("workspaces", "workspaces of cuBLAS, cuDNN and attention kernels"),
        Omission("context", "CUDA context and loaded kernels of each process; other processes on the device"),
        Omission("fragmentation", "what the allocator caches beside live tensors, and fragmentation"),
    ]
    if (request.ranks or 1) > 1 or (request.tensor_parallel or 1) > 1:
        found.append(Omission("communication", "buffers of NCCL"))
    return found


def _casts(request: Request, groups: list[Group], training: Training) -> list[Omission]:
    """Autocast's narrow copies live from forward to backward, as activations do: never with all gradients."""
    bits = request.compute_bits
    if bits is None or training.shard is Shard.FULL:
        return []
    size = bytes_of(sum(g.count.value for g in groups if g.parameters and g.bits.value > bits), bits)
    text = f"autocast's copies of the weights between forward and backward: up to {size:,} bytes"
    return [Omission("casts", text)] if size else []


def _step(training: Training) -> Omission:
    """PyTorch's documentation of ``foreach``, the default on CUDA: a peak of about one more copy."""
    ranks = training.ranks if training.shard >= Shard.OPTIMIZER else 1
    size = bytes_of(per_rank(training.trained.value, ranks), training.trained_bits.value)
    text = f"temporaries of the optimizer's step: about {size:,} bytes with foreach, the default on CUDA"
    return Omission("step", text)


def _without_cache(shape: ConfigShape, compute: Input[Fraction]) -> str:
    text = "KV cache (--tokens counts it)"
    if shape.layers is None or shape.kv_heads is None or shape.head_dim is None:
        return text
    one = given(1, "")
    bits = compute.value
    cache = Cache(shape.layers, shape.kv_heads, shape.head_dim, one, one, given(bits, ""), shape.latent_dim)
    return f"{text}: {cache.token_bytes:,} bytes for each token of each sequence at {math.ceil(bits)} bits"


def _notes(request: Request, groups: list[Group], shape: ConfigShape, cache: Cache | None) -> list[str]:
    notes = [*request.model.notes, *(shape.notes if cache is not None else ())]
    if _packed(groups):
        notes.append(
            "most bytes are packed integers: the parameters that are counted are those in floating formats, "
            "the model has more"
        )
    if request.rounded:
        notes.append(
            "--params was given as a rounded name; a safetensors file has the exact count. "
            "For a mixture of experts it is all experts, not the active ones."
        )
    if cache is not None and shape.positions is not None and cache.tokens.value > shape.positions:
        notes.append(
            f"--tokens {cache.tokens.value} is more than the {shape.positions} positions of the config.json"
        )
    if shape.quantised is not None:
        notes.append(f"the config.json says that the weights are quantised ({shape.quantised})")
    if request.tensor_parallel is not None and request.tensor_parallel > 1:
        notes.append(
            "tensor parallel: every tensor split evenly; norms and embeddings are often copied whole"
        )
    return notes


__all__ = ["Model", "Request", "estimate"]
