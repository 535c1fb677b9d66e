"""A program that stops or turns its own clocks, as tests do: its recording keeps the machine's time."""

import sys

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

# What freezegun does: every name of a clock in every module becomes another one.
PROGRAM = """
import sys, time, torch, gpumem_tui
torch.empty(1 << 20, device="cuda")
kept = [time.monotonic_ns]; sleep = time.sleep; builtin = type(time.time)
began = kept[0]()
names = ("time", "monotonic", "perf_counter")
stopped = {getattr(time, name + unit): (lambda: 1) for name in names for unit in ("", "_ns")}
for module in list(sys.modules.values()):
    for name, value in list(vars(module).items()):
        if type(value) is builtin and value in stopped: setattr(module, name, stopped[value])
assert time.time() == time.monotonic_ns() == 1
with gpumem_tui.phase("late"):
    held = torch.empty(1 << 20, device="cuda")
    sleep(0.3)
print(began, kept[0]())
"""


def test_phases_and_samples_of_a_program_whose_clocks_are_stopped_have_their_true_times(simcard, agent_run):
    done = simcard.run([sys.executable, "-c", PROGRAM], env=agent_run.environment())
    began, ended = map(int, done.stdout.split())

    (begin,) = [each for each in agent_run.records(records.Begin) if each.phase == "late"]
    (end,) = [each for each in agent_run.records(records.End) if each.span == begin.span]
    samples = [each.t_ns for each in agent_run.records(records.Sample) if each.t_ns > began]

    assert began < begin.t_ns < end.t_ns < ended
    assert end.t_ns - begin.t_ns >= 300_000_000
    assert samples == sorted(samples)
    assert samples[-1] > begin.t_ns
