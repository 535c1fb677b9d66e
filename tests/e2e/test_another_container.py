"""A run in a container, looked at from outside of it: its pids are not ours, its recording is."""

import os
import subprocess
import sys

import pytest
from product import COMMAND, wait_until

from gpumem_tui.analysis.rankstate import Life

pytestmark = pytest.mark.slow

APART = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]


@pytest.fixture
def contained(gpumem):
    """A run in a pid namespace of its own, that ends when a file appears."""
    try:
        possible = subprocess.run([*APART, "true"], capture_output=True, timeout=30).returncode == 0
    except FileNotFoundError:
        possible = False
    if not possible:
        pytest.skip("pid namespaces cannot be made here")
    go = gpumem.folder / "go"
    waits = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    words = ["run", "--anyway", "--batch", "--name", "inside", "--", sys.executable, "-c", waits]
    process = subprocess.Popen([*APART, *COMMAND, *words], env=gpumem.environment, cwd=gpumem.folder)
    try:
        gpumem.wait_for_run()
        wait_until(lambda: gpumem.recording().read().facts.life is Life.RUNNING)
        yield process
    finally:
        go.touch()
        process.wait(60)


def test_a_run_in_a_container_is_seen_to_go_on_and_to_end(gpumem, contained):
    going_on = gpumem.report("inside")
    listed = gpumem("runs").stdout.decode()
    (gpumem.folder / "go").touch()
    contained.wait(60)
    over = gpumem.report("inside")

    assert (going_on["run"]["life"], over["run"]["life"]) == ("running", "ended")
    assert (going_on["run"]["keeper"], going_on["run"]["recorder"]) == ("running", "running")
    assert "running" in listed
    assert over["run"]["exit_code"] == 0


def test_a_run_that_was_killed_with_its_container_is_lost_once_nothing_was_written_for_long(
    gpumem, contained
):
    contained.kill()
    contained.wait(60)
    journal = gpumem.latest().journal
    at_once = gpumem.report("inside")
    for path in journal.iterdir():
        written = path.stat().st_mtime - 60
        os.utime(path, (written, written))

    assert at_once["run"]["life"] == "running"  # as far as can be known
    assert wait_until(lambda: gpumem.report("inside")["run"]["life"] == "lost", 1)


def test_nothing_is_sent_to_whoever_has_those_pids_here(gpumem, contained):
    said = gpumem.recording()
    said.read()

    assert said.reach.stop("SIGTERM") == (
        "the run is in another pid namespace, a container perhaps; stop it there"
    )
