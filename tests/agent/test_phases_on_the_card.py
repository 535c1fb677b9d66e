"""Phases as a person would tell them, in real shapes of work on the simulated card."""

import textwrap

import pytest

from gpumem_tui import records

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

NETS = """
import time, torch, torch.nn as nn
class Net(nn.Module):
    def __init__(self, n=64):
        super().__init__(); self.first, self.second = nn.Linear(n, n), nn.Linear(n, n)
    def forward(self, x): return self.second(torch.relu(self.first(x)))
class Teacher(Net): pass
class Critic(Net): pass
def batch(rows=4, n=64): return torch.randn(rows, n, device="cuda")
"""


def run(simcard, agent_run, code, **env):
    settings = {
        "true_every": 17
    }  # prime: a loop that asks an even number of things a turn would wait for ever
    return simcard.python(
        NETS + textwrap.dedent(code), env={**agent_run.environment(), **env}, settings=settings
    )


def told(agent_run):
    """(phase, name, step) of every span, in the order in which they began."""
    return [(b.phase, b.name, b.step) for b in agent_run.records(records.Begin)]


def test_a_model_moved_to_the_card_is_a_load_whose_peak_is_exact(simcard, agent_run):
    done = run(simcard, agent_run, """
        model = Net().cuda()
        print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        torch.save(model.state_dict(), "saved.pt")
        model.load_state_dict(torch.load("saved.pt"))
        import os; os.unlink("saved.pt")
    """)  # fmt: skip
    first = agent_run.records(records.End)[0].levels[0]

    assert [phase for phase, _, _ in told(agent_run)] == ["load", "save", "load", "load"]
    assert told(agent_run)[0][1] == "Net"
    assert agent_run.records(records.Begin)[0].levels[0][1:] == (0, 0)
    assert f"{first[3]} {first[4]}" == done.stdout.strip()
    assert first[5] is True


def test_a_load_after_cuda_was_initialised_begins_with_what_was_read(simcard, agent_run):
    run(simcard, agent_run, """
        torch.cuda.set_device(0)
        import time; time.sleep(0.3)
        model = Net().cuda()
    """)  # fmt: skip

    (begin,) = agent_run.records(records.Begin)

    assert begin.phase == "load"
    assert begin.levels == [(0, 0, 0)]


def test_a_frozen_teacher_is_no_grad_and_an_evaluation_in_between_is_eval(simcard, agent_run):
    run(simcard, agent_run, """
        student, teacher = Net().cuda(), Teacher().cuda().eval()
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for step in range(4):
            with torch.no_grad(): target = teacher(batch())
            (student(batch()) - target).sum().backward(); optimizer.step()
            if step == 2:
                student.eval()
                with torch.no_grad(): student(batch())
                student.train()
    """)  # fmt: skip
    spans = [span for span in told(agent_run) if span[0] != "load"]

    assert [span for span in spans[1:] if span[1] == "Teacher"] == [
        ("no-grad", "Teacher", step) for step in (1, 2, 3)
    ]
    assert [span for span in spans if span[0] == "eval" and span[1] == "Net"] == [("eval", "Net", 3)]
    assert [span[2] for span in spans if span[:2] == ("forward", "Net")] == [1, 2, 3, 4]


def test_gradient_accumulation_and_an_optimizer_in_backward_are_one_step(simcard, agent_run):
    run(simcard, agent_run, """
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            for micro in range(3): model(batch()).sum().backward()
            optimizer.step()
        other = Critic().cuda()
        for parameter in other.parameters():
            own = torch.optim.SGD([parameter], lr=0.1)
            def update(p, own=own): own.step(); own.zero_grad()
            parameter.register_post_accumulate_grad_hook(update)
        for step in range(3): other(batch()).sum().backward()
    """)  # fmt: skip
    steps = [step for phase, name, step in told(agent_run) if phase == "forward" and name == "Net"]
    nested = {b.span: b for b in agent_run.records(records.Begin)}
    inside = [b for b in nested.values() if b.phase == "optimizer" and b.parent and b.parent in nested]

    assert steps == [1, 1, 1, 2, 2, 2]
    assert {nested[b.parent].phase for b in inside} <= {"backward"}


def test_the_user_s_own_phases_nest_and_marks_are_kept(simcard, agent_run):
    run(simcard, agent_run, """
        import gpumem_tui
        model = Net().cuda()
        @gpumem_tui.phase("score")
        def score(x): return model(x)
        with gpumem_tui.phase("rollout"):
            for _ in range(2): score(batch())
        try:
            with gpumem_tui.phase("broken"): raise KeyError
        except KeyError: pass
        gpumem_tui.mark("checkpoint 3")
        torch.cuda.empty_cache()
        time.sleep(0.1)
    """)  # fmt: skip
    begins = {b.span: b for b in agent_run.records(records.Begin) if b.phase != "load"}
    parents = [(b.phase, begins[b.parent].phase if b.parent in begins else None) for b in begins.values()]
    errors = {begins[e.span].phase: e.error for e in agent_run.records(records.End) if e.span in begins}

    assert parents[:3] == [("rollout", None), ("score", "rollout"), ("forward", "score")]
    assert errors["broken"] == "KeyError"
    assert [(m.name, m.detail) for m in agent_run.records(records.Mark)] == [
        ("mark", "checkpoint 3"),
        ("empty_cache", None),
    ]


def test_generation_is_prefill_and_decode(simcard, agent_run):
    pytest.importorskip("transformers", reason="needs transformers")
    run(simcard, agent_run, """
        from transformers import GPT2Config, GPT2LMHeadModel
        sizes = dict(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=2)
        model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).cuda().eval()
        tokens = torch.zeros(1, 8, dtype=torch.long, device="cuda")
        model.generate(tokens, max_new_tokens=5, do_sample=False, pad_token_id=0)
    """)  # fmt: skip
    phases = [phase for phase, _, _ in told(agent_run) if phase != "load"]

    assert phases[:3] == ["generate", "prefill", "decode"]
    assert set(phases[2:]) == {"decode"}


def test_a_graph_s_capture_and_its_replays_are_phases(simcard, agent_run):
    run(simcard, agent_run, """
        model, x = Net().cuda().eval(), batch()
        with torch.no_grad():
            model(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph): model(x)
            for _ in range(3): graph.replay()
    """)  # fmt: skip
    phases = [phase for phase, _, _ in told(agent_run) if phase != "load"]

    assert phases == ["eval", "graph capture", "eval", *["graph replay"] * 3]


def test_recomputation_under_checkpointing_is_told_from_the_forward(simcard, agent_run):
    run(simcard, agent_run, """
        from torch.utils.checkpoint import checkpoint
        class Deep(nn.Module):
            def __init__(self): super().__init__(); self.block = Net()
            def forward(self, x): return checkpoint(self.block, x, use_reentrant=False)
        model = Deep().cuda()
        for _ in range(2): model(batch().requires_grad_()).sum().backward()
    """)  # fmt: skip
    phases = [phase for phase, _, _ in told(agent_run) if phase != "load"]

    assert phases == ["forward", "backward", "recompute"] * 2


def test_what_entered_the_model_is_kept_with_counts(simcard, agent_run):
    run(simcard, agent_run, """
        model = Net().cuda()
        for rows in (4, 4, 8): model(batch(rows))
    """)  # fmt: skip
    last = {(i.phase, i.input): i.count for i in agent_run.records(records.Inputs)}

    assert last == {("forward", "float32[4,64]"): 2, ("forward", "float32[8,64]"): 1}


def test_composition_adds_up_to_what_the_objects_hold(simcard, agent_run):
    run(simcard, agent_run, """
        model = Net().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(batch()).sum().backward(); optimizer.step()
        time.sleep(0.1)
    """)  # fmt: skip
    parts = agent_run.records(records.Composition)
    parameters = 2 * (64 * 64 + 64) * 4

    assert len(parts) == 2
    assert parts[-1].complete
    assert (parts[-1].parameters_bytes, parts[-1].gradients_bytes) == (parameters, parameters)
    assert parts[-1].optimizer_bytes == 2 * parameters
    assert parts[-1].allocated_bytes >= 4 * parameters


def test_the_strict_protocol_waits_at_every_boundary_and_says_so(simcard, agent_run):
    code = """
        calls = 0
        original = torch.cuda.synchronize
        def counted(*a, **k):
            global calls; calls += 1
            return original(*a, **k)
        torch.cuda.synchronize = counted
        model = Net().cuda(); model(batch()); print(calls)
        time.sleep(0.1)
    """
    observed = run(simcard, agent_run, code).stdout
    strict = run(simcard, agent_run, code, GPUMEM_TUI_PROTOCOL="strict").stdout

    assert observed.strip() == "0"
    assert int(strict) >= 3
    assert [w.code for w in agent_run.records(records.Word)] == ["strict protocol"]


def test_a_compiled_model_has_the_graphs_that_it_has_without(simcard, agent_run):
    code = """
        import torch._dynamo
        from torch._dynamo.testing import CompileCounter
        for how in ("module", "function", "method"):
            torch._dynamo.reset(); counter, model = CompileCounter(), Net().cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            if how == "module": call = torch.compile(model, backend=counter)
            elif how == "function": call = torch.compile(lambda x: model(x) * 2, backend=counter)
            else: model.compile(backend=counter); call = model
            for _ in range(3): call(batch()).sum().backward(); optimizer.step()
            breaks = dict(torch._dynamo.utils.counters["graph_break"])
            print(how, counter.frame_count, counter.op_count, breaks)
    """
    bare = run(simcard, agent_run, code, GPUMEM_TUI_RUN="")
    monitored = run(simcard, agent_run, code)

    assert monitored.stdout == bare.stdout
    assert bare.stdout.count("{}") == 3
    assert "forward" in {phase for phase, _, _ in told(agent_run)}


def test_what_a_signal_handler_raises_within_a_hook_reaches_the_user(simcard, agent_run):
    done = run(simcard, agent_run, """
        import signal
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        raised = caught = 0
        def handler(*_):
            global raised; raised += 1
            raise TimeoutError("yours")
        signal.signal(signal.SIGALRM, handler)
        while raised < 150:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0004 + (raised % 37) * 0.00005)
                while True:
                    model(batch()).sum().backward(); optimizer.step()
            except TimeoutError:
                caught += 1
                torch.set_grad_enabled(True)  # torch's optimizer may have been left with it switched off
        signal.setitimer(signal.ITIMER_REAL, 0)
        for _ in range(100): model(batch()).sum().backward(); optimizer.step()
        print(raised == caught)
        time.sleep(0.2)
    """)  # fmt: skip
    last = agent_run.records(records.Begin)[-30:]

    assert done.stdout == "True\n"
    assert [b.phase for b in last] == ["forward", "backward", "optimizer"] * 10
    assert all(b.parent is None for b in last)


def test_an_optimizer_made_anew_each_time_counts_as_the_same(simcard, agent_run):
    run(simcard, agent_run, """
        model = Net().cuda()
        for _ in range(12):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(batch()).sum().backward(); optimizer.step()
    """)  # fmt: skip

    assert [step for phase, _, step in told(agent_run) if phase == "forward"] == list(range(1, 13))
