"""Whose row is a rank's: by pid, by its namespace's pid, and never by a pid that was used again."""

from hypothesis import given
from hypothesis import strategies as st

from gpumem_tui import records
from gpumem_tui.analysis.identity import Claim, Evidence
from gpumem_tui.analysis.state import Band
from gpumem_tui.session.driver import DriverModel, GpuModel
from gpumem_tui.session.outside import Outside
from gpumem_tui.session.rank import RankModel
from gpumem_tui.session.recognition import Recognition, by_pid

SECOND = 1_000_000_000
MIB = 1 << 20


def known(pid, ticks, inner=None, visible=True):
    return records.Process(0, pid, ticks, visible=visible, namespace_pid=inner)


def test_the_same_pid_with_the_same_start_is_the_rank():
    assert by_pid(RankModel(7, 50), [7, 8], {7: known(7, 50)}) == Claim(7, Evidence.PID)


def test_a_pid_that_was_used_again_is_not():
    assert by_pid(RankModel(7, 50), [7], {7: known(7, 99)}) is None


def test_from_outside_a_container_the_namespace_s_pid_tells():
    names = {7: known(7, 99), 4711: known(4711, 50, inner=7)}

    assert by_pid(RankModel(7, 50), [7, 4711], names) == Claim(4711, Evidence.NAMESPACE)


def test_another_container_s_process_of_the_same_inner_pid_is_not_the_rank():
    names = {7: known(7, 50), 4711: known(4711, 80, inner=7)}

    assert by_pid(RankModel(7, 50), [4711, 7], names) == Claim(7, Evidence.PID)
    assert by_pid(RankModel(7, 50), [4711], {4711: names[4711]}) is None


class Card:
    """A recording's view of one device: process lists, and one rank's counters between them."""

    def __init__(self):
        self.driver = DriverModel()
        self.gpu = GpuModel(records.Gpu(0, 0, uuid="aaaa"))
        self.model = RankModel(7, 50)
        self.model.take(records.Device(0, 0, uuid="aaaa"))
        self.recognition = Recognition(self.driver)
        self.t_ns = SECOND

    def list(self, reserved, used):
        for offset in (-150, 0, 150):
            at = self.t_ns + offset * 1_000_000
            self.model.take(records.Sample(at, 0, reserved * MIB, reserved * MIB))
        rows = [(pid, size * MIB, "C", None) for pid, size in used.items()]
        for pid in used:
            self.driver.names.setdefault(pid, known(pid, None, visible=False))
        listed = records.Processes(self.t_ns, 0, 0, rows)
        new = self.recognition.judge(self.gpu, listed, {self.model: 0})
        self.t_ns += SECOND
        return new, self.recognition.claim(self.gpu, self.model, used)


def test_growth_recognises_a_rank_once_and_keeps_it_while_it_is_listed():
    card = Card()
    news, claims = zip(
        *(card.list(level, {900: 2000, 901: 500 + level}) for level in (100, 400, 250, 900, 120)), strict=True
    )
    gone = card.recognition.claim(card.gpu, card.model, {900})

    assert [len(new) for new in news] == [0, 0, 0, 1, 0]
    assert [claim.pid if claim else None for claim in claims] == [None, None, None, 901, 901]
    assert gone is None


def test_a_process_that_this_namespace_shows_is_what_it_seems_a_stranger():
    card = Card()
    card.driver.names[901] = known(901, 77)
    for level in (100, 400, 250, 900, 120):
        _, claim = card.list(level, {901: 500 + level})

    assert claim is None


# --- memory outside PyTorch over time -------------------------------------------------------------


def band(phase, since, until, depth=0):
    return Band(7, 0, phase, phase, depth, since * SECOND, None if until is None else until * SECOND, None)


def test_a_step_is_tagged_with_what_was_open_between_its_two_readings():
    outside = Outside(0, 7, 1 * SECOND, 500 * MIB)
    outside.stands(2 * SECOND, 501 * MIB)
    bands = [band("load", 0, 1), band("train", 2, None), band("forward", 3, 4, 1), band("eval", 9, None)]
    marks = [records.Mark(3 * SECOND, "first collective"), records.Mark(3 * SECOND, "mark", "mine")]
    outside.add(4 * SECOND, 700 * MIB, bands, marks)
    state = outside.state(0)

    (step,) = state.steps
    assert (step.since_ns, step.t_ns, step.bytes) == (2 * SECOND, 4 * SECOND, 200 * MIB)
    assert step.phases == ("train", "forward")
    assert step.marks == ("first collective", "mine")
    assert (state.baseline_bytes, state.bytes) == (500 * MIB, 700 * MIB)


@given(st.lists(st.integers(-500, 500), max_size=40))
def test_baseline_and_steps_are_what_it_holds_but_for_what_is_too_small(changes):
    value = 500 * MIB
    outside = Outside(0, 7, 0, value)
    for number, change in enumerate(changes, 1):
        value += change * MIB
        if outside.is_step(value):
            outside.add(number, value, [], [])
        else:
            outside.stands(number, value)
    state = outside.state(0)

    assert state.bytes == value
    assert abs(state.baseline_bytes + sum(step.bytes for step in state.steps) - value) < 16 * MIB
