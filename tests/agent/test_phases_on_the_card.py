"""Phases as a person would tell them, in real shapes of work on the simulated card."""

import textwrap

import pytest
from agent.forks import Forks

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


SETTINGS = {"true_every": 17}
"""A prime: a loop that asks an even number of things a turn would wait for ever."""


@pytest.fixture(scope="module")
def forks(simcard_libraries, tmp_path_factory):
    from agentrun import AgentRun
    from conftest import SimCard

    folder = tmp_path_factory.mktemp("phases")
    card = SimCard(simcard_libraries, folder, ["24GiB"])
    yield Forks(card, AgentRun(folder / "run"), folder, settings=SETTINGS)
    card.end()


def run(forks, code):
    return forks.run(NETS + textwrap.dedent(code))


def run_alone(simcard, agent_run, code, **env):
    """In a process of its own, with a setting of its own."""
    return simcard.python(
        NETS + textwrap.dedent(code), env={**agent_run.environment(), **env}, settings=SETTINGS
    )


def told(done):
    """(phase, name, step) of every span, in the order in which they began."""
    return [(b.phase, b.name, b.step) for b in done.records(records.Begin)]


def test_a_model_moved_to_the_card_is_a_load_whose_peak_is_exact(forks):
    done = run(forks, """
        model = Net().cuda()
        print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        torch.save(model.state_dict(), "saved.pt")
        model.load_state_dict(torch.load("saved.pt"))
        import os; os.unlink("saved.pt")
    """)  # fmt: skip
    first = done.records(records.End)[0].levels[0]

    assert [phase for phase, _, _ in told(done)] == ["load", "save", "load", "load"]
    assert told(done)[0][1] == "Net"
    assert done.records(records.Begin)[0].levels[0][1:] == (0, 0)
    assert f"{first[3]} {first[4]}" == done.stdout.strip()
    assert first[5] is True


def test_a_model_whose_parameters_are_offloaded_is_still_a_root(forks):
    done = run(forks, """
        class Offloaded(nn.Module):
            def __init__(self):
                super().__init__(); self.weight = nn.Parameter(torch.zeros(64, 64)); self.own = Net()
            def forward(self, x): return self.own(x @ self.weight.to(x.device))
        model = Offloaded(); model.own.cuda()
        optimizer = torch.optim.SGD([model.weight], lr=0.1)
        for _ in range(2): model(batch()).sum().backward(); optimizer.step()
        model.cpu()(torch.randn(4, 64))
    """)  # fmt: skip
    phases = [span for span in told(done) if span[0] != "load"]

    assert phases == [
        span
        for step in (1, 2)
        for span in (("forward", "Offloaded", step), ("backward", "", step), ("optimizer", "SGD", step))
    ]


def test_a_distributed_checkpoint_is_saved_and_loaded(forks, tmp_path):
    done = run(forks, f"""
        import torch.distributed.checkpoint as checkpoint
        model = Net().cuda()
        checkpoint.save(model.state_dict(), checkpoint_id={str(tmp_path / "saved")!r}, no_dist=True)
        checkpoint.load(model.state_dict(), checkpoint_id={str(tmp_path / "saved")!r}, no_dist=True)
    """)  # fmt: skip

    assert [phase for phase, _, _ in told(done)] == ["load", "save", "load"]


def test_a_load_after_cuda_was_initialised_begins_with_what_was_read(forks):
    done = run(forks, """
        torch.cuda.set_device(0)
        import time; time.sleep(0.3)
        model = Net().cuda()
    """)  # fmt: skip

    (begin,) = done.records(records.Begin)

    assert begin.phase == "load"
    assert begin.levels == [(0, 0, 0)]


def test_a_frozen_teacher_is_no_grad_and_an_evaluation_in_between_is_eval(forks):
    done = run(forks, """
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
    spans = [span for span in told(done) if span[0] != "load"]

    assert [span for span in spans[1:] if span[1] == "Teacher"] == [
        ("no-grad", "Teacher", step) for step in (1, 2, 3)
    ]
    assert [span for span in spans if span[0] == "eval" and span[1] == "Net"] == [("eval", "Net", 3)]
    assert [span[2] for span in spans if span[:2] == ("forward", "Net")] == [1, 2, 3, 4]


def test_gradient_accumulation_and_an_optimizer_in_backward_are_one_step(forks):
    done = run(forks, """
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
    steps = [step for phase, name, step in told(done) if phase == "forward" and name == "Net"]
    nested = {b.span: b for b in done.records(records.Begin)}
    inside = [b for b in nested.values() if b.phase == "optimizer" and b.parent and b.parent in nested]

    assert steps == [1, 1, 1, 2, 2, 2]
    assert {nested[b.parent].phase for b in inside} <= {"backward"}


def test_the_user_s_own_phases_nest_and_marks_are_kept(forks):
    done = run(forks, """
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
        torch.cuda.memory._set_allocator_settings("max_split_size_mb:64")
        time.sleep(0.1)
    """)  # fmt: skip
    begins = {b.span: b for b in done.records(records.Begin) if b.phase != "load"}
    parents = [(b.phase, begins[b.parent].phase if b.parent in begins else None) for b in begins.values()]
    errors = {begins[e.span].phase: e.error for e in done.records(records.End) if e.span in begins}

    assert parents[:3] == [("rollout", None), ("score", "rollout"), ("forward", "score")]
    assert errors["broken"] == "KeyError"
    assert [(m.name, m.detail) for m in done.records(records.Mark)] == [
        ("mark", "checkpoint 3"),
        ("empty_cache", None),
        ("allocator settings", None),
    ]


def test_models_called_by_tasks_that_take_turns_are_in_the_phase_of_their_own_task(forks):
    done = run(forks, """
        import asyncio, gpumem_tui
        model = Net().cuda().eval()
        @torch.inference_mode()
        def answer(rows): return model(batch(rows))
        async def serve(number):
            with gpumem_tui.phase(f"request {number}"):
                for _ in range(3):
                    await asyncio.sleep(0)
                    held = answer(number + 1)
                await asyncio.to_thread(answer, 9)
        @gpumem_tui.phase("serving")
        async def main(): await asyncio.gather(*map(serve, range(4)))
        asyncio.run(main())
    """)  # fmt: skip
    begins = {b.span: b for b in done.records(records.Begin) if b.phase != "load"}
    ends = {e.span: e for e in done.records(records.End)}
    parents = [(b.phase, begins[b.parent].phase if b.parent in begins else None) for b in begins.values()]

    assert sorted(parents, key=str) == sorted([
        ("serving", None), *[(f"request {i}", "serving") for i in range(4)],
        *[("eval", f"request {i}") for i in range(4) for _ in range(4)],
    ], key=str)  # fmt: skip
    assert {ends[span].error for span in begins} == {None}
    assert all(level[5] for span in begins for level in ends[span].levels)


def test_a_phase_of_the_user_s_in_which_cuda_is_initialised_is_kept(forks):
    done = run(forks, """
        import gpumem_tui
        with gpumem_tui.phase("never on a device"): torch.ones(2)
        try:
            with gpumem_tui.phase("setup"):
                kept = torch.empty(4 << 20, device="cuda")
                torch.empty(4 << 20, device="cuda")
                raise KeyError
        except KeyError: pass
        print(torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated())
    """)  # fmt: skip
    allocated, peak = map(int, done.stdout.split())
    begins, ends = done.records(records.Begin), done.records(records.End)
    (end,) = [end for end, begin in zip(ends, begins, strict=True) if begin.phase == "setup"]

    assert end.t_ns > next(begin.t_ns for begin in begins if begin.phase == "setup")
    assert end.error == "KeyError"
    assert [(level[1], level[3], level[5]) for level in end.levels] == [(allocated, peak, True)]


def test_markers_that_were_left_out_are_told_at_the_end(forks):
    done = run(forks, """
        x = torch.zeros(1, device="cuda")
        for _ in range(5): torch.cuda.empty_cache()
    """)  # fmt: skip

    marks = [m for m in done.records(records.Mark) if m.name == "empty_cache"]

    assert [m.detail for m in marks] == [None, "3 more since the last"]
    assert marks[0].t_ns < marks[1].t_ns


def test_generation_is_prefill_and_decode(forks):
    pytest.importorskip("transformers", reason="needs transformers")
    done = run(forks, """
        from transformers import GPT2Config, GPT2LMHeadModel
        sizes = dict(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=2)
        model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).cuda().eval()
        tokens = torch.zeros(1, 8, dtype=torch.long, device="cuda")
        model.generate(tokens, max_new_tokens=5, do_sample=False, pad_token_id=0)
    """)  # fmt: skip
    phases = [phase for phase, _, _ in told(done) if phase != "load"]

    assert phases[:3] == ["generate", "prefill", "decode"]
    assert set(phases[2:]) == {"decode"}


def test_a_key_value_cache_is_a_part_of_what_is_allocated(forks):
    pytest.importorskip("transformers", reason="needs transformers")
    done = run(forks, """
        from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel
        sizes = dict(vocab_size=64, n_positions=256, n_embd=64, n_layer=2, n_head=2)
        model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).cuda().eval()
        tokens, cache = torch.zeros(4, 100, dtype=torch.long, device="cuda"), None
        with torch.no_grad():
            for _ in range(2):
                cache = model(tokens, past_key_values=cache, use_cache=True).past_key_values
        held = [part for layer in cache.layers for part in (layer.keys, layer.values)]
        print(sum(part.untyped_storage().nbytes() for part in held))
        time.sleep(0.1)
    """)  # fmt: skip
    first, second = done.records(records.Composition)

    assert second.caches_bytes == int(done.stdout) == 2 * first.caches_bytes
    assert first.caches_bytes == 2 * 2 * 4 * 100 * 64 * 4
    assert ("caches", "float32", second.caches_bytes) in second.dtypes
    assert second.step == 2


def test_a_graph_s_capture_and_its_replays_are_phases(forks):
    done = run(forks, """
        model, x = Net().cuda().eval(), batch()
        with torch.no_grad():
            model(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph): model(x)
            for _ in range(3): graph.replay()
    """)  # fmt: skip
    phases = [phase for phase, _, _ in told(done) if phase != "load"]

    assert phases == ["eval", "graph capture", "eval", *["graph replay"] * 3]


def test_recomputation_under_checkpointing_is_told_from_the_forward(forks):
    done = run(forks, """
        from torch.utils.checkpoint import checkpoint
        class Deep(nn.Module):
            def __init__(self): super().__init__(); self.block = Net()
            def forward(self, x): return checkpoint(self.block, x, use_reentrant=False)
        model = Deep().cuda()
        for _ in range(2): model(batch().requires_grad_()).sum().backward()
    """)  # fmt: skip
    phases = [phase for phase, _, _ in told(done) if phase != "load"]

    assert phases == ["forward", "backward", "recompute"] * 2
    assert {end.error for end in done.records(records.End)} == {None}


def test_blocks_that_a_loop_checkpoints_with_reentry_train_and_are_no_evaluation(forks):
    done = run(forks, """
        from torch.utils.checkpoint import checkpoint
        blocks = nn.ModuleList([Net(), Net()]).cuda()
        optimizer = torch.optim.SGD(blocks.parameters(), lr=0.1)
        for _ in range(2):
            x = batch().requires_grad_()
            for block in blocks: x = checkpoint(block, x, use_reentrant=True)
            x.sum().backward(); optimizer.step(); optimizer.zero_grad()
        blocks.eval()
        with torch.no_grad(): checkpoint(blocks[0], batch(), use_reentrant=True)
    """)  # fmt: skip
    phases = [(phase, step) for phase, _, step in told(done) if phase != "load"]

    assert phases == [
        (phase, step)
        for step in (1, 2)
        for phase in ("forward", "forward", "backward", "recompute", "recompute", "optimizer")
    ] + [("eval", 2)]


def test_a_method_that_is_checkpointed_is_recomputed_as_one_by_the_name_of_its_module(forks):
    done = run(forks, """
        import functools
        from torch.utils.checkpoint import checkpoint
        class Block(Net):
            def work(self, x, scale): return self.second(self.first(x)) * scale
        class Deep(nn.Module):
            def __init__(self): super().__init__(); self.one, self.two = Block(), Block()
            def forward(self, x):
                for call in (functools.partial(Block.work, self.one, scale=2), self.two.work):
                    x = checkpoint(call, x, *[3] * (call == self.two.work), use_reentrant=False)
                return checkpoint(lambda x: self.two.first(x) * 2, x, use_reentrant=False)
        Deep().cuda()(batch()).sum().backward()
    """)  # fmt: skip

    recomputed = [name for phase, name, _ in told(done) if phase == "recompute"]

    assert recomputed == ["Linear", "Block", "Block"]  # of a bare function, the modules that it calls
    assert {end.error for end in done.records(records.End)} == {None}


@pytest.mark.simcard(devices=["24GiB", "24GiB"])
def test_replicas_of_data_parallel_are_part_of_its_call(simcard, agent_run):
    run_alone(simcard, agent_run, """
        model = nn.DataParallel(Net().cuda())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(batch(8)).sum().backward(); optimizer.step()
        model.eval()
        with torch.no_grad(): model(batch(8))
    """)  # fmt: skip

    assert [phase for phase, _, _ in told(agent_run) if phase != "load"] == [
        "forward", "backward", "optimizer", "eval"
    ]  # fmt: skip


def test_what_entered_the_model_is_kept_with_counts(forks):
    done = run(forks, """
        model = Net().cuda()
        for rows in (4, 4, 8): model(batch(rows))
    """)  # fmt: skip
    last = {(i.phase, i.input): i.count for i in done.records(records.Inputs)}

    assert last == {("forward", "float32[4,64]"): 2, ("forward", "float32[8,64]"): 1}


def test_composition_adds_up_to_what_the_objects_hold(forks):
    done = run(forks, """
        model = Net().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(batch()).sum().backward(); optimizer.step()
        time.sleep(0.1)
    """)  # fmt: skip
    parts = done.records(records.Composition)
    parameters = 2 * (64 * 64 + 64) * 4

    assert len(parts) == 2
    assert parts[-1].complete
    assert (parts[-1].parameters_bytes, parts[-1].gradients_bytes) == (parameters, parameters)
    assert parts[-1].optimizer_bytes == 2 * parameters
    assert sorted(parts[-1].dtypes) == [
        ("gradients", "float32", parameters),
        ("optimizer state", "float32", 2 * parameters),
        ("parameters", "float32", parameters),
    ]
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
    observed = run_alone(simcard, agent_run, code).stdout
    strict = run_alone(simcard, agent_run, code, GPUMEM_TUI_PROTOCOL="strict").stdout

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
    bare = run_alone(simcard, agent_run, code, GPUMEM_TUI_RUN="")
    monitored = run_alone(simcard, agent_run, code)

    assert monitored.stdout == bare.stdout
    assert bare.stdout.count("{}") == 3
    assert "forward" in {phase for phase, _, _ in told(agent_run)}


def test_a_region_with_our_hooks_and_phases_in_it_is_compiled_as_it_is_without(simcard, agent_run):
    code = """
        import gpumem_tui, torch._dynamo
        from torch._dynamo.utils import counters
        model = Net().cuda(); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def slope(x): x.requires_grad_(); return torch.autograd.grad(model(x).sum(), x)[0] * 2
        def step(x): model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
        def made(x):
            model(x).sum().backward()
            torch.optim.SGD(model.parameters(), lr=0.1).step()
        def named(x):
            with gpumem_tui.phase("within"): return model(x) * 2
        @gpumem_tui.phase("decorated")
        def decorated(x): gpumem_tui.mark("within"); return model(x)
        for region in (slope, step, made, named, lambda x: decorated(x), model.__call__):
            torch._dynamo.reset(); counters.clear()
            call = torch.compile(region, backend="eager")
            for _ in range(3): call(batch())
            kinds = ("frames", "graph_break", "unimplemented")
            print([sum(counters[kind].values()) for kind in kinds], dict(counters["stats"]))
    """
    bare = run_alone(simcard, agent_run, code, GPUMEM_TUI_RUN="")
    monitored = run_alone(simcard, agent_run, code)

    assert monitored.stdout == bare.stdout
    assert len(bare.stdout.splitlines()) == 6
    assert "within" not in {phase for phase, _, _ in told(agent_run)}


def test_tracing_scripting_exporting_copying_and_pickling_give_what_they_give_without(
    simcard, agent_run, tmp_path
):
    code = """
        import copy, hashlib, io, pickle, torch.fx
        class Plain(nn.Module):
            def __init__(self):
                super().__init__(); self.layer, self.act = nn.Linear(64, 64), nn.ReLU(inplace=True)
            def forward(self, x): return self.act(self.layer(x)) * 2
        torch.manual_seed(3)
        model, x = Plain(), torch.ones(4, 64)
        with torch.no_grad():
            for p in model.parameters(): p.fill_(0.5)
        model.cuda(); model(batch()).sum().backward(); model.zero_grad(); model.cpu()
        def told(what): print(hashlib.md5(str(what).encode()).hexdigest())
        told(torch.fx.symbolic_trace(model).code)
        told(torch.jit.script(model).code); told(torch.jit.trace(model, x).code)
        told(torch.export.export(model, (x,)).graph)
        told(copy.deepcopy(model).state_dict()); told(sorted(vars(copy.deepcopy(model))))
        loaded = pickle.loads(pickle.dumps(model)); told(sorted(vars(loaded))); told(loaded(x))
        saved = io.BytesIO(); torch.save(model, saved); saved.seek(0)
        told(torch.load(saved, weights_only=False)(x))
        print([name for name in dir(model) if "gpumem" in name], nn.Module.__call__.__qualname__)
    """
    script = tmp_path / "script.py"  # torch.jit.script reads it
    script.write_text(NETS + textwrap.dedent(code))
    bare = simcard.python(script)
    monitored = simcard.python(script, env=agent_run.environment())

    assert len(bare.stdout.splitlines()) == 10
    assert monitored.stdout == bare.stdout
    assert [phase for phase, _, _ in told(agent_run)][:3] == ["load", "forward", "backward"]


def test_what_a_signal_handler_raises_within_a_hook_reaches_the_user(forks):
    done = run(forks, """
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
    last = done.records(records.Begin)[-30:]

    assert done.stdout == "True\n"
    assert [b.phase for b in last] == ["forward", "backward", "optimizer"] * 10
    assert all(b.parent is None for b in last)


def test_what_an_interrupt_kept_from_ending_ends_at_the_next_phase(forks):
    done = run(forks, """
        import sys
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        phases = sys.modules["_gpumem_tui_agent"].monitored.phases
        loss = model(batch()).sum()
        phases.enter_backward(loss)  # and then, before its function runs, an interrupt
        model(batch()).sum().backward()
        phases.enter_optimizer((optimizer,), (), {})
        model(batch())
    """)  # fmt: skip
    begins = done.records(records.Begin)
    errors = {end.span: end.error for end in done.records(records.End)}

    assert [(b.phase, errors[b.span]) for b in begins[1:]] == [
        ("forward", None), ("backward", "InterruptedError"), ("forward", None), ("backward", None),
        ("optimizer", "InterruptedError"), ("forward", None),
    ]  # fmt: skip
    assert {b.parent for b in begins} == {None}


def test_a_load_from_a_model_s_class_is_named_by_it(forks, tmp_path):
    done = run(forks, f"""
        from transformers import GPT2Config, GPT2LMHeadModel
        sizes = dict(vocab_size=64, n_positions=64, n_embd=32, n_layer=1, n_head=2)
        model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)).cuda()
        model.save_pretrained({str(tmp_path)!r})
        GPT2LMHeadModel.from_pretrained({str(tmp_path)!r})
    """)  # fmt: skip

    assert [(phase, name) for phase, name, _ in told(done)] == [
        ("load", "GPT2LMHeadModel"), ("save", "GPT2LMHeadModel"), ("load", "GPT2LMHeadModel"),
    ]  # fmt: skip


def test_an_optimizer_made_anew_each_time_counts_as_the_same(forks):
    done = run(forks, """
        model = Net().cuda()
        for _ in range(12):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(batch()).sum().backward(); optimizer.step()
    """)  # fmt: skip

    assert [step for phase, _, step in told(done) if phase == "forward"] == list(range(1, 13))
