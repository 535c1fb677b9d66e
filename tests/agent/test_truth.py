"""Peaks of phases against a script's own truth: the same work, measured by itself and unmonitored."""

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

WORK = """
    import io, random, sys, torch, torch.nn as nn
    truth = len(sys.argv) > 1
    random.seed(11)
    def part(work):
        if not truth:
            return work()
        torch.cuda.synchronize(); torch.cuda.reset_peak_memory_stats()
        start = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        value = work()
        torch.cuda.synchronize()
        peak = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        print(*start, *peak, torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
        return value
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
        def forward(self, x):
            spike = torch.empty(random.randrange(1, 64) << 16, device="cuda"); del spike
            return self.layers(x)
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(50):
        x = torch.randn(random.randrange(1, 512), 256, device="cuda")
        loss = part(lambda: model(x)).sum()
        part(loss.backward)
        part(optimizer.step)
        optimizer.zero_grad()
        if step % 5 == 4:
            model.eval()
            with torch.no_grad(): part(lambda: model(x))
            model.train()
            part(lambda: torch.save(model.state_dict(), io.BytesIO()))
            random.random() < 0.5 and torch.cuda.empty_cache()
"""


@pytest.mark.parametrize(
    "settings",
    ["", "expandable_segments:True", "backend:cudaMallocAsync"],
    ids=["default", "expandable", "async"],
)
def test_fifty_steps_agree_to_the_byte_with_what_a_script_measures_itself(simcard, agent_run, settings):
    env = {"PYTORCH_ALLOC_CONF": settings} if settings else {}
    bare = simcard.start_python(WORK, "truth", env=env)
    simcard.python(WORK, env={**agent_run.environment(), **env})
    truth, _ = bare.communicate(timeout=120)

    measured = [tuple(map(int, line.split())) for line in truth.splitlines()]
    begun = {b.span: b for b in agent_run.records(records.Begin) if b.phase != "load"}
    ends = [end for end in agent_run.records(records.End) if end.span in begun]
    told = [(*begun[end.span].levels[0][1:], *end.levels[0][3:5], *end.levels[0][1:3]) for end in ends]
    phases = [begun[end.span].phase for end in ends]
    # torch's own first gradient of ones is still held where backward ends, and gone when it has returned
    left = [told[i][4] - measured[i][4] for i in range(len(measured)) if phases[i] == "backward"]

    assert {phase: phases.count(phase) for phase in phases} == {
        "forward": 50, "backward": 50, "optimizer": 50, "eval": 10, "save": 10,
    }  # fmt: skip
    assert [levels[:4] for levels in told] == [levels[:4] for levels in measured]
    assert [t[4:] for t, phase in zip(told, phases, strict=True) if phase != "backward"] == [
        m[4:] for m, phase in zip(measured, phases, strict=True) if phase != "backward"
    ]
    assert set(left) <= {4, 512}
    assert all(level[5] for end in ends for level in end.levels)
