"""What the recorder costs while it records 8 devices × 8 processes, and its calls of the driver alone."""

import subprocess
import sys
import time

import psutil
import pytest
from product import wait_until
from test_cost_of_top import CALLS

pytestmark = [pytest.mark.slow, pytest.mark.simcard]

SECONDS = 12

EIGHT_RANKS = """
import os, random, subprocess, sys, time
environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
ranks = [
    subprocess.Popen(
        ["rank", str(device), str(1 << 30), "rank"], executable=sys.argv[1], env=environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    for device in range(8)
]
for rank in ranks:
    rank.stdout.readline()
print("up", flush=True)
chance = random.Random(1)
while True:
    time.sleep(0.1)
    rank = chance.choice(ranks)
    rank.stdin.write(f"{chance.randrange(1 << 30, 20 << 30)}\\n")
    rank.stdin.flush()
    rank.stdout.readline()
"""
"""Ten changes a second. What ranks say themselves costs them; the recorder only folds it, later."""


def recorder_of(process):
    children = psutil.Process(process.pid).children(recursive=True)
    return next((child for child in children if "gpumem_tui.recorder" in child.cmdline()), None)


def test_eight_ranks_on_eight_devices(gpumem, simcard_libraries, capsys):
    process = gpumem.start(
        *("run", "--simulate", ",".join(["24GiB"] * 8), "--"),
        *(sys.executable, "-c", EIGHT_RANKS, str(simcard_libraries.hold)),
    )
    assert process.stdout.readline() == b"up\n"
    recorder = wait_until(lambda: recorder_of(process), what="the recorder")
    wait_until(lambda: len(gpumem.recording().read().processes) == 8, what="the readings")
    before, began = recorder.cpu_times(), time.monotonic()
    time.sleep(SECONDS)
    now, took = recorder.cpu_times(), time.monotonic() - began
    share = (now.user + now.system - before.user - before.system) / took
    calls = subprocess.run(
        [sys.executable, "-c", CALLS, "10", "4"],
        env={**gpumem.environment, **gpumem.machine(simcard_libraries).monitor_environment()},
        capture_output=True,
        text=True,
        check=True,
    )
    calls_share = 2 * float(calls.stdout)  # two readings a second, half of the lists
    with capsys.disabled():
        print(
            f"\n8 devices × 8 processes: recorder {100 * share:.2f} % of a core; the same calls of the"
            f" simulated driver alone {100 * calls_share:.2f} %; {recorder.memory_info().rss >> 20} MiB"
        )

    assert share < 0.2  # the budget is 0.01 on an idle machine
