"""Steps are counted as a person would count iterations."""

import itertools

import pytest

from gpumem_tui.agent.steps import Steps


def play(events: str) -> list[int]:
    """``f`` is a training forward, a capital letter an optimizer's step; the count at each forward."""
    steps, counts = Steps(), []
    for event in events:
        if event == "f":
            steps.forward()
            counts.append(steps.count)
        else:
            steps.stepped(ord(event))
    return counts


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ("fAfAfA", [1, 2, 3]),
        ("ffffAffffA", [1, 1, 1, 1, 2, 2, 2, 2]),  # gradient accumulation
        ("fABfABfAB", [1, 2, 3]),  # two optimizers after one backward
        ("fABCDfABCDfABCD", [1, 2, 3]),  # one for each parameter, in backward
    ],
)
def test_one_iteration_is_one_step(events, counts):
    assert play(events) == counts


def test_a_gan_with_two_optimizers_goes_up_once_an_iteration_from_the_second_round_on():
    counts = play("ffA" + "fB" + "ffAfB" * 5)

    assert counts[3:] == [2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6]


def test_a_critic_that_steps_more_often_counts_every_time():
    counts = play("fAfAfAfAfB" * 4)

    assert counts[-1] >= 16
    assert counts == sorted(counts)
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 2


def test_another_optimizer_leads_when_the_first_is_gone():
    counts = play("fA" * 3 + "fB" * 10)

    assert counts[-5:] == [counts[-5] + i for i in range(5)]
