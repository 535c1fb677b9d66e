"""What a failing process writes down on the simulated card: each part to the byte, whatever is in its way."""

import json
import textwrap

import pytest
from agent.forks import Forks

from gpumem_tui import records
from gpumem_tui.journal.failurefile import read_failure
from gpumem_tui.simcard.cards import context_bytes
from gpumem_tui.units import GIB, MIB

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

CONTEXT = context_bytes((8, 6))

FAIL = """
import gc, json, sys, torch, torch.nn as nn, gpumem_tui
def fail(size=1 << 40, phase="here", **on):
    with gpumem_tui.phase(phase):
        try: torch.empty(size, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError as error: return error
    raise SystemExit("no error")
def say(**facts): print(json.dumps(facts), flush=True)
"""


def run(simcard, agent_run, code, env=None, **options):
    """What a script printed, line by line; its failure records."""
    done = simcard.python(
        FAIL + textwrap.dedent(code), env={**agent_run.environment(), **(env or {})}, **options
    )
    return [json.loads(line) for line in done.stdout.splitlines()], failures(agent_run)


@pytest.fixture(scope="module")
def forks(simcard_libraries, tmp_path_factory):
    from agentrun import AgentRun
    from conftest import SimCard

    folder = tmp_path_factory.mktemp("failures")
    card = SimCard(simcard_libraries, folder, ["24GiB"])
    yield Forks(card, AgentRun(folder / "run"), folder)
    card.end()


def run_forked(forks, code):
    """As ``run``, in a fork of a process that has imported torch."""
    child = forks.run(FAIL + textwrap.dedent(code))
    return [json.loads(line) for line in child.stdout.splitlines()], failures(child.run, child.pid)


def failures(agent_run, pid="*"):
    """Records in the order in which they were written."""
    paths = (agent_run.path / "failures").glob(f"{pid}-*.json")
    paths = sorted(paths, key=lambda p: int(p.stem.split("-")[2]))
    return [read_failure(path) for path in paths]


def folded(segments):
    """Figures of pools as this test computes them, to compare with."""
    pools = {}
    for segment in segments:
        private = tuple(segment["segment_pool_id"])
        name = segment["segment_type"] if private == (0, 0) else "private {},{}".format(*private)
        idle = [b["size"] for b in segment["blocks"] if b["state"] == "inactive"]
        pool = pools.setdefault(
            (name, segment["stream"]), {"segments": 0, "total": 0, "holes": [], "free": 0}
        )
        pool["segments"] += 1
        pool["total"] += segment["total_size"]
        pool["holes"] += idle
        if len(idle) == len(segment["blocks"]) and private == (0, 0) and not segment["is_expandable"]:
            pool["free"] += segment["total_size"]
    return {
        key: (p["segments"], p["total"], p["total"] - sum(p["holes"]), max(p["holes"], default=0), p["free"])
        for key, p in pools.items()
    }


def figures(record):
    return {
        (p.pool, p.stream): (
            p.segments, p.total_bytes, p.allocated_bytes, p.largest_idle_bytes, p.releasable_bytes
        )
        for p in record.pools
    }  # fmt: skip


KNOWN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(1024, 2048); self.down = nn.Linear(2048, 1024, bias=False)
        self.register_buffer("table", torch.zeros(3_000_000, dtype=torch.int16))
    def forward(self, x): return self.down(self.up(x))
net = Net().cuda()
optimizer = torch.optim.AdamW(net.parameters())
net(torch.randn(4, 1024, device="cuda")).sum().backward(); optimizer.step()
ran = []
class Hostile(torch.Tensor):
    __class__ = property(lambda self: ran.append("__class__") or torch.Tensor)
    def __getattribute__(self, name): ran.append(name); return super().__getattribute__(name)
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        ran.append(str(function)); return super().__torch_function__(function, types, args, kwargs or {})
    def __hash__(self): ran.append("__hash__"); return 0
    def __eq__(self, other): ran.append("__eq__"); return False
hostile = torch.empty(7_000_000, dtype=torch.uint8, device="cuda").as_subclass(Hostile)
other = torch.empty(5_000_000, dtype=torch.half, device="cuda")
pinned = torch.empty(8 << 20, dtype=torch.uint8, pin_memory=True)
view, elsewhere = other[10:20], torch.empty(1 << 20)
sparse = torch.eye(10, device="cuda").to_sparse()
class Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if "empty" not in str(function): ran.append("mode: " + str(function))
        return function(*args, **(kwargs or {}))
del ran[:]
gc.collect()
with Watching(): fail()
say(ran=ran, allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved(),
    pinned=torch.cuda.host_memory_stats()["allocated_bytes.current"], segments=torch.cuda.memory_snapshot())
"""


@pytest.fixture(scope="class")
def known(request, simcard_libraries, tmp_path_factory):
    """One process that holds what is known, beside a stranger: its words, its record, the stranger's pid."""
    from agentrun import AgentRun
    from conftest import SimCard

    folder = tmp_path_factory.mktemp("known")
    card, agent = SimCard(simcard_libraries, folder, ["24GiB"]), AgentRun(folder / "run")
    request.addfinalizer(card.end)
    holder = card.hold("3GiB", name="stranger")
    (said,), (record,) = run(card, agent, KNOWN)
    return said, record, holder.pid


class TestWhatIsKnown:
    def test_essentials_say_who_where_and_what_was_wanted(self, known):
        said, record, _ = known

        assert (record.kind, record.ordinal, record.requested_bytes) == ("out of memory", 0, 1 << 40)
        assert [phase.phase for phase in record.phases] == ["here"]
        assert record.counters["allocated_bytes.all.current"] == said["allocated"]
        assert record.stack[-2].endswith(" fail")
        assert record.missing == {}

    def test_pools_are_what_the_snapshot_of_the_script_says(self, known):
        said, record, _ = known

        assert figures(record) == folded(said["segments"])
        assert sum(pool.total_bytes for pool in record.pools) == said["reserved"]
        assert all(p.idle_bytes == p.stuck_bytes + p.releasable_bytes for p in record.pools)

    def test_every_live_tensor_has_its_kind_to_the_byte(self, known):
        _, record, _ = known
        weights = 4 * (1024 * 2048 + 2048 + 2048 * 1024)
        parts = record.parts

        assert parts.complete
        assert parts.kinds["parameters"] == parts.kinds["gradients"] == weights
        assert parts.kinds["optimizer state"] == 2 * weights
        assert parts.kinds["buffers"] == 6_000_000
        assert parts.dtypes["float16"] == 10_000_000
        assert parts.dtypes["uint8"] == 7_000_000

    def test_the_largest_tensors_have_names_shapes_and_dtypes(self, known):
        _, record, _ = known
        named = {t.name: (t.kind, t.shape, t.dtype, t.size_bytes) for t in record.parts.largest}

        assert named["up.weight"] == ("parameters", [2048, 1024], "float32", 8 * MIB)
        assert named["down.weight.grad"] == ("gradients", [1024, 2048], "float32", 8 * MIB)
        assert named["up.weight.exp_avg_sq"] == ("optimizer state", [2048, 1024], "float32", 8 * MIB)
        assert named["table"] == ("buffers", [3_000_000], "int16", 6_000_000)
        assert named[None][0] == "other"

    def test_no_code_of_the_user_s_tensors_or_modes_runs(self, known):
        said, _, _ = known

        assert said["ran"] == []

    def test_the_driver_names_the_stranger_and_what_it_holds(self, known):
        said, record, stranger = known
        driver = record.driver
        held = {holder.pid: (holder.used_bytes, holder.name) for holder in driver.processes}

        assert held[stranger] == (3 * GIB + CONTEXT, "stranger")
        assert held[record.pid][0] == CONTEXT + said["reserved"]
        assert driver.used_bytes == sum(used for used, _ in held.values())
        assert driver.total_bytes == driver.used_bytes + driver.free_bytes + driver.driver_reserved_bytes

    def test_settings_and_host_memory_are_read(self, known):
        said, record, _ = known

        assert (record.settings.backend, record.settings.expandable_segments) == ("native", False)
        assert record.settings.memory_fraction is None
        assert record.host.rss_bytes > 100 * MIB
        assert record.host.pinned_bytes == said["pinned"] >= 8 * MIB
        assert record.host.available_bytes > 0

    def test_every_part_says_what_it_cost(self, known):
        _, record, _ = known

        assert set(record.took_ns) == {"essentials", "pools", "driver", "parts", "settings", "host"}


FRAGMENT = """
held = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
small = [torch.empty(1000, dtype=torch.uint8, device="cuda") for _ in range(3000)]
stream = torch.cuda.Stream()
with torch.cuda.stream(stream): elsewhere = torch.empty(50 << 20, dtype=torch.uint8, device="cuda")
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    private = [torch.empty(21 << 20, dtype=torch.uint8, device="cuda") for _ in "ab"]
del held[1:7:2], small[::2], private[0]
fail()
say(segments=torch.cuda.memory_snapshot(), reserved=torch.cuda.memory_reserved())
"""


@pytest.mark.parametrize("expandable", [False, True])
def test_holes_of_a_fragmented_pool_are_told_by_stream_and_pool(simcard, agent_run, expandable):
    (said,), (record,) = run(
        simcard, agent_run, FRAGMENT, env={"PYTORCH_ALLOC_CONF": f"expandable_segments:{expandable}"}
    )
    mine, theirs = figures(record), folded(said["segments"])

    assert record.settings.expandable_segments is expandable
    assert {key: value[:4] for key, value in mine.items()} == {key: v[:4] for key, v in theirs.items()}
    assert expandable or mine == theirs
    assert {key[0] for key in mine} >= {"small", "large"}
    assert any(key[0].startswith("private") for key in mine)
    assert sum(pool.total_bytes for pool in record.pools) == said["reserved"]
    assert any(pool.expandable for pool in record.pools) is expandable


def test_the_stream_that_a_failing_allocation_was_for_is_recorded(forks):
    (said,), (default, other) = run_forked(
        forks,
        """
        fail(phase="default")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream): fail(phase="other")
        say(stream=stream.cuda_stream)
        """,
    )

    assert (default.stream, other.stream) == (0, said["stream"])
    assert other.stream != 0


def test_a_memory_fraction_is_told_with_what_it_allows(forks):
    _, (record,) = run_forked(forks, """
        torch.cuda.init(); torch.cuda.set_per_process_memory_fraction(0.25)
        fail(8 << 30)
    """)  # fmt: skip

    assert record.settings.memory_fraction == 0.25
    assert record.allowed_total_bytes < 6 * GIB
    assert record.free_bytes > 20 * GIB


ON_DEMAND = """
torch.empty(1, device="cuda")
for line in sys.stdin:
    fail(phase=line.strip()); say(done=line.strip())
"""


def test_a_driver_that_lies_fails_or_hangs_costs_its_part_only(simcard, agent_run):
    process = simcard.start_python(FAIL + ON_DEMAND, env=agent_run.environment())

    def failing(phase, **fault):
        simcard.fault(**fault)
        process.stdin.write(phase + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"done": phase}
        return failures(agent_run)[-1]

    old = failing("old driver", nvml_memory_v2_error="FUNCTION_NOT_FOUND")
    silent = failing("no figures", nvml_process_memory=0, nvml_memory_v2_error=0)
    closed = failing("no lists", nvml_process_error="NO_PERMISSION", nvml_process_memory=1)
    lost = failing("lost", nvml_error="GPU_IS_LOST", nvml_process_error=0)
    hanging = failing("hanging", nvml_delay_ms=700, nvml_error=0)
    still = failing("still hanging")
    process.stdin.close()

    assert (old.driver.version, old.driver.driver_reserved_bytes) == (1, None)
    assert old.driver.total_bytes == old.driver.free_bytes + old.driver.used_bytes
    assert [holder.used_bytes for holder in silent.driver.processes] == [None]
    assert closed.driver.processes is None
    assert closed.driver.free_bytes > 0
    assert (lost.driver, lost.missing["driver"]) == (None, "the device is lost")
    assert hanging.missing == {"driver": "the driver has not answered in time"}
    assert still.missing == {"driver": "the driver still owes an answer of the failure before"}
    assert process.wait(20) == 0


def test_without_a_driver_library_the_record_says_so(simcard, agent_run):
    _, (record,) = run(simcard, agent_run, "fail()", nvml=False)

    assert record.missing == {"driver": "no driver library"}


def test_a_search_for_a_batch_size_pays_once(simcard, agent_run):
    (said,), found = run(simcard, agent_run, """
        import time
        torch.empty(1, device="cuda")
        lasted = []
        for turn in range(200):
            began = time.monotonic(); fail(phase="search"); lasted.append(time.monotonic() - began)
        fail(phase="train")
        say(first=lasted[0], median=sorted(lasted)[100])
    """)  # fmt: skip

    assert len(agent_run.records(records.Failure)) == 201
    assert len(found) == 100
    assert {record.missing["pools"] for record in found[:-1]} == {
        "left out: the same phase failed less than 30 s before"
    }
    assert found[-1].missing == {}
    assert said["median"] < said["first"]


def test_fifty_thousand_blocks_are_folded_and_more_than_is_bearable_is_said(forks):
    _, (first, second) = run_forked(forks, """
        held = [torch.empty(600, dtype=torch.uint8, device="cuda") for _ in range(50_000)]
        fail(phase="many")
        held += [torch.empty(600, dtype=torch.uint8, device="cuda") for _ in range(60_000)]
        fail(phase="too many")
    """)  # fmt: skip
    print("pools of 50,000 blocks:", first.took_ns["pools"] / 1e6, "ms; parts:", first.took_ns["parts"] / 1e6)

    assert first.pools[0].allocated_bytes == 50_000 * 1024
    assert first.took_ns["pools"] < 150_000_000
    assert second.pools is None
    assert "110001 blocks" in second.missing["pools"]
    assert second.settings.backend == "native"


def test_out_of_memory_on_the_autograd_thread_is_told_with_its_phase(forks):
    _, (record,) = run_forked(forks, """
        class Greedy(torch.autograd.Function):
            @staticmethod
            def forward(context, x): return x * 2
            @staticmethod
            def backward(context, grad): return torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        model = nn.Linear(64, 64).cuda()
        try: Greedy.apply(model(torch.randn(4, 64, device="cuda"))).sum().backward()
        except torch.OutOfMemoryError: pass
    """)  # fmt: skip

    assert [phase.phase for phase in record.phases] == ["backward"]
    assert record.missing == {}
    assert record.parts.kinds["parameters"] == 4 * (64 * 64 + 64)


def test_a_failure_is_in_the_phases_of_its_own_thread(simcard, agent_run):
    _, (record,) = run(simcard, agent_run, """
        import threading
        torch.empty(1, device="cuda")
        inside, done = threading.Event(), threading.Event()
        def serve():
            with gpumem_tui.phase("another thread's"): inside.set(); done.wait()
        thread = threading.Thread(target=serve); thread.start(); inside.wait()
        with gpumem_tui.phase("outer"): fail(phase="inner")
        done.set(); thread.join()
    """)  # fmt: skip
    (line,) = agent_run.records(records.Failure)

    assert [phase.phase for phase in record.phases] == ["outer", "inner"]
    assert line.phase == "outer > inner"


def test_out_of_memory_while_batches_are_collated_is_told(forks):
    _, (record,) = run_forked(forks, """
        def collate(items): return torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        try: next(iter(torch.utils.data.DataLoader(range(8), batch_size=4, collate_fn=collate)))
        except torch.OutOfMemoryError: pass
    """)  # fmt: skip

    assert record.stack[-1].endswith(" collate")
    assert record.missing == {}


def test_a_history_is_dumped_only_where_it_was_asked_for(simcard, agent_run):
    (said,), (record,) = run(simcard, agent_run, """
        import os
        x = torch.empty(1 << 20, device="cuda")
        while not torch._C._cuda_isHistoryEnabled(): pass
        y = torch.empty(1 << 20, device="cuda"); del y
        fail()
        say(events=[e["action"] for e in torch.cuda.memory._snapshot()["device_traces"][0]])
    """, env={"GPUMEM_TUI_HISTORY": "1"})  # fmt: skip

    assert record.history is not None
    assert (agent_run.path / record.history).stat().st_size > 1000
    assert "oom" in said["events"]


def test_what_a_signal_handler_raises_meanwhile_reaches_the_user(forks):
    (said,), found = run_forked(forks, """
        import ctypes, importlib, signal, threading
        torch.empty(1, device="cuda")
        def late(): raise TimeoutError("the user's alarm")
        signal.signal(signal.SIGALRM, lambda number, frame: late())
        def send():
            main = ctypes.c_ulong(threading.main_thread().ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(LookupError))
        host = importlib.import_module("_gpumem_tui_agent.autopsy.host")
        came, read = [], host.read_own
        for number, how in enumerate((
            lambda: signal.raise_signal(signal.SIGALRM), lambda: signal.raise_signal(signal.SIGINT), send
        )):
            def interrupted(torch): how(); return read(torch)
            host.read_own = interrupted
            try: fail(phase=str(number))
            except BaseException as error: came.append([type(error).__name__, str(error)])
        host.read_own = read
        fail(phase="afterwards")
        say(came=came, collects=gc.isenabled())
    """)  # fmt: skip

    assert said["came"] == [
        ["TimeoutError", "the user's alarm"],
        ["KeyboardInterrupt", ""],
        ["LookupError", ""],
    ]
    assert said["collects"]
    assert [record.requested_bytes for record in found] == [1 << 40] * 4
    assert found[-1].missing == {}


def test_an_allocator_without_an_observer_has_a_record_of_the_exception(simcard, agent_run):
    code = FAIL + textwrap.dedent("""
        torch.cuda.init()
        with gpumem_tui.phase("load"): torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    """)
    done = simcard.python(
        code, env={**agent_run.environment(), "PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, exits=1
    )
    (record,), (line,) = failures(agent_run), agent_run.records(records.UncaughtException)

    assert "OutOfMemoryError" in done.stderr
    assert (record.kind, line.kind, line.phase) == ("out of memory", "out of memory", "load")
    assert record.error.startswith("OutOfMemoryError: Allocation on device 0 would exceed allowed memory")
    assert "snapshot" in record.missing["pools"]
    assert record.driver.free_bytes > 20 * GIB
    assert record.settings.backend == "cudaMallocAsync"


def test_a_library_that_finds_no_memory_fails_outside_the_allocator(simcard, agent_run):
    simcard.fault(handle_bytes="40GiB")
    code = FAIL + 'nn.Linear(8, 8).cuda()(torch.randn(2, 8, device="cuda"))'
    simcard.python(code, env=agent_run.environment(), exits=1)
    (record,), (line,) = failures(agent_run), agent_run.records(records.UncaughtException)

    assert (line.kind, line.phase) == ("outside the allocator", "forward")
    assert read_failure(agent_run.path / line.path) == record
    assert "CUBLAS_STATUS" in line.text
    assert record.missing == {}


def test_a_card_that_is_full_before_the_first_allocation_is_told_with_who_holds_it(make_simcard, agent_run):
    simcard = make_simcard("8GiB")
    holder = simcard.hold("7600MiB", name="greedy")
    simcard.python('import torch; torch.empty(1, device="cuda")', env=agent_run.environment(), exits=1)
    (record,) = failures(agent_run)

    assert record.kind == "outside the allocator"
    assert [(h.pid, h.name, h.used_bytes) for h in record.driver.processes] == [
        (holder.pid, "greedy", 7600 * MIB + CONTEXT)
    ]
    assert (record.pools, record.parts.kinds) == ([], {})


def test_caches_shards_and_wrappers_are_counted_once_and_as_what_they_are(forks):
    (said,), (record,) = run_forked(forks, """
        import os, torch.distributed as dist
        from torch.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
        from torch.utils._python_dispatch import return_and_correct_aliasing
        from transformers.cache_utils import DynamicCache
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        mesh = init_device_mesh("cuda", (1,))
        local = torch.empty(3_000_000, device="cuda")
        layer = nn.Module()
        layer.weight = nn.Parameter(DTensor.from_local(local, mesh, [Shard(0)], run_check=False))
        cache = DynamicCache()
        for number in range(2):
            keys = torch.empty(1, 4, 1000, 64, device="cuda", dtype=torch.half)
            cache.update(keys, keys.clone(), number)
        ran = []
        class Wrapper(torch.Tensor):
            @staticmethod
            def __new__(cls, inner):
                made = torch.Tensor._make_wrapper_subclass(
                    cls, inner.shape, dtype=inner.dtype, device=inner.device,
                    dispatch_sizes_strides_policy="sizes", dispatch_device=True)
                made.inner = inner
                return made
            @classmethod
            def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
                ran.append(str(function)); return args[0].inner.shape
        wrapped = Wrapper(torch.empty(1_000_000, device="cuda", dtype=torch.uint8))
        del keys, ran[:]
        fail()
        say(ran=ran, allocated=torch.cuda.memory_allocated())
    """)  # fmt: skip
    named = {tensor.name: (tensor.kind, tensor.size_bytes) for tensor in record.parts.largest}

    assert said["ran"] == []
    assert record.parts.kinds == {
        "parameters": 12_000_000, "KV cache": 4 * 512_000, "other": 1_000_000
    }  # fmt: skip
    assert named["weight"] == ("parameters", 12_000_000)
    assert named["layers.1.values"] == ("KV cache", 512_000)
    assert not record.parts.complete  # somebody's own kind of tensor may hold memory that is not seen


def test_what_the_garbage_collector_was_told_to_put_aside_is_found_by_its_module(forks):
    _, (record,) = run_forked(forks, """
        model = nn.Sequential(nn.Linear(512, 512)).cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(4, 512, device="cuda")).sum().backward(); optimizer.step()
        gc.collect(); gc.freeze()
        fail()
    """)  # fmt: skip
    weights = 4 * (512 * 512 + 512)

    assert not record.parts.complete
    assert record.parts.kinds["parameters"] == record.parts.kinds["gradients"] == weights
    assert record.parts.kinds["optimizer state"] == 2 * weights
    assert record.parts.largest[0].name == "0.weight"


def test_a_search_with_a_phase_for_each_trial_is_looked_into_a_few_times_only(forks):
    _, found = run_forked(forks, """
        torch.empty(1, device="cuda")
        for trial in range(12): fail(phase=f"batch of {trial}")
    """)  # fmt: skip

    assert [record.missing for record in found[:10]] == [{}] * 10
    assert found[10].missing["parts"] == "left out: many others were looked into a moment before"
    assert found[10].counters and found[10].stack
