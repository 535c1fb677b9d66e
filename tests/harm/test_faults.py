"""Faults by the dozen, with figures: workloads killed at random, journals torn and flipped.

``GPUMEM_TUI_ROUNDS=200`` makes more rounds than the 20 of every run of the tests, ``-rP`` shows
the figures, and ``GPUMEM_TUI_SEED`` repeats a run that failed.
"""

import os
import random
import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpumem_tui.analysis.rankstate import Life
from gpumem_tui.analysis.state import RunState
from gpumem_tui.journal import rundir
from gpumem_tui.session import Recording

pytestmark = [pytest.mark.slow, pytest.mark.simcard]

ROUNDS = int(os.environ.get("GPUMEM_TUI_ROUNDS", "20"))
SEED = int(os.environ.get("GPUMEM_TUI_SEED", time.time_ns() % 10**6))
JOURNALS = 8
TICK_NS = 100_000_000
WORKERS = """
import glob, mmap, os, random, signal, sys, time, torch, gpumem_tui
done = mmap.mmap(-1, 8)  # when the worker had last done something: a busy machine may not let it
dice = random.Random(int(sys.argv[1]))
def work(up):
    torch.zeros(1, device="cuda")
    os.write(up, b"x")
    while True:
        with gpumem_tui.phase("turn"):
            torch.zeros(1 << 18, device="cuda")
        done[:] = time.monotonic_ns().to_bytes(8, "little")
        time.sleep(0.002)
for _ in range(int(sys.argv[2])):
    down, up = os.pipe()
    pid = os.fork()
    if not pid:
        work(up)
    os.read(down, 1)
    journal = f"{os.environ['GPUMEM_TUI_HOME']}/runs/*/journal/rank-{pid}-*"
    while not any(map(os.path.getsize, glob.glob(journal))):
        time.sleep(0.005)  # one that dies before its sampler has run for the first time is not recorded
    began = time.monotonic_ns()
    done[:] = began.to_bytes(8, "little")
    time.sleep(dice.uniform(0, 0.5))
    os.kill(pid, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    print(pid, began, int.from_bytes(done[:], "little"), flush=True)
    os.close(down), os.close(up)
sys.exit(7)
"""


@dataclass(frozen=True)
class Killed:
    """A run whose workers were killed."""

    state: RunState
    folder: Path
    lives: dict[int, tuple[int, int]]
    """When each worker began and when it last did something, in nanoseconds, by its pid."""
    exit_code: int
    said: bytes
    """On standard error."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory, simcard_libraries):
    """One run of ROUNDS workers, each killed at a random moment."""
    from product import Gpumem

    gpumem = Gpumem(tmp_path_factory.mktemp("killed"))
    script = gpumem.folder / "workers.py"
    script.write_text(WORKERS)
    done = gpumem(
        *("run", "--simulate", "8GiB", "--batch", "--", sys.executable, script, SEED, ROUNDS),
        exits=None,
        timeout=60 + 10 * ROUNDS,
    )
    lives = {
        pid: (began, ended) for pid, began, ended in (map(int, x.split()) for x in done.stdout.splitlines())
    }
    yield Killed(gpumem.recording().read(), gpumem.latest().path, lives, done.returncode, done.stderr)
    gpumem.end()


def test_killed_workers_are_recorded_to_within_a_tick_of_their_death(killed):
    spoke_ns = {rank.pid: rank.spoke_ns for rank in killed.state.ranks}
    lost_ns = [ended - spoke_ns.get(pid, began) for pid, (began, ended) in killed.lives.items()]
    print(
        f"{len(killed.lives)} workers killed: recorded to {statistics.median(lost_ns) / 1e6:.0f} ms (median) "
        f"and {max(lost_ns) / 1e6:.0f} ms (at most) before the last that they did, "
        f"{killed.state.health.corrupt_lines} torn lines, runs harmed: {int(killed.exit_code != 7)}"
    )

    assert (killed.exit_code, killed.said) == (7, b""), f"seed {SEED}"
    ends = {(rank.life, rank.ending) for rank in killed.state.ranks if rank.pid in killed.lives}
    assert ends <= {(Life.FAILED, "killed by SIGKILL"), (Life.LOST, None)}  # LOST: nobody saw how it ended
    assert ends
    assert max(lost_ns) <= TICK_NS, f"seed {SEED}"


def test_a_torn_or_flipped_journal_costs_one_line(killed, tmp_path):
    """Of a copy of the run, one journal is damaged at one place, whole again before the next."""
    dice = random.Random(SEED)
    copy = Path(shutil.copytree(killed.folder, tmp_path / killed.folder.name))
    journals = sorted((copy / "journal").glob("rank-*"), key=lambda path: path.stat().st_size)
    for path in journals[:-JOURNALS]:
        path.unlink()
    before = Recording(rundir.RunDirectory(copy)).read()
    costs = []
    for number in range(ROUNDS):
        journal = dice.choice(journals[-JOURNALS:])
        whole = journal.read_bytes()
        content = bytearray(whole)
        place = dice.randrange(content.index(b"\n") + 1, len(content))
        if dice.random() < 0.5:
            content[place] ^= 1 << dice.randrange(8)
        else:
            del content[place:]
        journal.write_bytes(content)
        state = Recording(rundir.RunDirectory(copy)).read()
        journal.write_bytes(whole)
        costs.append(state.health.corrupt_lines - before.health.corrupt_lines)
        kept = {rank.pid for rank in state.ranks} | {int(journal.name.split("-")[1])}
        assert kept >= {rank.pid for rank in before.ranks}, f"seed {SEED}, round {number}"
    print(f"{ROUNDS} journals damaged: {sum(costs)} lines lost, {max(costs)} of one journal at most")

    assert max(costs) <= 2, f"seed {SEED}"  # a flipped newline joins two
