"""``config.json`` → what a KV cache is made of. Query heads never stand for KV heads silently.

Refuses models whose cache the keys do not describe (encoder-decoders, layers that
differ one from another): :class:`BadInput` says which options to give instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from gpumem_tui.analysis.estimate.figures import Input, assumed, read
from gpumem_tui.analysis.estimate.quantities import FORMATS, MOST_OTHERS, shown
from gpumem_tui.errors import BadInput

_NESTED = ("text_config", "llm_config", "language_config")
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_QUERY_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
_WIDTH = ("hidden_size", "n_embd", "d_model", "dim")
_WINDOWED = {"sliding_attention", "local_attention", "chunked_attention", "sliding", "local"}
_GROWING = {"full_attention", "attention", "global_attention", "global", "full"}
_STATELESS = {"linear_attention", "conv", "mamba", "mamba2", "recurrent", "ssm"}
"""Kinds of layers that keep a state of constant size, or none."""

_EVERY = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "exaone4": 4}
"""Of models whose older files do not say it: every so many-th layer keeps all, the others a window
(defaults of their configuration classes in transformers 5.24)."""


@dataclass(frozen=True)
class ConfigShape:
    """What the keys tell; None where they tell nothing."""

    layers: Input[int] | None = None
    window_layers: Input[int] | None = None
    """Of ``layers``, those that keep a window only."""
    window: Input[int] | None = None
    kv_heads: Input[int] | None = None
    head_dim: Input[int] | None = None
    latent_dim: Input[int] | None = None
    positions: int | None = None
    """The longest sequence the model was made for."""
    compute_bits: Input[Fraction] | None = None
    quantised: str | None = None
    notes: tuple[str, ...] = ()


class _Keys:
    """Typed access to the text model's part of the file."""

    def __init__(self, config: Mapping[str, Any], path: str) -> None:
        nested = next((n for n in _NESTED if isinstance(config.get(n), dict)), None)
        self.top = config
        self.keys: Mapping[str, Any] = config[nested] if nested else config
        self.path = path
        self.prefix = f"{nested}." if nested else ""

    def count(self, names: tuple[str, ...], *, least: int = 1) -> Input[int] | None:
        """The first of these keys that is there and not null. Raises :class:`BadInput`."""
        for name in names:
            value = self.keys.get(name)
            if value is None:
                continue
            if isinstance(value, list):
                raise BadInput(
                    f"{self.path}: {self.prefix}{name} differs from layer to layer; "
                    "give --layers, --kv-heads and --head-dim without the file"
                )
            if type(value) is not int or not least <= value <= MOST_OTHERS:
                raise BadInput(
                    f"{self.path}: {self.prefix}{name} is {shown(str(value))}, not a usable number"
                )
            return read(value, f"{self.path}: {self.prefix}{name}")
        return None


def read_config(config: Mapping[str, Any], path: str, *, cache_needed: bool = True) -> ConfigShape:
    """What a transformer's ``config.json`` says.

    Raises :class:`BadInput` where the keys do not describe a cache and one is needed.
    """
    keys = _Keys(config, path)
    positions = keys.count(("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"))
    common = ConfigShape(
        positions=positions.value if positions else None,
        compute_bits=_compute_bits(keys),
        quantised=_quantised(config),
    )
    if config.get("is_encoder_decoder") is True:
        note = f"{path} is an encoder-decoder's: for a KV cache give --layers, --kv-heads and --head-dim"
        return replace(common, notes=(note,))
    try:
        return _cache_shape(keys, common)
    except BadInput:
        if cache_needed:
            raise
        return common


def _cache_shape(keys: _Keys, common: ConfigShape) -> ConfigShape:
    path = keys.path
    layers = keys.count(_LAYERS)
    layers, window_layers, window, notes = _windows(keys, layers)
    query = keys.count(_QUERY_HEADS)
    latent = keys.count(("kv_lora_rank",))
    if latent is not None:
        rope = keys.count(("qk_rope_head_dim",), least=0)
        latent = read(latent.value + (rope.value if rope else 0), f"{path}: kv_lora_rank + qk_rope_head_dim")
        notes = (
            *notes,
            "the KV cache is counted as the latent of multi-head latent attention; "
            "some implementations keep the expanded K and V, which is far more",
        )
    return replace(
        common,
        layers=layers,
        window_layers=window_layers,
        window=window,
        kv_heads=_kv_heads(keys, query),
        head_dim=_head_dim(keys, query),
        latent_dim=latent,
        notes=notes,
    )


def _kv_heads(keys: _Keys, query: Input[int] | None) -> Input[int] | None:
    if keys.keys.get("multi_query") is True and keys.keys.get("new_decoder_architecture") is not True:
        return read(1, f"{keys.path}: multi_query")
    found = keys.count(_KV_HEADS)
    if found is not None:
        return found
    if query is None:
        return None
    return assumed(query.value, f"{keys.path} has no num_key_value_heads: as many as query heads")


def _head_dim(keys: _Keys, query: Input[int] | None) -> Input[int] | None:
    found = keys.count(("head_dim", "kv_channels", "attention_head_dim"))
    if found is not None:
        return found
    width = keys.count(_WIDTH)
    if width is None or query is None:
        return None
    if width.value % query.value:
        raise BadInput(
            f"{keys.path}: width {width.value} is no multiple of {query.value} query heads; give --head-dim"
        )
    return read(width.value // query.value, f"{keys.path}: width ÷ query heads")


def _windows(
    keys: _Keys, layers: Input[int] | None
) -> tuple[Input[int] | None, Input[int] | None, Input[int] | None, tuple[str, ...]]:
    """Layers with a cache, those of them with a window, the window, remarks."""
    path, prefix = keys.path, keys.prefix
    window = None
    if keys.keys.get("use_sliding_window") is not False:
        window = keys.count(("sliding_window", "sliding_window_size", "attention_chunk_size"))
    kinds = keys.keys.get("layer_types")
    if isinstance(kinds, list) and kinds and all(isinstance(kind, str) for kind in kinds):
        if layers is not None and len(kinds) != layers.value:
            raise BadInput(f"{path}: {prefix}layer_types names {len(kinds)} layers, not {layers.value}")
        unknown = next((kind for kind in kinds if kind not in _WINDOWED | _GROWING | _STATELESS), None)
        if unknown is not None:
            raise BadInput(
                f"{path}: layers of the kind {shown(unknown)} are not known; "
                "give --layers, --kv-heads and --head-dim without the file"
            )
        windowed = sum(kind in _WINDOWED for kind in kinds)
        cached = windowed + sum(kind in _GROWING for kind in kinds)
        source = f"{path}: {prefix}layer_types"
        notes: tuple[str, ...] = ()
        if cached < len(kinds):
            notes = (
                f"{len(kinds) - cached} of {len(kinds)} layers have no KV cache; their state is not counted",
            )
        if not cached:
            raise BadInput(f"{source} names no attention layer; give --layers")
        if windowed and window is None:
            raise BadInput(f"{path}: {prefix}layer_types has windows, but no sliding_window; give --window")
        return read(cached, source), (read(windowed, source) if windowed else None), window, notes
    if keys.keys.get("attn_layer_period") is not None or keys.keys.get("mamba_d_state") is not None:
        return None, None, None, (f"{path} mixes attention with other layers: for a KV cache give --layers",)
    if window is None or layers is None:
        return layers, None, window, ()
    every = keys.count(("sliding_window_pattern",))
    if every is not None:
        full = layers.value // every.value
        return layers, read(layers.value - full, f"{path}: {prefix}sliding_window_pattern"), window, ()
    skipped = keys.count(("max_window_layers",), least=0)
    if skipped is not None:  # the first layers keep everything
        windowed = max(0, layers.value - skipped.value)
        source = f"{path}: {prefix}max_window_layers"
        return layers, (read(windowed, source) if windowed else None), window if windowed else None, ()
    kind = keys.keys.get("model_type")
    if isinstance(kind, str) and kind in _EVERY:
        windowed = layers.value - layers.value // _EVERY[kind]
        why = f"{path} does not say which layers: all but every {_EVERY[kind]}th, as {kind} has it"
        return layers, assumed(windowed, why.replace("2th", "2nd")), window, ()
    return layers, assumed(layers.value, f"{path} has a sliding window: in every layer"), window, ()


def _compute_bits(keys: _Keys) -> Input[Fraction] | None:
    for config, prefix in ((keys.keys, keys.prefix), (keys.top, "")):
        for name in ("dtype", "torch_dtype"):
            value = config.get(name)
            if isinstance(value, str) and value.removeprefix("torch.") in FORMATS:
                return read(Fraction(FORMATS[value.removeprefix("torch.")]), f"{keys.path}: {prefix}{name}")
    return None


def _quantised(config: Mapping[str, Any]) -> str | None:
    found = config.get("quantization_config")
    if not isinstance(found, dict):
        return None
    method = found.get("quant_method")
    return shown(str(method)) if method is not None else "a method without a name"
