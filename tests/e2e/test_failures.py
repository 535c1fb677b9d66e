"""Failures through the real ``run``: what is known of the process that failed, and of all others."""

import os
import signal
import sys
from pathlib import Path

import pytest
from product import wait_until

from gpumem_tui import records
from gpumem_tui.journal.failurefile import read_failure

needs_card = [pytest.mark.simcard, pytest.mark.slow]

FAIL = """
import os, sys, time, torch, torch.nn as nn
class Greedy(nn.Module):
    def __init__(self): super().__init__(); self.inner = nn.Linear(256, 256)
    def forward(self, x, more=0):
        x = self.inner(x)
        return x + torch.empty(1 << 40, dtype=torch.uint8, device="cuda") if more else x
model = Greedy().cuda()
def step(more=0): model(torch.randn(8, 256, device="cuda"), more).sum().backward()
step()
"""


def lines(gpumem, journal="rank-*"):
    """Every record of these journals of the last run."""
    return [
        record
        for path in sorted(gpumem.latest().journal.glob(journal))
        for record in map(records.decode_line, path.read_bytes().splitlines()[1:])
    ]


def of(kind, found):
    return [record for record in found if isinstance(record, kind)]


class TestRecord:
    pytestmark = needs_card

    def test_the_ledger_of_the_end_is_what_the_failing_process_read_just_then(self, gpumem):
        script = gpumem.folder / "fail.py"
        hold = "keep = [torch.empty(1 << 30, dtype=torch.uint8, device='cuda')]\n"
        wait = "time.sleep(2)  # until the recorder has read the list of processes\n"
        script.write_text(FAIL + hold + wait + "step(1)\n")
        gpumem("run", "--simulate", "8GiB", "--", sys.executable, script, exits=1)
        (failure,) = of(records.Failure, lines(gpumem))
        read = read_failure(gpumem.latest().path / failure.path)
        report = gpumem.report()
        terms = {term["term"]: term["bytes"] for term in report["devices"][0]["ledger"]["terms"]}

        assert terms["free"] == read.driver.free_bytes
        assert terms["allocated"] == read.counters["allocated_bytes.all.current"]
        assert [row["used_bytes"] for row in report["processes"]] == [read.driver.processes[0].used_bytes]

    def test_it_is_whole_even_if_the_process_is_killed_while_it_looks_further(self, gpumem):
        script = gpumem.folder / "fail.py"
        script.write_text(FAIL + (
            "import importlib, signal\n"
            "importlib.import_module('_gpumem_tui_agent.autopsy.host').read_own = "
            "lambda torch: os.kill(os.getpid(), signal.SIGKILL)\n"
            "step(1)\n"
        ))  # fmt: skip
        gpumem("run", "--simulate", "8GiB", "--", sys.executable, script, exits=-signal.SIGKILL)
        found = lines(gpumem)
        (failure,) = of(records.Failure, found)
        record = read_failure(gpumem.latest().path / failure.path)

        assert (failure.phase, failure.requested_bytes) == ("forward", 1 << 40)
        assert [phase.phase for phase in record.phases] == ["forward"]
        assert record.pools is None
        assert set(record.missing.values()) == {"not looked into yet"}
        assert of(records.Begin, found)[-1].phase == "forward"

    @pytest.mark.parametrize(
        ("ending", "code", "became"),
        [
            ("os._exit(3)", 3, "handled; the program left by itself"),
            ("os._exit(1)", 1, "handled; the program left by itself"),
            ("sys.exit(3)", 3, "caught; the program ended after it"),
            ("raise", 1, "ended the process"),
        ],
    )
    def test_what_became_of_it_is_told_by_how_the_program_left(self, gpumem, ending, code, became):
        script = gpumem.folder / "leave.py"
        script.write_text(FAIL + f"try: step(1)\nexcept RuntimeError: {ending}\n")
        gpumem("run", "--simulate", "8GiB", "--", sys.executable, script, exits=code)
        (failure,) = gpumem.report()["failures"]

        assert (failure["outcome"], failure["exit_code"]) == (became, code)

    def test_it_is_told_also_where_the_disk_has_no_room_for_it(self, gpumem):
        script = gpumem.folder / "fail.py"
        script.write_text(FAIL + (
            "import shutil\n"
            "shutil.rmtree(os.environ['GPUMEM_TUI_RUN'] + '/failures')\n"
            "step(1)\n"
        ))  # fmt: skip
        done = gpumem("run", "--simulate", "8GiB", "--", sys.executable, script, exits=1)
        (failure,) = of(records.Failure, lines(gpumem))

        assert b"OutOfMemoryError" in done.stderr
        assert (failure.phase, failure.path) == ("forward", None)

    def test_memory_history_is_recorded_only_on_request(self, gpumem):
        script = gpumem.folder / "fail.py"
        script.write_text(FAIL + "print(torch._C._cuda_isHistoryEnabled(), flush=True)\nstep(1)\n")
        without = gpumem("run", "--simulate", "8GiB", "--", sys.executable, script, exits=1)
        asked = gpumem("run", "--history", "--simulate", "8GiB", "--", sys.executable, script, exits=1)
        (failure,) = of(records.Failure, lines(gpumem))
        record = read_failure(gpumem.latest().path / failure.path)

        assert (without.stdout, asked.stdout) == (b"False\n", b"True\n")
        assert (gpumem.latest().path / record.history).suffix == ".pickle"


TWO_RANKS = """
rank = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(rank); model.cuda()
held = torch.empty((rank + 1) << 28, dtype=torch.uint8, device="cuda")
print("up", flush=True)
while not (rank == 1 and os.path.exists(sys.argv[1])): step(); time.sleep(0.005)
step(1)
"""


def holding(gpumem, size):
    """Journals of ranks that have told of more than so many bytes."""
    return [
        path
        for path in gpumem.latest().journal.glob("rank-*")
        if any(sample.allocated_bytes > size for sample in of(records.Sample, lines(gpumem, path.name)))
    ]


@pytest.mark.simcard
@pytest.mark.slow
def test_the_state_of_every_other_rank_at_the_instant_of_a_failure_is_known(gpumem, simcard_libraries):
    script, go = gpumem.folder / "ranks.py", gpumem.folder / "go"
    script.write_text(FAIL.removesuffix("step()\n").replace(".cuda()\n", "\n") + TWO_RANKS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = gpumem.start("run", "--simulate", "8GiB,8GiB", "--", *torchrun, script, go)
    assert [process.stdout.readline() for _ in range(2)] == [b"up\n"] * 2
    recording = gpumem.recording()
    wait_until(lambda: sum(bool(rank.step) for rank in recording.read().ranks) == 2, 20, "a step of each")
    wait_until(lambda: len(holding(gpumem, 1 << 28)) == 2, 20, "a sample of what each holds")
    go.touch()
    process.communicate(timeout=60)
    journals = {
        rank: lines(gpumem, path.name)
        for path in gpumem.latest().journal.glob("rank-*")
        for rank in [record.rank for record in of(records.Rank, lines(gpumem, path.name))[:1]]
    }
    (failure,) = of(records.Failure, journals[1])
    (uncaught,) = of(records.UncaughtException, journals[1])
    used = [sample for sample in of(records.Sample, journals[0]) if sample.ordinal == 0]
    near = min(used, key=lambda sample: abs(sample.t_ns - failure.t_ns))
    wait_until(lambda: of(records.Bye, lines(gpumem, "driver*")), 10, "the recorder's end")

    assert of(records.Failure, journals[0]) == []
    assert (uncaught.path, uncaught.kind) == (failure.path, "out of memory")
    assert abs(near.t_ns - failure.t_ns) < 300_000_000
    assert near.allocated_bytes > 1 << 28
    ended = {(gone.code, gone.signal) for gone in of(records.Gone, lines(gpumem, "driver*"))}
    assert ended in (set(), {(1, None), (None, signal.SIGTERM)})  # nothing, where the kernel does not tell


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="memory cgroups are made by root only")
def test_a_process_that_the_kernel_kills_for_want_of_host_memory_is_told(gpumem):
    group = Path(f"/sys/fs/cgroup/memory/gpumem-tui-test-{os.getpid()}")
    if not group.parent.is_dir() or not os.access(group.parent, os.W_OK):
        pytest.skip("memory cgroups of version 1 cannot be made here")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(64 << 20))
    except OSError as error:
        pytest.skip(f"memory cgroups cannot be made here: {error}")
    code = (
        "import os, time\n"
        f"open('{group}/cgroup.procs', 'w').write(str(os.getpid()))\n"
        "print('in', flush=True); time.sleep(2.5)\n"
        "held = [bytearray(1 << 20) for _ in range(200)]\n"
    )
    try:
        gpumem("run", "--anyway", "--batch", "--", sys.executable, "-c", code, exits=-signal.SIGKILL)
        wait_until(lambda: of(records.Bye, lines(gpumem, "driver*")), 10, "the recorder's end")
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 10, "an empty cgroup")
        group.rmdir()
    (kill,) = of(records.Kill, lines(gpumem, "driver*"))
    (start,) = of(records.Start, lines(gpumem, "keeper*"))

    assert kill.count == 1
    assert (start.pid, start.started_ticks) in [tuple(who) for who in kill.gone]
    assert any("for want of host memory" in event.text for event in gpumem.recording().read().events)
