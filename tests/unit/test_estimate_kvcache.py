"""The KV cache: KV heads, not query heads; windows, static slots, pages, prefixes, scales, offloading."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.estimate.figures import Basis, Origin, Place, total
from gpumem_tui.analysis.estimate.plan import Request, estimate
from gpumem_tui.errors import BadInput, UsageError

GIB = 1 << 30
EIGHT_B = {"layers": 32, "kv_heads": 8, "head_dim": 128, "tokens": 8192}

small = st.integers(1, 64)


def cache(**options):
    """The estimate of a cache alone."""
    return estimate(Request(**{"kv_bits": Fraction(16), **options}))


@st.composite
def caches(draw):
    """Options of any cache that may be asked for."""
    tokens = draw(st.integers(1, 5000))
    options = {
        "layers": draw(small),
        "kv_heads": draw(small),
        "head_dim": draw(small),
        "tokens": tokens,
        "sequences": draw(small),
        "kv_bits": Fraction(draw(st.sampled_from([4, 8, 16, 32]))),
    }
    if draw(st.booleans()):
        options["window"] = draw(st.integers(1, 6000))
        options["window_layers"] = draw(st.integers(1, options["layers"]))
    if draw(st.booleans()):
        options["page_tokens"] = draw(st.integers(1, 300))
        options["shared_prefix"] = draw(st.integers(1, tokens))
    elif draw(st.booleans()):
        options["static_tokens"] = tokens + draw(st.integers(0, 3000))
    if draw(st.booleans()):
        options["kv_group_size"] = draw(small)
    return options


def test_one_sequence_is_one_gib_and_four_are_four():
    assert cache(**EIGHT_B).device_bytes == 1_073_741_824 == GIB
    assert cache(**EIGHT_B, sequences=4).device_bytes == 4 * GIB


def test_everything_given_is_computed_and_a_default_is_assumed():
    assert cache(**EIGHT_B, sequences=4).basis is Basis.COMPUTED
    assert cache(**EIGHT_B).inputs["sequences"].origin is Origin.ASSUMED
    assert cache(**EIGHT_B).basis is Basis.ASSUMED


def test_the_formula_says_kv_heads():
    (line,) = cache(**EIGHT_B, sequences=4).lines

    assert line.formula == (
        "2 (K and V) × 8 KV heads × 128 dimensions × 32 layers × 8,192 tokens × 4 sequences × 16 bits ÷ 8"
    )


def test_one_of_anything_is_no_plural():
    (line,) = cache(layers=1, kv_heads=1, head_dim=64, tokens=1).lines

    assert (
        line.formula
        == "2 (K and V) × 1 KV head × 64 dimensions × 1 layer × 1 token × 1 sequence × 16 bits ÷ 8"
    )


def test_a_window_keeps_the_last_tokens_only():
    made = cache(**EIGHT_B, window=1024)

    assert made.device_bytes == GIB // 8


def test_layers_without_the_window_keep_all():
    made = cache(**EIGHT_B, window=1024, window_layers=16)

    assert [line.bytes for line in made.lines] == [GIB // 2, GIB // 2 // 8]


def test_a_window_longer_than_the_sequence_changes_nothing():
    assert cache(**EIGHT_B, window=10_000).device_bytes == GIB


def test_a_static_cache_takes_its_length_whatever_is_used():
    made = cache(**{**EIGHT_B, "tokens": 10}, static_tokens=8192)

    assert made.device_bytes == GIB
    assert "10 are used" in made.lines[0].notes[0]


def test_four_bits_take_a_quarter_and_scales_are_a_line():
    made = cache(**{**EIGHT_B, "kv_bits": Fraction(4)}, kv_group_size=64)
    values = 32 * 8 * 128 * 8192 * 2

    assert [line.bytes for line in made.lines] == [GIB // 4, values // 64 * 4]


def test_without_the_size_of_groups_the_missing_scales_are_said():
    (line,) = cache(**{**EIGHT_B, "kv_bits": Fraction(4)}).lines

    assert any("without scales" in note for note in line.notes)


def test_the_tail_of_a_quantised_cache_stays_unquantised():
    made = cache(
        **{**EIGHT_B, "kv_bits": Fraction(4)}, kv_residual_tokens=128, compute_bits=Fraction(16), sequences=2
    )
    a_token = 2 * 8 * 128 * 32

    assert [line.bytes for line in made.lines] == [a_token * 2 * (8192 - 128) // 2, a_token * 2 * 128 * 2]


def test_offloading_leaves_two_layers_on_the_device():
    made = cache(**EIGHT_B, kv_offload=True)

    assert made.device_bytes == GIB * 2 // 32
    assert total(made.at(Place.HOST)) == GIB * 30 // 32
    assert made.inputs["kv_resident_layers"].origin is Origin.ASSUMED


def test_layers_that_keep_everything_are_resident_before_those_with_a_window():
    made = cache(**EIGHT_B, window=1024, window_layers=16, kv_offload=True, kv_resident_layers=17)

    assert made.device_bytes == 16 * GIB // 32 + 1 * GIB // 32 // 8


def test_a_tail_longer_than_the_sequence_leaves_nothing_to_quantise():
    made = cache(
        **{**EIGHT_B, "tokens": 100, "kv_bits": Fraction(4)},
        kv_residual_tokens=128,
        compute_bits=Fraction(16),
    )

    assert [line.bytes for line in made.lines] == [0, 100 * (GIB // 8192)]


def test_whole_pages_of_a_common_prefix_are_held_once():
    made = cache(**EIGHT_B, sequences=4, page_tokens=16, shared_prefix=1000)
    shared = 1000 // 16
    pages = shared + 4 * (8192 // 16 - shared)

    assert made.device_bytes == pages * 16 * (GIB // 8192)
    assert f"{3 * shared} pages saved" in made.lines[0].notes[0]


def test_a_prefix_shorter_than_a_page_saves_nothing():
    made = cache(**EIGHT_B, sequences=4, page_tokens=16, shared_prefix=15)

    assert made.device_bytes == 4 * GIB


def test_a_prefix_that_has_left_the_window_saves_nothing():
    alone = cache(**EIGHT_B, sequences=4, page_tokens=16, window=1024)
    shared = cache(**EIGHT_B, sequences=4, page_tokens=16, window=1024, shared_prefix=4096)

    assert shared.device_bytes == alone.device_bytes


def test_the_last_page_is_whole():
    one = cache(**{**EIGHT_B, "tokens": 17}, page_tokens=16)

    assert one.device_bytes == 32 * (GIB // 8192)


def test_a_latent_stands_in_for_heads():
    made = cache(layers=61, latent_dim=576, tokens=1000, sequences=1)

    assert made.device_bytes == 61 * 576 * 1000 * 2
    assert "kv_heads" not in made.inputs


def test_devices_share_the_heads_and_copy_them_when_there_are_too_few():
    assert cache(**EIGHT_B, tensor_parallel=4).device_bytes == GIB // 4
    assert cache(**EIGHT_B, tensor_parallel=16).device_bytes == GIB // 8


@given(caches())
def test_pages_and_slots_hold_at_least_every_token_that_is_kept(options):
    made = cache(**{k: v for k, v in options.items() if k not in ("shared_prefix", "kv_group_size")})
    windowed = options.get("window_layers", 0)
    kept = min(options["tokens"], options.get("window", options["tokens"]))
    slots = (options["layers"] - windowed) * options["tokens"] + windowed * kept
    values = 2 * options["kv_heads"] * options["head_dim"] * slots * options["sequences"]

    assert made.device_bytes * 8 >= values * options["kv_bits"]


@given(caches(), st.sampled_from(["layers", "kv_heads", "head_dim", "sequences"]))
def test_more_of_anything_never_takes_less(options, name):
    more = {**options, name: options[name] + 1}

    assert cache(**more).device_bytes >= cache(**options).device_bytes


@given(caches(), st.integers(0, 100))
def test_offloading_moves_bytes_and_loses_none(options, resident):
    here = cache(**options)
    moved = cache(**options, kv_offload=True, kv_resident_layers=resident + 1)
    rounding = len(moved.lines)

    assert 0 <= total(moved.lines) - here.device_bytes <= rounding
    assert moved.device_bytes <= here.device_bytes


@given(caches())
def test_sharing_a_prefix_never_takes_more_and_never_less_than_one_sequence(options):
    if "shared_prefix" not in options:
        options |= {"page_tokens": 16, "shared_prefix": options["tokens"]}
        options.pop("static_tokens", None)
    alone = {k: v for k, v in options.items() if k != "shared_prefix"}

    assert cache(**{**alone, "sequences": 1}).device_bytes <= cache(**options).device_bytes
    assert cache(**options).device_bytes <= cache(**alone).device_bytes


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"static_tokens": 100}, BadInput, "fewer than --tokens"),
        ({"shared_prefix": 9000, "page_tokens": 16}, BadInput, "longer than --tokens"),
        ({"window": 10, "window_layers": 33}, BadInput, "more than 32 layers"),
        ({"window_layers": 3}, UsageError, "without --window"),
        ({"shared_prefix": 10}, UsageError, "without --page-tokens"),
        ({"static_tokens": 9000, "page_tokens": 16}, UsageError, "exclude"),
        ({"latent_dim": 576}, UsageError, "exclude"),
        ({"kv_scale_bits": Fraction(16)}, UsageError, "without --kv-group-size"),
        ({"kv_resident_layers": 1}, UsageError, "without --kv-offload"),
    ],
)
def test_what_contradicts_itself_is_refused(options, error, says):
    with pytest.raises(error, match=says):
        cache(**EIGHT_B, **options)
