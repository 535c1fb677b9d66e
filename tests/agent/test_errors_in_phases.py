"""An exception, Ctrl-C or no memory within each kind of phase: its span says so, the next is clean."""

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

KINDS = {
    "load": ["load"],
    "save": ["save"],
    "forward": ["forward"],
    "eval": ["eval"],
    "no-grad": ["no-grad"],
    "backward": ["backward"],
    "recompute": ["recompute", "backward"],
    "optimizer": ["optimizer"],
    "compiled": ["compiled"],
    "graph capture": ["graph capture"],
    "prefill": ["prefill", "generate"],
    "decode": ["decode", "generate"],
    "rollout": ["rollout"],
    "forward in rollout": ["forward", "rollout"],
}
"""Of each kind, the spans that the error passes through, innermost first."""

ERRORS = {
    "exception": ("KeyError",),
    "ctrl-c": ("KeyboardInterrupt",),
    "out of memory": ("OutOfMemoryError",),
}

CODE = """
import io, os, signal, sys, threading, time, torch, torch.nn as nn
from torch.utils.checkpoint import checkpoint
import gpumem_tui
kinds, errors = sys.argv[1].split(","), sys.argv[2].split(",")
armed = None
def boom():
    global armed
    error, armed = armed, None
    if error == "exception": raise KeyError("mine")
    if error == "out of memory": torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    if error == "ctrl-c":
        if threading.current_thread() is not threading.main_thread(): raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)
class Net(nn.Module):
    def __init__(self, n=32): super().__init__(); self.layer = nn.Linear(n, n); self.armed = False
    def forward(self, x):
        if self.armed: boom()
        return self.layer(x)
    def _load_from_state_dict(self, *args): boom()
class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g): boom(); return g
class Deep(nn.Module):
    def __init__(self): super().__init__(); self.block = Net(); self.again = False
    def forward(self, x): return checkpoint(self.inner, x, use_reentrant=False)
    def inner(self, x):
        y = self.block(x)
        self.block.armed = True
        return y
class Own(torch.optim.SGD):
    def step(self, closure=None): super().step(closure); boom()
class Unwilling:
    def __reduce__(self): boom(); return (Unwilling, ())
@torch.compiler.disable
def outside(): boom()
@torch.compile(backend="eager")
def region(x): y = x * 2; outside(); return y
def batch(): return torch.randn(4, 32, device="cuda")
model, teacher = Net().cuda(), Net().cuda()
optimizer = Own(model.parameters(), lr=0.1)
if "prefill" in kinds:
    from transformers import GPT2Config, GPT2LMHeadModel
    sizes = dict(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    talker = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).cuda().eval()
    talker.transformer.wte.register_forward_pre_hook(lambda *_: countdown())
    prompt = torch.zeros(1, 8, dtype=torch.long, device="cuda")
left = 0
def countdown():
    global left
    left -= 1
    if left == 0: boom()
def talk(calls):
    global left
    left = calls
    talker.generate(prompt, max_new_tokens=6, do_sample=False, pad_token_id=0)
def work(kind):
    if kind == "load": Net().load_state_dict(teacher.state_dict())
    if kind == "save": torch.save(Unwilling(), io.BytesIO())
    if kind in ("forward", "forward in rollout"): model.armed = True; model(batch())
    if kind == "eval":
        model.armed = True; model.eval()
        with torch.no_grad(): model(batch())
    if kind == "no-grad":
        model(batch()).sum().backward(); teacher.armed = True
        with torch.no_grad(): teacher(batch())
    if kind == "backward": Backward.apply(model(batch())).sum().backward()
    if kind == "recompute": Deep().cuda()(batch().requires_grad_()).sum().backward()
    if kind == "optimizer": model(batch()).sum().backward(); optimizer.step()
    if kind == "compiled": region(batch())
    if kind == "graph capture":
        with torch.cuda.graph(torch.cuda.CUDAGraph()): torch.ones(2, device="cuda") * 2; boom()
    if kind == "prefill": talk(1)
    if kind == "decode": talk(3)
    if kind == "rollout": boom()
for error in errors:
    for kind in kinds:
        with gpumem_tui.phase("case"): pass
        armed = error
        try:
            if "rollout" in kind:
                with gpumem_tui.phase("rollout"): work(kind)
            else: work(kind)
        except (KeyError, KeyboardInterrupt, torch.OutOfMemoryError) as caught: print(type(caught).__name__)
        else: print("nothing", kind, error)
        armed = None; model.armed = teacher.armed = False; model.train()
        optimizer.zero_grad(); model(batch()).sum().backward(); optimizer.step()
        with gpumem_tui.phase("case"): pass
"""


def test_each_error_marks_the_spans_it_passes_and_nothing_else(simcard, agent_run):
    pytest.importorskip("transformers", reason="needs transformers, for generate")
    done = simcard.python(CODE, ",".join(KINDS), ",".join(ERRORS), env=agent_run.environment())
    errors = {end.span: end.error for end in agent_run.records(records.End)}
    cases, current = [], None
    for begin in sorted(agent_run.records(records.Begin), key=lambda begin: begin.seq):
        if begin.phase == "case":
            current = [] if current is None else cases.append(current)
        elif current is not None:
            current.append(begin)

    told = iter(cases)
    for error, names in ERRORS.items():
        for kind, phases in KINDS.items():
            spans = next(told)
            broken = [b.phase for b in spans if errors[b.span] is not None]
            assert sorted(broken) == sorted(phases), (kind, error)
            assert {errors[b.span] for b in spans} - {None} == set(names), (kind, error)
            assert [(b.phase, b.parent) for b in spans[-3:]] == [
                ("forward", None), ("backward", None), ("optimizer", None)
            ], (kind, error)  # fmt: skip
    assert done.stdout.split() == [names[0] for names in ERRORS.values() for _ in KINDS]
    assert len(cases) == len(KINDS) * len(ERRORS)
