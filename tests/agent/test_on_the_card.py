"""The agent in real PyTorch on the simulated card: counters to the byte, phases, and every odd allocator."""

import subprocess

import pytest

from gpumem_tui import records
from gpumem_tui.simcard import find_compiler

pytestmark = [pytest.mark.simcard, pytest.mark.slow]

TRAIN = """
    import torch, torch.nn as nn
    model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    def step(model=model):
        model(torch.randn(64, 512, device="cuda")).sum().backward()
        optimizer.step(); optimizer.zero_grad()
"""


def run(simcard, agent_run, code, env=None, **options):
    return simcard.python(
        TRAIN + code, env={**agent_run.environment(), **(env or {})}, **options
    )  # the code continues TRAIN at its indentation


def words(agent_run):
    return {word.code: word.text for word in agent_run.records(records.Word)}


def spans(agent_run):
    """(phase, error) of every finished span but loads in order, and names of those never ended."""
    begun = {b.span: b for b in agent_run.records(records.Begin)}
    ended = [(begun.pop(e.span).phase, e.error) for e in agent_run.records(records.End)]
    ended = [span for span in ended if span != ("load", None)]
    return ended, [b.phase for b in begun.values()]


def test_the_last_sample_is_what_torch_says(simcard, agent_run):
    done = run(simcard, agent_run, """
    import time
    for _ in range(3): step()
    print(torch.cuda.memory_allocated(), torch.cuda.memory_reserved())
    time.sleep(0.2)
    """)  # fmt: skip

    last = agent_run.records(records.Sample)[-1]

    assert f"{last.allocated_bytes} {last.reserved_bytes}" == done.stdout.strip()
    assert words(agent_run) == {}


def test_phases_and_steps_are_those_of_the_loop(simcard, agent_run):
    run(simcard, agent_run, """
    for _ in range(3): step()
    model.eval()
    with torch.no_grad(): model(torch.randn(4, 512, device="cuda"))
    """)  # fmt: skip

    ended, open_ = spans(agent_run)
    steps = [b.step for b in agent_run.records(records.Begin) if b.phase == "forward"]

    assert ended == [(phase, None) for phase in ["forward", "backward", "optimizer"] * 3 + ["eval"]]
    assert open_ == []
    assert steps == [1, 2, 3]


def test_phase_peaks_are_those_a_script_measures_itself(simcard, agent_run):
    truth = run(simcard, agent_run, """
    def measured(part):
        torch.cuda.reset_peak_memory_stats()
        value = part()
        print(torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())
        return value
    for _ in range(4):
        x = torch.randn(64, 512, device="cuda")
        loss = measured(lambda: model(x)).sum()
        measured(loss.backward)
        measured(optimizer.step)
        optimizer.zero_grad()
    """, env={"GPUMEM_TUI_RUN": ""})  # fmt: skip
    run(simcard, agent_run, """
    for _ in range(4):
        x = torch.randn(64, 512, device="cuda")
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    """)  # fmt: skip

    measured = [tuple(map(int, line.split())) for line in truth.stdout.splitlines()]
    loads = {begin.span for begin in agent_run.records(records.Begin) if begin.phase == "load"}
    ends = [end for end in agent_run.records(records.End) if end.span not in loads]
    peaks = [(level[3], level[4]) for end in ends for level in end.levels]

    assert len(measured) == 12
    assert peaks == measured


USER = """
    import collections, random, warnings
    warnings.simplefilter("ignore")
    cuda, memory, card = torch.cuda, torch.cuda.memory, torch.accelerator
    resets = [getattr(module, name) for module in (cuda, memory, card) for name in (
        "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
        "reset_accumulated_memory_stats") if hasattr(module, name)]
    numbers = [getattr(module, name) for module in (cuda, memory, card) for name in (
        "max_memory_allocated", "max_memory_reserved", "max_memory_cached", "memory_allocated",
        "memory_reserved", "memory_cached") if hasattr(module, name)]
    stats = [cuda.memory_stats, memory.memory_stats, cuda.memory_stats_as_nested_dict, card.memory_stats]
    def text(value):
        if isinstance(value, dict): return {str(k): text(value[k]) for k in sorted(value, key=str)}
        return value
    print(len(resets), len(numbers))
    for seed in range(10):
        random.seed(seed); held = []; cuda.empty_cache()
        for turn in range(30):
            act = random.random()
            if act < 0.45: held.append(torch.empty(random.randrange(1, 40) << 16, device="cuda"))
            elif act < 0.6 and held: held.pop(random.randrange(len(held)))
            elif act < 0.8: step()
            elif act < 0.85: cuda.empty_cache()
            else: random.choice(resets)()
            told = random.choice(stats)()
            print(seed, turn, *[read() for read in numbers], text(told))
            if random.random() < 0.1: print(cuda.memory_summary())
"""


def test_whatever_entry_point_a_user_reads_or_resets_by_shows_what_it_would_without_us(simcard, agent_run):
    bare = run(simcard, agent_run, USER, env={"GPUMEM_TUI_RUN": ""})
    monitored = run(simcard, agent_run, USER)
    entries, readings = map(int, bare.stdout.splitlines()[0].split())

    assert (entries, readings) >= (9, 14)
    assert monitored.stdout.splitlines() == bare.stdout.splitlines()
    assert len(agent_run.records(records.End)) > 100


def test_an_error_in_a_phase_marks_its_span_and_leaves_the_stack_right(simcard, agent_run):
    done = run(simcard, agent_run, """
    class Bad(nn.Module):
        def __init__(self):
            super().__init__(); self.inner = nn.Linear(8, 8)
        def forward(self, x):
            self.inner(x)
            return torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    bad = Bad().cuda()
    try: bad(torch.randn(2, 8, device="cuda"))
    except torch.OutOfMemoryError as error: print(type(error).__name__)
    step()
    """)  # fmt: skip

    ended, open_ = spans(agent_run)
    (failure,) = agent_run.records(records.Failure)

    assert ended == [
        ("forward", "OutOfMemoryError"), ("forward", None), ("backward", None), ("optimizer", None)
    ]  # fmt: skip
    assert open_ == []
    assert failure.phase == "forward"
    assert (agent_run.path / failure.path).exists()
    assert done.stdout.startswith("OutOfMemoryError")


@pytest.mark.parametrize(
    ("setting", "code"),
    [
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "caching disabled"),
        ({"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}, None),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, None),
    ],
)
def test_odd_allocators_are_read_or_said_to_be_unreadable(simcard, agent_run, setting, code):
    run(simcard, agent_run, "\n    step()\n    import time; time.sleep(0.1)", env=setting)

    samples = [s for s in agent_run.records(records.Sample) if s.reserved_bytes]

    assert (code in words(agent_run)) == (code is not None)
    assert bool(samples) == (code is None)


PYTHON_POOL = """
    import ctypes
    runtime = ctypes.CDLL(None)
    MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    def malloc(size, device, stream):
        pointer = ctypes.c_void_p(); runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value
    def free(pointer, size, device, stream):
        runtime.cudaFree(ctypes.c_void_p(pointer))
    malloc, free = MALLOC(malloc), FREE(free)
    own = torch._C._cuda_customAllocator(
        ctypes.cast(malloc, ctypes.c_void_p).value, ctypes.cast(free, ctypes.c_void_p).value)
    pool = torch.cuda.MemPool(own)
"""


def test_an_allocator_that_re_enters_python_does_not_hang_and_is_said(simcard, agent_run):
    run(simcard, agent_run, PYTHON_POOL + """
    for turn in range(300):
        with torch.cuda.use_mem_pool(pool):
            held = [torch.empty((turn % 50 + 1) << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
        del held
        if turn % 20 == 0: step(); torch.cuda.empty_cache()
    """, timeout=60, env={"GPUMEM_TUI_HERTZ": "100"})  # fmt: skip

    assert "custom allocator" in words(agent_run)
    assert agent_run.records(records.End)[-1].levels != []


def test_a_device_is_identified_by_its_uuid_whatever_cuda_calls_it(make_simcard, agent_run):
    simcard = make_simcard("8GiB", "8GiB", "8GiB")
    run(simcard, agent_run, "\n    step()\n", visible="2,0")

    known = {d.ordinal: d.uuid for d in agent_run.records(records.Device)}

    assert sorted(known) == [0, 1]
    assert known[0].endswith("2")
    assert known[1].endswith("0")


def test_a_device_made_visible_by_its_uuid_is_that_device(make_simcard, agent_run):
    simcard = make_simcard("8GiB", "8GiB")
    wanted = simcard.status().devices[1].uuid
    run(simcard, agent_run, "\n    step()\n", visible=wanted)

    (known,) = agent_run.records(records.Device)

    assert (known.ordinal, "GPU-" + known.uuid, known.identified_by) == (0, wanted, "uuid")


PLUGGABLE = """
#include <stddef.h>
int cudaMalloc(void **, size_t); int cudaFree(void *);
void *take(size_t size, int device, void *stream) { void *p = 0; cudaMalloc(&p, size); return p; }
void give(void *p, size_t size, int device, void *stream) { cudaFree(p); }
"""


def test_a_pluggable_allocator_has_no_counters_and_that_is_said(simcard, agent_run, tmp_path):
    source, library = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text(PLUGGABLE)
    subprocess.run([*find_compiler().argv, "-shared", "-fPIC", "-o", library, source], check=True)
    code = f"""
    import torch
    own = torch.cuda.memory.CUDAPluggableAllocator({str(library)!r}, "take", "give")
    torch.cuda.memory.change_current_allocator(own)
    x = torch.nn.Linear(8, 8).cuda()
    import time; time.sleep(0.2)
    x.half(); x(torch.empty(2, 8, device="cuda", dtype=torch.half)).sum().backward()
    """
    simcard.python(code, env=agent_run.environment())

    assert agent_run.records(records.Torch)[0].allocator == "pluggable"
    assert any("PyTorch counters unavailable" in text for text in words(agent_run).values())
    assert agent_run.records(records.Sample) == []


def test_processes_that_never_use_the_card_stay_silent(simcard, agent_run):
    run(simcard, agent_run, """
    import multiprocessing as mp
    from torch.utils.data import DataLoader
    if __name__ == "__main__":
        step()
        for batch in DataLoader(range(64), batch_size=8, num_workers=2): pass
    """)  # fmt: skip

    assert len(agent_run.writers()) == 1


def test_spawned_and_forked_children_that_use_the_card_have_journals_of_their_own(
    simcard, agent_run, tmp_path
):
    script = tmp_path / "children.py"
    script.write_text(
        "import multiprocessing as mp, sys, time, torch\n"
        "def child():\n"
        "    torch.empty(1 << 20, device='cuda'); time.sleep(0.1)\n"
        "if __name__ == '__main__':\n"
        "    for how in ('fork', 'spawn', 'forkserver'):\n"
        "        c = mp.get_context(how).Process(target=child); c.start(); c.join(); print(c.exitcode)\n"
        "    torch.empty(1 << 20, device='cuda')\n"
    )
    done = simcard.python(script, env=agent_run.environment())

    assert done.stdout.split() == ["0", "0", "0"]
    assert len(agent_run.writers()) == 4
    assert len(agent_run.records(records.Bye)) == 4
