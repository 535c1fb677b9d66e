"""What the view costs: bytes on the line, share of a core, time to the first frame.

Bounds here are loose (machines differ, tests run side by side); the figures are
printed with ``-s`` and are the ones to quote.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from tui.terminals import Terminal

pytestmark = pytest.mark.slow
SECONDS = 6
LARGE = (160, 50)
VIEWS = {
    "busy": ("--devices 8", LARGE, ""),
    "small": ("--devices 1", (80, 24), ""),
    "paused": ("--devices 8", LARGE, " "),
    "still": ("--devices 8 --still", LARGE, ""),
    "one card": ("--devices 8", LARGE, "2"),
    "past": ("--devices 8 --start 400", LARGE, "2" + "\x1b[1;2D" * 2),
    "still phases": ("--devices 8 --still", LARGE, "3"),
    "phases": ("--devices 8", LARGE, "3"),
    "low bandwidth": ("--devices 8 --low-bandwidth", LARGE, ""),
}
"""Name → options, size, and the keys that are typed before it is measured."""


def watch(view: Terminal, keys: str) -> tuple[float, float, int]:
    """Bytes a second and the share of a core of a view at 1 Hz, while nobody types; how often some came."""
    view.pump(1.5)
    view.type(keys)
    view.pump(1.5)
    process = psutil.Process(view.process.pid)
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    sent = times = 0
    while time.monotonic() - began < SECONDS:
        came = len(view.pump(0.5))
        sent, times = sent + came, times + bool(came)
    took = time.monotonic() - began
    return sent / took, (sum(process.cpu_times()[:2]) - before) / took, times


@pytest.fixture(scope="module")
def costs():
    """Bytes a second, share of a core, how often some came, seconds to the first frame, by names of views.

    They are opened one after the other, and then watched at the same time.
    """
    views, firsts = {}, {}
    try:
        for name, (options, size, _) in VIEWS.items():
            views[name] = Terminal(*options.split(), size=size)
            firsts[name] = views[name].wait_for("allocated" if name == "small" else "ranks")
        with ThreadPoolExecutor(len(VIEWS)) as pool:
            watched = {name: pool.submit(watch, views[name], keys) for name, (_, _, keys) in VIEWS.items()}
        found = {name: (*future.result(), firsts[name]) for name, future in watched.items()}
    finally:
        for view in views.values():
            view.close()
    for name, (rate, core, _, first) in found.items():
        print(f"{name} {VIEWS[name]}: {rate:.0f} B/s, {core:.1%} of a core, first frame {first:.2f} s")
    return found


def test_eight_busy_cards_on_a_large_terminal_stay_within_3_kib_a_second(costs):
    rate, core, *_ = costs["busy"]

    assert rate <= 3 * 1024
    assert core < 0.25


def test_one_card_on_a_small_terminal_stays_within_1_kib_a_second(costs):
    rate, _, _, first = costs["small"]

    assert rate <= 1024
    assert first < 5


def test_a_paused_view_of_a_run_that_goes_on_tells_no_seconds_but_tens_of_them(costs):
    rate, _, times, _ = costs["paused"]

    assert times <= SECONDS // 10 + 1
    assert rate <= 40


def test_an_unchanged_picture_sends_nothing(costs):
    rate, *_ = costs["still"]

    assert rate == 0


def test_the_screen_of_one_card_stays_within_2_kib_a_second(costs):
    rate, *_ = costs["one card"]

    assert rate <= 2 * 1024


def test_a_cursor_in_the_past_stands_still(costs):
    rate, _, times, _ = costs["past"]

    assert times <= 1  # it counts minutes by then
    assert rate <= 40


def test_unchanged_phases_send_nothing(costs):
    rate, *_ = costs["still phases"]

    assert rate == 0


def test_moving_phases_of_eight_ranks_stay_within_1_kib_a_second(costs):
    rate, *_ = costs["phases"]

    assert rate <= 1024


def test_low_bandwidth_stays_within_1_kib_a_second_on_a_large_terminal(costs):
    rate, *_ = costs["low bandwidth"]

    assert rate <= 1024
