"""What ``--simulate`` takes: sizes, several of one, and what it refuses with a word on why."""

import pytest

from gpumem_tui.cli.simulation import Simulation
from gpumem_tui.errors import BadInput
from gpumem_tui.units import GIB


@pytest.mark.parametrize(
    ("sizes", "devices"),
    [
        ("24GiB", (24,)),
        ("24GiB,40GiB", (24, 40)),
        ("2x24GiB", (24, 24)),
        ("2 × 24 GiB", (24, 24)),
        ("2x24GiB,80GiB", (24, 24, 80)),
        ("16X8GiB", (8,) * 16),
    ],
)
def test_sizes_are_cards_in_their_order(sizes, devices):
    assert Simulation.of(sizes, None, []).devices == tuple(size * GIB for size in devices)


@pytest.mark.parametrize(
    "sizes", ["17x8GiB", "0x8GiB", "9x8GiB,8x8GiB", "999999999x8GiB", ",".join(["8GiB"] * 17)]
)
def test_no_card_and_more_than_sixteen_are_refused(sizes):
    with pytest.raises(BadInput, match="takes 1 to 16 cards"):
        Simulation.of(sizes, None, [])


@pytest.mark.parametrize("sizes", ["", "x24GiB", "2x", "2x24", "24GiB,", "-2x24GiB", "2x2x24GiB"])
def test_what_is_no_size_is_refused(sizes):
    with pytest.raises(BadInput):
        Simulation.of(sizes, None, [])
