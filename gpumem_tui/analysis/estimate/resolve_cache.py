"""Options and ``config.json`` → the KV cache that is asked for. An option wins over the file."""

from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from gpumem_tui.analysis.estimate.figures import Input, assumed, given
from gpumem_tui.analysis.estimate.kvcache import Cache
from gpumem_tui.analysis.estimate.request import Request, option
from gpumem_tui.analysis.estimate.shapes import ConfigShape
from gpumem_tui.errors import BadInput, UsageError

Value = TypeVar("Value")


def resolve_cache(request: Request, shape: ConfigShape, compute: Input[Fraction]) -> Cache | None:
    """The whole cache, or None without ``--tokens``. Raises :class:`UsageError`, :class:`BadInput`."""
    if request.tokens is None:
        return None
    layers = _either(request, "layers", request.layers, shape.layers)
    latent = _optional("latent_dim", request.latent_dim)
    if latent is None and request.kv_heads is None and request.head_dim is None:
        latent = shape.latent_dim
    one = assumed(1, "unused: a latent has no heads")
    heads = one if latent else _either(request, "kv_heads", request.kv_heads, shape.kv_heads)
    head_dim = one if latent else _either(request, "head_dim", request.head_dim, shape.head_dim)
    window, window_layers = _windows(request, shape, layers)
    why = f"no --kv-bits: the format that is computed in ({compute.source})"
    cache = Cache(
        layers=layers,
        kv_heads=heads,
        head_dim=head_dim,
        tokens=given(request.tokens, "--tokens"),
        sequences=_default("sequences", request.sequences, 1, "one sequence"),
        bits=_default("kv_bits", request.kv_bits, compute.value, why),
        latent_dim=latent,
        window=window,
        window_layers=window_layers,
        static_tokens=_optional("static_tokens", request.static_tokens),
        page_tokens=_optional("page_tokens", request.page_tokens),
        shared_prefix=_optional("shared_prefix", request.shared_prefix),
    )
    cache = _quantised(request, cache, compute)
    if request.kv_offload:
        why = "no --kv-resident-layers: the layer at work and the next one"
        cache = replace(
            cache, resident_layers=_default("kv_resident_layers", request.kv_resident_layers, 2, why)
        )
    _check(cache)
    return cache


def _quantised(request: Request, cache: Cache, compute: Input[Fraction]) -> Cache:
    if request.kv_group_size is not None:
        why = "no --kv-scale-bits: a scale and a zero point of 16 bits each"
        cache = replace(
            cache,
            group_size=given(request.kv_group_size, "--kv-group-size"),
            scale_bits=_default("kv_scale_bits", request.kv_scale_bits, Fraction(32), why),
        )
    if request.kv_residual_tokens is not None:
        cache = replace(
            cache,
            residual_tokens=given(request.kv_residual_tokens, "--kv-residual-tokens"),
            residual_bits=compute,
        )
    return cache


def _windows(
    request: Request, shape: ConfigShape, layers: Input[int]
) -> tuple[Input[int] | None, Input[int] | None]:
    window = _optional("window", request.window) or shape.window
    if window is None:
        if request.window_layers is not None:
            raise UsageError("--window-layers says nothing without --window; give both")
        return None, None
    if request.window_layers is not None:
        return window, given(request.window_layers, "--window-layers")
    if shape.window_layers is not None and request.layers is None:
        return window, shape.window_layers
    return window, assumed(layers.value, "no --window-layers: the window holds in every layer")


def _check(cache: Cache) -> None:
    tokens = cache.tokens.value
    if cache.window_layers is not None and cache.window_layers.value > cache.layers.value:
        raise BadInput(
            f"--window-layers {cache.window_layers.value} is more than {cache.layers.value} layers"
        )
    if cache.static_tokens is not None and cache.static_tokens.value < tokens:
        raise BadInput(f"--static-tokens {cache.static_tokens.value} holds fewer than --tokens {tokens}")
    if cache.shared_prefix is not None and cache.shared_prefix.value > tokens:
        raise BadInput(f"--shared-prefix {cache.shared_prefix.value} is longer than --tokens {tokens}")


def _either(request: Request, name: str, value: int | None, found: Input[int] | None) -> Input[int]:
    """The option, else what the file says. Raises :class:`UsageError` where neither says it."""
    if value is not None:
        return given(value, option(name))
    if found is None:
        have = (
            " (the config.json does not say it)" if request.model.config is not None else ", or a config.json"
        )
        raise UsageError(f"the KV cache needs {option(name)}{have}")
    return found


def _optional(name: str, value: int | None) -> Input[int] | None:
    return None if value is None else given(value, option(name))


def _default(name: str, value: Value | None, otherwise: Value, why: str) -> Input[Value]:
    return assumed(otherwise, why) if value is None else given(value, option(name))
