"""What the view costs: bytes on the line, share of a core, time to the first frame.

Bounds here are loose (machines differ, tests run side by side); the figures are
printed with ``-s`` and are the ones to quote.
"""

import time

import psutil
import pytest
from tui.terminals import Terminal

pytestmark = pytest.mark.slow
SECONDS = 6


def cost(*arguments, size, keys=""):
    """(bytes a second, share of a core, seconds to the first frame) of a view at 1 Hz."""
    view = Terminal(*arguments, size=size)
    try:
        first = view.wait_for("allocated" if "--devices" not in arguments else "ranks")
        view.pump(1.5)
        view.type(keys)
        view.pump(1.5)
        process = psutil.Process(view.process.pid)
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        sent = 0
        while time.monotonic() - began < SECONDS:
            sent += len(view.pump(0.5))
        took = time.monotonic() - began
        core = (sum(process.cpu_times()[:2]) - before) / took
    finally:
        view.close()
    print(
        f"{arguments} {size} {keys!r}: {sent / took:.0f} B/s, {core:.1%} of a core, first frame {first:.2f} s"
    )
    return sent / took, core, first


def test_eight_busy_cards_on_a_large_terminal_stay_within_3_kib_a_second():
    rate, core, _ = cost("--devices", "8", size=(160, 50))

    assert rate <= 3 * 1024
    assert core < 0.25


def test_one_card_on_a_small_terminal_stays_within_1_kib_a_second():
    rate, _, first = cost("--devices", "1", size=(80, 24))

    assert rate <= 1024
    assert first < 5


def test_a_paused_view_sends_nothing_but_how_far_it_is_behind():
    rate, _, _ = cost("--devices", "8", size=(160, 50), keys=" ")

    assert rate <= 40


def test_an_unchanged_picture_sends_nothing():
    rate, _, _ = cost("--devices", "8", "--still", size=(160, 50))

    assert rate == 0


def test_unchanged_phases_send_nothing():
    rate, _, _ = cost("--devices", "8", "--still", size=(160, 50), keys="3")

    assert rate == 0


def test_moving_phases_of_eight_ranks_stay_within_1_kib_a_second():
    rate, _, _ = cost("--devices", "8", size=(160, 50), keys="3")

    assert rate <= 1024
