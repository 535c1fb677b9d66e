"""Whether the agent was there when CUDA was initialised: only then it can say which pid came with it."""

import pytest

from gpumem_tui import records
from gpumem_tui.agent import wire

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

BY_HAND = """
    import sys, time, torch
    torch.empty(1 << 20, device="cuda")
    time.sleep(0.2)
    import gpumem_tui.hook
    torch.empty(1 << 20, device="cuda")
    time.sleep(0.5)
"""

FROM_THE_START = """
    import time, torch
    torch.empty(1 << 20, device="cuda")
    time.sleep(0.5)
"""


def test_an_agent_started_by_hand_does_not_know_when_cuda_was_initialised(simcard, agent_run):
    environment = agent_run.environment()
    del environment["PYTHONPATH"]  # does not start by itself then
    simcard.python(BY_HAND, env=environment)

    (device,) = agent_run.records(records.Device)
    assert device.initialised_ns is None


def test_an_agent_that_was_there_before_tells_when_cuda_was_initialised(simcard, agent_run):
    began_ns = wire.now_ns()
    simcard.python(FROM_THE_START, env=agent_run.environment())

    (device,) = agent_run.records(records.Device)
    (first,) = {sample.t_ns for sample in agent_run.records(records.Sample)[:1]}
    assert began_ns < device.initialised_ns <= device.t_ns <= first
