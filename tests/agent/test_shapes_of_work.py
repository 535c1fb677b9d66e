"""Shapes of real work, each in a process of its own: phases, names and steps as a person would tell them."""

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

CODE = """
import os, sys, threading, time, torch, torch.nn as nn
import torch._dynamo  # before the forks, once
import gpumem_tui
class Net(nn.Module):
    def __init__(self, n=64):
        super().__init__(); self.first, self.second = nn.Linear(n, n), nn.Linear(n, n)
    def forward(self, x): return self.second(torch.relu(self.first(x)))
class Critic(Net): pass
class Teacher(Net): pass
def batch(rows=4, n=64): return torch.randn(rows, n, device="cuda")
def sgd(model): return torch.optim.SGD(model.parameters(), lr=0.1)

def gan():
    maker, critic = Net().cuda(), Critic().cuda()
    one, two = torch.optim.Adam(critic.parameters()), torch.optim.Adam(maker.parameters())
    for _ in range(4):
        fake = maker(batch()); (critic(batch()).mean() + critic(fake.detach()).mean()).backward(); one.step()
        two.zero_grad(); critic(fake).mean().backward(); two.step(); one.zero_grad()
def distillation():
    student, teacher = Net().cuda(), Teacher().cuda().eval()
    optimizer = sgd(student)
    for _ in range(3):
        with torch.no_grad(): target = teacher(batch())
        (student(batch()) - target).sum().backward(); optimizer.step()
def optimizer_in_backward():
    model = Net().cuda()
    for parameter in model.parameters():
        own = torch.optim.SGD([parameter], lr=0.1)
        def update(p, own=own): own.step(); own.zero_grad()
        parameter.register_post_accumulate_grad_hook(update)
    for _ in range(3): model(batch()).sum().backward()
def compiled_step():
    model = Net().cuda(); optimizer = sgd(model)
    @torch.compile(backend="aot_eager")
    def train_step(x): loss = model(x).sum(); loss.backward(); optimizer.step(); optimizer.zero_grad()
    for _ in range(4): train_step(batch())
def compiled_inference():
    model = Net().cuda().eval()
    def next_token(x): return model(x) * 2
    call = torch.compile(next_token, backend="aot_eager")
    with torch.inference_mode():
        for _ in range(4): call(batch())
def accumulation():
    model = Net().cuda(); optimizer = sgd(model)
    for _ in range(3):
        for _ in range(4): model(batch()).sum().backward()
        optimizer.step(); optimizer.zero_grad()
def scaler_that_skips():
    model = Net().cuda(); optimizer = sgd(model); scaler = torch.amp.GradScaler("cuda", init_scale=2.0)
    for turn in range(4):
        optimizer.zero_grad()
        with torch.autocast("cuda"): loss = model(batch()).sum()
        scaler.scale(loss).backward(); scaler.unscale_(optimizer)
        state = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        for device in state: state[device] = _Found(turn == 1)  # a card that computes nothing finds no inf
        scaler.step(optimizer); scaler.update(2.0)
class _Found:
    def __init__(self, inf): self.inf = inf
    def item(self): return float(self.inf)
    def to(self, *a, **k): return torch.zeros(1, device="cuda")
def lbfgs():
    model = Net().cuda(); optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    def closure(): optimizer.zero_grad(); loss = model(batch()).sum(); loss.backward(); return loss
    for _ in range(2): optimizer.step(closure)
def evaluation_within_an_epoch():
    model = Net().cuda(); optimizer = sgd(model)
    for turn in range(4):
        optimizer.zero_grad(); model(batch()).sum().backward(); optimizer.step()
        if turn == 1:
            model.eval()
            with torch.no_grad():
                for _ in range(3): model(batch())
            model.train()
def server():
    model = Net().cuda().eval()
    def serve():
        with torch.inference_mode():
            for _ in range(5): model(batch())
    threads = [threading.Thread(target=serve) for _ in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
def by_hand():
    model = Net().cuda()
    for _ in range(3):
        model(batch()).sum().backward()
        for p in model.parameters(): p.data -= 0.1 * p.grad; p.grad = None
def frozen_statistics():
    model = Net().cuda().eval(); optimizer = sgd(model)
    for _ in range(3): optimizer.zero_grad(); model(batch()).sum().backward(); optimizer.step()
def default_device():
    torch.set_default_device("cuda")  # a mode: torch's functions come back to themselves through it
    model = Net(); optimizer = sgd(model)
    for _ in range(3):
        x = batch().requires_grad_(); loss = model(x).sum()
        slope, = torch.autograd.grad(loss, x, create_graph=True)
        (loss + slope.sum()).backward(); optimizer.step(); optimizer.zero_grad()
def optimizer_by_another():
    class Wrapped(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {}); self.own = torch.optim.SGD(self.param_groups, lr=0.1)
        def step(self, closure=None): return self.own.step(closure)
    model = Net().cuda(); optimizer = Wrapped(list(model.parameters()))
    for _ in range(3): model(batch()).sum().backward(); optimizer.step(); optimizer.zero_grad()
def optimizer_in_forward():
    class Learner(Net):
        def forward(self, x):
            weight = self.first.weight.detach().clone().requires_grad_()
            own = torch.optim.SGD([weight], lr=0.1); (x @ weight).sum().backward(); own.step()
            return super().forward(x)
    model = Learner().cuda(); optimizer = sgd(model)
    for _ in range(3): model(batch()).sum().backward(); optimizer.step(); optimizer.zero_grad()
def forces():
    class Potential(Net):
        def forward(self, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_(); return torch.autograd.grad(super().forward(x).sum(), x)[0]
    model = Potential().cuda().eval()
    for _ in range(3): model(batch())
def folds():
    for _ in range(3):
        model = Net().cuda(); optimizer = sgd(model)
        for _ in range(4): model(batch()).sum().backward(); optimizer.step(); optimizer.zero_grad()
def without_a_module():
    weight = torch.randn(64, 64, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(3): (batch() @ weight).sum().backward(); optimizer.step(); optimizer.zero_grad()
def penalty():
    maker, critic = Net().cuda(), Critic().cuda(); one, two = sgd(critic), sgd(maker)
    for _ in range(3):
        made = maker(batch()).detach().requires_grad_()
        slope, = torch.autograd.grad(critic(made).sum(), made, create_graph=True)
        (critic(made).mean() + slope.norm()).backward(); one.step(); one.zero_grad()
        critic(maker(batch())).mean().backward(); two.step(); two.zero_grad()
def loss_on_the_host():
    model = Net().cuda(); optimizer = sgd(model)
    for _ in range(3): model(batch()).cpu().sum().backward(); optimizer.step(); optimizer.zero_grad()
def names_of_the_users():
    model = Net().cuda(); optimizer = sgd(model)
    for _ in range(3):
        with gpumem_tui.phase("forward"): loss = model(batch()).sum()
        with gpumem_tui.phase("backward"): loss.backward()
        with gpumem_tui.phase("optimizer"): optimizer.step(); optimizer.zero_grad()
def tokens():
    model = Net().cuda().eval()
    with torch.no_grad():
        for _ in range(400): model(batch(1))

for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        globals()[name]()
        print(name, os.getpid(), flush=True)
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, name
"""

SHAPES = {
    "gan": {"forward Net": 4, "forward Critic": 12, "backward": 8, "optimizer Adam": 8},
    "distillation": {
        "forward Net": 3,
        "no-grad Teacher": 2,
        "eval Teacher": 1,
        "backward": 3,
        "optimizer SGD": 3,
    },
    "optimizer_in_backward": {"forward Net": 3, "backward": 3, "optimizer SGD": 12},
    "compiled_step": {"compiled train_step": 4, "backward": 4},
    "compiled_inference": {"compiled next_token": 4},
    "accumulation": {"forward Net": 12, "backward": 12, "optimizer SGD": 3},
    "scaler_that_skips": {"forward Net": 4, "backward": 4, "optimizer SGD": 3},
    "lbfgs": {"optimizer LBFGS + closure": 2, "forward Net": 4, "backward": 4},
    "evaluation_within_an_epoch": {"forward Net": 4, "backward": 4, "optimizer SGD": 4, "eval Net": 3},
    "server": {"eval Net": 15},
    "by_hand": {"forward Net": 3, "backward": 3},
    "frozen_statistics": {"eval Net": 1, "forward Net": 2, "backward": 3, "optimizer SGD": 3},
    "default_device": {"forward Net": 3, "backward": 6, "optimizer SGD": 3},
    "optimizer_by_another": {"forward Net": 3, "backward": 3, "optimizer Wrapped": 3},
    "optimizer_in_forward": {"forward Learner": 3, "backward": 6, "optimizer SGD": 6},
    "folds": {"forward Net": 12, "backward": 12, "optimizer SGD": 12},
    "without_a_module": {"backward": 3, "optimizer SGD": 3},
    "penalty": {"forward Net": 6, "forward Critic": 9, "backward": 9, "optimizer SGD": 6},
    "loss_on_the_host": {"forward Net": 3, "backward": 3, "optimizer SGD": 3},
    "forces": {"eval Potential": 3, "backward": 3},
    "names_of_the_users": {
        "forward": 3,
        "forward Net": 3,
        "backward": 6,
        "optimizer": 3,
        "optimizer SGD": 3,
    },
}
"""Of each shape, its spans by phase and name; the moves to the card are left out."""

STEPS = {
    "gan": 4, "distillation": 3, "optimizer_in_backward": 3, "compiled_step": 4, "compiled_inference": 4,
    "accumulation": 3, "scaler_that_skips": 3, "lbfgs": 2, "evaluation_within_an_epoch": 4, "server": 15,
    "by_hand": 3, "frozen_statistics": 3, "tokens": 400,
    "default_device": 3, "forces": 3, "optimizer_by_another": 3, "optimizer_in_forward": 3,
    "names_of_the_users": 3, "folds": 12, "without_a_module": 3, "penalty": 3, "loss_on_the_host": 3,
}  # fmt: skip


def test_every_shape_is_told_as_a_person_would_tell_it(simcard, agent_run):
    names = [*SHAPES, "tokens"]
    done = simcard.run(
        [*simcard._python(CODE, names)], env=agent_run.environment(hertz=10), settings={"true_every": 17}
    )
    pids = {name: int(pid) for name, pid in map(str.split, done.stdout.splitlines())}
    steps = {}
    for name in names:
        begins = agent_run.records(records.Begin, pids[name])
        folded = agent_run.records(records.Spans, pids[name])
        steps[name] = max([b.step for b in begins] + [s.step for s in folded])
        if name == "gan":
            iterations = [b.step for b in begins if b.phase == "forward"]
            assert iterations == sorted([1, 2, 3, 4] * 4)
        told = {}
        for begin in begins:
            label = f"{begin.phase} {begin.name}".rstrip()
            told[label] = told.get(label, 0) + (begin.phase != "load")
        for run in folded:  # of a machine that is busy, also equal spans that are few
            label = f"{run.phase} {run.name}".rstrip()
            told[label] = told.get(label, 0) + run.count
        told = {label: count for label, count in told.items() if count}
        assert told == SHAPES.get(name, {"eval Net": 400}), name
        assert {end.error for end in agent_run.records(records.End, pids[name])} == {None}, name

    assert steps == STEPS
    assert bytes_of(agent_run, pids["tokens"]) < 30_000


def bytes_of(agent_run, pid):
    """The journal of a process, without the samples of its counters."""
    lines = [
        line
        for path in (agent_run.path / "journal").glob(f"rank-{pid}-*")
        for line in path.read_bytes().splitlines()[1:]
        if not line.startswith(b'["sample"')
    ]
    return sum(map(len, lines))
