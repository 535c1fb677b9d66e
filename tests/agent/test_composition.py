"""What allocated is made of, where one look at a step's end is too short for all tensors."""

import json

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

CODE = """
import gc, json, sys, time, weakref, torch, torch.nn as nn
model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(300)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
x, extra = torch.randn(2, 8, device="cuda"), []
agent = sys.modules["_gpumem_tui_agent"]
composition = sys.modules["_gpumem_tui_agent.composition"]
composition.EVERY_NS, composition.Walk.go_on.__defaults__ = 0, ((), 100_000)
def step():
    optimizer.zero_grad(); model(x).sum().backward(); optimizer.step()
def told(walk): return sorted((kind, size) for of in walk.sizes.values() for (kind, _), size in of.items())
step(); step()
whole, pieces, count = composition.Walk(), composition.Walk(), 0
whole.go_on([model], [optimizer], (), 10**12)
while not pieces.complete:
    pieces.go_on([model], [optimizer], (), 0); count += 1
    step()
print(json.dumps([told(whole), told(pieces), count]))
for _ in range(40): step()
time.sleep(0.3); print(time.monotonic_ns())
for _ in range(40): extra.append(torch.zeros(1 << 20, device="cuda")); step()
"""
"""Composition is told at every step's end, a tenth of a millisecond at a time."""


@pytest.fixture(scope="module")
def walked(simcard_libraries, tmp_path_factory):
    """What the program printed, and the composition lines before and after it began to grow."""
    from agentrun import AgentRun
    from conftest import SimCard

    folder = tmp_path_factory.mktemp("walked")
    card, agent = SimCard(simcard_libraries, folder, ["24GiB"]), AgentRun(folder / "run")
    try:
        done = card.python(CODE, env=agent.environment())
    finally:
        card.end()
    printed, grows_ns = done.stdout.splitlines()
    lines = agent.records(records.Composition)
    steady = [line for line in lines if line.t_ns < int(grows_ns)]
    return json.loads(printed), steady, lines[len(steady) :]


def test_a_walk_in_pieces_between_steps_finds_what_one_at_once_does(walked):
    (whole, pieces, count), _, _ = walked

    assert pieces == whole
    assert count > 5
    assert [kind for kind, _ in whole] == ["gradients", "optimizer state", "parameters"]


def test_a_walk_goes_on_at_later_step_ends_until_it_is_complete(walked):
    _, steady, _ = walked
    first = next(number for number, line in enumerate(steady) if line.complete)
    parameters = 300 * (64 + 8) * 4

    assert first > 1
    assert steady[first].optimizer_bytes >= 2 * parameters
    assert steady[first].took_ns > steady[0].took_ns


def test_a_walk_begins_anew_where_something_was_allocated_meanwhile(walked):
    _, _, growing = walked

    assert len(growing) > 30
    assert not any(line.complete for line in growing[1:])
