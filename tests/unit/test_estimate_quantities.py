"""Counts, bits, shares and sizes are read exactly, or refused in words that say what to write."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui.analysis.estimate.quantities import (
    MOST_OTHERS,
    MOST_PARAMETERS,
    parse_bits,
    parse_devices,
    parse_gib,
    parse_parameters,
    parse_share,
    parse_whole,
)
from gpumem_tui.errors import BadInput

GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7B", 7_000_000_000),
        ("7b", 7_000_000_000),
        ("7 B", 7_000_000_000),
        ("7e9", 7_000_000_000),
        ("7E+9", 7_000_000_000),
        ("0.5B", 500_000_000),
        ("6.738415616B", 6_738_415_616),
        ("350M", 350_000_000),
        ("1.5T", 1_500_000_000_000),
        ("6,738,415,616", 6_738_415_616),
        ("7_000_000_000", 7_000_000_000),
        ("1", 1),
    ],
)
def test_parameters_are_written_as_people_do(text, count):
    assert parse_parameters(text) == count


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "at least 1"),
        ("-7B", "not understood"),
        ("nan", "not understood"),
        ("inf", "not understood"),
        ("7,5B", "not understood"),
        ("7,00", "not understood"),
        ("0x10", "name, not a count"),
        ("٧B", "not understood"),
        ("", "not understood"),
        ("9" * 5000, "not understood"),
        ("7GB", "not bytes"),
        ("24GiB", "not bytes"),
        ("8x7B", "experts"),
        ("1e99", "the most is"),
        ("1.5", "whole number"),
    ],
)
def test_what_is_no_count_of_parameters_is_refused_in_one_line(text, says):
    with pytest.raises(BadInput, match=says) as error:
        parse_parameters(text)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 200


@given(st.integers(1, MOST_PARAMETERS))
def test_a_count_comes_back_from_every_way_to_write_it(count):
    ways = (str(count), f"{count:,}", f"{count:_}", f"{count}e0")

    assert {parse_parameters(way) for way in ways} == {count}


@given(st.integers(1, MOST_OTHERS))
def test_a_whole_number_comes_back(count):
    assert parse_whole(str(count), what="--tokens") == parse_whole(f"{count:,}", what="--tokens") == count


@pytest.mark.parametrize(
    "text", ["8K", "8k", "1.5", "-1", "0", "nan", "1e3", "", "8 tokens", str(MOST_OTHERS + 1)]
)
def test_what_is_no_whole_number_is_refused(text):
    with pytest.raises(BadInput, match="--tokens"):
        parse_whole(text, what="--tokens")


def test_thousands_of_tokens_are_ambiguous():
    with pytest.raises(BadInput, match="8000 or 8192"):
        parse_whole("8K", what="--tokens")


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("16", 16),
        ("4.5", Fraction(9, 2)),
        ("bf16", 16),
        ("FP32", 32),
        ("int4", 4),
        ("nf4", 4),
        ("8-bit", 8),
        ("64", 64),
    ],
)
def test_bits_are_numbers_or_names_of_formats(text, bits):
    assert parse_bits(text) == bits


@pytest.mark.parametrize("text", ["0", "65", "-4", "nan", "16 bytes", "float17", "", "1e1", "4.5.5", "²"])
def test_what_is_no_number_of_bits_is_refused(text):
    with pytest.raises(BadInput, match="--bits"):
        parse_bits(text)


@given(st.integers(0, 10**6))
def test_gib_are_exact(number):
    assert parse_gib(str(number), what="--reserve-gib") == number * GIB


@pytest.mark.parametrize("text", ["4GiB", "4 GB", "-1", "nan", "inf", "1e3", "", "99999999999"])
def test_what_is_no_number_of_gib_is_refused(text):
    with pytest.raises(BadInput, match="--reserve-gib"):
        parse_gib(text, what="--reserve-gib")


@pytest.mark.parametrize(
    ("text", "share"), [("0.5%", Fraction(1, 200)), ("0.005", Fraction(1, 200)), ("100%", 1), ("1", 1)]
)
def test_a_share_is_a_percentage_or_a_fraction(text, share):
    assert parse_share(text, what="--trainable-share") == share


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0", "between"),
        ("5", "5% perhaps"),
        ("101%", "between"),
        ("-1%", "not understood"),
        ("nan", "not understood"),
    ],
)
def test_what_is_no_share_is_refused(text, says):
    with pytest.raises(BadInput, match=says):
        parse_share(text, what="--trainable-share")


def test_devices_are_sizes_in_binary_units():
    assert parse_devices("24GiB,80GiB") == (24 * GIB, 80 * GIB)


def test_a_decimal_device_size_is_refused_as_everywhere():
    with pytest.raises(BadInput, match="24GiB"):
        parse_devices("24GB")


def test_a_device_of_24_bytes_is_refused_with_what_was_meant():
    with pytest.raises(BadInput, match="'24' is 24 B, which no card has; write 24GiB"):
        parse_devices("24")
