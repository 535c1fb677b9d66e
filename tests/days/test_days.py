"""Runs of days on many ranks: the disk while they are written, and whoever reads them."""

import subprocess
import sys

import longrun
import msgspec
import pytest

from gpumem_tui import records
from gpumem_tui.agent import wire
from gpumem_tui.journal.budget import keep_within
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session import Recording

pytestmark = pytest.mark.slow

SECOND, MIB, GIB = 10**9, 1 << 20, 1 << 30
RANKS = 16
BUDGET_BYTES = 3 * MIB
SEGMENT_S = 1800
ROUNDS = 12


def write_segment(run: RunDirectory, rank: int, number: int) -> int:
    """One closed segment of a rank, a sample each second; its size in bytes."""
    began = longrun.START_NS + number * SEGMENT_S * SECOND
    head = {
        **wire.header("rank", run.path.name, number, ring="none"),
        "host": "node", "boot": "other", "pid": longrun.FIRST_PID + rank, "started_ticks": 1, "t_ns": began,
    }  # fmt: skip
    lines = [] if number else [records.Device(began, 0, "uuid-0", None, "card", 80 * GIB, "uuid")]
    for second in range(SEGMENT_S):
        allocated, reserved = longrun.levels(rank, number * SEGMENT_S + second)
        lines.append(records.Sample(began + second * SECOND, 0, allocated, reserved, alloc_retries=0, ooms=0))
    text = wire.encode_header(head) + b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (run.journal / wire.segment_name("rank", number, longrun.FIRST_PID + rank, 1)).write_bytes(text)
    return len(text)


def test_the_disk_stays_within_the_budget_while_days_are_written_and_a_reader_follows(tmp_path):
    run = longrun.write(tmp_path / "run", hours=0, ranks=0, devices=1, ended=False)
    following = Recording(run)
    written = over = 0
    for number in range(ROUNDS):  # six hours of sixteen ranks
        fresh = sum(write_segment(run, rank, number) for rank in range(RANKS))
        written += fresh
        now_ns = longrun.START_NS + (number + 1) * SEGMENT_S * SECOND
        while (report := keep_within(run, BUDGET_BYTES, now_ns)).folded and report.over:
            pass
        disk = sum(path.stat().st_size for path in run.journal.iterdir())
        over = max(over, disk - BUDGET_BYTES)
        if number % 3 == 2:
            following.read()

    state, opened = following.read(), Recording(run).read()

    assert written > 9 * BUDGET_BYTES
    # Never folded: what was just written, one segment of each rank.
    assert over <= fresh
    assert len(opened.ranks) == RANKS
    for rank, (followed, fresh_rank) in enumerate(zip(state.ranks, opened.ranks, strict=True)):
        last = longrun.levels(rank, ROUNDS * SEGMENT_S - 1)
        assert (followed.levels[0].allocated_bytes, followed.levels[0].reserved_bytes) == last
        assert fresh_rank.levels == followed.levels


READER = r"""
import re, sys, time
from pathlib import Path
from gpumem_tui.journal.rundir import RunDirectory
from gpumem_tui.session import Recording
state = Recording(RunDirectory(Path(sys.argv[1]))).read()
kib = int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])  # not ru_maxrss: a parent's
print(len(state.ranks), len(state.devices), state.facts.life.value, kib, time.process_time())
"""


def test_three_days_of_sixteen_ranks_open_in_bounded_time_and_memory(tmp_path):
    run = longrun.write(tmp_path / "run", hours=72, ranks=16, devices=8, bucket_s=60)

    told = subprocess.run([sys.executable, "-c", READER, run.path], capture_output=True, check=True).stdout

    ranks, devices, life, kib, seconds = told.split()
    assert (int(ranks), int(devices), life) == (16, 8, b"ended")
    assert int(kib) < 400 * 1024, told
    assert float(seconds) < 30, told  # of processor time; 9 s on a small machine
