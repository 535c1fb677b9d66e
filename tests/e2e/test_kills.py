"""Kill any part at any time: the others go on, and the recording opens."""

import json
import os
import signal
import sys
import time

import pytest
from product import wait_until

from gpumem_tui.agent import ring as rings
from gpumem_tui.agent import wire
from gpumem_tui.analysis.rankstate import Life

LOOP = """
import os, sys, time, torch, torch.nn as nn
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters())
class Slow(nn.Module):
    def __init__(self): super().__init__(); self.inner = model
    def forward(self, x):
        if os.path.exists(sys.argv[1]): print("inside", time.monotonic_ns(), flush=True); time.sleep(60)
        return self.inner(x)
slow = Slow()
print("up", os.getpid(), flush=True)
while not os.path.exists(sys.argv[2]):
    slow(torch.randn(8, 256, device="cuda")).sum().backward(); optimizer.step(); time.sleep(0.02)
print("done", flush=True)
"""

needs_card = [pytest.mark.simcard, pytest.mark.slow]


@pytest.fixture
def looping(gpumem, simcard_libraries):
    """A training loop: (gpumem, the run's process, the workload's pid, a file to hang it, one to end it)."""
    script, hang, end = (gpumem.folder / name for name in ("loop.py", "hang", "end"))
    script.write_text(LOOP)
    process = gpumem.start("run", "--simulate", "8GiB", "--", sys.executable, script, hang, end)
    pid = int(process.stdout.readline().split()[1])
    recording = gpumem.recording()
    wait_until(lambda: any(rank.step and rank.step > 3 for rank in recording.read().ranks), 20, "a few steps")
    return gpumem, process, pid, hang, end


def recorder_pid(gpumem) -> int:
    """The recorder's pid, from its journal's header."""
    path = wait_until(lambda: list(gpumem.latest().journal.glob("driver*")), 10, "the recorder")[-1]
    return json.loads(path.read_bytes().splitlines()[0])["pid"]


class TestWorkload:
    pytestmark = needs_card

    def test_killed_in_a_phase_the_recording_names_it_and_knows_it_to_the_last_tick(self, looping):
        gpumem, process, pid, hang, _ = looping
        hang.touch()
        inside_ns = int(process.stdout.readline().split()[1])
        time.sleep(0.5)
        killed_ns = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)

        assert process.wait(10) == -signal.SIGKILL
        state = gpumem.recording().read()
        (rank,) = state.ranks
        assert state.facts.ending == "killed by SIGKILL"
        assert [span.phase for span in rank.spans] == ["forward"]
        assert 0 <= inside_ns - rank.spans[0].since_ns < 50_000_000
        assert killed_ns - rank.spoke_ns < 200_000_000
        assert (rank.life, rank.ending) == (Life.FAILED, "killed by SIGKILL")

    def test_its_last_edges_are_read_from_the_ring_where_the_sampler_was_too_late(self, looping):
        gpumem, process, pid, _, _ = looping
        os.kill(pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        process.wait(10)
        (journal,) = gpumem.latest().journal.glob("rank-*")
        lines = journal.read_bytes().splitlines(keepends=True)
        last = max(i for i, line in enumerate(lines) if line.startswith(b'["begin"'))
        journal.write_bytes(b"".join(lines[: last - 2]))

        (ring,) = gpumem.latest().rings.iterdir()
        steps = [edge.step for edge in rings.read_edges(ring.read_bytes())]

        assert gpumem.recording().read().ranks[0].step == steps[-1] > 3


class TestRecorder:
    pytestmark = needs_card

    def test_killed_the_run_goes_on_and_is_still_recorded_by_its_ranks(self, looping):
        gpumem, process, _, _, end = looping
        os.kill(recorder_pid(gpumem), signal.SIGKILL)
        recording = gpumem.recording()
        before = recording.read().ranks[0].step
        wait_until(lambda: recording.read().ranks[0].step > before + 5, 10, "more steps")

        assert recording.read().facts.recorder is Life.LOST
        end.touch()
        assert process.wait(20) == 0
        assert gpumem.recording().read().facts.life is Life.ENDED


class TestKeeper:
    def test_killed_in_batch_the_workload_lives_and_its_end_is_unseen(self, gpumem):
        go = gpumem.folder / "go"
        script = f"echo $$; while [ ! -e {go} ]; do sleep 0.05; done; echo finished >&2"
        process = gpumem.start("run", "--anyway", "--batch", "--", "sh", "-c", script)
        pid = int(process.stdout.readline())
        process.kill()
        process.wait()

        assert wire.started_ticks(pid) is not None
        assert gpumem.recording().read().facts.keeper is Life.LOST
        go.touch()
        assert process.stderr.read() == b"finished\n"
        wait_until(lambda: gpumem.recording().read().facts.life is Life.LOST, 10, "the end")


class TestTerminalRun:
    def test_its_output_is_what_a_terminal_would_have_got(self, gpumem):
        code = "import os; print('colour \\033[31mred\\033[0m', [os.isatty(i) for i in (0, 1, 2)])"
        gpumem("run", "--anyway", "--detach", "--", sys.executable, "-c", code)
        run = gpumem.wait_for_run()
        wait_until(lambda: gpumem.recording().read().facts.exit_code == 0, 10, "the end")

        assert run.output_log.read_bytes() == b"colour \x1b[31mred\x1b[0m [True, True, True]\r\n"

    def test_it_outlives_whoever_started_it_and_keeps_its_exit_status(self, gpumem):
        done = gpumem("run", "--anyway", "--detach", "--name", "mine", "--", "sh", "-c", "sleep 0.5; exit 7")

        assert b"gpumem-tui attach mine" in done.stdout
        wait_until(lambda: gpumem.recording().read().facts.exit_code == 7, 10, "exit code 7")

    def test_bytes_are_typed_into_it(self, gpumem):
        gpumem("run", "--anyway", "--detach", "--", "sh", "-c", "read line; echo got $line")
        gpumem.wait_for_run()
        recording = gpumem.recording()
        recording.read()
        recording.reach.type_in(b"hello\n")
        wait_until(lambda: b"got hello" in gpumem.latest().output_log.read_bytes(), 10, "an answer")

    @pytest.mark.parametrize(
        ("how", "ending"), [("SIGINT", "SIGINT"), ("SIGTERM", "SIGTERM"), ("SIGKILL", "SIGKILL")]
    )
    def test_it_is_stopped_on_the_user_s_word(self, gpumem, how, ending):
        gpumem("run", "--anyway", "--detach", "--", "sleep", "60")
        gpumem.wait_for_run()
        recording = gpumem.recording()
        wait_until(lambda: recording.read().facts.life is Life.RUNNING, 10, "a running workload")

        assert recording.reach.stop(how) == f"{how} was sent to the workload"
        wait_until(lambda: recording.read().facts.ending == f"killed by {ending}", 10, "its end")

    def test_killing_its_keeper_ends_it_as_closing_a_terminal_would(self, gpumem):
        gpumem("run", "--anyway", "--detach", "--", "sh", "-c", "echo $$; sleep 60")
        run = gpumem.wait_for_run()
        wait_until(lambda: run.output_log.exists() and run.output_log.read_bytes(), 10, "its pid")
        pid = int(run.output_log.read_bytes())
        (keeper,) = run.journal.glob("keeper-*")
        os.kill(int(keeper.name.split("-")[1]), signal.SIGKILL)

        wait_until(lambda: wire.started_ticks(pid) is None, 10, "the workload's end")
        assert gpumem.recording().read().facts.life is Life.LOST

    def test_a_missing_command_is_said_before_anything_starts(self, gpumem):
        done = gpumem("run", "--anyway", "--detach", "--", "nosuch-command", exits=127)

        assert b"no such command" in done.stderr
