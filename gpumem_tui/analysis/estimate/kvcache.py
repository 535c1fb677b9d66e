"""Lines for the KV cache: what a layer keeps of a token, how many token slots, which layers where.

A token keeps 2 × KV heads × head dimension values in each layer (K and V; query heads
play no part), or one latent. Slots follow from one of three ways to keep them: as many
as tokens, a static number, or whole pages, of which sequences share those that a common
prefix fills.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from gpumem_tui.analysis.estimate.figures import Input, Line, Place, assumed, basis_of, bytes_of, say
from gpumem_tui.errors import BadInput


@dataclass(frozen=True)
class Cache:
    """Everything that the size of a KV cache depends on."""

    layers: Input[int]
    kv_heads: Input[int]
    head_dim: Input[int]
    tokens: Input[int]
    """A sequence, prompt and answer together."""
    sequences: Input[int]
    bits: Input[Fraction]
    latent_dim: Input[int] | None = None
    """Values a token and layer, in place of 2 × KV heads × head dimension."""
    window: Input[int] | None = None
    window_layers: Input[int] | None = None
    """Layers that keep the last ``window`` tokens only; the others keep all."""
    static_tokens: Input[int] | None = None
    """Slots allocated for each sequence, however many are used."""
    page_tokens: Input[int] | None = None
    shared_prefix: Input[int] | None = None
    group_size: Input[int] | None = None
    """Values that share one scale in a quantised cache."""
    scale_bits: Input[Fraction] | None = None
    residual_tokens: Input[int] | None = None
    """Last tokens of each sequence that a quantised cache keeps in ``residual_bits``."""
    residual_bits: Input[Fraction] | None = None
    resident_layers: Input[int] | None = None
    """Layers on the device where the cache is offloaded to the host."""

    @property
    def values(self) -> int:
        """Values that one token keeps in one layer."""
        if self.latent_dim is not None:
            return self.latent_dim.value
        return 2 * self.kv_heads.value * self.head_dim.value

    @property
    def token_bytes(self) -> int:
        """Bytes that one more token of one sequence takes while every layer keeps it, without scales."""
        return bytes_of(self.values * self.layers.value, self.bits.value)

    def kept(self, window: int | None) -> int:
        """Tokens that one sequence keeps in a layer."""
        limit = self.static_tokens.value if self.static_tokens is not None else self.tokens.value
        return limit if window is None else min(limit, window)

    def slots(self, window: int | None) -> int:
        """Token slots of all sequences in one layer."""
        kept = self.kept(window)
        if self.page_tokens is None:
            return kept * self.sequences.value
        page = self.page_tokens.value
        first = (self.tokens.value - kept) // page
        pages = -(-self.tokens.value // page) - first
        prefix = self.shared_prefix.value if self.shared_prefix is not None else 0
        shared = min(max(prefix // page - first, 0), pages)
        return page * (shared + self.sequences.value * (pages - shared))


@dataclass(frozen=True)
class _Kind:
    """Layers that keep the same."""

    title: str
    key: str
    layers: int
    window: int | None


def cache_lines(cache: Cache) -> list[Line]:
    """The cache on the device, and on the host where it is offloaded."""
    windowed = (
        cache.window_layers.value if cache.window_layers is not None and cache.window is not None else 0
    )
    window = cache.window.value if cache.window is not None else None
    kinds = [
        _Kind("KV cache", "kv_cache", cache.layers.value - windowed, None),
        _Kind("KV cache, window", "kv_cache.window", windowed, window),
    ]
    resident = cache.resident_layers.value if cache.resident_layers is not None else cache.layers.value
    lines: list[Line] = []
    for kind in kinds:  # layers that keep everything are the larger ones: resident before the others
        here = min(resident, kind.layers)
        resident -= here
        lines += _kind_lines(cache, kind, here, Place.DEVICE)
        lines += _kind_lines(cache, kind, kind.layers - here, Place.HOST)
    return lines


def _kind_lines(cache: Cache, kind: _Kind, layers: int, place: Place) -> list[Line]:
    if not layers:
        return []
    key_end = ".host" if place is Place.HOST else ""
    slots = cache.slots(kind.window)
    inputs = [cache.layers, cache.tokens, cache.sequences, cache.resident_layers, cache.page_tokens]
    inputs += [cache.latent_dim] if cache.latent_dim is not None else [cache.kv_heads, cache.head_dim]
    inputs += [cache.static_tokens, cache.shared_prefix]
    inputs += [cache.window, cache.window_layers] if kind.window is not None else []
    heads = _counted(cache.kv_heads.value, "KV head")
    each = (
        f"{say(cache.values)} latent values"
        if cache.latent_dim is not None
        else f"2 (K and V) × {heads} × {say(cache.head_dim.value)} dimensions"
    )
    each = f"{each} × {_counted(layers, 'layer')}"
    residual = 0
    if cache.residual_tokens is not None:
        residual = min(cache.residual_tokens.value, cache.kept(kind.window)) * cache.sequences.value
    packed = cache.values * layers * (slots - residual)
    notes = _notes(cache, kind, slots)
    lines = [
        Line(
            kind.key + key_end,
            kind.title,
            bytes_of(packed, cache.bits.value),
            basis_of(*inputs, cache.bits),
            f"{each} × {_say_slots(cache, kind, slots, residual)} × {say(cache.bits.value)} bits ÷ 8",
            place,
            notes,
        )
    ]
    if cache.group_size is not None and cache.scale_bits is not None:
        lines.append(
            Line(
                f"{kind.key}.scales{key_end}",
                "scales of it",
                bytes_of(-(-packed // cache.group_size.value), cache.scale_bits.value),
                basis_of(*inputs, cache.group_size, cache.scale_bits),
                f"{say(packed)} values ÷ groups of {say(cache.group_size.value)} × "
                f"{say(cache.scale_bits.value)} bits ÷ 8",
                place,
            )
        )
    if residual and cache.residual_bits is not None:
        lines.append(
            Line(
                f"{kind.key}.residual{key_end}",
                "unquantised tail",
                bytes_of(cache.values * layers * residual, cache.residual_bits.value),
                basis_of(*inputs, cache.residual_tokens, cache.residual_bits),
                f"{each} × {say(residual)} tokens × {say(cache.residual_bits.value)} bits ÷ 8",
                place,
            )
        )
    return lines


def _say_slots(cache: Cache, kind: _Kind, slots: int, residual: int) -> str:
    if residual:
        return f"{say(slots - residual)} tokens (without the unquantised tail)"
    if cache.page_tokens is not None:
        page = cache.page_tokens.value
        return f"{say(slots // page)} pages of {say(page)} tokens"
    return f"{_counted(cache.kept(kind.window), 'token')} × {_counted(cache.sequences.value, 'sequence')}"


def _counted(count: int, word: str) -> str:
    return f"{say(count)} {word}{'' if count == 1 else 's'}"


def _notes(cache: Cache, kind: _Kind, slots: int) -> tuple[str, ...]:
    notes = []
    if kind.window is not None:
        notes.append(f"layers with a window of {say(kind.window)} tokens")
    if cache.static_tokens is not None:
        used = min(cache.tokens.value, cache.kept(kind.window))
        notes.append(
            f"allocated for {say(cache.kept(kind.window))} tokens a sequence at once; {say(used)} are used"
        )
    if cache.shared_prefix is not None and cache.page_tokens is not None:
        alone = replace(cache, shared_prefix=None).slots(kind.window)
        notes.append(f"{say((alone - slots) // cache.page_tokens.value)} pages saved by sharing the prefix")
    if cache.bits.value < 16 and cache.group_size is None:
        notes.append("without scales and other metadata; --kv-group-size counts them")
    return tuple(notes)


def split_heads(cache: Cache, devices: int) -> Cache:
    """What each of several devices keeps that share the heads. Raises :class:`BadInput` for an uneven share.

    With more devices than KV heads each keeps one head, as a copy. A latent is never split.
    """
    heads = cache.kv_heads.value
    if devices == 1 or cache.latent_dim is not None:
        return cache
    if heads % devices == 0:
        return replace(cache, kv_heads=cache.kv_heads.but(heads // devices))
    if devices % heads == 0:
        why = f"{heads} KV heads on {devices} devices: one each, copied"
        return replace(cache, kv_heads=assumed(1, why))
    raise BadInput(f"--tensor-parallel {devices} does not split {heads} KV heads evenly")
