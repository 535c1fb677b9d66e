"""Alerts of a run that goes on: raised when a threat holds, kept from flickering, gone when it has passed."""

from pathlib import Path

import pytest

from gpumem_tui import records
from gpumem_tui.analysis.findings import Verdict
from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import Severity
from gpumem_tui.session.alerts import AlertBook
from gpumem_tui.session.driver import DriverModel
from gpumem_tui.session.failures import Context, FailureBook
from gpumem_tui.session.picture import Picture
from gpumem_tui.session.rank import RankModel
from gpumem_tui.session.recognition import Recognition
from gpumem_tui.units import GIB, MIB

SECOND = 10**9
WHO = (100, 1)


class Going:
    """One rank on one 24 GiB card that goes on, told record by record."""

    def __init__(self):
        self.book = FailureBook(Path("nosuch"))
        self.alerts = AlertBook()
        self.model = RankModel(*WHO)
        self.driver = DriverModel()
        self.now_ns = 10**12
        self.step = self.seq = 0
        self.life = Life.RUNNING
        self.rank(records.Rank(self.now_ns, 1, 1, 2, 2, "environment"))
        self.rank(records.Device(self.now_ns, 0, "aa", None, "card", 24 * GIB, "uuid"))
        self.tell(records.Gpu(self.now_ns, 0, "aa", None, "card", 24 * GIB))

    def rank(self, record):
        self.model.take(record)
        self.book.of_rank(WHO, record)

    def tell(self, record):
        self.driver.take(record)
        self.book.of_driver(record)
        if isinstance(record, records.Processes):
            self.driver.gpus[0].add_processes(record)

    def card(self, allocated, reserved, free, others=()):
        """Counters and the driver's reading of now."""
        self.rank(records.Sample(self.now_ns, 0, allocated, reserved))
        self.tell(records.Memory(self.now_ns, 0, 0, 24 * GIB, free, 24 * GIB - free, 0, 2))
        rows = [(100, reserved + GIB // 2, "C", None), *((pid, used, "C", None) for pid, used in others)]
        self.tell(records.Processes(self.now_ns, 0, 0, rows))

    def train(self, allocated, peak=None):
        """A step whose forward begins with so much."""
        self.step += 1
        self.seq += 2
        level = (0, allocated, allocated)
        self.rank(records.Begin(self.now_ns, self.seq, self.seq, None, 1, "forward", "N", self.step, [level]))
        self.now_ns += SECOND // 10
        end = (0, allocated, allocated, peak or allocated, peak or allocated, True)
        self.rank(records.End(self.now_ns, self.seq + 1, self.seq, None, [end]))

    def look(self, later_s=0.0):
        """What is shown, so many seconds later."""
        self.now_ns += round(later_s * SECOND)
        recognition = Recognition(self.driver)
        ranks = {WHO: self.model}
        picture = Picture(self.now_ns, None, self.driver, ranks, lambda who: True, recognition, 10 * SECOND)
        now = Context(
            ranks, self.driver, recognition, {}, (), self.life, self.now_ns, lambda who: True
        )  # fmt: skip
        return self.alerts.alerts(self.book, now, picture.devices())


@pytest.fixture
def going():
    return Going()


def leaking(going, steps, slope=100 * MIB):
    for n in range(steps):
        going.train(4 * GIB + n * slope, peak=10 * GIB + n * slope)
    going.card(4 * GIB + steps * slope, 12 * GIB, 11 * GIB)


def test_growth_per_step_is_shown_at_the_second_look_with_the_steps_left(going):
    leaking(going, 40)
    first = going.look()
    going.card(8 * GIB, 12 * GIB, 11 * GIB)
    (alert,) = going.look(1.1)

    assert first == ()
    assert alert.finding.verdict is Verdict.GROWTH
    assert alert.text.startswith("rank 1 grows by 100 MiB a step: 94 steps left")
    assert (alert.rank, alert.device, alert.severity) == (1, 0, Severity.WARNING)


def test_eleven_steps_are_not_enough(going):
    leaking(going, 13)  # the first two make what later ones keep
    going.look()

    assert going.look(1.1) == ()


def test_a_level_that_breathes_is_no_growth(going):
    for n in range(60):
        going.train(4 * GIB + (n % 7) * 200 * MIB)
    going.card(5 * GIB, 12 * GIB, 11 * GIB)
    going.look()

    assert going.look(1.1) == ()


def test_an_alert_is_held_for_five_seconds_after_it_was_last_seen(going):
    leaking(going, 40)
    going.look()
    going.card(8 * GIB, 12 * GIB, 11 * GIB)
    going.look(1.1)
    for _ in range(30):
        going.train(5 * GIB)
    going.card(5 * GIB, 12 * GIB, 11 * GIB)
    held, gone = going.look(), going.look(8)

    assert len(held) == 1
    assert gone == ()


def test_nothing_threatens_a_run_that_is_over(going):
    leaking(going, 40)
    going.look()
    going.card(8 * GIB, 12 * GIB, 11 * GIB)
    shown = going.look(1.1)
    going.life = Life.ENDED

    assert shown
    assert going.look() == ()


def test_optimizer_state_is_forecast_at_once(going):
    going.card(10 * GIB, 10 * GIB, 12 * GIB)
    going.rank(records.Optimizer(going.now_ns, 0, "AdamW", 7 * GIB, 0, []))
    (alert,) = going.look()

    assert alert.text == "rank 1: AdamW's first step makes 14.0 GiB of state; there is room for 12.0 GiB"


@pytest.mark.parametrize(
    ("name", "options", "held"),
    [("SGD", [], 0), ("SGD", ["momentum"], 0), ("MyOwn", [], 0), ("AdamW", [], 14 * GIB)],
)
def test_an_optimizer_with_little_or_unknown_state_threatens_nobody(going, name, options, held):
    going.card(10 * GIB, 10 * GIB, 12 * GIB)
    going.rank(records.Optimizer(going.now_ns, 0, name, 7 * GIB, held, options))

    assert going.look() == ()


def test_a_neighbour_that_fills_the_card_soon_is_named_with_its_pace(going):
    for n in range(10):
        going.card(4 * GIB, 5 * GIB, (17 - n) * GIB, others=[(71, (1 + n) * GIB)])
        shown = going.look(2)
    (alert,) = shown

    assert alert.finding.verdict is Verdict.OTHER_PROCESS
    assert alert.text.startswith("GPU 0: process 71 fills the card in ")
    assert (alert.rank, alert.device) == (None, 0)


def after_one_stroke(going, took, free):
    """What is shown ten seconds after a neighbour took its memory between two readings."""
    for n in range(7):
        held = [(71, GIB if n < 2 else took + GIB)]
        going.card(4 * GIB, 5 * GIB, free, others=held)
        shown = going.look(2)
    return shown


def test_what_a_neighbour_took_at_one_stroke_is_no_pace(going):
    assert after_one_stroke(going, took=6 * GIB, free=8 * GIB) == ()


def test_a_neighbour_that_took_more_than_it_left_is_named_without_a_forecast(going):
    (alert,) = after_one_stroke(going, took=6 * GIB, free=2 * GIB)

    assert alert.text.startswith("GPU 0: process 71 took 6.00 GiB in ")
    assert alert.text.endswith("s, more than the 2.00 GiB that it left free")


def test_a_neighbour_that_grew_and_stopped_has_no_pace(going):
    for n in range(12):
        going.card(4 * GIB, 5 * GIB, 10 * GIB, others=[(71, min(1 + n, 5) * GIB)])
        shown = going.look(2)

    assert shown == ()


def test_a_neighbour_that_stands_still_is_no_threat(going):
    for _ in range(10):
        going.card(4 * GIB, 5 * GIB, 8 * GIB, others=[(71, 10 * GIB)])
        shown = going.look(2)

    assert shown == ()


def test_flushes_in_a_row_are_pressure(going):
    going.card(20 * GIB, 22 * GIB, 1 * GIB)
    going.rank(records.Pressure(going.now_ns, 0, 5, 5))
    going.look()
    going.card(20 * GIB, 22 * GIB, 1 * GIB)
    (alert,) = going.look(1.1)

    assert alert.finding.verdict is Verdict.PRESSURE
    assert "5 allocations" in alert.text


def test_what_pytorch_keeps_of_a_full_card_is_a_state_and_comes_last(going):
    going.card(8 * GIB, 22 * GIB, 1 * GIB)
    going.rank(records.Pressure(going.now_ns, 0, 5, 5))
    going.look()
    going.card(8 * GIB, 22 * GIB, 1 * GIB)
    shown = going.look(1.1)

    assert [a.finding.verdict for a in shown] == [Verdict.PRESSURE, Verdict.RESERVED_IDLE]
    assert shown[-1].severity is Severity.INFO
    assert "14.0 GiB reserved and unused" in shown[-1].text


def test_a_rank_that_says_nothing_any_more_is_not_judged(going):
    leaking(going, 40)
    going.look()

    assert going.look(20) == ()
