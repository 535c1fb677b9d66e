"""What a new optimizer is told to make: its parameters and options, before its first step and once."""

import json

import pytest

from gpumem_tui import records
from gpumem_tui.analysis.optimizers import first_step_bytes

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

SCRIPT = """
    import json, torch, torch.nn as nn
    held = lambda optimizer: sum(
        value.untyped_storage().nbytes() for state in optimizer.state.values() for value in state.values()
        if torch.is_tensor(value) and value.is_cuda
    )
    truth = {}
    def train(make):
        model = nn.Linear(1024, 1024).cuda()
        for frozen in [model.bias]: frozen.requires_grad_(False)
        optimizer = make([p for p in model.parameters()])
        for step in range(2):
            model(torch.randn(8, 1024, device="cuda")).sum().backward()
            optimizer.step(); optimizer.zero_grad()
        truth[type(optimizer).__name__ + "".join(k for k in ("momentum", "amsgrad") if optimizer.defaults.get(k))] = held(optimizer)
    train(torch.optim.Adam)
    train(lambda p: torch.optim.AdamW(p, amsgrad=True))
    train(torch.optim.SGD)
    train(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    train(torch.optim.RMSprop)
    train(torch.optim.NAdam)
    class Own(torch.optim.Optimizer):
        def __init__(self, params): super().__init__(params, {})
        def step(self): pass
    train(Own)
    try: torch.optim.Adam([])
    except ValueError as error: print(error)
    print(json.dumps(truth))
"""  # noqa: E501


def test_the_forecast_is_what_the_first_step_then_makes(simcard, agent_run):
    done = simcard.python(SCRIPT, env=agent_run.environment())
    complaint, truth = done.stdout.splitlines()
    truth = json.loads(truth)
    told = agent_run.records(records.Optimizer)
    steps = [begin.t_ns for begin in agent_run.records(records.Begin) if begin.phase == "optimizer"]

    assert complaint == "optimizer got an empty parameter list"
    assert [one.name for one in told] == ["Adam", "AdamW", "SGD", "SGD", "RMSprop", "NAdam", "Own"]
    assert {one.parameters_bytes for one in told} == {4 << 20}
    assert {one.state_bytes for one in told} == {0}
    assert told[0].t_ns < steps[0]
    for one in told:
        makes = first_step_bytes(one.name, one.parameters_bytes, one.options)
        if one.name == "Own":
            assert makes is None
        else:  # NAdam keeps a number of each parameter on the device besides
            assert makes <= truth[one.name + "".join(one.options)] <= makes + 1024
