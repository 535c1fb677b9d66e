"""What an estimate is asked: options as parsed, the model's files as read, which options belong together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from gpumem_tui.analysis.estimate.tensors import Tensor
from gpumem_tui.errors import UsageError


@dataclass(frozen=True)
class Model:
    """What files on disk declare of the model."""

    config: Mapping[str, Any] | None = None
    config_path: str = "config.json"
    tensors: Sequence[Tensor] | None = None
    tensors_path: str = "safetensors"
    declared_bytes: int | None = None
    """An index's word for shards that are not here."""
    declared_parameters: int | None = None
    missing_shards: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Request:
    """The options, each under the name it has on the command line; None or False where not given."""

    params: int | None = None
    rounded: bool = False
    """``params`` came from a name such as 7B."""
    bits: Fraction | None = None
    compute_bits: Fraction | None = None
    group_size: int | None = None
    scale_bits: Fraction | None = None
    tensor_parallel: int | None = None
    reserve_gib: int | None = None
    """In bytes."""
    device: tuple[int, ...] = ()
    """In bytes."""

    tokens: int | None = None
    sequences: int | None = None
    layers: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    latent_dim: int | None = None
    kv_bits: Fraction | None = None
    window: int | None = None
    window_layers: int | None = None
    static_tokens: int | None = None
    page_tokens: int | None = None
    shared_prefix: int | None = None
    kv_group_size: int | None = None
    kv_scale_bits: Fraction | None = None
    kv_residual_tokens: int | None = None
    kv_offload: bool = False
    kv_resident_layers: int | None = None

    train: bool = False
    optimizer: str | None = None
    optimizer_bits: Fraction | None = None
    grad_bits: Fraction | None = None
    master_weights: bool = False
    trainable_params: int | None = None
    trainable_share: Fraction | None = None
    lora_params: int | None = None
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] | None = None
    lora_bits: Fraction | None = None
    ranks: int | None = None
    shard: str | None = None
    bucket_view: bool = False
    gathered_params: int | None = None

    model: Model = field(default_factory=Model)

    def has(self, name: str) -> bool:
        """Whether an option was given."""
        value = getattr(self, name)
        return value is not None and value is not False


def option(name: str) -> str:
    """The option of a field: ``kv_bits`` → ``--kv-bits``."""
    return "--" + name.replace("_", "-")


_CACHE = (
    *("sequences", "layers", "kv_heads", "head_dim", "latent_dim", "kv_bits", "window", "window_layers"),
    *("static_tokens", "page_tokens", "shared_prefix", "kv_group_size", "kv_scale_bits"),
    *("kv_residual_tokens", "kv_offload", "kv_resident_layers"),
)
_TRAINING = (
    *("optimizer", "optimizer_bits", "grad_bits", "master_weights", "trainable_params", "trainable_share"),
    *("lora_params", "lora_rank", "lora_targets", "lora_bits", "shard", "bucket_view", "gathered_params"),
)

_NEEDS = {
    **dict.fromkeys(_CACHE, "tokens"),
    **dict.fromkeys(_TRAINING, "train"),
}
"""Option → the option without which it says nothing."""

_NEEDS_TOO = {
    "scale_bits": "group_size",
    "shared_prefix": "page_tokens",
    "kv_scale_bits": "kv_group_size",
    "kv_residual_tokens": "kv_bits",
    "kv_resident_layers": "kv_offload",
    "lora_targets": "lora_rank",
    "shard": "ranks",
}

_EXCLUDES = (
    ("static_tokens", "page_tokens"),
    ("kv_residual_tokens", "page_tokens"),
    ("trainable_params", "trainable_share"),
    ("trainable_params", "lora_params"),
    ("trainable_params", "lora_rank"),
    ("trainable_share", "lora_params"),
    ("trainable_share", "lora_rank"),
    ("lora_params", "lora_rank"),
    ("latent_dim", "kv_heads"),
    ("latent_dim", "head_dim"),
    ("tensor_parallel", "train"),
    ("tensor_parallel", "ranks"),
)


def check(request: Request) -> None:
    """Refuse options that say nothing, or two things at once. Raises :class:`UsageError`."""
    for table in (_NEEDS, _NEEDS_TOO):
        for name, needed in table.items():
            if request.has(name) and not request.has(needed):
                raise UsageError(f"{option(name)} says nothing without {option(needed)}; give both")
    if request.lora_bits is not None and not (request.has("lora_rank") or request.has("lora_params")):
        raise UsageError("--lora-bits says nothing without --lora-rank or --lora-params")
    for one, other in _EXCLUDES:
        if request.has(one) and request.has(other):
            raise UsageError(f"{option(one)} and {option(other)} exclude each other")
    from_files = request.model.tensors is not None or request.model.declared_bytes is not None
    if request.params is not None and from_files:
        raise UsageError("--params and a checkpoint both say how many parameters there are; give one of them")
