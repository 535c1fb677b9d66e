"""Parts killed at random, again and again: whoever is left goes on, the workload unharmed.

``GPUMEM_TUI_ROUNDS=200`` makes more rounds than the 20 of every run of the tests, and
``GPUMEM_TUI_SEED`` repeats one that failed.
"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from product import COMMAND, wait_until

from gpumem_tui.session import Recording
from gpumem_tui.simcard import find_compiler

pytestmark = [pytest.mark.slow, pytest.mark.simcard]

ROUNDS = int(os.environ.get("GPUMEM_TUI_ROUNDS", "20"))
SEED = int(os.environ.get("GPUMEM_TUI_SEED", time.time_ns() % 10**6))

TRAINING = """
import os, sys, time, torch, torch.nn as nn
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(model.parameters())
print("up", os.getpid(), flush=True)
steps, longest = 0, 0.0
while not os.path.exists(sys.argv[1]):
    began = time.monotonic()
    model(torch.zeros(8, 256, device="cuda")).sum().backward(); optimizer.step()
    longest = max(longest, time.monotonic() - began)
    steps += 1
    time.sleep(0.01)
print("done", steps, longest, flush=True)
sys.exit(7)
"""

SLOW_WRITES = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Writes into journals take five seconds as soon as the file SLOW_FROM exists; each is noted there. */
ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    char link[64], path[4096] = "";
    const char *from = getenv("SLOW_FROM");
    if (!real) real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n > 0 && from && strstr(path, "/journal/") && !access(from, F_OK)) {
        FILE *note = fopen(from, "a");
        if (note) fputc('x', note), fclose(note);
        sleep(5);
    }
    return real(fd, data, size);
}
"""


@pytest.fixture
def training(gpumem, simcard_libraries):
    """A training on a simulated card: (process, the file that ends it)."""
    script, end = gpumem.folder / "train.py", gpumem.folder / "end"
    script.write_text(TRAINING)

    def start(**env):
        process = gpumem.start(
            *("run", "--simulate", "8GiB", "--batch", "--", sys.executable, script, end), env=env
        )
        assert process.stdout.readline().startswith(b"up")
        wait_until(lambda: any(rank.step for rank in gpumem.recording().read().ranks), 60, "a step")
        return process, end

    return start


def test_whoever_records_or_looks_may_die_at_any_moment(gpumem, simcard_libraries, training):
    process, end = training()
    dice = random.Random(SEED)
    environment = {**gpumem.environment, **gpumem.machine(simcard_libraries).monitor_environment()}
    recorder = [sys.executable, "-m", "gpumem_tui.recorder", str(gpumem.latest().path)]
    viewer = [*COMMAND, "attach", "--json"]
    for number in range(ROUNDS):
        parts = [
            subprocess.Popen(
                dice.choice((recorder, viewer)),
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(2)
        ]
        time.sleep(dice.uniform(0, 0.6))
        for part in dice.sample(parts, 2):
            part.kill()
            part.wait()
        assert process.poll() is None, f"seed {SEED}, round {number}"
    end.touch()

    out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (7, b""), f"seed {SEED}"
    assert out.startswith(b"done")
    state = gpumem.recording().read()
    assert state.facts.exit_code == 7
    assert state.ranks[0].step is not None


@pytest.mark.parametrize("round", range(max(2, ROUNDS // 5)))
def test_a_recording_opens_whenever_its_run_was_killed(gpumem, round):
    dice = random.Random(SEED + round)
    process = gpumem.start("run", "--anyway", "--batch", "--", "sleep", "5")
    time.sleep(dice.uniform(0, 1.5))
    process.kill()  # the keeper; in batch the workload is left to itself
    process.wait()

    runs = [folder for folder in gpumem.home.glob("runs/*") if (folder / "run.json").exists()]

    for folder in runs:  # none, if it was killed before it had one
        assert Recording(gpumem.latest()).read().facts.run == folder.name, f"seed {SEED}"


def slow_writes(folder: Path) -> Path:
    source, library = folder / "slow.c", folder / "libslow.so"
    source.write_text(SLOW_WRITES)
    compiler = find_compiler()
    compiler.run(*compiler.flags(), "-shared", source, "-o", library, *compiler.libraries(), work=folder)
    return library


def test_writes_that_stall_for_seconds_do_not_stall_the_workload(gpumem, training):
    slow = gpumem.folder / "slow"
    process, end = training(LD_PRELOAD=str(slow_writes(gpumem.folder)), SLOW_FROM=str(slow))
    slow.touch()
    wait_until(lambda: slow.stat().st_size >= 4, 60, "two stalled writes of rank and recorder")
    end.touch()

    out, _ = process.communicate(timeout=60)

    _, steps, longest = out.split()
    assert process.returncode == 7
    assert int(steps) > 20
    assert float(longest) < 4  # one stalled write takes five


def test_a_stopped_recorder_and_a_stopped_viewer_do_not_stop_the_workload(gpumem, training):
    process, end = training()
    viewer = gpumem.start("attach", "--json")
    (header,) = [p.read_bytes().splitlines()[0] for p in gpumem.latest().journal.glob("driver*")][:1]
    recorder = int(header.split(b'"pid":')[1].split(b",")[0])
    for pid in (recorder, viewer.pid):
        os.kill(pid, signal.SIGSTOP)
    end.touch()

    out, _ = process.communicate(timeout=60)
    os.kill(recorder, signal.SIGCONT)
    os.kill(viewer.pid, signal.SIGCONT)

    assert process.returncode == 7
    assert out.startswith(b"done")
