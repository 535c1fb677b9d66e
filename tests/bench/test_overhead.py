"""What the monitor costs a workload: ratios within one run, bare and monitored by turns.

Reported with 95 % intervals (bootstrap over the pairs, and over what each process measured),
with loose bounds that only a blunder would break: wall time on a shared machine proves nothing
finer. ``GPUMEM_TUI_PAIRS=20`` measures longer, for narrower intervals.
"""

import os
import random
import statistics
import subprocess
import sys
import time

import pytest

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

STEPS = """
import statistics, sys, time, torch, torch.nn as nn
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(int(sys.argv[2]))]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    model(torch.randn(4, 64, device="cuda")).sum().backward(); optimizer.step(); optimizer.zero_grad()
    torch.cuda.synchronize()
@torch.no_grad()
def decode():
    model(torch.randn(4, 64, device="cuda")); torch.cuda.synchronize()
step = {"train": train, "decode": decode}[sys.argv[1]]
if step is decode: model.eval()
for _ in range(20): step()
times = []
for _ in range(int(sys.argv[3])):
    begin = time.perf_counter(); step(); times.append(time.perf_counter() - begin)
print(*times)
"""

RANKS = """
import os, statistics, sys, time, torch, torch.nn as nn
def rank(device):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)]).to(f"cuda:{device}")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    times = []
    for _ in range(5 + int(sys.argv[1])):
        begin = time.perf_counter()
        model(torch.randn(4, 64, device=f"cuda:{device}")).sum().backward()
        optimizer.step(); optimizer.zero_grad(); torch.cuda.synchronize(device)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[5:])
pipes = []
for device in range(8):
    reads, writes = os.pipe()
    if not os.fork():
        os.write(writes, f"{rank(device)}\\n".encode()); os._exit(0)
    os.close(writes); pipes.append(reads)
print(*[os.fdopen(pipe).read().strip() for pipe in pipes])
for _ in pipes: assert os.wait()[1] == 0
"""

BOUNDARY = """
import sys, time, timeit, torch, torch.nn as nn, gpumem_tui
def best(call, number=30, repeat=200):  # short batches: a busy machine interrupts long ones
    return min(timeit.repeat(call, number=number, repeat=repeat)) / number
class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__(); self.inner = nn.ModuleList(inner)
        self.p = nn.Parameter(torch.zeros(1, device="cuda"))
    def forward(self, _):
        count = len(self.inner)
        return best(lambda: [module(1) for module in self.inner], max(1, 500 // count)) / count
class Working(nn.Module):
    def forward(self, _): torch.empty(64, device="cuda")  # freed at once: its end is below its peak
root, working = nn.Identity(), Working()
root.p, working.p = [nn.Parameter(torch.zeros(1, device="cuda")) for _ in range(2)]
time.sleep(0.3)
def named():
    with gpumem_tui.phase("x"): pass
read = best(lambda: torch._C._cuda_memoryStats(0))
agent = sys.modules.get("_gpumem_tui_agent")
if agent is not None: read = best(lambda: agent.monitored.counters.sample(0))
print(read, best(lambda: root(1)), best(lambda: working(1)), best(named),
      *[Outer([nn.Identity() for _ in range(count)])(1) for count in (1, 10, 1000)])
"""

PARTS = """
import sys, time, torch, torch.nn as nn
import gpumem_tui
root = nn.Identity(); root.p = nn.Parameter(torch.zeros(1, device="cuda"))
optimizer, loss = torch.optim.SGD(root.parameters(), lr=0.1), torch.zeros(1, device="cuda")
time.sleep(0.3)
monitored = sys.modules["_gpumem_tui_agent"].monitored
counters, spans, phases = monitored.counters, monitored.spans, monitored.phases
stats = counters.sample(0)
def named():
    with gpumem_tui.phase("x"): pass
def carried():
    counters._carry_later(0, stats)
PARTS = {
    "reading": (1, lambda: counters.sample(0)),
    "resetting": (1, lambda: counters._reset(0)),
    "carrying the user's peaks": (1, carried),
    "a slot of the ring": (1, lambda: spans.ring.put(1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0)),
    "shapes of inputs": (1, lambda: monitored.inputs.take("forward", "x", (loss,), {})),
    "a span": (2, lambda: spans.end(spans.begin("x", "y"), None)),
    "the user's phase": (2, named),
    "an optimizer": (2, lambda: phases.leave_optimizer(phases.enter_optimizer((optimizer,), (), {}), None)),
    "a root's call": (2, lambda: root(loss)),
    "backward": (2, lambda: phases.leave(phases.enter_backward(loss), None)),
}
for name, (boundaries, call) in PARTS.items():
    least = float("inf")
    for _ in range(50):
        time.sleep(0.005)  # others take their turn now, and the ring is drained
        began = time.thread_time_ns()
        for _ in range(100): call()
        least = min(least, time.thread_time_ns() - began)
    print(least / 100 / boundaries / 1e3, name, sep="\\t")
"""
"""CPU time in µs: the least of short batches, which neither other processes nor our own thread touch."""

IMPORT = "import time; begin = time.perf_counter(); import torch; print(time.perf_counter() - begin)"


RATIO, MILLISECONDS = "× {:.4f}", "{:+.1f} ms"


def measure(card, run, code, *args, monitored, settings=None):
    env = run.environment(hertz=10.0) if monitored else {}
    env.pop("GPUMEM_TUI_RAISE", None)
    done = card.run([sys.executable, "-c", code, *map(str, args)], env=env, settings=settings)
    return [float(word) for word in done.stdout.split()]


def pairs(least):
    """How many pairs of processes to measure."""
    return max(least, int(os.environ.get("GPUMEM_TUI_PAIRS", "0")))


def interval(statistic, measured, resamples=1000):
    """A 95 % interval of a statistic of (bare, monitored): pairs are drawn anew, and values within each."""
    chance = random.Random(0)
    drawn = []
    for _ in range(resamples):
        sample = [
            [chance.choices(values, k=len(values)) for values in pair]
            for pair in chance.choices(measured, k=len(measured))
        ]
        drawn.append(statistic(sample))
    drawn.sort()
    return drawn[round(0.025 * resamples)], drawn[round(0.975 * resamples) - 1]


def ratio(measured):
    """Monitored / bare: the median of each pair's medians' quotients."""
    return statistics.median(statistics.median(m) / statistics.median(b) for b, m in measured)


def extra_ms(measured):
    """Monitored − bare in milliseconds, likewise."""
    return statistics.median(statistics.median(m) - statistics.median(b) for b, m in measured) * 1e3


def report(capsys, what, measured, statistic, figure):
    """Say a statistic with its interval; the statistic."""
    value, (low, high) = statistic(measured), interval(statistic, measured)
    bare = statistics.median(value for b, _ in measured for value in b) * 1e3
    with capsys.disabled():
        print(
            f"\n{what}: {bare:.2f} ms bare, monitored {figure.format(value)} "
            f"(95 %: {figure.format(low)} to {figure.format(high)}; {len(measured)} pairs)"
        )
    return value


def interleaved(take, count):
    """Pairs of (bare, monitored) by turns; every other pair begins with the monitored one."""
    measured = []
    for number in range(count):
        first = bool(number % 2)
        taken = {on: take(on) for on in (first, not first)}
        measured.append((taken[False], taken[True]))
    return measured


def test_the_interval_of_equal_processes_holds_one_and_of_a_slower_one_does_not():
    chance = random.Random(1)

    def process(mean):
        return [chance.gauss(mean, 0.05) for _ in range(60)]

    same = interval(ratio, [(process(1), process(1)) for _ in range(5)])
    slower = interval(ratio, [(process(1), process(1.1)) for _ in range(5)])

    assert same[0] < 1 < same[1]
    assert 1 < slower[0] < 1.1 < slower[1]


@pytest.mark.parametrize(
    ("kind", "layers", "kernel_us", "what"),
    [
        ("train", 16, 290, "20 ms step of training"),
        ("train", 4, 230, "5 ms step of training"),
        ("decode", 16, 280, "5 ms step of decoding"),
    ],
)
def test_step_time(simcard, agent_run, capsys, kind, layers, kernel_us, what):
    def take(on):
        settings = {"kernel_us": kernel_us}
        return measure(simcard, agent_run, STEPS, kind, layers, 60, monitored=on, settings=settings)

    measured = interleaved(take, pairs(3))

    assert report(capsys, what, measured, ratio, RATIO) < 3


def test_step_time_of_eight_ranks(make_simcard, agent_run, capsys):
    card = make_simcard(*["8GiB"] * 8)

    def take(on):
        return measure(card, agent_run, RANKS, 30, monitored=on, settings={"kernel_us": 230})

    measured = interleaved(take, pairs(2))

    assert all(len(values) == 8 for pair in measured for values in pair)
    assert report(capsys, "step of 8 ranks", measured, ratio, RATIO) < 10


def test_a_boundary_and_a_module_call(simcard, agent_run, capsys):
    bare = measure(simcard, agent_run, BOUNDARY, monitored=False)
    monitored = measure(simcard, agent_run, BOUNDARY, monitored=True)
    read_us, root_us, working_us, named_us, *calls_us = (
        (m - b) * 1e6 for m, b in zip(monitored, bare, strict=True)
    )
    read_us = monitored[0] * 1e6
    with capsys.disabled():
        print(
            f"\nboundary of a user's phase {named_us / 2:.1f} µs, of a root's call {root_us / 2:.1f} µs, "
            f"of one that allocates {working_us / 2:.1f} µs; "
            f"reading the counters is {read_us:.1f} µs of it: {named_us / 2 / read_us:.2f} and "
            f"{root_us / 2 / read_us:.2f} readings"
            f"\nnested module call, of 1, 10 and 1000: {', '.join(f'{us:+.2f}' for us in calls_us)} µs"
        )

    assert named_us / 2 < 5 * read_us
    assert root_us / 2 < 8 * read_us
    assert max(calls_us) < 20


def test_the_parts_of_a_boundary(simcard, agent_run, capsys):
    done = simcard.run([sys.executable, "-c", PARTS], env=agent_run.environment(hertz=10.0))
    parts = {name: float(us) for us, name in (line.split("\t") for line in done.stdout.splitlines())}
    with capsys.disabled():
        print("\nµs of a boundary: " + ", ".join(f"{name} {us:.2f}" for name, us in parts.items()))

    assert parts["reading"] < parts["a span"] < 5 * parts["reading"]
    assert max(parts.values()) < 8 * parts["reading"]


def test_a_phase_of_a_script_that_nobody_monitors(capsys):
    import timeit

    import gpumem_tui

    def phase():
        with gpumem_tui.phase("rollout"):
            pass

    phase_us = min(timeit.repeat(phase, number=50, repeat=400)) / 50 * 1e6
    with capsys.disabled():
        print(f"\nphase() without a monitor: {phase_us:.2f} µs")

    assert phase_us < 20


def test_importing_torch(simcard, agent_run, capsys):
    measured = interleaved(lambda on: measure(simcard, agent_run, IMPORT, monitored=on), pairs(3))

    assert report(capsys, "import torch", measured, extra_ms, MILLISECONDS) < 5000


def test_starting_an_interpreter(agent_run, capsys):
    bare_env = {k: v for k, v in os.environ.items() if not k.startswith("GPUMEM_")}
    monitored_env = {**bare_env, **agent_run.environment(bare_env)}

    def take(on):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], env=monitored_env if on else bare_env, check=True)
        return [time.perf_counter() - begin]

    measured = interleaved(take, pairs(15))

    assert report(capsys, "an interpreter starts", measured, extra_ms, MILLISECONDS) < 1000
