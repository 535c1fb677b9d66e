"""What the monitor costs a workload: ratios within one run, bare and monitored by turns.

Reported (run with ``-s`` to read them), with loose bounds that only a blunder would break:
wall time on a shared machine proves nothing finer.
"""

import os
import statistics
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

STEPS = """
import statistics, sys, time, torch, torch.nn as nn
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(int(sys.argv[1]))]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    model(torch.randn(4, 64, device="cuda")).sum().backward(); optimizer.step(); optimizer.zero_grad()
    torch.cuda.synchronize()
for _ in range(20): step()
times = []
for _ in range(int(sys.argv[2])):
    begin = time.perf_counter(); step(); times.append(time.perf_counter() - begin)
print(statistics.median(times))
"""

BOUNDARY = """
import sys, timeit, torch, torch.nn as nn
model = nn.Identity(); model.p = nn.Parameter(torch.zeros(1, device="cuda"))
import time; time.sleep(0.3)
inside = nn.Module.__call__
root = min(timeit.repeat(lambda: model(1), number=2000, repeat=7)) / 2000
class Outer(nn.Module):
    def __init__(self):
        super().__init__(); self.inner = nn.Identity(); self.p = nn.Parameter(torch.zeros(1, device="cuda"))
    def forward(self, n):
        return min(timeit.repeat(lambda: self.inner(1), number=20000, repeat=7)) / 20000
print(root, Outer()(1))
"""

IMPORT = "import time; begin = time.perf_counter(); import torch; print(time.perf_counter() - begin)"


def measure(card, run, code, *args, monitored, settings=None):
    env = run.environment(hertz=10.0) if monitored else {}
    env.pop("GPUMEM_TUI_RAISE", None)
    done = card.run([sys.executable, "-c", code, *map(str, args)], env=env, settings=settings)
    return [float(word) for word in done.stdout.split()]


@pytest.mark.parametrize(("layers", "kernel_us", "what"), [(16, 290, "20 ms step"), (4, 230, "5 ms step")])
def test_step_time(simcard, agent_run, capsys, layers, kernel_us, what):
    bare, monitored = [], []
    for _ in range(3):
        for times, on in ((bare, False), (monitored, True)):
            settings = {"kernel_us": kernel_us}
            times += measure(simcard, agent_run, STEPS, layers, 60, monitored=on, settings=settings)

    ratio = statistics.median(monitored) / statistics.median(bare)
    with capsys.disabled():
        spread = max(bare) / min(bare)
        print(
            f"\n{what}: bare {statistics.median(bare) * 1e3:.2f} ms, monitored / bare = {ratio:.4f} "
            f"(bare runs differ by {spread:.4f})"
        )

    assert ratio < 3


def test_a_boundary_and_a_module_call(simcard, agent_run, capsys):
    bare = measure(simcard, agent_run, BOUNDARY, monitored=False)
    monitored = measure(simcard, agent_run, BOUNDARY, monitored=True)
    boundary_us = (monitored[0] - bare[0]) * 1e6 / 2
    call_us = (monitored[1] - bare[1]) * 1e6
    with capsys.disabled():
        print(
            f"\nboundary {boundary_us:.1f} µs (of two in a root call), nested module call +{call_us:.2f} µs"
        )

    assert boundary_us < 1000
    assert call_us < 20


def test_importing_torch(simcard, agent_run, capsys):
    bare, monitored = [], []
    for _ in range(3):
        bare += measure(simcard, agent_run, IMPORT, monitored=False)
        monitored += measure(simcard, agent_run, IMPORT, monitored=True)
    extra_ms = (min(monitored) - min(bare)) * 1e3
    with capsys.disabled():
        print(f"\nimport torch: {min(bare):.2f} s bare, {extra_ms:+.0f} ms monitored")

    assert extra_ms < 5000


def test_starting_an_interpreter(agent_run, capsys):
    def start(env):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], env=env, check=True)
        return time.perf_counter() - begin

    bare_env = {k: v for k, v in os.environ.items() if not k.startswith("GPUMEM_")}
    monitored_env = {**bare_env, **agent_run.environment(bare_env)}
    bare, monitored = [], []
    for _ in range(15):
        bare.append(start(bare_env))
        monitored.append(start(monitored_env))
    extra_ms = (statistics.median(monitored) - statistics.median(bare)) * 1e3
    with capsys.disabled():
        print(
            f"\nan interpreter starts in {statistics.median(bare) * 1e3:.1f} ms bare, "
            f"{extra_ms:+.1f} ms monitored"
        )

    assert extra_ms < 1000
