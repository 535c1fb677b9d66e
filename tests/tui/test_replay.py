"""``replay`` in a real terminal: on a recording at its end, in its past, and played from its start."""

import subprocess

import pytest
from product import COMMAND

from gpumem_tui import demo

pytestmark = pytest.mark.slow
LEFT = "\x1b[D"


def test_a_recording_opens_at_its_end_and_its_past_is_a_key_away(on_pty):
    view = on_pty("replay", demo.RECORDING)
    ended = view.wait_for("exit code 1")
    view.press(LEFT * 20)
    view.wait_for("before the end")
    held = view.wait_for("running since")
    view.press("\x1b[F")
    view.wait_for("7 map  ? help  q")
    view.press("q")

    assert "RECORDED" in ended
    assert "┃" in held
    assert view.wait_for_end() == 0


def test_a_played_recording_goes_on_from_its_start_to_its_end(on_pty):
    view = on_pty("replay", demo.RECORDING, "--speed", "40")
    view.wait_for("running since")
    view.wait_for("exit code 1")
    view.press("q")

    assert view.wait_for_end() == 0


def test_a_played_recording_is_left_without_a_question(on_pty):
    view = on_pty("replay", demo.RECORDING, "--speed", "1")
    shown = view.wait_for("running since")
    view.press("q")

    assert view.wait_for_end() == 0
    assert "exit code" not in shown


@pytest.mark.parametrize("speed", ["0", "-3", "1e9"])
def test_a_speed_out_of_range_is_one_line(gpumem, speed):
    done = subprocess.run(
        [*COMMAND, "replay", str(demo.RECORDING), "--speed", speed],
        env=gpumem.environment,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert f"--speed {speed.replace('1e9', '1e+09')} is out of range" in done.stderr
