"""Weights: parameters times bits, to the byte; what is left out is said; lines sum to the sum."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.estimate.figures import Basis, Origin, Place, bytes_of, per_rank
from gpumem_tui.analysis.estimate.plan import Request, estimate
from gpumem_tui.errors import BadInput, UsageError
from gpumem_tui.units import format_both

GIB = 1 << 30

counts = st.integers(1, 10**15)
bits = st.integers(1, 64).map(Fraction) | st.fractions(Fraction(1, 8), 64, max_denominator=1000)


def weights_of(params, bits, **more):
    """The estimate of uniform weights."""
    return estimate(Request(params=params, bits=Fraction(bits), **more))


@pytest.mark.parametrize(
    ("params", "width", "size", "gb", "gib"),
    [
        (7_000_000_000, 16, 14_000_000_000, "14.00 GB", "13.04 GiB"),
        (7_000_000_000, 32, 28_000_000_000, "28.00 GB", "26.08 GiB"),
        (7_000_000_000, 4, 3_500_000_000, "3.50 GB", "3.26 GiB"),
        (13_000_000_000, 16, 26_000_000_000, "26.00 GB", "24.21 GiB"),
    ],
)
def test_the_figures_everyone_quotes(params, width, size, gb, gib):
    made = weights_of(params, width)

    assert made.device_bytes == size
    assert format_both(made.device_bytes) == f"{size:,} bytes, {gb}, {gib}"
    assert made.basis is Basis.COMPUTED


def test_packed_weights_say_that_scales_are_not_in_them():
    (line,) = weights_of(7_000_000_000, 4).lines

    assert "without scales and other metadata" in line.notes[0]
    assert not weights_of(7_000_000_000, 16).lines[0].notes


def test_a_reserve_is_a_line_of_its_own():
    made = weights_of(7_000_000_000, 16, reserve_gib=4 * GIB)

    assert [line.key for line in made.lines] == ["weights", "reserve"]
    assert made.device_bytes == 14_000_000_000 + 4 * GIB
    assert format_both(made.device_bytes).endswith("17.04 GiB")


def test_scales_are_counted_where_the_size_of_groups_is_given():
    made = weights_of(7_000_000_000, 4, group_size=64, scale_bits=Fraction(32))
    weights, scales = made.lines

    assert weights.bytes == 3_500_000_000
    assert scales.bytes == 7_000_000_000 // 64 * 4
    assert not weights.notes


def test_bits_that_nobody_gave_are_assumed_and_labelled():
    made = estimate(Request(params=10))

    assert made.inputs["bits"].origin is Origin.ASSUMED
    assert made.lines[0].basis is Basis.ASSUMED


@given(counts, bits)
def test_a_line_is_the_least_number_of_whole_bytes_that_hold_the_bits(params, width):
    size = weights_of(params, width).device_bytes

    assert (size - 1) * 8 < params * width <= size * 8


@given(counts, bits, st.integers(0, 10**6))
def test_more_parameters_never_take_less(params, width, more):
    larger = weights_of(params + more, width)

    assert larger.device_bytes >= weights_of(params, width).device_bytes


@given(counts, st.integers(1, 63))
def test_more_bits_always_take_at_least_as_much(params, width):
    assert weights_of(params, width + 1).device_bytes >= weights_of(params, width).device_bytes


@given(counts, bits, st.integers(0, 1 << 50), st.integers(1, 8192))
def test_the_lines_on_the_device_sum_to_the_sum(params, width, reserve, group):
    scaled = {"group_size": group} if width < 16 else {}

    made = weights_of(params, width, reserve_gib=reserve, **scaled)

    assert sum(line.bytes for line in made.at(Place.DEVICE)) == made.device_bytes


@given(st.integers(0, 10**18))
def test_gb_and_gib_say_the_same_bytes(size):
    raw, gb, gib = (part.rpartition(" ")[0] for part in format_both(size).split(", "))

    assert int(raw.replace(",", "")) == size
    assert abs(float(gb) * 1e9 - size) <= 0.005e9 + size * 1e-12
    assert abs(float(gib) * GIB - size) <= 0.005 * GIB + size * 1e-12


@given(counts, st.integers(1, 4096))
def test_parts_of_an_even_split_hold_the_whole_and_waste_less_than_one_each(count, ranks):
    part = per_rank(count, ranks)

    assert count <= part * ranks < count + ranks


@given(counts, st.integers(1, 16))
def test_tensor_parallel_devices_together_hold_at_least_the_whole(params, devices):
    whole = weights_of(params, 16).device_bytes
    made = weights_of(params, 16, tensor_parallel=devices)

    assert whole <= made.device_bytes * devices < whole + 2 * devices
    assert made.basis is (Basis.ASSUMED if devices > 1 else Basis.COMPUTED)


def test_a_fraction_of_a_bit_rounds_up_to_whole_bytes():
    assert bytes_of(3, Fraction(9, 2)) == 2


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(), "nothing to estimate"),
        (Request(bits=Fraction(16)), "--bits says nothing without the number of parameters"),
        (Request(params=1, bits=Fraction(16), group_size=64), "--group-size says nothing"),
        (Request(params=1, scale_bits=Fraction(16)), "--scale-bits says nothing without --group-size"),
        (Request(params=1, kv_heads=8), "--kv-heads says nothing without --tokens"),
        (Request(params=1, optimizer="adam"), "--optimizer says nothing without --train"),
        (Request(params=1, train=True, shard="full"), "--shard says nothing without --ranks"),
        (Request(params=1, train=True, tensor_parallel=2), "exclude each other"),
        (Request(tokens=1), "needs --layers"),
        (Request(tokens=1, layers=1), "needs --kv-heads"),
        (Request(tokens=1, layers=1, kv_heads=1), "needs --head-dim"),
    ],
)
def test_options_that_say_nothing_are_refused(request_, says):
    with pytest.raises(UsageError, match=says):
        estimate(request_)


def test_what_no_arithmetic_knows_is_always_named_as_left_out():
    keys = {entry.key for entry in weights_of(7_000_000_000, 16).omissions}

    assert keys >= {"activations", "workspaces", "context", "fragmentation"}


def test_what_was_asked_for_is_not_among_what_is_left_out():
    full = Request(params=10, bits=Fraction(16), tokens=1, layers=1, kv_heads=1, head_dim=1, train=True)
    keys = {entry.key for entry in estimate(full).omissions}
    others = {entry.key for entry in weights_of(10, 16).omissions}

    assert not keys & {"weights", "kv_cache", "training"}
    assert {"kv_cache", "training"} <= others


def test_heads_that_cannot_be_shared_evenly_are_refused():
    request = Request(tokens=1, layers=1, kv_heads=8, head_dim=1, tensor_parallel=3)

    with pytest.raises(BadInput, match="evenly"):
        estimate(request)
