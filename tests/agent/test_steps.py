"""Steps are counted as a person would count iterations."""

import itertools

import pytest

from gpumem_tui.agent.steps import Steps


def play(events: str, made: str = "") -> list[int]:
    """The count at each forward; ``made`` are the optimizers that there are before.

    ``f`` is a training forward (``F`` without gradients of before), ``b`` a backward,
    ``g`` gradients that are returned, ``u`` a backward of no model's outcome, ``!`` the end of all
    optimizers so far, a digit a call of that model outside training, any other capital letter an
    optimizer's step.
    """
    steps, counts, lives, gone = Steps(), [], [], set()
    for optimizer in made:
        steps.made(ord(optimizer))
    for event in events:
        if event in "fF":
            steps.forward(cleared=event == "F")
            counts.append(steps.count)
        elif event in "bg":
            steps.backward(accumulates=event == "b")
        elif event == "u":
            steps.unmodelled()
            steps.backward()
            counts.append(steps.count)
        elif event == "!":
            gone.update(lives)
            lives = []
        elif event.isdigit():
            steps.inferred(int(event))
            counts.append(steps.count)
        else:
            life = object()
            lives.append(life)
            steps.stepped(ord(event), lambda life=life: None if life in gone else life)
    return counts


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ("fAfAfA", [1, 2, 3]),
        ("fbfbfbfbAfbfbfbfbA", [1, 1, 1, 1, 2, 2, 2, 2]),  # gradient accumulation
        ("fABfABfAB", [1, 2, 3]),  # two optimizers after one backward
        ("fABCDfABCDfABCD", [1, 2, 3]),  # one for each parameter, in backward
        ("FbFbFb", [1, 2, 3]),  # parameters updated by hand, gradients cleared
        ("FbfbfbAFbfbfbA", [1, 1, 1, 2, 2, 2]),  # accumulation is not that: its gradients stay
        ("uAuAuA", [1, 2, 3]),  # parameters that are in no module
        ("uuAuuA", [1, 1, 2, 2]),  # and accumulation of their gradients
        ("fAfA!fBfB!fCfC", [1, 2, 3, 4, 5, 6]),  # a new model for each fold
        ("fABfAB!fCDfCD", [1, 2, 3, 4]),  # and with two optimizers each
        ("111", [1, 2, 3]),  # inference
        ("121212", [1, 1, 2, 2, 3, 3]),  # an encoder and a decoder serve one request
        ("11fbA1fbA11fbA", [1, 2, 1, 1, 2, 2, 2, 3]),  # a check before training, evaluations within it
    ],
)
def test_one_iteration_is_one_step(events, counts):
    assert play(events) == counts


def test_a_gan_with_two_optimizers_goes_up_once_an_iteration_from_the_second_round_on():
    counts = play("ffA" + "fB" + "ffAfB" * 5)

    assert counts[3:] == [2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6]


def test_a_gan_whose_optimizers_are_made_before_goes_up_once_an_iteration_from_the_first_on():
    assert play("fffbAfbB" * 3, made="AB") == [1] * 4 + [2] * 4 + [3] * 4


def test_an_optimizer_that_never_steps_holds_up_no_more_than_the_second_step():
    assert play("fbA" * 5, made="AB") == [1, 1, 3, 4, 5]


def test_a_critic_that_steps_more_often_counts_every_time():
    counts = play("fAfAfAfAfB" * 4)

    assert counts[-1] >= 16
    assert counts == sorted(counts)
    assert max(b - a for a, b in itertools.pairwise(counts)) <= 2


def test_another_optimizer_leads_when_the_first_is_gone():
    counts = play("fA" * 3 + "fB" * 10)

    assert counts[-5:] == [counts[-5] + i for i in range(5)]


def test_where_another_optimizer_leads_it_has_led_since_its_first_step():
    assert play("fA" * 3 + "fB" * 10)[-1] == 13


def test_an_engine_leads_though_it_had_its_optimizer_step_when_it_was_made():
    steps, counts = Steps(), []
    steps.stepped(ord("A"))
    for _ in range(4):
        for _ in range(2):
            steps.forward()
            counts.append(steps.count)
            steps.backward()
            steps.leads(0)
        steps.stepped(0)

    assert counts == [1, 1, 2, 2, 3, 3, 4, 4]


def test_gradients_of_inputs_end_no_step_of_an_optimizer_that_is_to_come():
    assert play("FgFbA" * 3, made="A") == [1, 1, 2, 2, 3, 3]
    assert play("FgFgFg") == [1, 2, 3]  # nor is there one: parameters are updated by hand


def test_a_model_that_is_called_many_times_before_its_first_backward_is_in_its_first_step():
    assert play("ffffffffbAffffffffbA")[8:] == [2] * 8


def test_forwards_in_training_mode_that_nobody_learns_from_are_counted():
    assert play("f" * 10)[-1] == 10


def test_another_model_leads_when_the_first_is_called_no_more():
    counts = play("1" * 5 + "2" * 10)

    assert counts[-5:] == [counts[-5] + i for i in range(5)]
