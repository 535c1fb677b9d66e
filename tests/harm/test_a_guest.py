"""What a guest in the user's process must leave alone: threads, descriptors, depth, hooks, overrides.

One program does it all, bare and under the agent, and prints what it finds.
"""

import json

import pytest

PROGRAM = """
import code, contextlib, io, json, os, sys, tempfile, threading, time, warnings
import torch, torch.nn as nn
found = {}
model = nn.Linear(4, 4).cuda()
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(2, 4, device="cuda")
def step():
    model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
def fail():
    try: torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError: return handled()
def handled(): return noted()  # what handles a failure takes some calls, too
def noted(): return True
for _ in range(3): step()

# A failure that is caught on a thread of autograd's.
class Failing(torch.autograd.Function):
    @staticmethod
    def forward(context, x): return x * 2
    @staticmethod
    def backward(context, grad): fail(); return grad
Failing.apply(torch.randn(4, device="cuda", requires_grad=True)).sum().backward()

found["threads"] = [type(thread).__name__ for thread in threading.enumerate()]
for thread in threading.enumerate():
    if thread is not threading.current_thread(): thread.join()  # for ever, if one of ours is there

# As deep in calls as the program may be.
def dive(levels, work): return dive(levels - 1, work) if levels else work()
def deepest(work):
    for levels in range(sys.getrecursionlimit(), 0, -1):
        try: dive(levels, work)
        except RecursionError: continue
        return levels
found["deepest"] = [deepest(step), deepest(fail)]

# A console: Python itself looks whether its hook for exceptions is the one that it came with.
console, said = code.InteractiveConsole({}), io.StringIO()
with contextlib.redirect_stderr(said):
    for line in ("def f(): return g", "", "f()"): console.push(line)
found["console"] = said.getvalue()
found["hooks"] = sys.excepthook is sys.__excepthook__, threading.excepthook is threading.__excepthook__

# Overrides of the user's see the calls of the user's program alone.
seen = []
class Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(getattr(function, "__name__", "")); return function(*args, **(kwargs or {}))
class Own(nn.Parameter):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        seen.append(getattr(function, "__name__", ""))
        return super().__torch_function__(function, types, args, kwargs or {})
with Watching(): step()
model.weight = Own(model.weight.data)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step(); step()
model(x.as_subclass(Own)).sum().backward()
found["overrides"] = list(seen)

# Parameters that are no leaves, under transforms: reading their gradient would warn.
scale = torch.ones((), device="cuda", requires_grad=True)
parameters = {name: value.detach() * scale for name, value in model.named_parameters()}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch.func.functional_call(model, parameters, (x,)).sum().backward()
    def loss(parameters, x): return torch.func.functional_call(model, parameters, (x,)).sum()
    torch.vmap(torch.func.grad(loss), (None, 0))({k: v.detach() for k, v in parameters.items()}, x)
found["warnings"] = [str(warning.message) for warning in told]

# A program that closes every descriptor that it does not know, and opens files of its own.
for name in os.listdir("/proc/self/fd"):
    with contextlib.suppress(OSError):
        if "/journal/" in os.readlink("/proc/self/fd/" + name): os.close(int(name))
files = [tempfile.TemporaryFile() for _ in range(64)]
until = time.monotonic() + 0.5
while time.monotonic() < until: step()
found["written by others"] = sum(os.fstat(file.fileno()).st_size for file in files)

fail()
found["allocated"] = torch.cuda.memory_allocated()
print(json.dumps(found))
"""


@pytest.fixture(scope="class")
def both(request, simcard_libraries, tmp_path_factory):
    """What the program finds bare and monitored, and the agent's run."""
    from agentrun import AgentRun
    from conftest import SimCard

    folder = tmp_path_factory.mktemp("guest")
    card, agent = SimCard(simcard_libraries, folder, ["24GiB"]), AgentRun(folder / "run")
    request.addfinalizer(card.end)
    bare, monitored = (json.loads(card.python(PROGRAM, env=env).stdout) for env in ({}, agent.environment()))
    return bare, monitored, agent


@pytest.mark.slow
@pytest.mark.simcard
class TestAGuest:
    def test_has_no_thread_that_a_program_could_meet_or_wait_for(self, both):
        bare, monitored, _ = both

        assert monitored["threads"] == bare["threads"] == ["_MainThread"]

    def test_takes_nothing_of_the_depth_that_calls_may_have(self, both):
        bare, monitored, _ = both

        assert monitored["deepest"] == bare["deepest"]

    def test_has_its_hooks_where_programs_look_for_those_of_python(self, both):
        bare, monitored, _ = both

        assert monitored["hooks"] == [True, True]
        assert monitored["console"] == bare["console"]

    def test_is_not_seen_by_overrides_of_the_users(self, both):
        bare, monitored, _ = both

        assert monitored["overrides"] == bare["overrides"]

    def test_warns_of_nothing(self, both):
        bare, monitored, _ = both

        assert monitored["warnings"] == bare["warnings"]

    def test_never_writes_to_a_file_that_has_got_its_descriptor(self, both):
        _, monitored, agent = both

        assert monitored["written by others"] == 0
        assert len(list((agent.path / "journal").glob("rank-*"))) == 2  # it went on in a new segment

    def test_keeps_no_memory(self, both):
        bare, monitored, _ = both

        assert monitored["allocated"] == bare["allocated"]
