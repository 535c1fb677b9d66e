"""The product in a real terminal: a run opens its view, survives its loss, and is come back to."""

import os
import shutil
import signal
import sys
import time

import pexpect
import pytest
from product import wait_until

from gpumem_tui.analysis.rankstate import Life

pytestmark = pytest.mark.slow


def test_a_run_opens_its_view_goes_on_after_a_detach_and_is_come_back_to(gpumem, on_pty):
    go = gpumem.folder / "go"
    script = f"echo working; while [ ! -e {go} ]; do sleep 0.05; done; exit 3"
    first = on_pty("run", "--anyway", "--name", "mine", "--", "sh", "-c", script)
    first.wait_for("mine")
    first.press("6")
    first.wait_for("working")
    first.press("q")
    first.wait_for("etach")
    first.press("d")

    assert first.wait_for_end() == 0
    assert b"gpumem-tui attach mine" in first.received
    assert gpumem.recording().read().facts.life is Life.RUNNING

    second = on_pty("attach", "mine")
    second.wait_for("running")
    go.touch()
    second.wait_for("exit code 3")
    second.press("q")

    assert second.wait_for_end() == 0


def test_a_run_whose_end_is_watched_gives_its_exit_code(gpumem, on_pty):
    view = on_pty("run", "--anyway", "--", "sh", "-c", "sleep 1; exit 5")
    view.wait_for("exit code 5")
    view.press("q")

    assert view.wait_for_end() == 5


def test_the_line_is_cut_and_the_run_lives(gpumem, on_pty):
    view = on_pty("run", "--anyway", "--name", "mine", "--", "sleep", "60")
    view.wait_for("running")
    view.child.close(force=False)

    time.sleep(0.5)
    recording = gpumem.recording()
    assert recording.read().facts.life is Life.RUNNING
    again = on_pty("attach")
    again.wait_for("mine")
    again.press("q")
    again.wait_for("top")
    again.press("s")
    wait_until(lambda: recording.read().facts.ending, 10, "its end")


def test_the_view_is_killed_and_the_run_lives(gpumem, on_pty):
    view = on_pty("run", "--anyway", "--", "sleep", "60")
    view.wait_for("running")
    os.kill(view.child.pid, signal.SIGKILL)
    view.child.wait()
    recording = gpumem.recording()

    assert recording.read().facts.life is Life.RUNNING
    assert recording.reach.stop("SIGTERM") == "SIGTERM was sent to the workload"
    wait_until(lambda: recording.read().facts.ending, 10, "its end")


@pytest.mark.skipif(shutil.which("script") is None, reason="the program script is not installed")
def test_what_the_pty_does_to_output_is_what_script_does(gpumem, tmp_path):
    code = "import sys; sys.stdout.write('a\\tb\\n' * 500); sys.stderr.write('err\\n')"
    typescript = tmp_path / "typescript"
    script = gpumem.folder / "plain.py"
    script.write_text(code)
    command = f"{sys.executable} {script}"
    pexpect.run(f"script -q -e -c '{command}' {typescript}", env={**os.environ, "TERM": "xterm"})
    gpumem("run", "--anyway", "--detach", "--", sys.executable, script)
    run = gpumem.wait_for_run()
    wait_until(lambda: gpumem.recording().read().facts.ending, 10, "its end")

    recorded = typescript.read_bytes()
    body = (
        recorded.split(b"\n", 1)[1].rsplit(b"\nScript done", 1)[0]
        if b"Script started" in recorded
        else recorded
    )

    assert run.output_log.read_bytes().strip() == body.strip()


def test_without_a_terminal_a_picture_is_printed_as_text(gpumem):
    gpumem.run(["true"], "--name", "mine")

    shown = gpumem("attach", "mine").stdout.decode()

    assert "mine" in shown
    assert "exit code 0" in shown
    assert "\x1b" not in shown
