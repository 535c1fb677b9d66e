"""Two people look at one run: neither view, nor its end, matters to the other or to the run."""

import os
import signal

import pytest

from gpumem_tui.analysis.rankstate import Life

pytestmark = pytest.mark.slow


def test_one_view_on_another_screen_frozen_or_killed_leaves_the_other_and_the_run_alone(gpumem, on_pty):
    go = gpumem.folder / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.05; done; echo done; exit 3"
    process = gpumem.start("run", "--anyway", "--batch", "--name", "shared", "--", "sh", "-c", script)
    gpumem.wait_for_run()
    first, second, third = on_pty("attach"), on_pty("attach"), on_pty("attach")
    for view in (first, second, third):
        view.wait_for("running")

    second.press("?")
    second.wait_for("binary: 1 GiB")
    assert "binary: 1 GiB" not in first.read(0.5)

    os.kill(second.child.pid, signal.SIGSTOP)
    os.kill(third.child.pid, signal.SIGKILL)
    assert gpumem.recording().read().facts.life is Life.RUNNING
    go.touch()
    out, err = process.communicate(timeout=30)
    first.wait_for("exit code 3")
    os.kill(second.child.pid, signal.SIGCONT)
    second.press("\x1b")
    second.wait_for("exit code 3")

    assert (process.returncode, out, err) == (3, b"done\n", b"")
